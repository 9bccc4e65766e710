//! Judgement of the device and its space; see [`crate::core::silence`] and [`crate::core::room`].

use super::ReactorHost;
use crate::core::room::{LOOK_EVERY, RoomLimits};
use crate::host::route::ToControl;
use base::Mono;
use std::cell::Cell;
use store::ObjectStore as _;

/// State of the judgement; see the module.
pub(super) struct Judged {
    limits: RoomLimits,
    /// The last result.
    short: Cell<bool>,
    /// Freed blocks always go back to the device (`bdev_enable_discard`).
    discard: Cell<bool>,
    /// Bytes written since.
    unjudged: Cell<usize>,
}

impl Judged {
    /// Judges with these limits.
    pub(super) fn new(limits: RoomLimits, discard: bool) -> Self {
        Self { limits, short: Cell::new(false), discard: Cell::new(discard), unjudged: Cell::new(0) }
    }

    /// True if there was too little space for growing writes.
    pub(super) fn is_short(&self) -> bool {
        self.short.get()
    }

    /// Bytes that the file system lacks for the holes of the file.
    pub(super) fn lacks(&self, room: Option<(u64, u64)>) -> u64 {
        self.limits.lacks(room)
    }

    /// Sets whether freed blocks always go back to the device.
    pub(super) fn set_discard(&self, discard: bool) {
        self.discard.set(discard);
    }
}

impl ReactorHost {
    /// Reports a device that does not answer, so that waiting clients are served by other OSDs.
    pub(super) fn watch_device(&self, now: Mono) {
        let oldest = self.disk.oldest().map(|at| now.since(at));
        let news = self.core.borrow_mut().judge_device(oldest);
        if let Some(o) = news {
            self.output(o);
        }
    }

    /// Counts written bytes, and judges the space after each [`LOOK_EVERY`] of them.
    pub(super) fn wrote(&self, bytes: usize) {
        self.judged.unjudged.set(self.judged.unjudged.get() + bytes);
        if self.judged.unjudged.get() >= LOOK_EVERY {
            self.judge_room();
        }
    }

    /// Judges the space of file system and store; see [`crate::core::room`].
    pub(super) fn judge_room(&self) {
        self.judged.unjudged.set(0);
        let room = self.device.room();
        let mut core = self.core.borrow_mut();
        let store = core.store_mut();
        let was = self.judged.short.get();
        let short = self.judged.limits.is_short(room, &store.statfs(), was);
        store.set_discard(self.judged.discard.get() || self.judged.limits.returns_blocks(room));
        store.set_short(short);
        drop(core);
        if self.judged.short.replace(short) != short {
            if short {
                let free = room.map(|(_, free)| free);
                tracing::warn!(
                    free,
                    "too little space: growing writes of clients wait (osd_file_min_free, osd_failsafe_full_ratio)"
                );
            }
            self.routes.control_surely(ToControl::Short(self.index, short));
        }
    }
}
