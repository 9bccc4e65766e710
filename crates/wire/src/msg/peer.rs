//! What PGs of one name on different OSDs tell each other: a message of our own, since all OSDs of a cluster are ours.
//!
//! Here is only the envelope, which any OSD can route; the body is the PG machine's. Bulk data is in the frame's data
//! segment and is never copied on its way.

use crate::codec::{Reader, Result, Writer};
use crate::frame::WireMessage;
use base::{Epoch, SpgId};
use bytes::Bytes;

/// See the module. Receivers keep it until they have the sender's map, and drop it if their interval is newer than it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MPgPeer {
    /// The PG.
    pub spg: SpgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// For the PG machine.
    pub body: Bytes,
    /// Bulk data the body speaks of.
    pub data: Bytes,
}

impl MPgPeer {
    /// Bytes it holds in queues.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.body.len() + self.data.len()
    }
}

impl WireMessage for MPgPeer {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4200;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.spg);
        w.put(&self.epoch);
        w.raw(&self.body);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, data: &Bytes) -> Result<Self> {
        Ok(Self { spg: r.get()?, epoch: r.get()?, body: r.rest(), data: data.clone() })
    }

    fn data(&self) -> Bytes {
        self.data.clone()
    }

    fn front_len_hint(&self) -> usize {
        32 + self.body.len()
    }
}
