//! Operations of the floor: reads, writes, commits, and copies on the other servers.
//!
//! Invariants:
//!  1. A write is answered when its commit and those of all other servers are durable.
//!  2. A commit starts under the same condition as one of our store: at most two are in flight, and none beside one of
//!     more than a few writes.
//!  3. A page that a commit replaces is free only when the commit is durable.
//!
//! Tests: `tests/does_the_floor_answer_right.rs` (1); 2 is `Server::may_commit`, 3 `Commit::replaced`.

use super::FloorError;
use super::pages::{PageRun, Pages};
use super::place::Places;
use base::buf::{AlignedBuf, PAGE, aligned};
use base::device::{IoCompletion, IoId, IoKind, IoRequest};
use base::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use bytes::{Buf as _, Bytes};
use net::{ConnEvent, ConnId, Handler, Net};
use reactor::disk::Disk;
use reactor::{Turn, TurnHook};
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::mpsc;
use wire::msg::{MOsdOp, MOsdOpReply, OpCode, msg_flags};
use wire::{Features, Message, MsgHeader, WireMessage as _};

/// Kind of a message with a write for another server: its place, and the data.
const COPY: u16 = 0x7f01;
/// Kind of its answer: the numbers of writes that are durable.
const COPIED: u16 = 0x7f02;
/// Most commits in flight.
const COMMITS_MAX: usize = 2;
/// Most writes of a commit beside which another may start.
const FEW: usize = 4;
/// Bytes of data from which a commit need not wait for a larger one.
const MUCH: usize = 256 << 10;
/// Bytes of a list before its entries, and of an entry: place and length.
const HEAD: usize = 16;

/// An answer that waits, and what its request holds of the connection's allowance.
struct Answer {
    conn: ConnId,
    cost: usize,
    reply: Box<MOsdOpReply>,
}

/// Writes that become durable together.
#[derive(Default)]
struct Commit {
    number: u64,
    data: Vec<(u64, Bytes)>,
    /// Writes of clients.
    own: Vec<usize>,
    /// Writes that other servers sent: connection, number there, cost.
    copies: Vec<(ConnId, u64, usize)>,
    /// Pages that are free when the commit is durable: those replaced, and those of its list.
    replaced: Vec<PageRun>,
}

/// A read of pages that do not lie side by side: its parts, and how many of them are missing.
struct Parts {
    answer: Answer,
    data: Vec<Bytes>,
    missing: usize,
}

enum Io {
    Read(Answer),
    /// A part of a read, by the number of the read.
    Part(usize, usize),
    Write,
    Flush(Commit),
}

/// The server; see the module.
pub(super) struct Server {
    net: Net,
    disk: Rc<Disk>,
    places: RefCell<Places>,
    pages: RefCell<Pages>,
    io: RefCell<Slab<Io>>,
    in_parts: RefCell<Slab<Parts>>,
    /// Writes of clients, and on how many servers each is not durable.
    writes: RefCell<Slab<(Answer, usize)>>,
    open: RefCell<Commit>,
    /// Commits in flight, the oldest first: number, and number of writes.
    in_flight: RefCell<VecDeque<(u64, usize)>>,
    hook: RefCell<Option<TurnHook>>,
    peers: RefCell<Vec<ConnId>>,
    failures: mpsc::UnboundedSender<FloorError>,
}

impl Server {
    pub(super) fn new(
        net: &Net,
        disk: Rc<Disk>,
        places: Places,
        pages: Pages,
        failures: mpsc::UnboundedSender<FloorError>,
    ) -> Rc<Self> {
        let me = Rc::new(Self {
            net: net.clone(),
            disk,
            places: RefCell::new(places),
            pages: RefCell::new(pages),
            io: RefCell::default(),
            in_parts: RefCell::default(),
            writes: RefCell::default(),
            open: RefCell::default(),
            in_flight: RefCell::default(),
            hook: RefCell::default(),
            peers: RefCell::default(),
            failures,
        });
        let weak = Rc::downgrade(&me);
        *me.hook.borrow_mut() = Some(Turn::current().before_end(move || {
            if let Some(me) = weak.upgrade() {
                me.end_turn();
            }
        }));
        me
    }

    /// Sets the connections to the other servers.
    pub(super) fn set_peers(&self, peers: Vec<ConnId>) {
        *self.peers.borrow_mut() = peers;
    }

    fn fail(&self, e: FloorError) {
        // The receiver is gone only when the server ends anyway.
        let _ = self.failures.send(e);
    }

    fn schedule(&self) {
        if let Some(h) = &*self.hook.borrow() {
            h.schedule();
        }
    }

    /// Queues a request for the device, which leaves at the end of the turn.
    fn submit(&self, what: Io, kind: IoKind) {
        let id = IoId(self.io.borrow_mut().insert(what) as u64);
        self.disk.submit(IoRequest { id, kind });
        self.schedule();
    }

    fn answer(&self, a: Answer) {
        // A client that has gone needs no answer.
        let _ = self.net.send(a.conn, a.reply.to_message(Features::PACIFIC));
        self.net.consumed(a.conn, a.cost);
    }

    fn request(&self, conn: ConnId, m: &Message) -> Result<(), wire::DecodeError> {
        let cost = m.cost();
        let op = MOsdOp::from_message(m)?;
        let reply = Box::new(MOsdOpReply {
            tid: op.tid,
            oid: op.oid,
            pgid: op.pgid.pg,
            flags: u64::from(op.flags | msg_flags::ACK | msg_flags::ONDISK),
            osdmap_epoch: op.osdmap_epoch,
            ops: op.ops,
            retry_attempt: op.retry_attempt,
            trace: op.trace,
            ..MOsdOpReply::default()
        });
        let a = Answer { conn, cost, reply };
        if let Err((mut a, errno)) = self.operate(a) {
            a.reply.result = errno;
            self.answer(a);
        }
        Ok(())
    }

    /// Starts the operation of a request, the only one that it has.
    fn operate(&self, mut a: Answer) -> Result<(), (Answer, Errno)> {
        let [op] = a.reply.ops.as_mut_slice() else { return Err((a, EOPNOTSUPP)) };
        let (code, extent, data) = (op.op, op.extent(), std::mem::take(&mut op.indata));
        match code {
            OpCode::READ => {
                let at = self.places.borrow().of_read(&a.reply.oid, extent.offset, extent.length);
                let at = match at {
                    Ok(at) => at,
                    Err(e) => return Err((a, e)),
                };
                // The answer counts as the request's until the client may send more.
                self.net.charge(a.conn, extent.length as usize);
                a.cost += extent.length as usize;
                self.read(a, at, extent.length);
            }
            OpCode::WRITE | OpCode::WRITEFULL => {
                if data.len() as u64 != extent.length {
                    return Err((a, EINVAL));
                }
                let at = self.places.borrow_mut().of_write(&a.reply.oid, extent.offset, extent.length);
                match at {
                    Ok(at) => self.write(a, at, data),
                    Err(e) => return Err((a, e)),
                }
            }
            _ => return Err((a, EOPNOTSUPP)),
        }
        Ok(())
    }

    fn read(&self, a: Answer, place: u64, length: u64) {
        let runs = self.pages.borrow().find(place, length);
        let request = |(first, n): PageRun| IoKind::Read { off: first * PAGE as u64, len: (n * PAGE as u64) as u32 };
        if let [run] = runs[..] {
            return self.submit(Io::Read(a), request(run));
        }
        let parts = Parts { answer: a, data: vec![Bytes::new(); runs.len()], missing: runs.len() };
        let number = self.in_parts.borrow_mut().insert(parts);
        runs.into_iter().enumerate().for_each(|(i, run)| self.submit(Io::Part(number, i), request(run)));
    }

    fn write(&self, a: Answer, at: u64, data: Bytes) {
        let peers = self.peers.borrow();
        let number = self.writes.borrow_mut().insert((a, 1 + peers.len()));
        for peer in peers.iter() {
            let header = MsgHeader {
                tid: number as u64,
                kind: COPY,
                version: 1,
                compat: 1,
                priority: 127,
                ..Default::default()
            };
            let front = Bytes::copy_from_slice(&at.to_le_bytes());
            let m = Message { header, front, data: data.clone(), ..Message::default() };
            if let Err(e) = self.net.send(*peer, m) {
                self.fail(FloorError::Peer(e.to_string()));
            }
        }
        let mut c = self.open.borrow_mut();
        c.data.push((at, aligned(data)));
        c.own.push(number);
        self.schedule();
    }

    /// Takes a write from another server.
    fn copy(&self, conn: ConnId, m: &Message) {
        let at = m.front.first_chunk().map(|b| u64::from_le_bytes(*b));
        let Some(at) = at.filter(|at| self.places.borrow().is_place(*at, m.data.len() as u64)) else {
            return self.net.close(conn);
        };
        let mut c = self.open.borrow_mut();
        c.data.push((at, aligned(m.data.clone())));
        c.copies.push((conn, m.header.tid, m.cost()));
        self.schedule();
    }

    /// Handles another server's message that writes are durable there.
    pub(super) fn acknowledged(&self, m: &Message) {
        let mut numbers = m.front.clone();
        while m.header.kind == COPIED && numbers.len() >= 8 {
            self.durable(numbers.get_u64_le() as usize);
        }
    }

    /// Counts one more server on which a write is durable.
    fn durable(&self, number: usize) {
        let mut writes = self.writes.borrow_mut();
        let Some((_, left)) = writes.get_mut(number) else { return };
        *left -= 1;
        if *left == 0 {
            let (a, _) = writes.remove(number);
            drop(writes);
            self.answer(a);
        }
    }

    fn may_commit(&self, c: &Commit) -> bool {
        let in_flight = self.in_flight.borrow();
        let Some((_, newest)) = in_flight.back() else { return true };
        let much = || c.data.iter().map(|(_, b)| b.len()).sum::<usize>() >= MUCH;
        in_flight.len() < COMMITS_MAX && c.data.len() >= *newest && (*newest <= FEW || much())
    }

    fn end_turn(&self) {
        let ready = {
            let c = self.open.borrow();
            !c.data.is_empty() && self.may_commit(&c)
        };
        if ready {
            self.commit();
        }
        self.disk.flush_submissions();
    }

    /// Submits the open commit: a list of its data and the data itself, side by side, and a flush.
    fn commit(&self) {
        let mut c = self.open.take();
        let listed = (HEAD * (1 + c.data.len())).div_ceil(PAGE);
        let mut list = AlignedBuf::zeroed(listed * PAGE);
        for (entry, (at, data)) in list.chunks_exact_mut(HEAD).skip(1).zip(&c.data) {
            let (place, length) = entry.split_at_mut(8);
            place.copy_from_slice(&at.to_le_bytes());
            length.copy_from_slice(&(data.len() as u64).to_le_bytes());
        }
        let mut pages = self.pages.borrow_mut();
        let n = listed + c.data.iter().map(|(_, d)| d.len() / PAGE).sum::<usize>();
        let Some(runs) = pages.take(n as u64) else {
            return self.fail(FloorError::Io(errno::name(errno::ENOSPC).into()));
        };
        self.open.borrow_mut().number = c.number + 1;
        self.in_flight.borrow_mut().push_back((c.number, c.data.len()));

        // The list is in front, for pages of no place.
        let mut to = runs.iter().flat_map(|(first, n)| *first..first + n);
        c.replaced.extend(to.by_ref().take(listed).map(|page| (page, 1)));
        for (place, data) in &c.data {
            for (i, page) in (0..data.len() / PAGE).zip(to.by_ref()) {
                c.replaced.extend(pages.put(place + (i * PAGE) as u64, page).map(|old| (old, 1)));
            }
        }
        drop(pages);
        let mut bufs: VecDeque<Bytes> =
            std::iter::once(list.freeze()).chain(c.data.drain(..).map(|(_, d)| d)).collect();
        for (first, n) in &runs {
            let mut room = *n as usize * PAGE;
            let mut of_run = Vec::new();
            while room > 0 {
                let Some(mut b) = bufs.pop_front() else { break };
                if b.len() > room {
                    bufs.push_front(b.split_off(room));
                }
                room -= b.len();
                of_run.push(b);
            }
            self.submit(Io::Write, IoKind::Write { off: first * PAGE as u64, bufs: of_run });
        }
        self.submit(Io::Flush(c), IoKind::Flush);
    }

    /// Handles a completed request of the device.
    ///
    /// # Errors
    /// [`FloorError::Io`] if it failed.
    pub(super) fn completed(&self, done: IoCompletion) -> Result<(), FloorError> {
        let data = done.result.map_err(|e| FloorError::Io(errno::name(e).into()))?;
        let what = self.io.borrow_mut().try_remove(done.id.0 as usize);
        match what {
            Some(Io::Read(mut a)) => {
                if let Some(op) = a.reply.ops.first_mut() {
                    op.outdata = data;
                }
                self.answer(a);
            }
            Some(Io::Part(number, i)) => self.part(number, i, data),
            Some(Io::Flush(c)) => {
                let mut pages = self.pages.borrow_mut();
                c.replaced.iter().for_each(|run| pages.free(*run));
                drop(pages);
                self.in_flight.borrow_mut().retain(|(number, _)| *number != c.number);
                c.own.iter().for_each(|n| self.durable(*n));
                self.acknowledge(c.copies);
                self.schedule();
            }
            Some(Io::Write) | None => {}
        }
        Ok(())
    }

    /// Takes a part of a read, which is answered with the last one.
    fn part(&self, number: usize, i: usize, data: Bytes) {
        let mut reads = self.in_parts.borrow_mut();
        let Some(parts) = reads.get_mut(number) else { return };
        if let Some(at) = parts.data.get_mut(i) {
            *at = data;
        }
        parts.missing -= 1;
        if parts.missing > 0 {
            return;
        }
        let Parts { answer: mut a, data, .. } = reads.remove(number);
        drop(reads);
        if let Some(op) = a.reply.ops.first_mut() {
            op.outdata = data.concat().into();
        }
        self.answer(a);
    }

    /// Tells the other servers which of their writes are durable, in one message for each.
    fn acknowledge(&self, mut copies: Vec<(ConnId, u64, usize)>) {
        copies.sort_by_key(|(conn, ..)| *conn);
        for of_one in copies.chunk_by(|a, b| a.0 == b.0) {
            let Some((conn, ..)) = of_one.first() else { continue };
            let front: Vec<u8> = of_one.iter().flat_map(|(_, number, _)| number.to_le_bytes()).collect();
            let header = MsgHeader { kind: COPIED, version: 1, compat: 1, priority: 127, ..Default::default() };
            // A server that has gone ends the others.
            let _ = self.net.send(*conn, Message { header, front: front.into(), ..Message::default() });
            self.net.consumed(*conn, of_one.iter().map(|(.., cost)| cost).sum());
        }
    }
}

impl Handler for Server {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        let ConnEvent::Message(m) = event else { return };
        match m.header.kind {
            MOsdOp::KIND => {
                if self.request(conn, &m).is_err() {
                    self.net.close(conn);
                }
            }
            COPY => self.copy(conn, &m),
            _ => self.net.consumed(conn, m.cost()),
        }
    }
}
