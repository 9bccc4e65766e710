//! The fallback: one thread that executes requests in order with ordinary system calls.

use super::file::DiskFile;
use base::device::{IoCompletion, IoKind, IoRequest};
use bytes::Bytes;
use std::cell::RefCell;
use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

struct Done {
    list: Mutex<Vec<IoCompletion>>,
    wake: Notify,
}

/// See the module. Order of execution is order of submission, which makes every flush cover what came before.
pub(super) struct Threads {
    queue: RefCell<Vec<IoRequest>>,
    to: mpsc::Sender<Vec<IoRequest>>,
    done: Arc<Done>,
    /// Keeps the lock.
    _file: Arc<DiskFile>,
}

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
        let done = Arc::new(Done { list: Mutex::new(Vec::new()), wake: Notify::new() });
        let d = done.clone();
        let own = file.another()?;
        std::thread::Builder::new().name("disk".into()).spawn(move || {
            for batch in from {
                for r in batch {
                    let c = execute(&own, r);
                    d.list.lock().unwrap_or_else(PoisonError::into_inner).push(c);
                    d.wake.notify_one();
                }
            }
        })?;
        Ok(Self { queue: RefCell::default(), to, done, _file: file })
    }

    pub(super) fn submit(&self, r: IoRequest) {
        self.queue.borrow_mut().push(r);
    }

    pub(super) fn flush(&self) {
        let batch = self.queue.take();
        if !batch.is_empty() {
            // The thread lives as long as this sender.
            let _ = self.to.send(batch);
        }
    }

    pub(super) async fn ready(&self) {
        self.done.wake.notified().await;
    }

    pub(super) fn poll(&self, out: &mut Vec<IoCompletion>) {
        out.append(&mut self.done.list.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
