//! Operations as sent to OSDs, and the objects and blocks of each thread.

use base::rng::Rng;
use bytes::Bytes;
use wire::msg::{OpCode, OsdOp};
use wire::{Features, Writer};

/// Largest block in bytes: the most that every OSD accepts in one message.
pub const BLOCK_MAX: u64 = 64 << 20;
/// Bytes of random data; the contents of unverified blocks are slices of it.
const POOL: usize = 1 << 20;

/// Objects of a load, distributed over its threads: thread `t` of `n` has objects `t`, `t + n`, `t + 2n`, …
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// Prefix of each name.
    pub prefix: String,
    /// Names end in sixteen hexadecimal digits, as an image's data objects do, instead of a decimal number.
    pub image: bool,
    /// Number of objects of all threads.
    pub total: u64,
    /// Size of an object in bytes.
    pub size: u64,
    /// Size of a block in bytes.
    pub block: u64,
    /// Index of this thread.
    pub thread: u64,
    /// Number of threads.
    pub threads: u64,
}

/// Location of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the object.
    pub object: u64,
    /// Offset of the block in the object.
    pub offset: u64,
    /// Number of the block in the whole load.
    pub number: u64,
}

impl Objects {
    /// Number of objects of this thread.
    #[must_use]
    pub fn own(&self) -> u64 {
        (self.total + self.threads - 1 - self.thread) / self.threads
    }

    /// Number of this thread's object `i`.
    #[must_use]
    pub fn object(&self, i: u64) -> u64 {
        i * self.threads + self.thread
    }

    /// Number of blocks in an object.
    #[must_use]
    pub fn per_object(&self) -> u64 {
        (self.size / self.block).max(1)
    }

    /// Number of blocks of this thread.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.own() * self.per_object()
    }

    /// Location of this thread's block `i`.
    #[must_use]
    pub fn place(&self, i: u64) -> Place {
        let per = self.per_object();
        let object = self.object(i / per);
        Place { object, offset: i % per * self.block, number: object * per + i % per }
    }

    /// Location of a block by its number in the whole load.
    #[must_use]
    pub fn place_of(&self, number: u64) -> Place {
        let per = self.per_object();
        Place { object: number / per, offset: number % per * self.block, number }
    }

    /// Name of an object.
    #[must_use]
    pub fn name(&self, object: u64) -> Bytes {
        if self.image {
            format!("{}.{object:016x}", self.prefix).into()
        } else {
            format!("{}_{object}", self.prefix).into()
        }
    }
}

/// A buffer of random bytes; each write takes a random slice.
#[derive(Clone, Debug)]
pub struct Noise {
    bytes: Bytes,
}

impl Noise {
    /// Makes a buffer for slices of up to `len` bytes.
    #[must_use]
    pub fn new(len: u64, rng: &mut Rng) -> Self {
        Self { bytes: rng.bytes(POOL + len as usize).into() }
    }

    /// A slice at a random place.
    #[must_use]
    pub fn slice(&self, len: u64, rng: &mut Rng) -> Bytes {
        let at = rng.below((POOL / 64) as u64) as usize * 64;
        self.bytes.slice(at..at + len as usize)
    }
}

/// Reads a block.
#[must_use]
pub fn read(offset: u64, len: u64) -> OsdOp {
    OsdOp::with_extent(OpCode::READ, offset, len, Bytes::new())
}

/// Writes a block, with `WRITEFULL` if it is as large as the object.
#[must_use]
pub fn write(offset: u64, data: Bytes, object_size: u64) -> OsdOp {
    let len = data.len() as u64;
    let code = if offset == 0 && len == object_size { OpCode::WRITEFULL } else { OpCode::WRITE };
    OsdOp::with_extent(code, offset, len, data)
}

/// Writes a piece of an object while filling; the first piece replaces the object.
#[must_use]
pub fn refill(offset: u64, data: Bytes) -> OsdOp {
    let len = data.len() as u64;
    let code = if offset == 0 { OpCode::WRITEFULL } else { OpCode::WRITE };
    OsdOp::with_extent(code, offset, len, data)
}

/// Greatest common divisor.
#[must_use]
pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn key(i: u64) -> String {
    format!("key.{i:012}")
}

/// Sets keys, each to a value of `len` bytes.
#[must_use]
pub fn omap_set(keys: std::ops::Range<u64>, len: u64, noise: &Noise, rng: &mut Rng) -> OsdOp {
    let mut w = Writer::new(Features::PACIFIC);
    w.u32((keys.end - keys.start) as u32);
    for k in keys {
        w.blob(key(k).as_bytes());
        w.blob(&noise.slice(len, rng));
    }
    OsdOp::with_indata(OpCode::OMAPSETVALS, w.into_bytes())
}

/// Reads the value of a key.
#[must_use]
pub fn omap_get(k: u64) -> OsdOp {
    let mut w = Writer::new(Features::PACIFIC);
    w.u32(1);
    w.blob(key(k).as_bytes());
    OsdOp::with_indata(OpCode::OMAPGETVALSBYKEYS, w.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_out_all_blocks() {
        let of = |thread| Objects {
            prefix: "o".into(),
            image: false,
            total: 7,
            size: 4096 * 3 + 100,
            block: 4096,
            thread,
            threads: 3,
        };
        let mut all: Vec<Place> = (0..3).flat_map(|t| (0..of(t).blocks()).map(move |i| of(t).place(i))).collect();
        all.sort_by_key(|p| p.number);
        assert_eq!(all.len(), 21);
        for (i, p) in all.iter().enumerate() {
            assert_eq!((p.number, p.object, p.offset), (i as u64, i as u64 / 3, i as u64 % 3 * 4096));
            assert_eq!(of(0).place_of(p.number), *p);
        }
        assert_eq!(of(1).name(12), "o_12");
        let image = Objects { image: true, prefix: "rbd_data.1".into(), ..of(0) };
        assert_eq!(image.name(26), "rbd_data.1.000000000000001a");
    }

    #[test]
    fn whole_objects_are_written_as_such() {
        assert_eq!(write(0, vec![0; 8].into(), 8).op, OpCode::WRITEFULL);
        assert_eq!(write(0, vec![0; 8].into(), 16).op, OpCode::WRITE);
        assert_eq!(write(8, vec![0; 8].into(), 16).extent().offset, 8);
    }
}
