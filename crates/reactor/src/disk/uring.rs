//! The io_uring engine.
//!
//! One ring per reactor on a registered file. Completions raise an eventfd that the runtime watches edge-triggered, so
//! nothing has to be read from it. Short transfers are continued, requests beyond the ring's size wait in a queue.
//!
//! A flush costs a wake-up of one of the kernel's own threads and of this one, as much CPU as the rest of a small commit. So a write
//! that is followed by a flush carries it (`RWF_DSYNC`): at once if nothing else has to become durable with it; behind the writes
//! before it if another flush is on its way, so that waiting costs nobody; not if the device is idle, where writing side by
//! side is faster. What such a write makes durable besides itself depends on the device ([`DiskFile::syncs_all`]).
//!
//! Invariant: memory the kernel may touch is owned by [`Flight`] in the slab until its completion entry was reaped; the
//! ring is dropped (which waits for nothing) only after the slab has been drained in `drop`.

use super::file::DiskFile;
use super::order::{Held, Order};
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
/// Bytes of writes on their way up to which a flush's last write goes beside them and not behind them.
const TOGETHER_BYTES_MAX: usize = 32 << 10;
/// From so many entries on the kernel gives the device all requests of a submission in one go (`IO_PLUG_THRESHOLD`). Two go one by one,
/// and each costs a doorbell, which in a virtual machine is an exit: one that does nothing makes three of them.
const PLUG_MIN: usize = 3;
/// Names no request: slots are far fewer.
const NOBODY: u64 = u64::MAX;
/// Requests the kernel holds at most: so many completions always fit.
const IN_FLIGHT_MAX: usize = 1000;

struct Flight {
    id: IoId,
    op: Op,
    /// Bytes already transferred.
    done: usize,
    /// The kernel has it, or had a part of it.
    sent: bool,
}

enum Op {
    Read {
        off: u64,
        buf: AlignedBuf,
    },
    Write {
        off: u64,
        bufs: Vec<Bytes>,
        iov: Vec<libc::iovec>,
        total: usize,
        generation: Option<u64>,
        sync: Option<Sync>,
    },
    Flush(u64),
    Discard {
        off: u64,
        len: u64,
    },
}

/// The flush that a write carries.
struct Sync {
    id: IoId,
    /// As of [`Inner::written`] when the kernel got it: the writes it makes durable.
    covers: u64,
}

struct Inner {
    ring: IoUring,
    flights: slab::Slab<Flight>,
    queue: VecDeque<IoRequest>,
    order: Order,
    /// Entries pushed and not yet submitted.
    pushed: usize,
    /// The write submitted last, which the kernel has not been given: the next request may be its flush.
    fresh: Option<usize>,
    /// Flushes on their way or held.
    flushing: usize,
    /// Bytes of writes on their way that carry no flush.
    unsynced: usize,
    /// Writes completed without a flush of their own, and how many of them a flush has covered since.
    written: u64,
    flushed: u64,
    /// As of the file.
    syncs_all: bool,
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
            pushed: 0,
            fresh: None,
            flushing: 0,
            unsynced: 0,
            // What an earlier process wrote may not have been flushed.
            written: 1,
            flushed: 0,
            syncs_all: file.syncs_all(),
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
        if matches!(r.kind, IoKind::Flush) {
            self.flushing += 1;
            if let Some(key) = self.fresh.take() {
                return self.flush_with(key, r.id);
            }
        }
        self.let_go();
        let op = match r.kind {
            IoKind::Read { off, len } => Op::Read { off, buf: AlignedBuf::dirty(len as usize) },
            IoKind::Write { off, bufs } => {
                let total = bufs.iter().map(Bytes::len).sum();
                let op = Op::Write { off, bufs, iov: Vec::new(), total, generation: None, sync: None };
                self.fresh = Some(self.flights.insert(Flight { id: r.id, op, done: 0, sent: false }));
                return;
            }
            IoKind::WriteAhead { off, bufs } => {
                let total = bufs.iter().map(Bytes::len).sum();
                Op::Write { off, bufs, iov: Vec::new(), total, generation: None, sync: None }
            }
            IoKind::Flush => return self.flush_behind(r.id),
            IoKind::Discard { off, len } => Op::Discard { off, len },
        };
        let key = self.flights.insert(Flight { id: r.id, op, done: 0, sent: false });
        self.push(key);
    }

    /// Gives the kernel the last write as it is.
    fn let_go(&mut self) {
        if let Some(key) = self.fresh.take() {
            self.count(key, None);
            self.push(key);
        }
    }

    /// Later flushes wait for the write in slot `key`, which carries a flush itself or not.
    fn count(&mut self, key: usize, carries: Option<IoId>) {
        if let Some(Flight { op: Op::Write { generation, sync, total, .. }, .. }) = self.flights.get_mut(key) {
            *generation = Some(self.order.write());
            if carries.is_none() {
                self.unsynced += *total;
            }
            *sync = carries.map(|id| Sync { id, covers: 0 });
        }
    }

    /// The write in slot `key` and its flush.
    fn flush_with(&mut self, key: usize, id: IoId) {
        if self.order.is_quiet() && (self.syncs_all || self.written == self.flushed) {
            self.count(key, Some(id));
            self.push(key);
        } else if self.syncs_all && (self.flushing > 1 || self.unsynced >= TOGETHER_BYTES_MAX) {
            let at_once = self.order.hold(Held::Write(key));
            debug_assert!(!at_once, "writes are in flight, or it would have gone above");
            self.count(key, Some(id));
        } else {
            self.count(key, None);
            self.push(key);
            self.flush_behind(id);
        }
    }

    /// A flush of its own, once the writes before it have completed.
    fn flush_behind(&mut self, id: IoId) {
        if self.order.hold(Held::Flush(id)) {
            self.let_flush(id);
        }
    }

    fn let_flush(&mut self, id: IoId) {
        let key = self.flights.insert(Flight { id, op: Op::Flush(self.written), done: 0, sent: false });
        self.push(key);
    }

    /// Queues the (rest of the) request in slot `key` for the kernel.
    fn push(&mut self, key: usize) {
        let written = self.written;
        let Some(f) = self.flights.get_mut(key) else { return };
        f.sent = true;
        let done = f.done;
        let entry = match &mut f.op {
            Op::Read { off, buf } => {
                let rest = &mut buf[done..];
                opcode::Read::new(FILE, rest.as_mut_ptr(), rest.len() as u32).offset(*off + done as u64).build()
            }
            Op::Write { off, bufs, iov, sync, .. } => {
                let how = match sync {
                    Some(s) => {
                        s.covers = written;
                        libc::RWF_DSYNC
                    }
                    None => 0,
                };
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
                    [one] => opcode::Write::new(FILE, one.iov_base.cast(), one.iov_len as u32)
                        .offset(at)
                        .rw_flags(how)
                        .build(),
                    all => opcode::Writev::new(FILE, all.as_ptr(), all.len() as u32).offset(at).rw_flags(how).build(),
                }
            }
            Op::Flush(_) => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            Op::Discard { off, len } => opcode::Fallocate::new(FILE, *len)
                .offset(*off)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        };
        self.push_entry(&entry.user_data(key as u64));
    }

    fn push_entry(&mut self, e: &squeue::Entry) {
        loop {
            // SAFETY: the memory the entry names is owned by the flight in the slab, which stays until the completion
            // of this entry is reaped: slots move, but buffers and the iovec array are heap allocations that don't.
            if unsafe { self.ring.submission().push(e) }.is_ok() {
                self.pushed += 1;
                return;
            }
            // The submission queue is full: hand it over and go on.
            self.submit();
        }
    }

    fn enter(&mut self) {
        self.let_go();
        if self.pushed == PLUG_MIN - 1 {
            // Without a completion of its own, which would wake this thread.
            self.push_entry(&opcode::Nop::new().build().flags(squeue::Flags::SKIP_SUCCESS).user_data(NOBODY));
        }
        if self.pushed > 0 {
            self.submit();
        }
    }

    fn submit(&mut self) {
        self.pushed = 0;
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
            Op::Flush(_) | Op::Discard { .. } => 0,
        };
        if result > 0 {
            f.done += result as usize;
            if f.done < total {
                self.push(key);
                return;
            }
        }
        let f = self.flights.remove(key);
        let carried = if let Op::Write { sync: Some(s), .. } = &f.op { Some(s.id) } else { None };
        let result = match (result, f.op) {
            (e, op) if e < 0 => Err(self.note(op, e)),
            (_, Op::Read { buf, .. }) if f.done == total => Ok(buf.freeze()),
            // Nothing transferred although something was asked for: beyond the end of a file that shrank.
            (0, op @ (Op::Read { .. } | Op::Write { .. })) if total > 0 && f.done < total => Err(self.note(op, EIO)),
            (_, op) => {
                self.note(op, 0);
                Ok(Bytes::new())
            }
        };
        let carried = carried.map(|id| IoCompletion { id, result: result.clone() });
        self.early.push(IoCompletion { id: f.id, result });
        self.early.extend(carried);
    }

    /// Remembers what has become durable and lets go the flushes that waited for this write; gives back `errno`.
    fn note(&mut self, op: Op, errno: i32) -> i32 {
        match op {
            Op::Flush(covers) => {
                self.flushing -= 1;
                if errno == 0 {
                    self.flushed = self.flushed.max(covers);
                }
            }
            Op::Write { generation, sync, total, .. } => {
                match sync {
                    Some(s) => {
                        self.flushing -= 1;
                        if errno == 0 && self.syncs_all {
                            self.flushed = self.flushed.max(s.covers);
                        }
                    }
                    None => {
                        self.written += 1;
                        self.unsynced -= if generation.is_some() { total } else { 0 };
                    }
                }
                for held in generation.map(|g| self.order.write_done(g)).unwrap_or_default() {
                    match held {
                        Held::Flush(id) => self.let_flush(id),
                        Held::Write(key) => self.push(key),
                    }
                }
            }
            Op::Read { .. } | Op::Discard { .. } => {}
        }
        errno
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let i = self.inner.get_mut();
        i.queue.clear();
        i.flights.retain(|_, f| f.sent);
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
