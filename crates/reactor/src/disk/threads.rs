//! The fallback engine: one thread that executes requests in order with ordinary system calls.

use super::file::DiskFile;
use crate::clock;
use base::Mono;
use base::device::{IoCompletion, IoKind, IoRequest};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

struct Done {
    list: Mutex<Vec<IoCompletion>>,
    /// Requests completed.
    count: AtomicU64,
    wake: Notify,
}

/// The fallback engine; see the module. Requests run in order of submission, so every flush covers the requests
/// before it.
pub(super) struct Threads {
    queue: RefCell<Vec<IoRequest>>,
    to: mpsc::Sender<Vec<IoRequest>>,
    done: Arc<Done>,
    /// Open description that holds the lock.
    _file: Arc<DiskFile>,
    /// Requests given to the thread.
    sent: Cell<u64>,
    /// Batches that may still run: total requests up to the end of each, and its submission time.
    /// [`Threads::oldest`] removes finished ones; at most [`BATCHES_MAX`] entries.
    batches: RefCell<VecDeque<(u64, Mono)>>,
}

/// Most batches whose time is kept. Beyond, the last entry stands for all later batches until it is done.
const BATCHES_MAX: usize = 1024;

fn execute(f: &DiskFile, r: IoRequest) -> IoCompletion {
    let result = match r.kind {
        IoKind::Read { off, len } => f.read(off, len.into()),
        IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } => f.write(off, &bufs).map(|()| Bytes::new()),
        IoKind::Flush => f.sync().map(|()| Bytes::new()),
        IoKind::Discard { off, len } => f.discard(off, len).map(|()| Bytes::new()),
    };
    IoCompletion { id: r.id, result }
}

impl Threads {
    pub(super) fn new(file: Arc<DiskFile>) -> io::Result<Self> {
        let (to, from) = mpsc::channel::<Vec<IoRequest>>();
        let done = Arc::new(Done { list: Mutex::new(Vec::new()), count: AtomicU64::new(0), wake: Notify::new() });
        let d = done.clone();
        let own = file.another()?;
        std::thread::Builder::new().name("disk".into()).spawn(move || {
            for batch in from {
                for r in batch {
                    let c = execute(&own, r);
                    d.list.lock().unwrap_or_else(PoisonError::into_inner).push(c);
                    d.count.fetch_add(1, Ordering::Release);
                    d.wake.notify_one();
                }
            }
        })?;
        let (sent, batches) = (Cell::new(0), RefCell::default());
        Ok(Self { queue: RefCell::default(), to, done, _file: file, sent, batches })
    }

    pub(super) fn submit(&self, r: IoRequest) {
        self.queue.borrow_mut().push(r);
    }

    pub(super) fn flush(&self) {
        let batch = self.queue.take();
        if !batch.is_empty() {
            self.sent.set(self.sent.get() + batch.len() as u64);
            self.forget_done();
            let mut batches = self.batches.borrow_mut();
            if batches.len() < BATCHES_MAX {
                batches.push_back((self.sent.get(), clock::now().mono));
            }
            // The thread lives as long as this sender.
            let _ = self.to.send(batch);
        }
    }

    fn forget_done(&self) {
        let done = self.done.count.load(Ordering::Acquire);
        let mut batches = self.batches.borrow_mut();
        while batches.front().is_some_and(|(end, _)| *end <= done) {
            batches.pop_front();
        }
    }

    /// Submission time of the oldest request that has not completed.
    pub(super) fn oldest(&self) -> Option<Mono> {
        self.forget_done();
        self.batches.borrow().front().map(|(_, at)| *at)
    }

    pub(super) async fn ready(&self) {
        self.done.wake.notified().await;
    }

    pub(super) fn poll(&self, out: &mut Vec<IoCompletion>) {
        out.append(&mut self.done.list.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
