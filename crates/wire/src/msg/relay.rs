//! What monitors that do not lead tell the one that does: messages of our own, since all monitors of a cluster are ours. The
//! sessions of their clients are carried to the leader and its answers back; several sessions share a connection.

use crate::codec::{Reader, Result, Writer};
use crate::features::Features;
use crate::frame::{Message, MsgHeader, WireMessage};
use base::{AddrVec, AuthName, EntityKind, EntityName, Utime};
use bytes::Bytes;

/// A client has signed in at the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayOpen {
    /// Number of the session, chosen by the sender.
    pub conn: u64,
    /// Kind the client is served as.
    pub kind: EntityKind,
    /// Who it authenticated as.
    pub name: AuthName,
    /// Its instance.
    pub entity: EntityName,
    /// Addresses it says it listens on.
    pub addrs: AddrVec,
    /// Where its socket comes from, as text.
    pub socket: String,
    /// Features both sides have.
    pub features: Features,
    /// Its global id.
    pub global_id: u64,
    /// Caps at the monitor.
    pub caps: String,
    /// No caps are checked.
    pub allow_all: bool,
    /// End of its ticket.
    pub expires: Utime,
    /// Mark of the key that it proved. From version 2; none with method none.
    pub proved: Option<[u8; 16]>,
}

impl WireMessage for MRelayOpen {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4300;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u64(self.conn);
        w.u8(self.kind.0);
        w.put(&self.name);
        w.put(&self.entity);
        w.put(&self.addrs);
        w.string(&self.socket);
        w.u64(self.features.0);
        w.u64(self.global_id);
        w.string(&self.caps);
        w.bool(self.allow_all);
        w.put(&self.expires);
        w.bool(self.proved.is_some());
        w.raw(&self.proved.unwrap_or_default());
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self> {
        let mut me = Self {
            conn: r.u64()?,
            kind: EntityKind(r.u8()?),
            name: r.get()?,
            entity: r.get()?,
            addrs: r.get()?,
            socket: r.get()?,
            features: Features(r.u64()?),
            global_id: r.u64()?,
            caps: r.get()?,
            allow_all: r.bool()?,
            expires: r.get()?,
            proved: None,
        };
        if version >= 2 {
            let known = r.bool()?;
            let mut mark = [0; 16];
            mark.iter_mut().zip(r.take(16, "mark of a key")?).for_each(|(d, b)| *d = *b);
            me.proved = known.then_some(mark);
        }
        Ok(me)
    }
}

/// A message of a session, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayMessage {
    /// Number of the session.
    pub conn: u64,
    /// What the client sent or is sent.
    pub message: Message,
}

impl WireMessage for MRelayMessage {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4301;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        let h = &self.message.header;
        w.u64(self.conn);
        w.u64(h.tid);
        for n in [h.kind, h.priority, h.version, h.compat, h.data_off] {
            w.u16(n);
        }
        w.blob(&self.message.front);
        w.blob(&self.message.middle);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, data: &Bytes) -> Result<Self> {
        let (conn, tid) = (r.u64()?, r.u64()?);
        let header = MsgHeader {
            seq: 0,
            tid,
            kind: r.u16()?,
            priority: r.u16()?,
            version: r.u16()?,
            compat: r.u16()?,
            data_off: r.u16()?,
        };
        Ok(Self { conn, message: Message { header, front: r.blob()?, middle: r.blob()?, data: data.clone() } })
    }

    fn data(&self) -> Bytes {
        self.message.data.clone()
    }

    fn front_len_hint(&self) -> usize {
        64 + self.message.front.len() + self.message.middle.len()
    }
}

/// A session has ended, or is to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayClose {
    /// Number of the session.
    pub conn: u64,
    /// Why, for the log.
    pub why: String,
}

impl WireMessage for MRelayClose {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4302;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u64(self.conn);
        w.string(&self.why);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        Ok(Self { conn: r.u64()?, why: r.get()? })
    }
}

/// Numbers for sessions: asked for with an empty range, given with a range that nobody else gets, or with an empty one by a leader
/// that has none at hand. Version 2: the sender tells what it has taken ([`MRelayTaken`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayIds {
    /// The first.
    pub first: u64,
    /// The one after the last.
    pub end: u64,
}

impl WireMessage for MRelayIds {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4303;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u64(self.first);
        w.u64(self.end);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        Ok(Self { first: r.u64()?, end: r.u64()? })
    }
}

/// A client signed in with its pending key, which is to become its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayKeyUsed {
    /// Who.
    pub name: AuthName,
    /// The key, encoded.
    pub key: Bytes,
}

impl WireMessage for MRelayKeyUsed {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4304;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.name);
        w.blob(&self.key);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        Ok(Self { name: r.get()?, key: r.blob()? })
    }
}

/// So much of what sessions sent has been taken, and may be followed by more. In either direction; bytes as
/// [`Message::cost`] counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayTaken {
    /// Numbers of sessions, and the bytes of each since the last message like this.
    pub taken: Vec<(u64, u64)>,
}

impl WireMessage for MRelayTaken {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4305;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.seq(self.taken.iter(), |w, (conn, bytes)| {
            w.u64(*conn);
            w.u64(*bytes);
        });
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        let n = r.count(16, "sessions")?;
        let mut taken = Vec::with_capacity(n);
        for _ in 0..n {
            taken.push((r.u64()?, r.u64()?));
        }
        Ok(Self { taken })
    }
}

/// The leader asks for another monitor's time, and the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MRelayClock {
    /// Number of the round of asking.
    pub round: u64,
    /// In the answer, the time there.
    pub here: Utime,
}

impl WireMessage for MRelayClock {
    /// Beyond all numbers of Ceph.
    const KIND: u16 = 0x4306;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u64(self.round);
        w.put(&self.here);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        Ok(Self { round: r.u64()?, here: r.get()? })
    }
}
