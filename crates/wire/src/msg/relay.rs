//! Messages between the leading monitor and the others. Belemnite's own format, since all monitors of a cluster run
//! Belemnite. They carry client sessions of the other monitors to the leader and its replies back; sessions share a
//! connection.

use crate::codec::{Reader, Result, Writer};
use crate::features::Features;
use crate::frame::{Message, MsgHeader, WireMessage};
use base::{AddrVec, AuthName, EntityKind, EntityName, Mono, Utime};
use bytes::Bytes;

fn put_mono(w: &mut Writer, t: Option<Mono>) {
    w.bool(t.is_some());
    w.u64(t.unwrap_or_default().0);
}

fn mono(r: &mut Reader<'_>) -> Result<Option<Mono>> {
    let known = r.bool()?;
    let t = r.u64()?;
    Ok(known.then_some(Mono(t)))
}

/// Opens a relayed session: a client has authenticated at the sending monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayOpen {
    /// Number of the session, chosen by the sending monitor.
    pub conn: u64,
    /// Entity type as which the client is served.
    pub kind: EntityKind,
    /// Authenticated name.
    pub name: AuthName,
    /// Entity with the client's number.
    pub entity: EntityName,
    /// Addresses in the client's ident, unverified.
    pub addrs: AddrVec,
    /// Peer address of the client's socket, as text.
    pub socket: String,
    /// Features of both sides.
    pub features: Features,
    /// Global id of the client.
    pub global_id: u64,
    /// Caps at the monitor.
    pub caps: String,
    /// Whether everything is allowed without a check of the caps.
    pub allow_all: bool,
    /// Expiry of the client's ticket.
    pub expires: Utime,
    /// Fingerprint of the key that the client proved. From version 2; `None` with method none.
    pub proved: Option<[u8; 16]>,
    /// Time at which the session opened, by the sender's monotonic clock. From version 3.
    pub opened: Option<Mono>,
    /// Time at which this message was sent, by the same clock. From version 3.
    pub sent: Option<Mono>,
}

impl WireMessage for MRelayOpen {
    /// Outside the range of Ceph's types.
    const KIND: u16 = 0x4300;
    const VERSION: u16 = 3;
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
        put_mono(w, self.opened);
        put_mono(w, self.sent);
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
            ..Self::default()
        };
        if version >= 2 {
            let known = r.bool()?;
            let mut mark = [0; 16];
            mark.iter_mut().zip(r.take(16, "mark of a key")?).for_each(|(d, b)| *d = *b);
            me.proved = known.then_some(mark);
        }
        if version >= 3 {
            (me.opened, me.sent) = (mono(r)?, mono(r)?);
        }
        Ok(me)
    }
}

/// A message of a relayed session, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayMessage {
    /// Number of the session.
    pub conn: u64,
    /// The message from or to the client.
    pub message: Message,
}

impl WireMessage for MRelayMessage {
    /// Outside the range of Ceph's types.
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
        Ok(Self {
            conn,
            message: Message { header, front: r.blob()?, middle: r.blob()?, data: data.clone(), ..Message::default() },
        })
    }

    fn data(&self) -> Bytes {
        self.message.data.clone()
    }

    fn front_len_hint(&self) -> usize {
        64 + self.message.front.len() + self.message.middle.len()
    }
}

/// Ends a relayed session: the client's connection has ended, or the leader wants it closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayClose {
    /// Number of the session.
    pub conn: u64,
    /// Reason, for the log.
    pub why: String,
}

impl WireMessage for MRelayClose {
    /// Outside the range of Ceph's types.
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

/// Range of global ids. A monitor requests one with an empty range. The leader replies with a range for this monitor
/// alone, or with an empty range if it has none at the moment. From version 2 on the sender reports handled bytes with
/// [`MRelayTaken`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayIds {
    /// First id of the range.
    pub first: u64,
    /// End of the range, exclusive.
    pub end: u64,
}

impl WireMessage for MRelayIds {
    /// Outside the range of Ceph's types.
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

/// Reports that a client authenticated with its pending key, which from then on is its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayKeyUsed {
    /// Name of the client.
    pub name: AuthName,
    /// Encoded key.
    pub key: Bytes,
}

impl WireMessage for MRelayKeyUsed {
    /// Outside the range of Ceph's types.
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

/// Flow control: bytes of relayed sessions that the sender has handled, so that as many more may follow. In either
/// direction; [`Message::cost`] counts the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MRelayTaken {
    /// Session numbers, each with the bytes handled since the last such message.
    pub taken: Vec<(u64, u64)>,
}

impl WireMessage for MRelayTaken {
    /// Outside the range of Ceph's types.
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

/// The leader's request for another monitor's clock, and the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MRelayClock {
    /// Number of the request, which the reply repeats.
    pub round: u64,
    /// In the reply: wall-clock time of the replying monitor.
    pub here: Utime,
    /// In the reply: time at which it was sent, by the replying monitor's monotonic clock. From version 2.
    pub sent: Option<Mono>,
}

impl WireMessage for MRelayClock {
    /// Outside the range of Ceph's types.
    const KIND: u16 = 0x4306;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u64(self.round);
        w.put(&self.here);
        put_mono(w, self.sent);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self> {
        let mut me = Self { round: r.u64()?, here: r.get()?, sent: None };
        if version >= 2 {
            me.sent = mono(r)?;
        }
        Ok(me)
    }
}
