//! `MOsdLease`: renews the read leases that two OSDs share. Our own message; Ceph has one per PG.
//!
//! The leader of PGs asks, the other OSD of their acting sets answers. One exchange covers all PGs that both hold.

use crate::codec::{Reader, Result, Writer};
use crate::frame::WireMessage;
use crate::types::Span;
use base::Epoch;
use base::id::Uuid;
use bytes::Bytes;

/// Values of [`MOsdLease::op`].
pub mod lease_op {
    /// Asks for a lease.
    pub const REQUEST: u8 = 1;
    /// Grants it.
    pub const GRANT: u8 = 2;
}

/// Asks for a lease, or grants one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MOsdLease {
    /// Cluster.
    pub fsid: Uuid,
    /// [`lease_op`].
    pub op: u8,
    /// The sender's map. A grant counts once its receiver has processed this epoch.
    pub map_epoch: Epoch,
    /// Epoch in which the sender came up: answers meant for an earlier instance are dropped.
    pub up_from: Epoch,
    /// The asking side's `up_from`, as in its request.
    pub asker_up_from: Epoch,
    /// The asking side's monotonic clock when it sent the request. The lease counts from here.
    pub sent: Span,
    /// How long the lease lasts. In a request: how long the asking side will count it at most.
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
