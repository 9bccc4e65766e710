//! The disk engine: executes [`base::device::IoRequest`]s of a store core on a file or block device.
//!
//! Completion style: [`Disk::submit`] queues, [`Disk::flush_submissions`] hands everything to the kernel at once,
//! [`Disk::ready`] wakes when something has completed, [`Disk::poll`] collects. io_uring where the kernel allows it, else
//! a thread with ordinary system calls; which of them is chosen at start and logged.
//!
//! What a flush waits for and which writes carry it is decided by [`base::flush`].
//!
//! Invariants:
//!  1. Buffers handed in belong to the engine until their completion has been polled.
//!  2. A flush reaches the device only after every write submitted before it has completed.
//!  3. Every request submitted is completed exactly once, with an error if the engine itself fails.
//!  4. A write that the host lost in its cache fails a flush of every engine on the file.
//!  5. What a device says it can't read any more is `EIO`, whatever name the kernel has for it.

mod file;
mod signature;
mod threads;
mod uring;

pub use file::{DiskError, DiskFile, free_space, open, prepare};
pub use signature::{Signature, find as find_signature};

use base::Mono;
use base::device::{IoCompletion, IoRequest};
use std::io;
use std::sync::Arc;
use threads::Threads;
use uring::Uring;

/// See the module. Belongs to one reactor.
pub struct Disk {
    engine: Engine,
}

enum Engine {
    Uring(Box<Uring>),
    Threads(Threads),
}

impl Disk {
    /// An engine on `file`. `no_io_uring` chooses the fallback even where io_uring works.
    pub fn new(file: Arc<DiskFile>, no_io_uring: bool) -> io::Result<Self> {
        if !no_io_uring {
            match Uring::new(file.clone()) {
                Ok(u) => {
                    tracing::info!(direct = file.is_direct(), "disk engine: io_uring");
                    return Ok(Self { engine: Engine::Uring(Box::new(u)) });
                }
                Err(error) => tracing::warn!(%error, "io_uring cannot be used"),
            }
        }
        tracing::info!(direct = file.is_direct(), "disk engine: thread");
        Ok(Self { engine: Engine::Threads(Threads::new(file)?) })
    }

    /// Queues a request.
    pub fn submit(&self, r: IoRequest) {
        match &self.engine {
            Engine::Uring(u) => u.submit(r),
            Engine::Threads(t) => t.submit(r),
        }
    }

    /// Hands what is queued to the kernel: call once per loop turn.
    pub fn flush_submissions(&self) {
        match &self.engine {
            Engine::Uring(u) => u.flush(),
            Engine::Threads(t) => t.flush(),
        }
    }

    /// Waits until something may have completed.
    pub async fn ready(&self) {
        match &self.engine {
            Engine::Uring(u) => u.ready().await,
            Engine::Threads(t) => t.ready().await,
        }
    }

    /// When the oldest request was submitted that has not completed; `None` if nothing is in flight. Walks what is in flight (a
    /// thousand requests at most): for a look now and then at a device that does not answer.
    pub fn oldest(&self) -> Option<Mono> {
        match &self.engine {
            Engine::Uring(u) => u.oldest(),
            Engine::Threads(t) => t.oldest(),
        }
    }

    /// Nobody wants completions any more: dropping the engine does not wait for the device.
    pub fn abandon(&self) {
        match &self.engine {
            Engine::Uring(u) => u.abandon(),
            // Its thread ends by itself.
            Engine::Threads(_) => {}
        }
    }

    /// Appends what has completed to `out`.
    pub fn poll(&self, out: &mut Vec<IoCompletion>) {
        match &self.engine {
            Engine::Uring(u) => u.poll(out),
            Engine::Threads(t) => t.poll(out),
        }
    }
}
