//! Peering messages between OSDs: notify, query, info, leases.

use crate::macros::message;
use crate::types::{PgInfo, PgLease, PgLeaseAck, PgNotify, PgQuery};
use base::{Epoch, SpgId};

message! {
    /// `MOSDPGNotify2`.
    MOsdPgNotify2 = 130, 1, 1 {
        spgid: SpgId,
        notify: PgNotify,
    }

    /// `MOSDPGQuery2`.
    MOsdPgQuery2 = 131, 1, 1 {
        spgid: SpgId,
        query: PgQuery,
    }

    /// `MOSDPGInfo2`.
    MOsdPgInfo2 = 132, 1, 1 {
        spgid: SpgId,
        epoch_sent: Epoch,
        min_epoch: Epoch,
        info: PgInfo,
        lease: Option<PgLease>,
        lease_ack: Option<PgLeaseAck>,
    }

    /// `MOSDPGLease`.
    MOsdPgLease = 133, 1, 1 {
        epoch: Epoch,
        spgid: SpgId,
        lease: PgLease,
    }

    /// `MOSDPGLeaseAck`.
    MOsdPgLeaseAck = 134, 1, 1 {
        epoch: Epoch,
        spgid: SpgId,
        lease_ack: PgLeaseAck,
    }
}
