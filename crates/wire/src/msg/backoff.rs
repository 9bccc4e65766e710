//! Backoffs: an OSD asks a client to hold operations on a range of objects.

use crate::macros::message;
use base::{Epoch, HObject, SpgId};

message! {
    /// `MOSDBackoff`.
    MOsdBackoff = 61, 1, 1 {
        pgid: SpgId,
        map_epoch: Epoch,
        /// [`backoff_op`].
        op: u8,
        id: u64,
        begin: HObject,
        end: HObject,
    }
}

/// Values of [`MOsdBackoff::op`].
pub mod backoff_op {
    /// OSD: hold operations.
    pub const BLOCK: u8 = 1;
    /// Client: held.
    pub const ACK_BLOCK: u8 = 2;
    /// OSD: go on.
    pub const UNBLOCK: u8 = 3;
}
