//! Encodings of class `fifo`: `cls_fifo_types.h`.

use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Result;
use wire::{Decode, Encode, Reader, Writer};

/// `objv`: instance of the queue and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) instance: Bytes,
    pub(super) ver: u64,
}

impl Encode for Version {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.instance);
            w.u64(self.ver);
        });
    }
}
impl Decode for Version {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("fifo::objv", 1, |r, _| Ok(Self { instance: r.blob()?, ver: r.u64()? }))
    }
}

/// `data_params`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Params {
    pub(super) part_max: u64,
    pub(super) entry_max: u64,
    /// A part that is longer than this is full.
    pub(super) full_at: u64,
}

impl Encode for Params {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u64(self.part_max);
            w.u64(self.entry_max);
            w.u64(self.full_at);
        });
    }
}
impl Decode for Params {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("fifo::data_params", 1, |r, _| {
            Ok(Self { part_max: r.u64()?, entry_max: r.u64()?, full_at: r.u64()? })
        })
    }
}

/// `journal_entry`: an operation that a client is about to do on a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalEntry {
    /// Operation: 1 create, 2 make it the head, 3 remove.
    op: i32,
    part: i64,
}

const OP_CREATE: i32 = 1;

impl JournalEntry {
    pub(super) fn is_valid(&self) -> bool {
        (OP_CREATE..=3).contains(&self.op) && self.part >= 0
    }
}

impl Encode for JournalEntry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.i32(self.op);
            w.i64(self.part);
            w.blob(b"");
        });
    }
}
impl Decode for JournalEntry {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("fifo::journal_entry", 1, |r, _| {
            let e = Self { op: r.i32()?, part: r.i64()? };
            r.blob()?;
            Ok(e)
        })
    }
}

/// `info`: contents of the meta object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) id: Bytes,
    pub(super) version: Version,
    pub(super) oid_prefix: Bytes,
    params: Params,
    pub(super) tail: i64,
    head: i64,
    pub(super) min_push: i64,
    pub(super) max_push: i64,
    /// Journal entries by operation and part.
    journal: BTreeMap<(i32, i64), JournalEntry>,
}

impl Info {
    pub(super) fn new(id: Bytes, version: Version, oid_prefix: Bytes, params: Params) -> Self {
        Self { id, version, oid_prefix, params, tail: 0, head: -1, min_push: 0, max_push: -1, journal: BTreeMap::new() }
    }

    pub(super) fn journal_add(&mut self, e: JournalEntry) {
        self.journal.entry((e.op, e.part)).or_insert(e);
    }

    pub(super) fn journal_remove(&mut self, e: &JournalEntry) {
        self.journal.remove(&(e.op, e.part));
    }

    pub(super) fn set_head(&mut self, head: i64) {
        self.head = head;
    }
}

impl Encode for Info {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.id);
            w.put(&self.version);
            w.blob(&self.oid_prefix);
            w.put(&self.params);
            for n in [self.tail, self.head, self.min_push, self.max_push] {
                w.i64(n);
            }
            w.put(&BTreeMap::<i64, Bytes>::new());
            w.blob(b"");
            w.seq(self.journal.values(), |w, e| {
                w.i64(e.part);
                w.put(e);
            });
        });
    }
}
/// Skips the tags of parts and of the head from older releases; they are written empty.
fn skip_tags<'a, 'b>(r: &'a mut Reader<'b>) -> Result<&'a mut Reader<'b>> {
    r.get::<BTreeMap<i64, Bytes>>()?;
    r.blob()?;
    Ok(r)
}

impl Decode for Info {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("fifo::info", 1, |r, _| {
            Ok(Self {
                id: r.blob()?,
                version: r.get()?,
                oid_prefix: r.blob()?,
                params: r.get()?,
                tail: r.i64()?,
                head: r.i64()?,
                min_push: r.i64()?,
                max_push: r.i64()?,
                journal: skip_tags(r)?
                    .vec_with("fifo::journal", |r| {
                        r.i64()?;
                        let e: JournalEntry = r.get()?;
                        Ok(((e.op, e.part), e))
                    })?
                    .into_iter()
                    .collect(),
            })
        })
    }
}
