//! The io_uring engine.
//!
//! One ring per reactor on a registered file. Completions raise an eventfd that the runtime watches edge-triggered, so
//! nothing has to be read from it. Short transfers are continued, requests beyond the ring's size wait in a queue.
//!
//! A flush of its own costs a wake-up of one of the kernel's own threads and of this one, as much CPU as the rest of a small commit. So
//! writes carry it (`RWF_DSYNC`). Few and small ones that leave together with it each do: whatever their order, each is durable when it
//! completes, and the flush is done when all are. Of more, or if others are on their way that carry none, only the last one does, behind
//! the others: one flush for all of them. What such a write makes durable besides itself depends on the device
//! ([`DiskFile::syncs_all`]); where that is not enough a flush of its own follows.
//!
//! Invariant: memory the kernel may touch is owned by [`Flight`] in the slab until its completion entry was reaped; the
//! ring is dropped (which waits for nothing) only after the slab has been drained in `drop`.

use super::file::DiskFile;
use super::order::{Held, Order};
use base::buf::AlignedBuf;
use base::device::{IoCompletion, IoId, IoKind, IoRequest};
use base::errno::{EIO, Errno};
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
/// Writes that each carry the same flush: the device flushes for each of them.
const CARRIERS_MAX: usize = 3;
/// Bytes of writes up to which a flush's last write goes beside the others and not behind them.
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
        /// The flush it carries, alone or with others.
        sync: Option<usize>,
    },
    Flush(u64),
    Discard {
        off: u64,
        len: u64,
    },
}

/// A flush that writes carry.
struct Sync {
    id: IoId,
    /// Of the writes that have completed: none succeeded, with the last one's error, or one did. What failed is told by its own completion.
    result: Result<Bytes, Errno>,
}

struct Inner {
    ring: IoUring,
    flights: slab::Slab<Flight>,
    syncs: slab::Slab<Sync>,
    queue: VecDeque<IoRequest>,
    order: Order,
    /// Entries pushed and not yet submitted.
    pushed: usize,
    /// The writes submitted last, which the kernel has not been given: the next request may be their flush.
    fresh: Vec<usize>,
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
            syncs: slab::Slab::new(),
            queue: VecDeque::new(),
            order: Order::default(),
            pushed: 0,
            fresh: Vec::new(),
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
        let op = match r.kind {
            IoKind::Write { off, bufs } => {
                let total = bufs.iter().map(Bytes::len).sum();
                let op = Op::Write { off, bufs, iov: Vec::new(), total, generation: None, sync: None };
                let key = self.flights.insert(Flight { id: r.id, op, done: 0, sent: false });
                return self.fresh.push(key);
            }
            IoKind::Flush => {
                self.flushing += 1;
                return self.flush_fresh(r.id);
            }
            IoKind::Read { off, len } => Op::Read { off, buf: AlignedBuf::dirty(len as usize) },
            IoKind::WriteAhead { off, bufs } => {
                let total = bufs.iter().map(Bytes::len).sum();
                Op::Write { off, bufs, iov: Vec::new(), total, generation: None, sync: None }
            }
            IoKind::Discard { off, len } => Op::Discard { off, len },
        };
        self.let_go();
        let key = self.flights.insert(Flight { id: r.id, op, done: 0, sent: false });
        self.push(key);
    }

    /// Gives the kernel the last writes as they are.
    fn let_go(&mut self) {
        self.send_fresh(None);
    }

    /// Gives the kernel the last writes, which carry a flush or not.
    fn send_fresh(&mut self, sync: Option<usize>) {
        let mut fresh = std::mem::take(&mut self.fresh);
        for key in fresh.drain(..) {
            self.count(key, sync);
            self.push(key);
        }
        self.fresh = fresh;
    }

    /// Later flushes wait for the write in slot `key`, which carries a flush itself or not.
    fn count(&mut self, key: usize, carries: Option<usize>) {
        if let Some(Flight { op: Op::Write { generation, sync, total, .. }, .. }) = self.flights.get_mut(key) {
            *generation = Some(self.order.write());
            if carries.is_none() {
                self.unsynced += *total;
            }
            *sync = carries;
        }
    }

    fn fresh_bytes(&self) -> usize {
        let bytes = |key: &usize| match self.flights.get(*key) {
            Some(Flight { op: Op::Write { total, .. }, .. }) => *total,
            _ => 0,
        };
        self.fresh.iter().map(bytes).sum()
    }

    /// A flush of the last writes and all before them.
    fn flush_fresh(&mut self, id: IoId) {
        let Some(&last) = self.fresh.last() else { return self.flush_behind(id) };
        let sync = Sync { id, result: Err(EIO) };
        let few = self.fresh.len() <= CARRIERS_MAX && self.fresh_bytes() < TOGETHER_BYTES_MAX;
        if self.unsynced == 0 && (self.syncs_all || self.written == self.flushed) && (few || self.fresh.len() == 1) {
            // Writes before them, if any, carry flushes of their own: it is enough to wait for those.
            let sync = self.syncs.insert(sync);
            self.send_fresh(Some(sync));
            self.hold_carried(sync);
            return;
        }
        self.fresh.pop();
        self.let_go();
        if self.syncs_all && (self.flushing > 1 || self.unsynced >= TOGETHER_BYTES_MAX) {
            let sync = self.syncs.insert(sync);
            let at_once = self.order.hold(Held::Write(last));
            debug_assert!(!at_once, "other writes are on their way");
            self.count(last, Some(sync));
            self.hold_carried(sync);
        } else {
            self.count(last, None);
            self.push(last);
            self.flush_behind(id);
        }
    }

    /// The flush is done when the writes that carry it are, and all before them.
    fn hold_carried(&mut self, sync: usize) {
        let at_once = self.order.hold(Held::Carried(sync));
        debug_assert!(!at_once, "the writes that carry it are on their way");
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
        let Some(f) = self.flights.get_mut(key) else { return };
        f.sent = true;
        let done = f.done;
        let entry = match &mut f.op {
            Op::Read { off, buf } => {
                let rest = &mut buf[done..];
                opcode::Read::new(FILE, rest.as_mut_ptr(), rest.len() as u32).offset(*off + done as u64).build()
            }
            Op::Write { off, bufs, iov, sync, .. } => {
                let how = if sync.is_some() { libc::RWF_DSYNC } else { 0 };
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
        let Flight { id, op, done, .. } = self.flights.remove(key);
        let errno = match &op {
            _ if result < 0 => Some(result),
            // Nothing transferred although something was asked for: beyond the end of a file that shrank.
            Op::Read { .. } | Op::Write { .. } if done < total => Some(EIO),
            _ => None,
        };
        let result = errno.map_or(Ok(Bytes::new()), Err);
        match op {
            Op::Read { buf, .. } => self.early.push(IoCompletion { id, result: result.map(|_| buf.freeze()) }),
            Op::Discard { .. } => self.early.push(IoCompletion { id, result }),
            Op::Flush(covers) => {
                self.flushing -= 1;
                if result.is_ok() {
                    self.flushed = self.flushed.max(covers);
                }
                self.early.push(IoCompletion { id, result });
            }
            Op::Write { generation, sync, total, .. } => {
                match sync.map(|s| self.syncs.get_mut(s)) {
                    Some(Some(sync)) if sync.result.is_err() => sync.result = result.clone(),
                    Some(_) => {}
                    None => {
                        self.written += 1;
                        self.unsynced -= if generation.is_some() { total } else { 0 };
                    }
                }
                self.early.push(IoCompletion { id, result });
                if let Some(g) = generation {
                    self.write_done(g);
                }
            }
        }
    }

    /// Lets go what waited for a write of generation `g`.
    fn write_done(&mut self, g: u64) {
        for held in self.order.write_done(g) {
            match held {
                Held::Flush(id) => self.let_flush(id),
                Held::Write(key) => self.push(key),
                Held::Carried(sync) => {
                    let Sync { id, result } = self.syncs.remove(sync);
                    self.flushing -= 1;
                    self.early.push(IoCompletion { id, result });
                }
            }
        }
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
