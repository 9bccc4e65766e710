//! The host's own transactions and reads, and failures of the store.

use super::ReactorHost;
use crate::core::own::{Need, OwnQueue};
use crate::host::route::ToControl;
use base::errno::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use store::ObjectStore as _;
use store::engine::Store;
use store::{Tag, Transaction};

/// The host's own transactions, and the callers that wait for one or for a read; see the module.
#[derive(Default)]
pub(super) struct Own {
    /// Transactions that are not submitted yet.
    queue: RefCell<OwnQueue>,
    waiters: RefCell<HashMap<Tag, tokio::sync::oneshot::Sender<Result<(), Errno>>>>,
}

impl Own {
    /// True if no transaction waits to be submitted.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// True if an event of the store belongs to the transaction being prepared.
    pub(super) fn awaits(&self, tag: Tag) -> bool {
        self.queue.borrow().awaits(tag)
    }

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
        self.own.queue.borrow_mut().push(t, Need::Must);
        self.submit_own();
    }

    /// Submits a transaction of the host and waits until it is durable.
    pub(in crate::host) async fn submit_and_wait(&self, t: Transaction) -> Result<(), Errno> {
        let (tx, rx) = tokio::sync::oneshot::channel();
        let tag = self.own.queue.borrow_mut().push(t, Need::May);
        self.own.waiters.borrow_mut().insert(tag, tx);
        self.submit_own();
        // The sender lives as long as this host.
        rx.await.unwrap_or(Err(base::errno::EIO))
    }

    /// Submits the host's transactions as far as the store is ready for them.
    pub(super) fn submit_own(&self) {
        let refused = self.own.queue.borrow_mut().submit(&mut *self.store.borrow_mut());
        for r in refused {
            let w = self.own.waiters.borrow_mut().remove(&r.tag);
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
        let tag = self.own.queue.borrow_mut().tag();
        loop {
            let rx = {
                let (tx, rx) = tokio::sync::oneshot::channel();
                let r = f(&mut self.store.borrow_mut(), tag);
                if !matches!(r, Err(store::ReadError::Wait)) {
                    self.store.borrow_mut().release(tag);
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

    /// Stops waiting for the device, also in the disk engine.
    pub(in crate::host) fn let_go(&self) {
        self.disk.abandon();
    }

    /// True if the disk has nothing more to do.
    pub(in crate::host) fn is_idle(&self) -> bool {
        self.failed.get() || self.store.borrow().is_idle()
    }
}
