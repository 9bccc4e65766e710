//! The disk engine: executes [`base::device::IoRequest`]s of a store core on a file or block device.
//!
//! [`Disk::submit`] queues a request, [`Disk::flush_submissions`] hands all queued ones to the kernel at once,
//! [`Disk::ready`] wakes when a request has completed, [`Disk::poll`] collects completions. The engine is
//! io_uring where the kernel allows it, else a thread with ordinary system calls; the choice is made at start
//! and logged.
//!
//! [`base::flush`] decides which writes a flush waits for and which carry it.
//!
//! | module | contents |
//! | --- | --- |
//! | `file` | files and block devices: making, opening, locking, and sequential access for tools and start-up |
//! | `signature` | recognises existing contents of a device by common magic numbers |
//! | `threads` | the fallback engine: one thread that executes requests in order with ordinary system calls |
//! | `uring` | the io_uring engine |
//!
//! Invariants:
//!  1. The engine owns the buffers of a request until its completion has been polled.
//!  2. A flush reaches the device only after every write submitted before it has completed.
//!  3. Every request submitted is completed exactly once, with an error if the engine itself fails.
//!  4. A write that the host lost in its cache fails a flush of every engine on the file.
//!  5. An unreadable sector is `EIO`, whatever errno the kernel has for it.
//!
//! Tests: `tests/disk_engines.rs` (2, 3), `uring` (3, `a_dead_ring_ends_every_request_with_an_error`), `file` (4,
//! `engines_have_descriptions_of_their_own`; 5, `sectors_that_cannot_be_read_have_one_errno`). 1 follows from the types
//! of requests.

mod file;
mod signature;
mod threads;
mod uring;

pub use file::{DiskError, DiskFile, free_space, open, prepare, space};
pub use signature::{Signature, find as find_signature};

use base::Mono;
use base::device::{IoCompletion, IoRequest};
use std::io;
use std::sync::Arc;
use threads::Threads;
use uring::Uring;

/// Disk engine of one reactor; see the module.
pub struct Disk {
    engine: Engine,
}

enum Engine {
    Uring(Box<Uring>),
    Threads(Threads),
}

impl Disk {
    /// Creates an engine on `file`. `no_io_uring` selects the fallback even where io_uring works. Error: the fallback
    /// cannot be started.
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

    /// Hands queued requests to the kernel. Call once per loop turn.
    pub fn flush_submissions(&self) {
        match &self.engine {
            Engine::Uring(u) => u.flush(),
            Engine::Threads(t) => t.flush(),
        }
    }

    /// Waits until a request may have completed.
    pub async fn ready(&self) {
        match &self.engine {
            Engine::Uring(u) => u.ready().await,
            Engine::Threads(t) => t.ready().await,
        }
    }

    /// Submission time of the oldest request that has not completed; `None` if none is in flight. Discards do not count
    /// with io_uring: nobody waits for them, and a device may take long for one. Walks all
    /// requests in flight (a thousand at most), so it suits an occasional check for a device that does not
    /// answer.
    pub fn oldest(&self) -> Option<Mono> {
        match &self.engine {
            Engine::Uring(u) => u.oldest(),
            Engine::Threads(t) => t.oldest(),
        }
    }

    /// Marks all completions as unwanted: dropping the engine then does not wait for the device.
    pub fn abandon(&self) {
        match &self.engine {
            Engine::Uring(u) => u.abandon(),
            // The thread ends by itself.
            Engine::Threads(_) => {}
        }
    }

    /// Appends all completions so far to `out`.
    pub fn poll(&self, out: &mut Vec<IoCompletion>) {
        match &self.engine {
            Engine::Uring(u) => u.poll(out),
            Engine::Threads(t) => t.poll(out),
        }
    }
}
