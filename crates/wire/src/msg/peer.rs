//! Messages between the copies of a PG on different OSDs. Belemnite's own format, since all OSDs of a pool run
//! Belemnite.
//!
//! This is only the envelope, by which an OSD routes the message; the PG machine decodes the body. Bulk data is in the
//! data segment and never copied. Small messages that leave in one turn, mostly acknowledgements, share a frame
//! ([`MPgPeers`]), because a frame costs more than their contents.

use crate::codec::{DecodeError, Reader, Result, Writer};
use crate::frame::{Message, WireMessage};
use base::{Epoch, ShardId, SpgId, Summed};
use bytes::Bytes;
use std::sync::Arc;

/// Parts of the protocol between PGs that an OSD understands beyond version 4, and of the maps that it passes on.
///
/// An OSD announces it with its boot, as bits of its feature mask that Ceph's daemons do not use; the OSD map carries
/// the mask. A sender uses only what the receiver announces, and a receiver understands all that it announces. So OSDs
/// of neighbouring versions serve the same PG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerFeatures(u64);

impl PeerFeatures {
    /// Nothing beyond version 4.
    pub const NONE: Self = Self(0);
    /// Bulk metadata in the data segment; logs, missing sets and attributes in parts; refused parts of pushes; numbered
    /// messages that are repeated until they are heard.
    pub const PARTS: Self = Self(1 << 55);
    /// Members tell how large a transaction their log takes; descriptions of shards come in pages.
    pub const PAGES: Self = Self(1 << 54);
    /// A primary says that an interval has started only when no lease of an older one lasts.
    pub const STARTS: Self = Self(1 << 53);
    /// The OSD keeps primaries that are chosen by upmap in the maps that it passes on.
    pub const PRIMARIES: Self = Self(1 << 52);
    /// All that this build understands.
    pub const OURS: Self = Self(Self::PARTS.0 | Self::PAGES.0 | Self::STARTS.0 | Self::PRIMARIES.0);
    /// The bits of a feature mask that are reserved for this.
    const MASK: u64 = 0x1f << 51;

    /// The part of an OSD's feature mask in the OSD map that concerns these messages.
    #[must_use]
    pub const fn of_mask(mask: u64) -> Self {
        Self(mask & Self::MASK)
    }

    /// The bits that an OSD adds to its feature mask when it boots.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Parts that both understand.
    #[must_use]
    pub const fn and(self, o: Self) -> Self {
        Self(self.0 & o.0)
    }

    /// True if all of `what` is understood.
    #[must_use]
    pub const fn has(self, what: Self) -> bool {
        self.0 & what.0 == what.0
    }
}

/// Versions of the messages between PGs that an OSD speaks, as its boot metadata reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerVersions {
    /// The oldest version.
    pub oldest: u16,
    /// The newest version.
    pub newest: u16,
}

impl PeerVersions {
    /// The versions of this build.
    pub const OURS: Self = Self { oldest: MPgPeer::COMPAT, newest: MPgPeer::VERSION };
    /// Metadata fields of the oldest and of the newest version.
    pub const FIELDS: [&str; 2] = ["peer_protocol_oldest", "peer_protocol"];

    /// The versions in an OSD's metadata. OSDs that report none speak version 4 only.
    #[must_use]
    pub fn of_metadata(m: &std::collections::BTreeMap<String, String>) -> Self {
        let [oldest, newest] = Self::FIELDS.map(|f| m.get(f).and_then(|v| v.parse().ok()));
        match (oldest, newest) {
            (Some(oldest), Some(newest)) => Self { oldest, newest },
            _ => Self { oldest: 4, newest: 4 },
        }
    }

    /// True if OSDs with these versions understand each other.
    #[must_use]
    pub const fn meets(self, o: Self) -> bool {
        self.oldest <= o.newest && o.oldest <= self.newest
    }
}

/// A message between two shards of a PG. The receiver keeps it until it has the sender's map, and drops it if its
/// interval is newer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MPgPeer {
    /// The PG, with the receiver's shard.
    pub spg: SpgId,
    /// Shard of the sender.
    pub from: ShardId,
    /// Map epoch of the sender.
    pub epoch: Epoch,
    /// Instance of the sender: its OSD's `up_from` in that map.
    pub up_from: Epoch,
    /// Body, decoded by the PG machine.
    pub body: Bytes,
    /// Bulk data that the body refers to.
    pub data: Bytes,
    /// Checksums of the buffer that `data` is a slice of, if this process has summed it; see [`Message::sums`].
    pub sums: Option<Arc<Summed>>,
}

impl MPgPeer {
    /// Largest body in bytes. With the envelope it stays below the largest front segment of a connection.
    pub const BODY_MAX: usize = (64 << 20) - (64 << 10);
    /// Largest data segment in bytes: that of a connection.
    pub const DATA_MAX: usize = 128 << 20;

    /// Bytes that the message counts for in queues.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.body.len() + self.data.len()
    }
}

impl WireMessage for MPgPeer {
    /// Outside the range of Ceph's types.
    const KIND: u16 = 0x4200;
    /// Version 5 may have bodies that only OSDs with [`PeerFeatures`] get. Version 4 may defer writes. Version 3 sends
    /// every write to every shard, version 2 lacks the sender's shard, version 1 its instance; these are refused.
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.spg);
        w.put(&self.from);
        w.put(&self.epoch);
        w.put(&self.up_from);
        w.raw(&self.body);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self> {
        same_layout(version)?;
        Ok(Self {
            spg: r.get()?,
            from: r.get()?,
            epoch: r.get()?,
            up_from: r.get()?,
            body: r.rest(),
            data: data.clone(),
            sums: None,
        })
    }

    fn data(&self) -> Bytes {
        self.data.clone()
    }

    fn payload(&self) -> (Bytes, Bytes, Option<u32>) {
        (Bytes::new(), self.data.clone(), self.sums.as_ref().and_then(|s| s.crc_of(&self.data)))
    }

    fn from_message(m: &Message) -> Result<Self> {
        Self::check_compat(m)?;
        let peer = Self::decode_front(&mut Reader::shared(&m.front), m.header.version, &m.data)?;
        Ok(Self { sums: m.sums.clone(), ..peer })
    }

    fn front_len_hint(&self) -> usize {
        ENVELOPE + self.body.len()
    }
}

/// Refuses messages with an earlier layout of the envelope or the body.
fn same_layout(version: u16) -> Result<()> {
    if version < 4 {
        return Err(DecodeError::BadValue { what: "version of a message between PGs", value: version.into() });
    }
    Ok(())
}

/// Approximate length of a message without its body, in bytes.
const ENVELOPE: usize = 33;

/// A bundle of messages without bulk data, in the order of sending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MPgPeers {
    /// The messages.
    pub items: Vec<MPgPeer>,
}

impl WireMessage for MPgPeers {
    /// Outside the range of Ceph's types.
    const KIND: u16 = 0x4201;
    /// As of [`MPgPeer`].
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

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
        same_layout(version)?;
        let item = |r: &mut Reader<'_>| {
            Ok(MPgPeer {
                spg: r.get()?,
                from: r.get()?,
                epoch: r.get()?,
                up_from: r.get()?,
                body: r.blob()?,
                data: Bytes::new(),
                sums: None,
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
            sums: None,
        };
        let all = MPgPeers { items: (0..5).map(item).collect() };
        let m = all.to_message(Features::PACIFIC);
        assert_eq!(MPgPeers::from_message(&m).unwrap(), all);
        for version in 1..4 {
            let mut old = m.clone();
            old.header.version = version;
            assert!(MPgPeers::from_message(&old).is_err() && MPgPeer::from_message(&old).is_err());
        }
        for n in 0..m.front.len() {
            let cut = crate::Message { front: m.front.slice(..n), ..m.clone() };
            assert!(MPgPeers::from_message(&cut).is_err());
        }
    }
}
