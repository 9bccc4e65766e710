//! A model of an MDS daemon. It sends beacons, follows its map and walks the states of a rank as `ceph-mds` does. In
//! place of metadata it keeps a journal, one object of the metadata pool for each rank, through the production
//! objecter. So OSDs must refuse the writes of a replaced daemon.
//!
//! The model acts until a map shows that it lost its rank. A real daemon pauses once its beacons get no answers.

use super::links::{Links, Seen, Told};
use super::{FSID, addr};
use crate::files;
use crate::net::{Card, NodeId};
use crate::queue::{MS, SEC, Time};
use crate::world::{Clock, Ctx, Input};
use base::errno::{EBLOCKLISTED, ENOENT};
use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, Mono, PoolId, SnapId};
use bytes::Bytes;
use client::core::mon;
use client::core::objecter::{Request, What};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::msg::{MMdsBeacon, MMdsMap, MOsdMap, MOsdOpReply, OpCode, OpVec, OsdOp};
use wire::types::{MdsInfo, MdsMap, ObjectLocator, mds_default_compat, mds_state as st};
use wire::{Decode as _, DecodeError, Features, Message, WireMessage as _};

/// `mds_beacon_interval`.
const BEACON: Duration = Duration::from_secs(4);
/// Longest time in a state in which the model has nothing to do.
const STEP_MAX: Time = 2 * SEC;
/// Longest pause between two operations on the journal.
const THINK_MAX: Time = SEC;
/// Pause before a failed read is repeated.
const AGAIN: Time = SEC;
/// Least pause before a daemon that was removed from the map restarts.
const RESPAWN: Time = 100 * MS;

/// An operation on the journal without an answer.
struct Pending {
    tid: u64,
    /// The entry that is written; `None` for a read.
    entry: Option<files::Entry>,
    since: Time,
}

struct Process {
    gid: u64,
    links: Links,
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
        self.process.as_ref().map(|p| p.links.inc)
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
        let gid = 5000 + inc;
        let card = Card {
            kind: EntityKind::MDS,
            name: AuthName { kind: EntityKind::MDS, id: self.name.clone() },
            entity: EntityName::new(EntityKind::MDS, gid as i64),
            addrs: self.addrs(inc),
            global_id: gid,
        };
        self.process = Some(Process {
            gid,
            links: Links::new(self.node, inc, card, format!("mds{}", self.node), &["mdsmap", "osdmap"], now, cx),
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
                p.links.fired(now, cx);
            }
            Input::Net(a) => match p.links.arrival(a, now) {
                Ok(Some(Seen::MonOpen)) => p.next_beacon = now.mono,
                Ok(Some(Seen::Maps(m))) => self.osd_maps(&m, cx),
                Ok(None) => {}
                Err(e) => cx.violation(format!("mds.{}: message not understood: {e}", self.name)),
            },
            Input::Disk | Input::Inner(_) | Input::State(_) => {}
        }
        self.work(cx);
        self.report(cx);
        self.drain(cx);
    }

    fn osd_maps(&mut self, m: &MOsdMap, cx: &mut Ctx) {
        let me = self.inc().map(|inc| self.addrs(inc)).unwrap_or_default();
        let Some(p) = &mut self.process else { return };
        let mut blocklisted = false;
        p.links.maps(m, &format!("mds.{}", self.name), cx, |map| {
            blocklisted |= me.0.iter().any(|a| map.is_blocklisted(a));
        });
        p.respawns |= blocklisted;
        self.dismissed(cx);
    }

    /// Checks, when the daemon lost its place, that its last answered beacon was long ago.
    fn dismissed(&self, cx: &mut Ctx) {
        let Some(p) = self.process.as_ref().filter(|p| p.respawns && p.want != st::STOPPED) else { return };
        let (now, early) = (cx.now(), cx.options.state.lost_lease > 0);
        if let Some(heard) = p.heard.filter(|t| !early && now - t < files::GRACE_MIN) {
            cx.violation(format!(
                "mds.{} ({}) was removed from the map, though a beacon that it sent {:.3} s ago was answered",
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
        p.links.mon.got("mdsmap", map.epoch.0.into());
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
        let t = cx.now();
        let Some(inc) = self.inc() else { return };
        let me = self.addrs(inc);
        let Some(p) = &mut self.process else { return };
        if p.respawns || p.rank < 0 || p.want != p.state {
            return;
        }
        if !p.acts {
            let Some(map) = p.links.map().filter(|m| m.epoch >= p.fence).cloned() else { return };
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
        let tid = p.links.objecter.submit(Request {
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
        if p.links.mon.send_now(&m) {
            p.sent.insert(p.seq, cx.now());
        }
    }

    /// Addresses of process `inc`.
    fn addrs(&self, inc: u64) -> AddrVec {
        AddrVec(vec![addr(self.node, 6800, inc as u32)])
    }

    /// Carries out the outputs of monitor session and objecter.
    fn drain(&mut self, cx: &mut Ctx) {
        while let Some(told) = self.process.as_mut().and_then(|p| p.links.poll(cx)) {
            match told {
                Told::Mon(mon::Event::Message(m)) => {
                    if let Err(e) = self.mon_message(&m, cx) {
                        cx.violation(format!("mds.{}: message of the monitor not understood: {e}", self.name));
                    }
                }
                Told::Mon(_) => {}
                Told::Done(tid, answer) => self.done(tid, answer, cx),
            }
        }
        if let Some(p) = &mut self.process {
            p.links.schedule(Some(p.next_beacon), &self.clock, cx);
        }
    }

    fn mon_message(&mut self, m: &Message, cx: &mut Ctx) -> Result<(), DecodeError> {
        match m.header.kind {
            MOsdMap::KIND => self.osd_maps(&MOsdMap::from_message(m)?, cx),
            MMdsMap::KIND => self.mds_map(&MMdsMap::from_message(m)?, cx)?,
            MMdsBeacon::KIND => self.beacon_answered(&MMdsBeacon::from_message(m)?),
            _ => {}
        }
        Ok(())
    }

    fn beacon_answered(&mut self, m: &MMdsBeacon) {
        let Some(p) = &mut self.process else { return };
        p.heard = p.heard.max(p.sent.get(&m.seq).copied());
        p.sent.retain(|seq, _| *seq > m.seq);
    }
}
