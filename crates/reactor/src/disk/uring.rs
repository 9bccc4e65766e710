//! The io_uring engine.
//!
//! One ring per reactor on a registered file. Completions raise an eventfd that the runtime watches edge-triggered, so
//! nothing has to be read from it. Short transfers are continued, requests beyond the ring's size wait in a queue.
//!
//! Invariant: memory the kernel may touch is owned by [`Flight`] in the slab until its completion entry was reaped; the
//! ring is dropped (which waits for nothing) only after the slab has been drained in `drop`.

use super::file::DiskFile;
use super::order::Order;
use base::buf::AlignedBuf;
use base::device::{IoCompletion, IoId, IoKind, IoRequest};
use base::errno::EIO;
use bytes::Bytes;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use tokio::io::unix::AsyncFd;

/// Entries of the submission queue; the completion queue has twice as many.
const ENTRIES: u32 = 512;
/// Requests the kernel holds at most: so many completions always fit.
const IN_FLIGHT_MAX: usize = 1000;

struct Flight {
    id: IoId,
    op: Op,
    /// Bytes already transferred.
    done: usize,
}

enum Op {
    Read { off: u64, buf: AlignedBuf },
    Write { off: u64, bufs: Vec<Bytes>, iov: Vec<libc::iovec>, total: usize, generation: Option<u64> },
    Flush,
    Discard { off: u64, len: u64 },
}

struct Inner {
    ring: IoUring,
    flights: slab::Slab<Flight>,
    queue: VecDeque<IoRequest>,
    order: Order,
    /// Entries pushed and not yet submitted.
    pushed: bool,
    early: Vec<IoCompletion>,
}

/// See the module.
pub(super) struct Uring {
    inner: RefCell<Inner>,
    event: AsyncFd<OwnedFd>,
    /// Keeps the descriptor open for as long as the ring may use it.
    _file: Arc<DiskFile>,
}

const FILE: types::Fixed = types::Fixed(0);

impl Uring {
    #[allow(deprecated, reason = "an owned descriptor is not closed behind its back")]
    pub(super) fn new(file: Arc<DiskFile>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_coop_taskrun().build(ENTRIES)?;
        ring.submitter().register_files(&[file.raw_fd()])?;
        // SAFETY: a fresh descriptor that nobody else owns.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        let inner = Inner {
            ring,
            flights: slab::Slab::with_capacity(64),
            queue: VecDeque::new(),
            order: Order::default(),
            pushed: false,
            early: Vec::new(),
        };
        Ok(Self { inner: RefCell::new(inner), event: AsyncFd::new(event)?, _file: file })
    }

    pub(super) fn submit(&self, r: IoRequest) {
        let mut i = self.inner.borrow_mut();
        if i.flights.len() >= IN_FLIGHT_MAX || !i.queue.is_empty() {
            i.queue.push_back(r);
        } else {
            i.start(r);
        }
    }

    pub(super) fn flush(&self) {
        let mut i = self.inner.borrow_mut();
        i.enter();
    }

    pub(super) async fn ready(&self) {
        {
            let mut i = self.inner.borrow_mut();
            if !i.early.is_empty() || !i.ring.completion().is_empty() {
                return;
            }
        }
        match self.event.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            // The runtime is ending: nobody will poll again.
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) fn poll(&self, out: &mut Vec<IoCompletion>) {
        let mut i = self.inner.borrow_mut();
        i.reap();
        out.append(&mut i.early);
        while i.flights.len() < IN_FLIGHT_MAX {
            let Some(r) = i.queue.pop_front() else { break };
            i.start(r);
        }
        i.enter();
    }
}

impl Inner {
    fn start(&mut self, r: IoRequest) {
        let op = match r.kind {
            IoKind::Read { off, len } => Op::Read { off, buf: AlignedBuf::dirty(len as usize) },
            IoKind::Write { off, bufs } => {
                let generation = Some(self.order.write());
                let total = bufs.iter().map(Bytes::len).sum();
                Op::Write { off, bufs, iov: Vec::new(), total, generation }
            }
            IoKind::WriteAhead { off, bufs } => {
                let total = bufs.iter().map(Bytes::len).sum();
                Op::Write { off, bufs, iov: Vec::new(), total, generation: None }
            }
            IoKind::Flush => {
                if !self.order.flush(r.id) {
                    return;
                }
                Op::Flush
            }
            IoKind::Discard { off, len } => Op::Discard { off, len },
        };
        let key = self.flights.insert(Flight { id: r.id, op, done: 0 });
        self.push(key);
    }

    /// Queues the (rest of the) request in slot `key` for the kernel.
    fn push(&mut self, key: usize) {
        let Some(f) = self.flights.get_mut(key) else { return };
        let done = f.done;
        let entry = match &mut f.op {
            Op::Read { off, buf } => {
                let rest = &mut buf[done..];
                opcode::Read::new(FILE, rest.as_mut_ptr(), rest.len() as u32).offset(*off + done as u64).build()
            }
            Op::Write { off, bufs, iov, .. } => {
                iov.clear();
                let mut skip = done;
                for b in bufs.iter() {
                    if skip >= b.len() {
                        skip -= b.len();
                        continue;
                    }
                    let rest = &b[skip..];
                    skip = 0;
                    iov.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
                }
                let at = *off + done as u64;
                match iov.as_slice() {
                    [one] => opcode::Write::new(FILE, one.iov_base.cast(), one.iov_len as u32).offset(at).build(),
                    all => opcode::Writev::new(FILE, all.as_ptr(), all.len() as u32).offset(at).build(),
                }
            }
            Op::Flush => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            Op::Discard { off, len } => opcode::Fallocate::new(FILE, *len)
                .offset(*off)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        };
        self.push_entry(&entry.user_data(key as u64));
    }

    fn push_entry(&mut self, e: &squeue::Entry) {
        self.pushed = true;
        loop {
            // SAFETY: the memory the entry names is owned by the flight in the slab, which stays until the completion
            // of this entry is reaped: slots move, but buffers and the iovec array are heap allocations that don't.
            if unsafe { self.ring.submission().push(e) }.is_ok() {
                return;
            }
            // The submission queue is full: hand it over and go on.
            self.pushed = true;
            self.enter();
            self.pushed = true;
        }
    }

    fn enter(&mut self) {
        if !self.pushed {
            return;
        }
        self.pushed = false;
        loop {
            match self.ring.submit() {
                Ok(_) => return,
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {
                    // The kernel wants completions taken first.
                    self.reap();
                }
                Err(error) => {
                    // The ring is unusable: what is in flight will not complete, which stops the store's writes.
                    tracing::error!(%error, "io_uring refuses submissions");
                    return;
                }
            }
        }
    }

    fn reap(&mut self) {
        loop {
            let Some((key, result)) = self.ring.completion().next().map(|c| (c.user_data() as usize, c.result()))
            else {
                return;
            };
            self.completed(key, result);
        }
    }

    fn completed(&mut self, key: usize, result: i32) {
        let Some(f) = self.flights.get_mut(key) else { return };
        if result == -libc::EINTR || result == -libc::EAGAIN {
            self.push(key);
            return;
        }
        let total = match &f.op {
            Op::Read { buf, .. } => buf.len(),
            Op::Write { total, .. } => *total,
            Op::Flush | Op::Discard { .. } => 0,
        };
        if result > 0 {
            f.done += result as usize;
            if f.done < total {
                self.push(key);
                return;
            }
        }
        let f = self.flights.remove(key);
        let result = match (result, f.op) {
            (e, op) if e < 0 => Err(self.note_write(op, e)),
            (_, Op::Read { buf, .. }) if f.done == total => Ok(buf.freeze()),
            // Nothing transferred although something was asked for: beyond the end of a file that shrank.
            (0, op @ (Op::Read { .. } | Op::Write { .. })) if total > 0 && f.done < total => {
                Err(self.note_write(op, EIO))
            }
            (_, op) => {
                self.note_write(op, 0);
                Ok(Bytes::new())
            }
        };
        self.early.push(IoCompletion { id: f.id, result });
    }

    /// Lets go the flushes that waited for this write; gives back `errno`.
    fn note_write(&mut self, op: Op, errno: i32) -> i32 {
        if let Op::Write { generation: Some(generation), .. } = op {
            for id in self.order.write_done(generation) {
                let key = self.flights.insert(Flight { id, op: Op::Flush, done: 0 });
                self.push(key);
            }
        }
        errno
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let i = self.inner.get_mut();
        i.queue.clear();
        // Buffers must outlive the kernel's use of them: wait for what is in flight.
        while !i.flights.is_empty() {
            if i.ring.submit_and_wait(1).is_err() {
                // Better to leak the buffers than to free memory the kernel may still write.
                std::mem::forget(std::mem::take(&mut i.flights));
                return;
            }
            let done: Vec<usize> = i.ring.completion().map(|c| c.user_data() as usize).collect();
            for key in done {
                i.flights.try_remove(key);
            }
        }
    }
}
