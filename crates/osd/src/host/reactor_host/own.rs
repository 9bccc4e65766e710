//! The host's own transactions and reads, and failures of the store.

use super::ReactorHost;
use crate::core::own::Need;
use crate::host::route::ToControl;
use base::errno::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use store::ObjectStore as _;
use store::engine::Store;
use store::{Tag, Transaction};

/// Callers that wait for a transaction of the host or for a read; see the module.
#[derive(Default)]
pub(super) struct Own {
    waiters: RefCell<HashMap<Tag, tokio::sync::oneshot::Sender<Result<(), Errno>>>>,
}

impl Own {
    /// Tells the caller that waits for this transaction or read. Writes of maps have none.
    pub(super) fn done(&self, tag: Tag, result: Result<(), Errno>) {
        let w = self.waiters.borrow_mut().remove(&tag);
        if let Some(w) = w {
            // The waiter may have given up.
            let _ = w.send(result);
        }
    }
}

impl ReactorHost {
    /// Submits a transaction of the host after the earlier ones, without waiting for it.
    pub(in crate::host) fn submit(&self, t: Transaction) {
        self.core.borrow_mut().submit(t, Need::Must);
        self.pump();
    }

    /// Submits a transaction of the host and waits until it is durable.
    pub(in crate::host) async fn submit_and_wait(&self, t: Transaction) -> Result<(), Errno> {
        let (tx, rx) = tokio::sync::oneshot::channel();
        let tag = self.core.borrow_mut().submit(t, Need::May);
        self.own.waiters.borrow_mut().insert(tag, tx);
        self.pump();
        // The sender lives as long as this host.
        rx.await.unwrap_or(Err(base::errno::EIO))
    }

    /// Runs a read of the store, repeating it as long as it says `Wait`.
    pub(in crate::host) async fn read<T>(
        &self,
        f: impl Fn(&mut Store, Tag) -> Result<T, store::ReadError>,
    ) -> Result<T, store::ReadError> {
        let tag = self.core.borrow_mut().own_tag();
        loop {
            let rx = {
                let (tx, rx) = tokio::sync::oneshot::channel();
                let mut core = self.core.borrow_mut();
                let r = f(core.store_mut(), tag);
                if !matches!(r, Err(store::ReadError::Wait)) {
                    core.store_mut().release(tag);
                    return r;
                }
                self.own.waiters.borrow_mut().insert(tag, tx);
                rx
            };
            self.schedule();
            // The sender lives as long as this host.
            let _ = rx.await;
        }
    }

    /// Present size of the store in bytes.
    pub(in crate::host) fn store_size(&self) -> u64 {
        self.core.borrow().store().superblock().size()
    }

    /// Least size of a device in bytes into which the store can grow.
    pub(in crate::host) fn grows_from(&self) -> u64 {
        self.core.borrow().store().grows_from()
    }

    /// Brings the store to rest after all PGs are done, then reports that.
    pub(super) fn drained(&self) {
        let mut core = self.core.borrow_mut();
        if !core.has_failed() {
            core.store_mut().request_checkpoint();
            self.schedule();
        }
        self.routes.control_surely(ToControl::Stopped(self.index));
    }

    /// Stops waiting for the device, also in the disk engine.
    pub(in crate::host) fn let_go(&self) {
        self.disk.abandon();
    }

    /// True if the disk has nothing more to do.
    pub(in crate::host) fn is_idle(&self) -> bool {
        let core = self.core.borrow();
        core.has_failed() || core.store().is_idle()
    }
}
