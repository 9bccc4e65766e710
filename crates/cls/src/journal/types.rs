//! Encodings of class `journal`: `cls_journal_types.h`.

use bytes::Bytes;
use wire::codec::Result;
use wire::{Decode, Encode, Reader, Writer};

/// State of a client that does not keep tags from expiring.
pub(super) const DISCONNECTED: u8 = 1;

/// `ObjectPosition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    object: u64,
    pub(super) tag_tid: u64,
    pub(super) entry_tid: u64,
}

/// `ObjectSetPosition`.
pub(super) fn decode_positions(r: &mut Reader<'_>) -> Result<Vec<Position>> {
    r.versioned("ObjectSetPosition", 1, |r, _| {
        r.vec_with("ObjectPosition", |r| {
            r.versioned("ObjectPosition", 1, |r, _| {
                Ok(Position { object: r.u64()?, tag_tid: r.u64()?, entry_tid: r.u64()? })
            })
        })
    })
}

fn encode_positions(all: &[Position], w: &mut Writer) {
    w.versioned(1, 1, |w| {
        w.seq(all.iter(), |w, p| {
            w.versioned(1, 1, |w| {
                w.u64(p.object);
                w.u64(p.tag_tid);
                w.u64(p.entry_tid);
            });
        });
    });
}

/// `Client`: a reader of the journal and its position.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) id: Bytes,
    pub(super) data: Bytes,
    pub(super) commit: Vec<Position>,
    pub(super) state: u8,
}

impl Encode for Client {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.id);
            w.blob(&self.data);
            encode_positions(&self.commit, w);
            w.u8(self.state);
        });
    }
}
impl Decode for Client {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("cls::journal::Client", 1, |r, _| {
            Ok(Self { id: r.blob()?, data: r.blob()?, commit: decode_positions(r)?, state: r.u8()? })
        })
    }
}

/// `Tag`: a sequence of entries by one writer. Tags of a class form a sequence.
#[derive(Clone, Debug)]
pub(super) struct Tag {
    pub(super) tid: u64,
    pub(super) class: u64,
    pub(super) data: Bytes,
}

impl Encode for Tag {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u64(self.tid);
            w.u64(self.class);
            w.blob(&self.data);
        });
    }
}
impl Decode for Tag {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("cls::journal::Tag", 1, |r, _| Ok(Self { tid: r.u64()?, class: r.u64()?, data: r.blob()? }))
    }
}
