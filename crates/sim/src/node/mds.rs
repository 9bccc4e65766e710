//! A model of an MDS daemon. It sends beacons, follows its map and walks the states of a rank as `ceph-mds` does. In
//! place of metadata it keeps a journal, one object of the metadata pool for each rank, through the production
//! objecter. So OSDs must refuse the writes of a replaced daemon.
//!
//! The model acts until it is told that it lost its rank. A real daemon pauses once its beacons get no answers.

use super::{FSID, Timer, addr};
use crate::files;
use crate::net::{Arrival, Card, ConnKey, NodeId};
use crate::queue::{MS, SEC, Time};
use crate::world::{Clock, Ctx, Input};
use base::errno::{EBLOCKLISTED, ENOENT};
use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, Mono, OsdId, PoolId, SnapId};
use bytes::Bytes;
use client::core::maps;
use client::core::mon::{self, MonSession};
use client::core::objecter::{Objecter, Output, Request, What};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::msg::{MMdsBeacon, MMdsMap, MOsdMap, MOsdOpReply, OpCode, OpVec, OsdOp};
use wire::types::{MdsInfo, MdsMap, ObjectLocator, mds_default_compat, mds_state as st};
use wire::{Decode as _, DecodeError, Features, Message, WireMessage as _};

/// `mds_beacon_interval`.
const BEACON: Duration = Duration::from_secs(4);
/// Longest time between two checks of deadlines.
const TICK: Duration = Duration::from_millis(500);
/// Longest time in a state in which the model has nothing to do.
const STEP_MAX: Time = 2 * SEC;
/// Longest pause between two operations on the journal.
const THINK_MAX: Time = SEC;
/// Pause before a failed read is repeated.
const AGAIN: Time = SEC;
/// Pause before a daemon that lost its place starts anew, at least.
const RESPAWN: Time = 100 * MS;

/// An operation on the journal without an answer.
struct Pending {
    tid: u64,
    /// The entry that is written; `None` for a read.
    entry: Option<files::Entry>,
    since: Time,
}

struct Process {
    inc: u64,
    gid: u64,
    mon: MonSession,
    mon_conn: Option<ConnKey>,
    objecter: Objecter,
    conns: BTreeMap<ConnKey, OsdId>,
    by_osd: BTreeMap<OsdId, ConnKey>,
    timer: Timer,
    next_tick: Mono,
    /// Epoch of the newest map.
    epoch: Epoch,
    /// State and rank of the daemon in the map.
    state: i32,
    rank: i32,
    /// Epoch in which it got the rank.
    take: u64,
    /// True if the file system has other ranks.
    others: bool,
    metadata_pool: PoolId,
    /// OSD map epoch in which the rank's earlier daemons are blocklisted.
    fence: Epoch,
    /// State that the daemon requests.
    want: i32,
    seq: u64,
    next_beacon: Mono,
    /// Times of unanswered beacons, by sequence number.
    sent: BTreeMap<u64, Time>,
    /// Time at which the newest answered beacon was sent.
    heard: Option<Time>,
    /// True once the daemon may read and write the rank's journal.
    acts: bool,
    /// Newest entry of the journal that it knows.
    entry: Option<files::Entry>,
    pending: Option<Pending>,
    /// Time of the next step in this state.
    next_step: Time,
    /// True if the daemon lost its place and restarts.
    respawns: bool,
}

/// A node with an MDS daemon; see the module.
pub struct MdsNode {
    /// Its clocks.
    pub clock: Clock,
    node: NodeId,
    name: String,
    process: Option<Process>,
}

impl MdsNode {
    /// Daemon number `i`, at this node.
    #[must_use]
    pub fn new(clock: Clock, node: NodeId, i: usize) -> Self {
        Self { clock, node, name: format!("m{i}"), process: None }
    }

    /// Number of the process.
    #[must_use]
    pub fn inc(&self) -> Option<u64> {
        self.process.as_ref().map(|p| p.inc)
    }

    /// The daemon's global id, unless it is about to restart.
    #[must_use]
    pub fn place(&self) -> Option<u64> {
        self.process.as_ref().filter(|p| p.want != st::STOPPED && !p.respawns).map(|p| p.gid)
    }

    /// Reason why the daemon's state differs from the map; `None` if it agrees.
    #[must_use]
    pub fn unwell(&self, info: Option<&MdsInfo>, now: Time) -> Option<String> {
        let Some(p) = &self.process else { return Some("does not run".into()) };
        let Some(info) = info else { return Some("is not in the map".into()) };
        let late = p.pending.as_ref().is_some_and(|o| now - o.since > 30 * SEC);
        if p.state != info.state || p.want != info.state || p.rank != info.rank {
            let states = [p.state, p.want, info.state].map(st::name);
            return Some(format!("is {} and wants {}, but the map says {}", states[0], states[1], states[2]));
        }
        late.then(|| "waits for its journal".into())
    }

    /// The daemon's global id, even if it does not run.
    #[must_use]
    pub fn gid(&self) -> Option<u64> {
        self.process.as_ref().map(|p| p.gid)
    }

    /// Starts a process with a new global id.
    pub fn start(&mut self, cx: &mut Ctx) {
        let inc = cx.new_inc();
        let now = self.clock.now(cx.now());
        let mut mon = MonSession::new(cx.mon_addrs(), inc, format!("mds{}", self.node));
        mon.subscribe("mdsmap", 0, false);
        mon.subscribe("osdmap", 0, false);
        self.process = Some(Process {
            inc,
            gid: 5000 + inc,
            mon,
            mon_conn: None,
            objecter: Objecter::new(0),
            conns: BTreeMap::new(),
            by_osd: BTreeMap::new(),
            timer: Timer::default(),
            next_tick: now.mono,
            epoch: Epoch(0),
            state: st::BOOT,
            rank: -1,
            take: 0,
            others: false,
            metadata_pool: PoolId(-1),
            fence: Epoch(0),
            want: st::BOOT,
            seq: 0,
            next_beacon: now.mono,
            sent: BTreeMap::new(),
            heard: None,
            acts: false,
            entry: None,
            pending: None,
            next_step: 0,
            respawns: false,
        });
        self.handle(Input::Timer, cx);
    }

    /// Kills the process. Its last write may still take effect.
    pub fn crash(&mut self) {
        self.process = None;
    }

    /// If the daemon restarts by itself: the time until it starts.
    pub fn wants_to_die(&mut self, cx: &mut Ctx) -> Option<(bool, Time)> {
        let p = self.process.as_ref().filter(|p| p.respawns)?;
        let gid = p.gid;
        cx.line(|| format!("mds.{} ({gid}) starts anew", self.name));
        Some((false, RESPAWN + cx.rng.below(SEC)))
    }

    /// An event.
    pub fn handle(&mut self, input: Input, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return };
        match input {
            Input::Timer => {
                p.timer.fired(cx.queue.now());
                p.mon.tick(now);
                p.objecter.tick(now);
                if now.mono >= p.next_tick {
                    p.next_tick = now.mono + TICK;
                }
            }
            Input::Net(a) => {
                if let Err(e) = self.arrival(a, cx) {
                    cx.violation(format!("mds.{}: message not understood: {e}", self.name));
                }
            }
            Input::Disk | Input::Inner(_) | Input::State(_) => {}
        }
        self.work(cx);
        self.report(cx);
        self.drain(cx);
    }

    fn arrival(&mut self, a: Arrival, cx: &mut Ctx) -> Result<(), DecodeError> {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return Ok(()) };
        match a {
            Arrival::Accept(..) => {}
            Arrival::Opened(k) if p.mon_conn == Some(k) => {
                p.mon.handle_open(Features::PACIFIC);
                p.next_beacon = now.mono;
            }
            Arrival::Opened(k) => {
                if let Some(o) = p.conns.get(&k) {
                    p.objecter.handle_open(*o, Features::PACIFIC);
                }
            }
            Arrival::Closed(k, _) if p.mon_conn == Some(k) => {
                p.mon_conn = None;
                p.mon.handle_closed(now);
            }
            Arrival::Closed(k, _) => {
                if let Some(o) = p.conns.remove(&k) {
                    p.by_osd.remove(&o);
                    p.objecter.handle_closed(o, now);
                }
            }
            Arrival::Message(k, m) if p.mon_conn == Some(k) => p.mon.handle_message(m)?,
            Arrival::Message(k, m) => {
                if m.header.kind == MOsdMap::KIND {
                    self.osd_maps(&m, cx)?;
                } else if let Some(o) = p.conns.get(&k).copied() {
                    p.objecter.handle_message(o, &m)?;
                }
            }
        }
        Ok(())
    }

    fn osd_maps(&mut self, m: &Message, cx: &mut Ctx) -> Result<(), DecodeError> {
        let m = MOsdMap::from_message(m)?;
        let me = self.addrs();
        let Some(p) = &mut self.process else { return Ok(()) };
        let (new, refused) = maps::advance(p.objecter.map().cloned(), &m);
        for (e, error) in refused {
            cx.violation(format!("mds.{}: OSD map {e} refused: {error}", self.name));
        }
        for map in new {
            p.mon.got("osdmap", map.epoch.0.into());
            p.respawns |= me.0.iter().any(|a| map.is_blocklisted(a));
            p.objecter.handle_map(map);
        }
        self.dismissed(cx);
        Ok(())
    }

    /// Checks, when the daemon lost its place, that its last answered beacon was long ago.
    fn dismissed(&self, cx: &mut Ctx) {
        let Some(p) = self.process.as_ref().filter(|p| p.respawns && p.want != st::STOPPED) else { return };
        let (now, early) = (cx.now(), cx.options.state.lost_lease > 0);
        if let Some(heard) = p.heard.filter(|t| !early && now - t < files::GRACE_MIN) {
            cx.violation(format!(
                "mds.{} ({}) lost its place, though a beacon that it sent {:.3} s ago was answered",
                self.name,
                p.gid,
                (now - heard) as f64 / 1e9
            ));
        }
    }

    fn mds_map(&mut self, m: &MMdsMap, cx: &mut Ctx) -> Result<(), DecodeError> {
        let map = MdsMap::from_bytes(&m.encoded)?;
        let Some(p) = &mut self.process else { return Ok(()) };
        if map.epoch <= p.epoch {
            return Ok(());
        }
        p.mon.got("mdsmap", map.epoch.0.into());
        p.epoch = map.epoch;
        let Some(info) = map.mds_info.get(&p.gid) else {
            // The daemon waits until it is in a map; the map that dismisses a daemon has the highest epoch.
            p.respawns = p.state != st::BOOT || map.epoch == Epoch(u32::MAX);
            self.dismissed(cx);
            return Ok(());
        };
        cx.told_files(&map, &m.encoded);
        let (name, gid) = (&self.name, p.gid);
        p.others = map.ranks_in.len() > 1;
        p.metadata_pool = map.metadata_pool;
        p.fence = p.fence.max(map.last_failure_osd_epoch);
        if (info.rank, info.inc) != (p.rank, p.take as i32) {
            (p.rank, p.take) = (info.rank, info.inc as u64);
        }
        if info.state != p.state {
            let rank = info.rank;
            cx.line(|| format!("mds.{name} ({gid}) is {} of rank {rank} in map {}", st::name(info.state), map.epoch));
            (p.state, p.want) = (info.state, info.state);
            p.next_step = cx.now() + cx.rng.below(STEP_MAX);
        }
        Ok(())
    }

    /// Does the next step of the daemon's state.
    fn work(&mut self, cx: &mut Ctx) {
        let me = self.addrs();
        let t = cx.now();
        let Some(p) = &mut self.process else { return };
        if p.respawns || p.rank < 0 || p.want != p.state {
            return;
        }
        if !p.acts {
            let Some(map) = p.objecter.map().filter(|m| m.epoch >= p.fence).cloned() else { return };
            p.acts = true;
            cx.begins_to_act(p.rank, p.take, p.gid, me, map);
        }
        let due = p.pending.is_none() && t >= p.next_step;
        if p.entry.is_none() {
            // A new rank's journal is made, an existing one is read.
            match p.state {
                st::CREATING if due => self.write(cx),
                _ if due => self.read(cx),
                _ => {}
            }
            return;
        }
        match p.state {
            st::CREATING | st::STARTING | st::CLIENTREPLAY => self.ask(st::ACTIVE, cx),
            st::REPLAY => {
                let next = if p.others { st::RESOLVE } else { st::RECONNECT };
                self.ask(next, cx);
            }
            st::RESOLVE => self.ask(st::RECONNECT, cx),
            st::RECONNECT => self.ask(st::REJOIN, cx),
            st::REJOIN => {
                let next = if cx.rng.chance(1, 2) { st::CLIENTREPLAY } else { st::ACTIVE };
                self.ask(next, cx);
            }
            st::STOPPING if p.pending.is_none() => {
                if let Some(f) = &mut cx.files {
                    f.leaves(p.rank, p.gid);
                }
                self.ask(st::STOPPED, cx);
            }
            st::ACTIVE if due && !cx.files.as_ref().is_some_and(|f| f.held) => {
                if cx.rng.chance(1, 4) {
                    self.read(cx);
                } else {
                    self.write(cx);
                }
            }
            _ => {}
        }
    }

    /// Requests a state, once the time for the present one is over.
    fn ask(&mut self, state: i32, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return };
        if cx.now() >= p.next_step {
            p.want = state;
            p.next_beacon = now.mono;
        }
    }

    fn write(&mut self, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        let number = p.entry.filter(|e| e.take == p.take).map_or(1, |e| e.number + 1);
        let entry = files::Entry { take: p.take, number };
        if let Some(f) = &mut cx.files {
            f.begins(p.rank, entry);
        }
        let data = entry.to_bytes();
        let op = OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data);
        self.submit(op, Some(entry), cx);
    }

    fn read(&mut self, cx: &mut Ctx) {
        self.submit(OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new()), None, cx);
    }

    fn submit(&mut self, op: OsdOp, entry: Option<files::Entry>, cx: &mut Ctx) {
        let wall = self.clock.now(cx.now()).wall;
        let Some(p) = &mut self.process else { return };
        let tid = p.objecter.submit(Request {
            what: What::Object {
                locator: ObjectLocator::new(p.metadata_pool),
                oid: format!("{:x}.00000000", 0x200 + p.rank).into(),
            },
            ops: OpVec::from_vec(vec![op]),
            flags: 0,
            snapid: SnapId::HEAD,
            snapc: Default::default(),
            mtime: wall,
        });
        p.pending = Some(Pending { tid, entry, since: cx.now() });
        cx.trace.line(cx.queue.now(), || format!("mds.{} ({}): journal operation {entry:?}", self.name, p.gid));
    }

    fn done(&mut self, tid: u64, answer: Result<Box<MOsdOpReply>, i32>, cx: &mut Ctx) {
        let t = cx.now();
        let Some(p) = &mut self.process else { return };
        let Some(op) = p.pending.take_if(|o| o.tid == tid) else { return };
        let (result, data) = match answer {
            Ok(a) => (a.result, a.ops.first().map(|o| o.outdata.clone()).unwrap_or_default()),
            Err(e) => (e, Bytes::new()),
        };
        p.next_step = t + cx.rng.below(THINK_MAX);
        let Some(f) = &mut cx.files else { return };
        let wrong = match op.entry {
            _ if result == EBLOCKLISTED => {
                p.respawns = true;
                None
            }
            Some(e) if result >= 0 => {
                p.entry = Some(e);
                f.wrote(p.rank, e)
            }
            // The write may have happened.
            Some(_) => {
                p.respawns = true;
                None
            }
            None if result >= 0 || result == ENOENT => {
                let found = files::Entry::parse(&data);
                p.entry = found;
                f.read(p.rank, p.take, found)
            }
            None => {
                p.next_step = t + AGAIN;
                None
            }
        };
        let (name, gid) = (&self.name, p.gid);
        cx.line(|| format!("mds.{name} ({gid}): {:?} answered {result}", op.entry));
        if let Some(what) = wrong {
            cx.violation(format!("mds.{name} ({gid}): {what}"));
        }
        if result == EBLOCKLISTED {
            self.dismissed(cx);
        }
    }

    /// Sends a beacon that is due.
    fn report(&mut self, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return };
        if p.respawns || now.mono < p.next_beacon {
            return;
        }
        p.next_beacon = now.mono + BEACON;
        p.seq += 1;
        let m = MMdsBeacon {
            paxos: p.epoch.into(),
            fsid: FSID,
            global_id: p.gid,
            state: p.want,
            seq: p.seq,
            name: self.name.clone(),
            standby_for_rank: -1,
            compat: mds_default_compat(),
            mds_features: Features::PACIFIC.0,
            standby_for_fscid: -1,
            ..MMdsBeacon::default()
        };
        if p.mon.send_now(&m) {
            p.sent.insert(p.seq, cx.now());
        }
    }

    fn addrs(&self) -> AddrVec {
        AddrVec(vec![addr(self.node, 6800, self.inc().unwrap_or(0) as u32)])
    }

    fn card(&self) -> Card {
        let gid = self.gid().unwrap_or(0);
        Card {
            kind: EntityKind::MDS,
            name: AuthName { kind: EntityKind::MDS, id: self.name.clone() },
            entity: EntityName::new(EntityKind::MDS, gid as i64),
            addrs: self.addrs(),
            global_id: gid,
        }
    }

    /// Carries out the outputs of monitor session and objecter.
    fn drain(&mut self, cx: &mut Ctx) {
        let (node, t, card) = (self.node, cx.now(), self.card());
        loop {
            let Some(p) = &mut self.process else { return };
            if let Some(o) = p.mon.poll_output() {
                self.mon_output(o, &card, cx);
                continue;
            }
            let Some(o) = p.objecter.poll_output() else { break };
            match o {
                Output::Connect(osd, addrs) => {
                    if let Some(a) = addrs.msgr2().copied() {
                        let k = cx.net.connect(node, p.inc, a, card.clone(), t);
                        p.conns.insert(k, osd);
                        p.by_osd.insert(osd, k);
                    }
                }
                Output::Close(osd) => {
                    if let Some(k) = p.by_osd.remove(&osd) {
                        p.conns.remove(&k);
                        cx.net.close(k, node, p.inc, t);
                    }
                }
                Output::Send(osd, m) => {
                    if let Some(k) = p.by_osd.get(&osd) {
                        cx.net.send(*k, node, p.inc, m, t);
                    }
                }
                Output::Done(tid, answer) => self.done(tid, answer, cx),
                Output::NeedMap(e) => p.mon.subscribe("osdmap", e.0.into(), false),
            }
        }
        let now = self.clock.now(t);
        let Some(p) = &mut self.process else { return };
        let deadlines = [p.mon.next_deadline(), p.objecter.next_deadline(), Some(p.next_tick), Some(p.next_beacon)];
        let next = deadlines.into_iter().flatten().min().map(|d| d.min(now.mono + TICK));
        p.timer.set(next, &self.clock, node, p.inc, cx);
    }

    fn mon_output(&mut self, o: mon::Output, card: &Card, cx: &mut Ctx) {
        let (node, t) = (self.node, cx.now());
        let Some(p) = &mut self.process else { return };
        match o {
            mon::Output::Connect(a) => p.mon_conn = Some(cx.net.connect(node, p.inc, a, card.clone(), t)),
            mon::Output::Close => {
                if let Some(k) = p.mon_conn.take() {
                    cx.net.close(k, node, p.inc, t);
                }
            }
            mon::Output::Send(m) => {
                if let Some(k) = p.mon_conn {
                    cx.net.send(k, node, p.inc, m, t);
                }
            }
            mon::Output::Event(mon::Event::Message(m)) => {
                let read = match m.header.kind {
                    MOsdMap::KIND => self.osd_maps(&m, cx),
                    MMdsMap::KIND => MMdsMap::from_message(&m).and_then(|m| self.mds_map(&m, cx)),
                    MMdsBeacon::KIND => MMdsBeacon::from_message(&m).map(|m| self.beacon_answered(&m)),
                    _ => Ok(()),
                };
                if let Err(e) = read {
                    cx.violation(format!("mds.{}: message of the monitor not understood: {e}", self.name));
                }
            }
            mon::Output::Event(_) => {}
        }
    }

    fn beacon_answered(&mut self, m: &MMdsBeacon) {
        let Some(p) = &mut self.process else { return };
        p.heard = p.heard.max(p.sent.get(&m.seq).copied());
        p.sent.retain(|seq, _| *seq > m.seq);
    }
}
