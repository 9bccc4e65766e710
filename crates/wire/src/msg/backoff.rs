//! Backoffs: an OSD asks a client to hold operations on a range of objects.

use crate::macros::message;
use base::{Epoch, HObject, SpgId};

message! {
    /// `MOSDBackoff`: begins, acknowledges or ends a backoff of the objects from `begin` (inclusive) to `end`
    /// (exclusive). The OSD chooses `id`.
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
    /// The OSD asks the client to hold operations.
    pub const BLOCK: u8 = 1;
    /// The client acknowledges a block.
    pub const ACK_BLOCK: u8 = 2;
    /// The OSD releases the operations.
    pub const UNBLOCK: u8 = 3;
}
