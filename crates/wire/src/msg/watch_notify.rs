//! Watch and notify events that an OSD sends to clients.

use crate::macros::{message, plain};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

message! {
    /// `MWatchNotify`: an event for a watcher or notifier. With [`watch_event::NOTIFY_COMPLETE`] the data segment has
    /// the watchers' answers, an encoded [`NotifyReply`], and `payload` is empty.
    MWatchNotify = 44, 3, 1 + data {
        /// Always 1.
        msg_ver: u8,
        /// [`watch_event`].
        opcode: u8,
        cookie: u64,
        ver: u64,
        notify_id: u64,
        payload: Bytes,
        return_code: i32 => 2,
        notifier_gid: u64 => 3,
    }
}

plain! {
    /// Data of a completed notify: answers by (client id, cookie), and the watchers that timed out.
    NotifyReply {
        acks: BTreeMap<(u64, u64), Bytes>,
        timeouts: BTreeSet<(u64, u64)>,
    }
}

/// Values of [`MWatchNotify::opcode`].
pub mod watch_event {
    /// A client sent a notify to the watcher.
    pub const NOTIFY: u8 = 1;
    /// The receiver's own notify is complete.
    pub const NOTIFY_COMPLETE: u8 = 2;
    /// The watch was disconnected.
    pub const DISCONNECT: u8 = 3;
}
