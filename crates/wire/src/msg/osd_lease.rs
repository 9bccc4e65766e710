//! `MOsdLease`: renews the read lease between two OSDs. Belemnite's own message; Ceph has a lease per PG.
//!
//! The OSD that leads PGs requests a lease from another OSD of their acting sets, which grants it. One exchange covers
//! all PGs that the two OSDs share.

use crate::codec::{Reader, Result, Writer};
use crate::frame::WireMessage;
use crate::types::Span;
use base::Epoch;
use base::id::Uuid;
use bytes::Bytes;

/// Values of [`MOsdLease::op`].
pub mod lease_op {
    /// The primary requests a lease.
    pub const REQUEST: u8 = 1;
    /// The replica grants the lease.
    pub const GRANT: u8 = 2;
}

/// Request or grant of a read lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MOsdLease {
    /// Cluster id.
    pub fsid: Uuid,
    /// [`lease_op`].
    pub op: u8,
    /// Map epoch of the sender. A grant counts once its receiver has processed this epoch.
    pub map_epoch: Epoch,
    /// Epoch in which the sender came up: messages for an earlier instance are dropped.
    pub up_from: Epoch,
    /// `up_from` of the requesting OSD, as in its request.
    pub asker_up_from: Epoch,
    /// Monotonic clock of the requesting OSD when it sent the request; the lease starts at this time.
    pub sent: Span,
    /// Duration of the lease. In a request: the longest duration that the requesting OSD will count.
    pub lease: Span,
}

impl WireMessage for MOsdLease {
    const KIND: u16 = 0x4b10;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = 196;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.u8(self.op);
        w.put(&self.map_epoch);
        w.put(&self.up_from);
        w.put(&self.asker_up_from);
        w.put(&self.sent);
        w.put(&self.lease);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        Ok(Self {
            fsid: r.get()?,
            op: r.u8()?,
            map_epoch: r.get()?,
            up_from: r.get()?,
            asker_up_from: r.get()?,
            sent: r.get()?,
            lease: r.get()?,
        })
    }
}
