//! `MOSDPing`: heartbeats between OSDs.

use crate::codec::{DecodeError, Reader, Result, Writer};
use crate::frame::WireMessage;
use crate::types::Span;
use base::id::Uuid;
use base::{Epoch, Utime};
use bytes::Bytes;

/// Padding that extends a ping to the 2000 bytes of `osd_heartbeat_min_size`, to detect paths that drop large packets.
pub const PING_PAD: u32 = 1971;

/// Largest accepted padding in bytes.
const PAD_MAX: u32 = 64 << 10;

/// Values of [`MOsdPing::op`].
pub mod ping_op {
    /// The receiver's map shows the sender of the ping as down.
    pub const YOU_DIED: u8 = 2;
    /// Heartbeat request.
    pub const PING: u8 = 4;
    /// Heartbeat reply.
    pub const PING_REPLY: u8 = 5;
}

/// `MOSDPing`: a heartbeat request or reply, or the notice that the receiver is marked down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MOsdPing {
    /// Cluster id.
    pub fsid: Uuid,
    /// Map epoch of the sender.
    pub map_epoch: Epoch,
    /// [`ping_op`].
    pub op: u8,
    /// Wall-clock time of the request.
    pub ping_stamp: Utime,
    /// Epoch in which the sender came up.
    pub up_from: Epoch,
    /// Monotonic clock of the requesting OSD when it sent the request; the reply repeats it.
    pub mono_ping_stamp: Span,
    /// Monotonic clock of the sender when it sent this message.
    pub mono_send_stamp: Span,
    /// Upper bound of the receiver's clock minus the sender's, once known.
    pub delta_ub: Option<Span>,
    /// Number of zero bytes at the end.
    pub pad: u32,
}

impl WireMessage for MOsdPing {
    const KIND: u16 = 70;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;
    const PRIORITY: u16 = 196;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.put(&self.map_epoch);
        w.u8(self.op);
        w.put(&self.ping_stamp);
        w.u32(self.pad);
        w.put(&self.up_from);
        w.put(&self.mono_ping_stamp);
        w.put(&self.mono_send_stamp);
        w.put(&self.delta_ub);
        const ZEROS: [u8; 2048] = [0; 2048];
        let mut left = self.pad as usize;
        while let Some(z) = ZEROS.get(..left.min(ZEROS.len())).filter(|z| !z.is_empty()) {
            w.raw(z);
            left -= z.len();
        }
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self> {
        let fsid = r.get()?;
        let map_epoch = r.get()?;
        let op = r.u8()?;
        let ping_stamp = r.get()?;
        let pad = r.u32()?;
        if pad > PAD_MAX {
            return Err(DecodeError::BadValue { what: "MOSDPing padding", value: pad.into() });
        }
        let mut m = Self { fsid, map_epoch, op, ping_stamp, pad, ..Self::default() };
        if version >= 5 {
            m.up_from = r.get()?;
            m.mono_ping_stamp = r.get()?;
            m.mono_send_stamp = r.get()?;
            m.delta_ub = r.get()?;
        }
        r.skip(pad as usize, "MOSDPing padding")?;
        Ok(m)
    }
}
