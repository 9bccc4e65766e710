//! What PGs of one name on different OSDs tell each other: a message of our own, since all OSDs of a cluster are ours.
//!
//! Here is only the envelope, which any OSD can route; the body is the PG machine's. Bulk data is in the frame's data
//! segment and is never copied on its way. Small ones that leave in one turn, mostly acknowledgements, share a frame
//! ([`MPgPeers`]): a frame costs more than what they say.

use crate::codec::{DecodeError, Reader, Result, Writer};
use crate::frame::WireMessage;
use base::{Epoch, ShardId, SpgId};
use bytes::Bytes;

/// See the module. Receivers keep it until they have the sender's map, and drop it if their interval is newer than it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MPgPeer {
    /// The PG, as the receiver's copy names it.
    pub spg: SpgId,
    /// The sender's shard of it.
    pub from: ShardId,
    /// The sender's map.
    pub epoch: Epoch,
    /// The sender's instance: `up_from` of its OSD in that map.
    pub up_from: Epoch,
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
    /// Version 1 did not name the sender's instance, version 2 not its shard. OSDs of a cluster run one version of this, or refuse each other's messages.
    const VERSION: u16 = 3;
    const COMPAT: u16 = 3;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.spg);
        w.put(&self.from);
        w.put(&self.epoch);
        w.put(&self.up_from);
        w.raw(&self.body);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self> {
        named_instance(version)?;
        Ok(Self {
            spg: r.get()?,
            from: r.get()?,
            epoch: r.get()?,
            up_from: r.get()?,
            body: r.rest(),
            data: data.clone(),
        })
    }

    fn data(&self) -> Bytes {
        self.data.clone()
    }

    fn front_len_hint(&self) -> usize {
        ENVELOPE + self.body.len()
    }
}

/// Refuses messages of a version that does not name the sender's instance and shard.
fn named_instance(version: u16) -> Result<()> {
    if version < 3 {
        return Err(DecodeError::BadValue { what: "version of a message between PGs", value: version.into() });
    }
    Ok(())
}

/// Bytes of a message beside its body, about.
const ENVELOPE: usize = 33;

/// Messages without bulk data, in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MPgPeers {
    /// The messages.
    pub items: Vec<MPgPeer>,
}

impl WireMessage for MPgPeers {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4201;
    /// Version 1 did not name the sender's instance, version 2 not its shard. OSDs of a cluster run one version of this, or refuse each other's messages.
    const VERSION: u16 = 3;
    const COMPAT: u16 = 3;

    fn encode_front(&self, w: &mut Writer) {
        w.seq(self.items.iter(), |w, m| {
            w.put(&m.spg);
            w.put(&m.from);
            w.put(&m.epoch);
            w.put(&m.up_from);
            w.blob(&m.body);
        });
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self> {
        named_instance(version)?;
        let item = |r: &mut Reader<'_>| {
            Ok(MPgPeer {
                spg: r.get()?,
                from: r.get()?,
                epoch: r.get()?,
                up_from: r.get()?,
                body: r.blob()?,
                data: Bytes::new(),
            })
        };
        Ok(Self { items: r.vec_with("messages of PGs", item)? })
    }

    fn front_len_hint(&self) -> usize {
        self.items.iter().map(|m| ENVELOPE + m.body.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Features;
    use base::PgId;

    #[test]
    fn bundled_messages_keep_their_order_and_a_cut_one_is_refused() {
        let item = |n: u32| MPgPeer {
            spg: PgId::new(3, n).into(),
            from: ShardId::NONE,
            epoch: Epoch(n),
            up_from: Epoch(n / 2),
            body: Bytes::from(vec![n as u8; n as usize]),
            data: Bytes::new(),
        };
        let all = MPgPeers { items: (0..5).map(item).collect() };
        let m = all.to_message(Features::PACIFIC);
        assert_eq!(MPgPeers::from_message(&m).unwrap(), all);
        let mut old = m.clone();
        old.header.version = 2;
        assert!(MPgPeers::from_message(&old).is_err() && MPgPeer::from_message(&old).is_err());
        for n in 0..m.front.len() {
            let cut = crate::Message { front: m.front.slice(..n), ..m.clone() };
            assert!(MPgPeers::from_message(&cut).is_err());
        }
    }
}
