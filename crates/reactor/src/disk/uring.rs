//! The io_uring engine.
//!
//! One ring per reactor on a registered file. Completions raise an eventfd that the runtime watches edge-triggered, so
//! nothing has to be read from it. Short transfers are continued, requests beyond the ring's size wait in a queue.
//!
//! [`base::flush`] decides which writes carry a flush and when a separate one goes.
//!
//! Invariant: memory the kernel may touch is owned by [`Flight`] in the slab until its completion entry was reaped; the
//! ring is dropped (which waits for nothing) only after `drop` has drained the slab, or leaked it if the engine was abandoned.
//!
//! Tests: an assertion, and below (`completions_taken_early_are_handled_in_the_next_poll`).

use super::file::{DiskFile, unreadable};
use crate::clock;
use base::Mono;
use base::buf::AlignedBuf;
use base::device::{IoCompletion, IoId, IoKind, IoRequest};
use base::errno::{EIO, Errno};
use base::flush::{Planner, Step};
use bytes::Bytes;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use tokio::io::unix::AsyncFd;

/// Entries of the submission queue; the completion queue has twice as many.
const ENTRIES: u32 = 512;
/// Least number of entries that the kernel hands to the device in one go (`IO_PLUG_THRESHOLD`). Fewer go one by
/// one, and each costs a doorbell, which is an exit in a virtual machine. An entry that does nothing raises two
/// to three.
const PLUG_MIN: usize = 3;
/// User data of an entry without a request. Slots are far below it.
const NOBODY: u64 = u64::MAX;
/// Requests the kernel holds at most: so many completions always fit.
const IN_FLIGHT_MAX: usize = 1000;

struct Flight {
    id: IoId,
    op: Op,
    /// Bytes already transferred.
    done: usize,
    /// The kernel has or had at least a part of the request.
    sent: bool,
    /// Submission time.
    since: Mono,
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
        /// A write that no flush waits for ([`IoKind::WriteAhead`]).
        ahead: bool,
        /// The write carries a flush (`RWF_DSYNC`).
        sync: bool,
    },
    /// A flush, with the number of writes that it covers, as the planner counts them.
    Flush(u64),
    Discard {
        off: u64,
        len: u64,
    },
}

struct Inner {
    plan: Planner,
    io: Kernel,
    queue: VecDeque<IoRequest>,
    /// On a block device: discards go through a thread, since a ring of an older kernel has none for devices.
    discards: Option<Discards>,
}

/// The thread that discards ranges of a block device. It ends with this value.
struct Discards {
    to: mpsc::Sender<(IoId, u64, u64)>,
    done: Arc<Mutex<Vec<IoCompletion>>>,
}

impl Discards {
    /// Starts the thread; it raises `event` for each completion.
    fn start(file: DiskFile, event: OwnedFd) -> io::Result<Self> {
        let (to, ranges) = mpsc::channel::<(IoId, u64, u64)>();
        let done: Arc<Mutex<Vec<IoCompletion>>> = Arc::default();
        let list = done.clone();
        std::thread::Builder::new().name("discard".into()).spawn(move || {
            for (id, off, len) in ranges {
                let result = file.discard(off, len).map(|()| Bytes::new());
                list.lock().unwrap_or_else(PoisonError::into_inner).push(IoCompletion { id, result });
                raise(event.as_raw_fd());
            }
        })?;
        Ok(Self { to, done })
    }

    fn done(&self) -> MutexGuard<'_, Vec<IoCompletion>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Raises an eventfd, which wakes the engine's task.
fn raise(event: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes of ours, to a descriptor that we own. If it is full it is readable already.
    unsafe { libc::write(event, one.as_ptr().cast(), one.len()) };
}

/// The ring and the requests given to the kernel.
struct Kernel {
    ring: IoUring,
    flights: slab::Slab<Flight>,
    /// Entries pushed and not yet submitted.
    pushed: usize,
    /// Completions off the queue that are not handled: slots and results.
    ended: VecDeque<(usize, i32)>,
    early: Vec<IoCompletion>,
    /// Error of a ring that can't be used any more.
    dead: Option<Errno>,
    /// The owner does not wait for requests in flight.
    abandoned: bool,
}

/// The io_uring engine; see the module.
pub(super) struct Uring {
    inner: RefCell<Inner>,
    event: AsyncFd<OwnedFd>,
    /// These hold the lock, and keep the descriptor open for as long as the ring may use it.
    _file: Arc<DiskFile>,
    _own: DiskFile,
}

const FILE: types::Fixed = types::Fixed(0);

impl Uring {
    #[allow(deprecated, reason = "an owned descriptor is not closed behind its back")]
    pub(super) fn new(file: Arc<DiskFile>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_coop_taskrun().build(ENTRIES)?;
        let own = file.another()?;
        ring.submitter().register_files(&[own.raw_fd()])?;
        // SAFETY: a fresh descriptor with no other owner.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        let flights = slab::Slab::with_capacity(64);
        let (ended, early) = (VecDeque::new(), Vec::new());
        let io = Kernel { ring, flights, pushed: 0, ended, early, dead: None, abandoned: false };
        let discards = if file.is_block() { Some(Discards::start(file.another()?, event.try_clone()?)?) } else { None };
        let inner = Inner { plan: Planner::new(file.syncs_all()), io, queue: VecDeque::new(), discards };
        Ok(Self { inner: RefCell::new(inner), event: AsyncFd::new(event)?, _file: file, _own: own })
    }

    pub(super) fn submit(&self, r: IoRequest) {
        let mut i = self.inner.borrow_mut();
        if i.io.flights.len() >= IN_FLIGHT_MAX || !i.queue.is_empty() {
            i.queue.push_back(r);
        } else {
            i.start(r);
        }
    }

    pub(super) fn flush(&self) {
        let mut i = self.inner.borrow_mut();
        i.enter();
        if i.io.dead.is_some() && !i.io.early.is_empty() {
            // Raises the eventfd in place of the kernel, for completions that the engine made itself.
            raise(self.event.as_raw_fd());
        }
    }

    /// Submission time of the oldest request that the device has not answered, except for discards. Requests still in the
    /// queue are younger.
    pub(super) fn oldest(&self) -> Option<Mono> {
        let inner = self.inner.borrow();
        let flights = inner.io.flights.iter().map(|(_, f)| f);
        flights.filter(|f| !matches!(f.op, Op::Discard { .. })).map(|f| f.since).min()
    }

    /// Lets the engine be dropped while requests are in flight: their buffers leak.
    pub(super) fn abandon(&self) {
        self.inner.borrow_mut().io.abandoned = true;
    }

    pub(super) async fn ready(&self) {
        {
            let mut i = self.inner.borrow_mut();
            let discarded = i.discards.as_ref().is_some_and(|d| !d.done().is_empty());
            if discarded || !i.io.early.is_empty() || !i.io.ended.is_empty() || !i.io.ring.completion().is_empty() {
                return;
            }
        }
        match self.event.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            // The runtime is ending: there will be no further poll.
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) fn poll(&self, out: &mut Vec<IoCompletion>) {
        let mut i = self.inner.borrow_mut();
        i.reap();
        while i.io.flights.len() < IN_FLIGHT_MAX {
            let Some(r) = i.queue.pop_front() else { break };
            i.start(r);
        }
        i.enter();
        if let Some(d) = &i.discards {
            out.append(&mut d.done());
        }
        out.append(&mut i.io.early);
    }
}

impl Inner {
    fn start(&mut self, r: IoRequest) {
        if let Some(e) = self.io.dead {
            return self.io.early.push(IoCompletion { id: r.id, result: Err(e) });
        }
        let ahead = matches!(r.kind, IoKind::WriteAhead { .. });
        let op = match r.kind {
            IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } => {
                let total = bufs.iter().map(Bytes::len).sum();
                let op = Op::Write { off, bufs, iov: Vec::new(), total, ahead, sync: false };
                if !ahead {
                    let key =
                        self.io.flights.insert(Flight { id: r.id, op, done: 0, sent: false, since: clock::now().mono });
                    return self.plan.write(key, total);
                }
                op
            }
            IoKind::Flush => return self.plan.flush(r.id, |s| self.io.step(s)),
            IoKind::Read { off, len } => Op::Read { off, buf: AlignedBuf::dirty(len as usize) },
            IoKind::Discard { off, len } => {
                if let Some(d) = &self.discards {
                    if d.to.send((r.id, off, len)).is_err() {
                        self.io.end(r.id, Err(EIO));
                    }
                    return;
                }
                Op::Discard { off, len }
            }
        };
        self.plan.let_go(|s| self.io.step(s));
        let key = self.io.flights.insert(Flight { id: r.id, op, done: 0, sent: false, since: clock::now().mono });
        self.io.push(key);
    }

    fn enter(&mut self) {
        self.plan.let_go(|s| self.io.step(s));
        if self.io.pushed == PLUG_MIN - 1 {
            // The filler has no completion of its own, which would wake this thread.
            self.io.push_entry(&opcode::Nop::new().build().flags(squeue::Flags::SKIP_SUCCESS).user_data(NOBODY));
        }
        while self.io.pushed > 0 && !self.io.submit() {
            // The kernel wants completions reaped first.
            self.reap();
        }
        if let Some(e) = self.io.dead {
            self.give_up(e);
        }
    }

    /// Ends every request with an error because the ring is lost, so that their owners learn of it. The kernel
    /// may still use the buffers, so they are never freed.
    fn give_up(&mut self, errno: Errno) {
        let flights = std::mem::take(&mut self.io.flights);
        for (_, f) in flights {
            self.io.early.push(IoCompletion { id: f.id, result: Err(errno) });
            if f.sent {
                std::mem::forget(f.op);
            }
        }
        // Flushes that are carried by writes or wait for writes have no slot.
        for id in self.plan.give_up() {
            self.io.early.push(IoCompletion { id, result: Err(errno) });
        }
        for r in self.queue.drain(..) {
            self.io.early.push(IoCompletion { id: r.id, result: Err(errno) });
        }
    }

    fn reap(&mut self) {
        loop {
            let early = self.io.ended.pop_front();
            let next = early.or_else(|| self.io.ring.completion().next().map(|c| (c.user_data() as usize, c.result())));
            let Some((key, result)) = next else { return };
            self.completed(key, result);
        }
    }

    fn completed(&mut self, key: usize, result: i32) {
        let Some((id, op, result)) = self.io.completed(key, result) else { return };
        match op {
            Op::Read { buf, .. } => self.io.early.push(IoCompletion { id, result: result.map(|()| buf.freeze()) }),
            Op::Discard { .. } => self.io.end(id, result),
            Op::Flush(covers) => {
                self.plan.flush_done(covers, result.is_ok());
                self.io.end(id, result);
            }
            Op::Write { ahead, .. } => {
                self.io.end(id, result);
                if ahead {
                    self.plan.ahead_done();
                } else {
                    self.plan.write_done(key, result, |s| self.io.step(s));
                }
            }
        }
    }
}

impl Kernel {
    /// Executes a step of the planner.
    fn step(&mut self, s: Step) {
        match s {
            Step::Write(key, carries) => {
                if let Some(Flight { op: Op::Write { sync, .. }, .. }) = self.flights.get_mut(key) {
                    *sync = carries;
                }
                self.push(key);
            }
            Step::Flush(id, covers) => {
                let key = self.flights.insert(Flight {
                    id,
                    op: Op::Flush(covers),
                    done: 0,
                    sent: false,
                    since: clock::now().mono,
                });
                self.push(key);
            }
            Step::Done(id, result) => self.end(id, result),
        }
    }

    fn end(&mut self, id: IoId, result: Result<(), Errno>) {
        self.early.push(IoCompletion { id, result: result.map(|()| Bytes::new()) });
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
                let how = if *sync { libc::RWF_DSYNC } else { 0 };
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
        while self.dead.is_none() {
            // SAFETY: the memory the entry names is owned by the flight in the slab, which stays until the completion
            // of this entry is reaped: slots move, but buffers and the iovec array are heap allocations that don't.
            if unsafe { self.ring.submission().push(e) }.is_ok() {
                self.pushed += 1;
                return;
            }
            // The submission queue is full: submit it and try again. A kernel without memory for more requests takes
            // some when others end.
            if !self.submit() && !self.collect() {
                std::thread::yield_now();
            }
        }
    }

    /// Takes completions off the queue, to be handled when the present one is. False if there are none.
    fn collect(&mut self) -> bool {
        let n = self.ended.len();
        self.ended.extend(self.ring.completion().map(|c| (c.user_data() as usize, c.result())));
        self.ended.len() > n
    }

    /// Submits the pushed entries. Returns false if the kernel wants completions reaped first.
    fn submit(&mut self) -> bool {
        loop {
            match self.ring.submit() {
                Ok(_) => {
                    self.pushed = 0;
                    return true;
                }
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => return false,
                Err(error) => {
                    tracing::error!(%error, "io_uring refuses submissions; every request ends with an error from now on");
                    self.dead = Some(error.raw_os_error().map_or(EIO, |e| -e));
                    self.pushed = 0;
                    return true;
                }
            }
        }
    }

    /// Handles a completion entry. Returns the request if it has ended.
    fn completed(&mut self, key: usize, result: i32) -> Option<(IoId, Op, Result<(), Errno>)> {
        debug_assert!(
            self.flights.contains(key) || key as u64 == NOBODY || self.dead.is_some(),
            "the memory of a request is owned until its completion"
        );
        let f = self.flights.get_mut(key)?;
        if result == -libc::EINTR || result == -libc::EAGAIN {
            self.push(key);
            return None;
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
                return None;
            }
        }
        let Flight { id, op, done, .. } = self.flights.remove(key);
        let errno = match &op {
            Op::Read { .. } if result < 0 => Some(unreadable(result)),
            _ if result < 0 => Some(result),
            // The kernel transferred nothing although bytes were left: the file has shrunk.
            Op::Read { .. } | Op::Write { .. } if done < total => Some(EIO),
            _ => None,
        };
        Some((id, op, errno.map_or(Ok(()), Err)))
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let i = self.inner.get_mut();
        i.queue.clear();
        let io = &mut i.io;
        io.flights.retain(|_, f| f.sent);
        if io.abandoned {
            // The kernel may still write to these buffers when the device answers.
            return std::mem::forget(std::mem::take(&mut io.flights));
        }
        for (key, _) in io.ended.drain(..) {
            io.flights.try_remove(key);
        }
        // Buffers must outlive their use by the kernel: wait for all requests in flight.
        while !io.flights.is_empty() {
            if io.ring.submit_and_wait(1).is_err() {
                // Leaking the buffers is safer than freeing memory that the kernel may still write.
                std::mem::forget(std::mem::take(&mut io.flights));
                return;
            }
            let done: Vec<usize> = io.ring.completion().map(|c| c.user_data() as usize).collect();
            for key in done {
                io.flights.try_remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Disk, Engine, prepare};
    use super::*;

    /// Completions that are taken off the queue while requests are pushed are handled later.
    #[test]
    fn completions_taken_early_are_handled_in_the_next_poll() {
        let p = std::env::temp_dir().join(format!("belemnite-early-ring-{}", std::process::id()));
        let _ = std::fs::remove_file(&p);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let disk = Disk::new(prepare(&p, Some(16 << 20), false).unwrap(), false).unwrap();
            let Engine::Uring(u) = &disk.engine else { return };
            for id in 0..8 {
                disk.submit(IoRequest { id: IoId(id), kind: IoKind::Read { off: id * 4096, len: 4096 } });
            }
            disk.flush_submissions();
            disk.ready().await;
            assert!(u.inner.borrow_mut().io.collect());
            let mut done = Vec::new();
            while done.len() < 8 {
                disk.ready().await;
                disk.poll(&mut done);
            }
            assert!(done.iter().all(|c| c.result.is_ok()), "{done:?}");
            // Two more of which one is never polled for: dropping the engine waits for neither twice.
            for id in 8..10 {
                disk.submit(IoRequest { id: IoId(id), kind: IoKind::Read { off: 0, len: 4096 } });
            }
            disk.flush_submissions();
            disk.ready().await;
            u.inner.borrow_mut().io.collect();
        });
        std::fs::remove_file(&p).unwrap();
    }

    /// If the kernel refuses to go on with a ring, every waiting and every later request ends with an error.
    #[test]
    fn a_dead_ring_ends_every_request_with_an_error() {
        let p = std::env::temp_dir().join(format!("belemnite-dead-ring-{}", std::process::id()));
        let _ = std::fs::remove_file(&p);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let disk = std::rc::Rc::new(Disk::new(prepare(&p, Some(16 << 20), false).unwrap(), false).unwrap());
            let Engine::Uring(u) = &disk.engine else { return };
            let ring = u.inner.borrow().io.ring.as_raw_fd();
            let page = || AlignedBuf::zeroed(4096).freeze();
            let write =
                |id: u64| IoRequest { id: IoId(id), kind: IoKind::Write { off: id * 4096, bufs: vec![page()] } };
            let flush = |id: u64| IoRequest { id: IoId(id), kind: IoKind::Flush };
            disk.submit(write(1));
            disk.submit(flush(2));
            disk.flush_submissions();
            let mut done = Vec::new();
            while done.len() < 2 {
                disk.ready().await;
                disk.poll(&mut done);
            }
            assert!(done.iter().all(|c| c.result.is_ok()), "{done:?}");
            // A task waits already.
            let waiter = {
                let disk = disk.clone();
                tokio::task::spawn_local(async move {
                    let mut done = Vec::new();
                    while done.len() < 1506 {
                        disk.ready().await;
                        disk.poll(&mut done);
                    }
                    done
                })
            };
            tokio::task::yield_now().await;
            let null = std::fs::File::open("/dev/null").unwrap();
            // SAFETY: both descriptors are open and ours. The ring's descriptor is /dev/null now, which refuses `io_uring_enter`.
            assert!(unsafe { libc::dup2(null.as_raw_fd(), ring) } >= 0);
            // Requests of every kind: writes that carry a flush, a held flush, more requests than fit.
            disk.submit(write(3));
            disk.submit(flush(4));
            (5..11).for_each(|id| disk.submit(write(id)));
            disk.submit(flush(11));
            disk.submit(IoRequest { id: IoId(12), kind: IoKind::Read { off: 0, len: 4096 } });
            disk.submit(IoRequest { id: IoId(13), kind: IoKind::WriteAhead { off: 0, bufs: vec![page()] } });
            disk.submit(flush(14));
            (15..1500).for_each(|id| disk.submit(write(id)));
            disk.flush_submissions();
            tokio::task::yield_now().await;
            (1500..1509).for_each(|id| disk.submit(flush(id)));
            disk.flush_submissions();
            let mut done = waiter.await.unwrap();
            done.sort_by_key(|c| c.id);
            let ids: Vec<u64> = done.iter().map(|c| c.id.0).collect();
            assert_eq!(ids, (3..1509).collect::<Vec<_>>());
            assert!(done.iter().all(|c| c.result.is_err()));
        });
        std::fs::remove_file(&p).unwrap();
    }
}
