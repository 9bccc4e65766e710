//! A user's bucket list, an object of class `user`: buckets with their sizes, and the sum of the sizes in the header.
//!
//! The recount of the sum goes through all buckets. It is a long call of the OSD, and with the parts of the simulator
//! it nearly always takes several turns.

use bytes::Bytes;
use wire::msg::{OpCode, OsdOp};
use wire::{Features, Reader, Writer};

/// Number of buckets that a list may have.
pub const BUCKETS: usize = 12;

/// One change of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a bucket; its size is the number of the write. A bucket that exists keeps its size.
    Add(u8),
    /// Sets the size of a bucket, if it exists, to the number of the write.
    Update(u8),
    /// Removes a bucket, if it exists.
    Remove(u8),
    /// Sets the sum to zero, whatever the sizes.
    Spoil,
    /// Counts the sum anew.
    Recount,
}

/// The state of a list; that of any other object is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Sizes of the buckets; 0: there is none.
    pub buckets: [u64; BUCKETS],
    /// The sum as stored.
    pub sum: u64,
}

fn versioned(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    w.versioned(1, 1, f);
    w.into_bytes()
}

fn name(bucket: u8) -> String {
    format!("b{bucket}")
}

fn key(w: &mut Writer, bucket: u8) {
    w.versioned(9, 8, |w| {
        w.string(&name(bucket));
        [&b"marker"[..], b"id", b""].iter().for_each(|f| w.blob(f));
    });
}

fn set(bucket: u8, size: u64, add: bool) -> OsdOp {
    let time = base::Utime { sec: 1, nsec: 0 };
    let input = versioned(|w| {
        w.u32(1);
        w.versioned(9, 5, |w| {
            w.blob(b"");
            w.u64(size);
            w.u32(time.sec);
            w.u64(1);
            key(w, bucket);
            w.u64(size);
            w.bool(false);
            w.put(&time);
        });
        w.bool(add);
        w.put(&time);
    });
    OsdOp::call("user", "set_buckets_info", &input)
}

/// The operation that reads the sum.
#[must_use]
pub fn read_op() -> OsdOp {
    OsdOp::call("user", "get_header", &versioned(|_| {}))
}

impl Change {
    /// The protocol's operation for the change of write `id`.
    #[must_use]
    pub fn op(&self, id: u64) -> OsdOp {
        match self {
            Self::Add(b) => set(*b, id, true),
            Self::Update(b) => set(*b, id, false),
            Self::Remove(b) => OsdOp::call("user", "remove_bucket", &versioned(|w| key(w, *b))),
            Self::Spoil => OsdOp::with_indata(OpCode::OMAPSETHEADER, Bytes::new()),
            Self::Recount => {
                OsdOp::call("user", "reset_user_stats", &versioned(|w| w.put(&base::Utime { sec: 2, nsec: 0 })))
            }
        }
    }

    /// True if the change leaves an absent object absent.
    #[must_use]
    pub fn needs_object(&self) -> bool {
        matches!(self, Self::Remove(_))
    }
}

impl Sums {
    /// The list after the change of write `id`.
    pub fn apply(&mut self, id: u64, c: &Change) {
        let (bucket, size) = match c {
            Change::Spoil => {
                self.sum = 0;
                return;
            }
            Change::Recount => {
                self.sum = self.buckets.iter().sum();
                return;
            }
            Change::Add(b) if self.buckets[usize::from(*b) % BUCKETS] > 0 => return,
            Change::Update(b) | Change::Remove(b) if self.buckets[usize::from(*b) % BUCKETS] == 0 => return,
            Change::Remove(b) => (b, 0),
            Change::Add(b) | Change::Update(b) => (b, id),
        };
        let kept = &mut self.buckets[usize::from(*bucket) % BUCKETS];
        self.sum = self.sum.wrapping_sub(*kept).wrapping_add(size);
        *kept = size;
    }

    /// Numbers that identify the list.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.buckets.iter().copied().chain([self.sum])
    }

    /// Takes a bucket from the omap of an answer; false if the entry is none.
    #[must_use]
    pub fn take(&mut self, key: &[u8], value: &Bytes) -> bool {
        let number = std::str::from_utf8(key).ok().and_then(|k| k.strip_prefix('b')?.parse::<usize>().ok());
        let size = Reader::shared(value)
            .versioned("cls_user_bucket_entry", 9, |r, _| {
                r.blob()?;
                r.u64()
            })
            .ok();
        match (number.and_then(|n| self.buckets.get_mut(n)), size) {
            (Some(b), Some(size)) => {
                *b = size;
                true
            }
            _ => false,
        }
    }

    /// Takes the sum from the answer to [`read_op`]; `None` if it is malformed.
    #[must_use]
    pub fn take_sum(&mut self, answer: &Bytes) -> Option<()> {
        let mut r = Reader::shared(answer);
        self.sum = r
            .versioned("cls_user_get_header_ret", 1, |r, _| {
                r.versioned("cls_user_header", 1, |r, _| {
                    r.versioned("cls_user_stats", 1, |r, _| {
                        r.u64()?;
                        r.u64()
                    })
                })
            })
            .ok()?;
        Some(())
    }
}
