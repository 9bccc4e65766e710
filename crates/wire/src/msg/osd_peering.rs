//! Peering messages between OSDs: notify, query, info, leases.

use crate::macros::message;
use crate::types::{PgInfo, PgLease, PgLeaseAck, PgNotify, PgQuery};
use base::{Epoch, SpgId};

message! {
    /// `MOSDPGNotify2`: an OSD reports the state of its PG to the primary.
    MOsdPgNotify2 = 130, 1, 1 {
        spgid: SpgId,
        notify: PgNotify,
    }

    /// `MOSDPGQuery2`: a primary queries info, log or missing objects of a PG on another OSD.
    MOsdPgQuery2 = 131, 1, 1 {
        spgid: SpgId,
        query: PgQuery,
    }

    /// `MOSDPGInfo2`: the state of a PG, from its primary at activation or from a replica in reply; may carry a lease.
    MOsdPgInfo2 = 132, 1, 1 {
        spgid: SpgId,
        epoch_sent: Epoch,
        min_epoch: Epoch,
        info: PgInfo,
        lease: Option<PgLease>,
        lease_ack: Option<PgLeaseAck>,
    }

    /// `MOSDPGLease`: a primary extends the time in which replicas may serve reads of a PG.
    MOsdPgLease = 133, 1, 1 {
        epoch: Epoch,
        spgid: SpgId,
        lease: PgLease,
    }

    /// `MOSDPGLeaseAck`: a replica acknowledges a lease.
    MOsdPgLeaseAck = 134, 1, 1 {
        epoch: Epoch,
        spgid: SpgId,
        lease_ack: PgLeaseAck,
    }
}
