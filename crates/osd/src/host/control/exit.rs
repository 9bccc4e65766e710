//! The end of the OSD, for those who wait for it.

use super::ControlHost;
use crate::host::ending::Ending;
use std::cell::{Cell, RefCell};
use tokio::sync::Notify;

/// The end of the OSD; see the module.
pub(super) struct Exit {
    ending: Ending,
    done: Notify,
    finished: Cell<bool>,
    reason: RefCell<Option<String>>,
}

impl Exit {
    /// An OSD that runs.
    pub(super) fn new(ending: Ending) -> Self {
        Self { ending, done: Notify::new(), finished: Cell::new(false), reason: RefCell::default() }
    }

    /// Starts the time limit of the end.
    pub(super) fn arm(&self) {
        self.ending.arm();
    }

    /// Sets the reason why the OSD ends on its own.
    pub(super) fn set_reason(&self, why: String) {
        *self.reason.borrow_mut() = Some(why);
    }

    /// Tells those who wait that the OSD has left the cluster.
    pub(super) fn finish(&self) {
        self.finished.set(true);
        self.done.notify_waiters();
        self.done.notify_one();
    }
}

impl ControlHost {
    /// Reason why the OSD ends on its own, once it must.
    pub(in crate::host) fn exit_reason(&self) -> Option<String> {
        self.exit.reason.borrow().clone()
    }

    /// Reason of the store's failure, if it failed.
    pub(in crate::host) fn store_failure(&self) -> Option<String> {
        self.core.borrow().failure().map(str::to_owned)
    }

    /// Waits until the OSD has left the cluster.
    pub(in crate::host) async fn finished(&self) {
        while !self.exit.finished.get() {
            self.exit.done.notified().await;
        }
    }

    /// Begins a clean stop.
    pub(in crate::host) fn stop(&self) {
        self.with(|core, now| core.leave(now));
        let links = self.links.borrow().clone();
        if let Some(l) = links {
            l.shutdown();
        }
    }
}
