//! A load: kind and targets of its operations, concurrency or rate, and duration.
//!
//! | module | contents |
//! | --- | --- |
//! | `calls` | class calls that the generator can repeat: on an image header, and of a small S3 PUT |
//! | `content` | verifiable block contents: a header identifies the block, and the rest follows from it |
//! | `http` | reader of HTTP/1.1 replies: status, and a body that is counted and, up to a limit, kept |
//! | `ops` | operations as sent to OSDs, and the objects and blocks of each thread |
//! | `pace` | start times of operations in an open loop, at a fixed rate |
//! | `pattern` | order in which operations use blocks: sequential, random, or by Zipf's law |
//! | `recorder` | measurements of a run: latency histograms, and sums for each second |
//! | `sigv4` | signatures of S3 requests (AWS Signature Version 4, in the header `Authorization`) |
//! | `steps` | loads of whole objects and of file metadata: the next operation, and its object or file |

pub mod calls;
pub mod content;
pub mod http;
pub mod ops;
pub mod pace;
pub mod pattern;
pub mod recorder;
pub mod sigv4;
pub mod steps;

use pace::Arrivals;
use pattern::Order;
use std::time::Duration;

/// Kind of the operations.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Reads and writes blocks of objects.
    Data {
        /// Order in which blocks are used.
        order: Order,
        /// Percentage of reads.
        reads: u8,
    },
    /// Reads and sets keys of omaps; the block is a value's size.
    Omap {
        /// Keys of each object.
        keys: u64,
        /// Percentage of reads.
        reads: u8,
    },
    /// Repeats a class call of [`calls::NAMES`].
    Call(String),
}

/// A load.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Pool of the objects, or of the image's header.
    pub pool: String,
    /// Use the data objects of this image instead of objects made by the generator.
    pub image: Option<String>,
    /// Kind of the operations.
    pub work: Work,
    /// Measured time.
    pub time: Duration,
    /// Unmeasured load before the measured time.
    pub warm_up: Duration,
    /// Number of threads; each has a reactor.
    pub threads: usize,
    /// Number of clients, each with its own connections, over all threads.
    pub clients: usize,
    /// Operations in flight of each client.
    pub depth: usize,
    /// Operations started per second by all clients together, in an open loop; `None` for a closed loop.
    pub rate: Option<(f64, Arrivals)>,
    /// Bytes of an operation.
    pub block: u64,
    /// Number of objects.
    pub objects: u64,
    /// Size of an object in bytes.
    pub object_size: u64,
    /// Prefix of the objects' names.
    pub prefix: String,
    /// Write contents derived from the seed, verify every read, and verify all objects at the end.
    pub verify: bool,
    /// Seed of order and contents.
    pub seed: u64,
    /// Write all objects before the load.
    pub fill: bool,
    /// Keep the objects after the load.
    pub keep: bool,
    /// Processes whose CPU is measured over the measured time.
    pub cpu_of: Vec<u32>,
}

/// Reason why a load is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    /// A number that must be positive is zero.
    #[error("{0}: at least 1")]
    Zero(&'static str),
    /// The block is larger than an object.
    #[error("a block of {block} bytes does not fit in an object of {object_size} bytes")]
    BlockTooLarge {
        /// Bytes of a block.
        block: u64,
        /// Bytes of an object.
        object_size: u64,
    },
    /// The block is larger than a message may be.
    #[error("a block of {0} bytes; at most {max} bytes", max = ops::BLOCK_MAX)]
    BlockAboveLimit(u64),
    /// The load cannot be verified.
    #[error("only blocks of data of {min} bytes or more can be verified", min = content::BLOCK_MIN)]
    NotVerifiable,
    /// There are more threads than objects or clients.
    #[error("{threads} threads need as many {what}, and there are {have}")]
    TooFew {
        /// Threads.
        threads: usize,
        /// `objects` or `clients`.
        what: &'static str,
        /// Their number.
        have: u64,
    },
    /// A percentage above 100.
    #[error("{0} % reads: at most 100 %")]
    Percentage(u8),
    /// The class call does not exist.
    #[error("{0}: unknown class call")]
    NoCall(String),
}

impl Spec {
    /// Checks that the load can be run. Error: the first reason why not.
    pub fn check(&self) -> Result<(), BadSpec> {
        let zero = [
            ("threads", self.threads as u64),
            ("clients", self.clients as u64),
            ("depth", self.depth as u64),
            ("block", self.block),
            ("objects", self.objects),
            ("object size", self.object_size),
        ];
        if let Some((what, _)) = zero.iter().find(|(_, n)| *n == 0) {
            return Err(BadSpec::Zero(what));
        }
        if self.block > ops::BLOCK_MAX {
            return Err(BadSpec::BlockAboveLimit(self.block));
        }
        let data = matches!(self.work, Work::Data { .. });
        if data && self.block > self.object_size {
            return Err(BadSpec::BlockTooLarge { block: self.block, object_size: self.object_size });
        }
        if self.verify && (!data || self.block < content::BLOCK_MIN) {
            return Err(BadSpec::NotVerifiable);
        }
        for (what, have) in [("objects", self.objects), ("clients", self.clients as u64)] {
            if have < self.threads as u64 {
                return Err(BadSpec::TooFew { threads: self.threads, what, have });
            }
        }
        match &self.work {
            Work::Data { reads, .. } | Work::Omap { reads, .. } if *reads > 100 => Err(BadSpec::Percentage(*reads)),
            Work::Call(name) if calls::call(name, 0).is_none() => Err(BadSpec::NoCall(name.clone())),
            _ => Ok(()),
        }
    }

    /// Percentage of reads; a class call counts as a write if its name says so.
    #[must_use]
    pub fn reads(&self) -> u8 {
        match &self.work {
            Work::Data { reads, .. } | Work::Omap { reads, .. } => *reads,
            Work::Call(name) => {
                if name.contains(".get_") {
                    100
                } else {
                    0
                }
            }
        }
    }

    /// Whether each block is written exactly once, without a time limit.
    #[must_use]
    pub fn is_once(&self) -> bool {
        matches!(self.work, Work::Data { order: Order::Once, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_that_make_no_sense_are_refused() {
        let good = Spec {
            pool: "p".into(),
            image: None,
            work: Work::Data { order: Order::Random, reads: 50 },
            time: Duration::from_secs(1),
            warm_up: Duration::ZERO,
            threads: 2,
            clients: 2,
            depth: 4,
            rate: None,
            block: 4096,
            objects: 4,
            object_size: 1 << 20,
            prefix: "x".into(),
            verify: true,
            seed: 1,
            fill: true,
            keep: false,
            cpu_of: Vec::new(),
        };
        assert_eq!(good.check(), Ok(()));
        let with = |f: &dyn Fn(&mut Spec)| {
            let mut s = good.clone();
            f(&mut s);
            s.check().unwrap_err().to_string()
        };
        assert_eq!(with(&|s| s.depth = 0), "depth: at least 1");
        assert_eq!(with(&|s| s.block = 2 << 20), "a block of 2097152 bytes does not fit in an object of 1048576 bytes");
        assert_eq!(with(&|s| s.block = 32), "only blocks of data of 64 bytes or more can be verified");
        assert_eq!(with(&|s| s.objects = 1), "2 threads need as many objects, and there are 1");
        assert_eq!(with(&|s| s.work = Work::Data { order: Order::Random, reads: 101 }), "101 % reads: at most 100 %");
        let call = with(&|s| {
            s.verify = false;
            s.work = Work::Call("a.b".into());
        });
        assert_eq!(call, "a.b: unknown class call");
    }
}
