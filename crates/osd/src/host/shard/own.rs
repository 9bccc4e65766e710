//! The host's own transactions and reads, and failures of the store and its device.

use super::ShardHost;
use crate::core::own::Need;
use crate::core::room::LOOK_EVERY;
use crate::core::silence::News;
use crate::host::route::ToControl;
use base::Mono;
use std::time::Duration;
use store::ObjectStore as _;
use store::engine::Store;
use store::{Tag, Transaction};

impl ShardHost {
    /// Submits a transaction of the host after the earlier ones, without waiting for it.
    pub(in crate::host) fn submit(&self, t: Transaction) {
        self.own.borrow_mut().push(t, Need::Must);
        self.submit_own();
    }

    /// Submits a transaction of the host and waits until it is durable.
    pub(in crate::host) async fn submit_and_wait(&self, t: Transaction) -> Result<(), base::errno::Errno> {
        let (tx, rx) = tokio::sync::oneshot::channel();
        let tag = self.own.borrow_mut().push(t, Need::May);
        self.waiters.borrow_mut().insert(tag, tx);
        self.submit_own();
        // The sender lives as long as this host.
        rx.await.unwrap_or(Err(base::errno::EIO))
    }

    /// Submits the host's transactions as far as the store is ready for them.
    pub(super) fn submit_own(&self) {
        let refused = self.own.borrow_mut().submit(&mut *self.store.borrow_mut());
        for r in refused {
            let w = self.waiters.borrow_mut().remove(&r.tag);
            match (w, r.need) {
                // The waiter may have given up.
                (Some(w), _) => _ = w.send(Err(r.errno)),
                (None, Need::Must) => self.store_failed(format!("cannot store maps ({})", base::errno::name(r.errno))),
                (None, Need::May) => {}
            }
        }
        self.schedule();
    }

    /// Runs a read of the store, repeating it as long as it says `Wait`.
    pub(in crate::host) async fn read<T>(
        &self,
        f: impl Fn(&mut Store, Tag) -> Result<T, store::ReadError>,
    ) -> Result<T, store::ReadError> {
        let tag = self.own.borrow_mut().tag();
        loop {
            let rx = {
                let (tx, rx) = tokio::sync::oneshot::channel();
                let r = f(&mut self.store.borrow_mut(), tag);
                if !matches!(r, Err(store::ReadError::Wait)) {
                    self.store.borrow_mut().release(tag);
                    return r;
                }
                self.waiters.borrow_mut().insert(tag, tx);
                rx
            };
            self.schedule();
            // The sender lives as long as this host.
            let _ = rx.await;
        }
    }

    /// Present size of the store in bytes.
    pub(in crate::host) fn store_size(&self) -> u64 {
        self.store.borrow().superblock().size()
    }

    /// Least size of a device in bytes into which the store can grow.
    pub(in crate::host) fn grows_from(&self) -> u64 {
        self.store.borrow().grows_from()
    }

    /// Brings the store to rest after all PGs are done, then reports that.
    pub(super) fn drained(&self) {
        if !self.failed.get() {
            self.store.borrow_mut().request_checkpoint();
            self.schedule();
        }
        self.routes.control_surely(ToControl::Stopped(self.index));
    }

    /// Reports once that this OSD's store has failed.
    pub(super) fn store_failed(&self, what: String) {
        if !self.failed.replace(true) {
            self.routes.control_surely(ToControl::StoreFailed(what));
        }
    }

    /// Reports a device that does not answer, so that waiting clients are served by other OSDs.
    pub(super) fn watch_device(&self, now: Mono) {
        let mut silence = self.judged.silence.get();
        let news = silence.judge(self.disk.oldest().map(|at| now.since(at)));
        self.judged.silence.set(silence);
        let what = |t: Duration| format!("a request has no answer for {} s", t.as_secs());
        match news {
            Some(News::Silent(t)) => self.routes.control_surely(ToControl::Silent(self.index, Some(what(t)))),
            Some(News::Answers) => self.routes.control_surely(ToControl::Silent(self.index, None)),
            Some(News::Failed(t)) => self.store_failed(what(t)),
            None => {}
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
        let mut store = self.store.borrow_mut();
        let was = self.judged.short.get();
        let short = self.judged.limits.is_short(room, &store.statfs(), was);
        store.set_discard(self.judged.discard.get() || self.judged.limits.returns_blocks(room));
        store.set_short(short);
        drop(store);
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

    /// Stops waiting for the device, also in the disk engine.
    pub(in crate::host) fn let_go(&self) {
        self.disk.abandon();
    }

    /// True if the disk has nothing more to do.
    pub(in crate::host) fn is_idle(&self) -> bool {
        self.failed.get() || self.store.borrow().is_idle()
    }
}
