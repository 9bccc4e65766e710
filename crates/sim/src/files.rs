//! The record of MDS daemons' actions, and the oracles about them.
//!
//! Oracles:
//!  1. When a daemon begins to act for a rank, the OSD map with which it does so blocklists all daemons that got the rank
//!     earlier, except for those that gave it up. Some of these may begin to act later, as they hear of their rank late.
//!  2. A rank's journal has every entry that was acknowledged to the rank's last daemon, and no entry that an earlier
//!     daemon wrote after a later one read the journal.
//!  3. A daemon whose beacons are answered keeps its place; so does every daemon after a stall of the monitor, for as
//!     long as the monitor waits for beacons.
//!  4. Epochs of the FSMap do not go back, an epoch has one content, and the committed map keeps its invariants.
//!  5. Once faults have stopped, every rank has a daemon that is active, and every daemon is in the map.

use crate::net::NodeId;
use crate::node::Node;
use crate::options::Options;
use crate::oracle;
use crate::queue::{MS, SEC, Time};
use crate::world::{Ctx, World};
use base::{AddrVec, Epoch};
use bytes::Bytes;
use cluster::OsdMap;
use mon::state::fs::map as fsmap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::types::{MdsMap, mds_state};

/// Name of the file system.
pub const NAME: &str = "home";
/// A beacon that was answered keeps a daemon in its place for this time: `mds_beacon_grace` less the error of clocks.
pub const GRACE_MIN: Time = 14_500 * MS;
/// A pause of the monitor that counts as a stall: more than `mds_beacon_grace` less `mds_beacon_interval`, and a tick.
const STALL: Time = 13 * SEC;

/// An entry of a rank's journal, which has the newest one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Epoch in which the entry's daemon got the rank; it orders the daemons of a rank.
    pub take: u64,
    /// Number of the entry among those of its daemon.
    pub number: u64,
}

impl Entry {
    /// The object's content.
    #[must_use]
    pub fn to_bytes(self) -> Bytes {
        [self.take.to_le_bytes(), self.number.to_le_bytes()].concat().into()
    }

    /// The entry in an object, if there is one.
    #[must_use]
    pub fn parse(b: &[u8]) -> Option<Self> {
        let (take, number) = b.split_at_checked(8)?;
        let n = |b: &[u8]| Some(u64::from_le_bytes(b.try_into().ok()?));
        Some(Self { take: n(take)?, number: n(number)? })
    }
}

/// A rank's journal as far as it is known.
#[derive(Debug, Default)]
struct Journal {
    /// Newest entry that is durable.
    durable: Option<Entry>,
    /// Unanswered entries that may be in the journal.
    begun: BTreeSet<Entry>,
    /// The last daemon that read the journal, by its epoch, and the entry that it read first.
    reader: Option<(u64, Entry)>,
}

/// A daemon that acted for a rank.
#[derive(Debug)]
struct Holder {
    gid: u64,
    addrs: AddrVec,
    /// Epoch in which the daemon got the rank.
    take: u64,
    /// OSD map with which the daemon began to act.
    map: Arc<OsdMap>,
    /// True if the daemon gave the rank up.
    left: bool,
}

/// The record of MDS daemons and the oracles' state; see the module.
#[derive(Debug, Default)]
pub struct Files {
    /// True while daemons write nothing.
    pub held: bool,
    /// Number of times that a rank got another daemon.
    pub takeovers: usize,
    /// Entries that were acknowledged.
    pub entries: usize,
    holders: BTreeMap<i32, Vec<Holder>>,
    journals: BTreeMap<i32, Journal>,
    /// Contents of the file system's map.
    contents: BTreeMap<Epoch, Bytes>,
    /// Newest epoch of the committed map, and the daemons in it.
    epoch: Epoch,
    placed: BTreeSet<u64>,
    /// Time at which the only monitor was paused, and the time at which it received messages again after a stall.
    paused: Time,
    back: Time,
}

impl Files {
    /// Records that a daemon writes an entry: it may be in the journal from now on.
    pub fn begins(&mut self, rank: i32, entry: Entry) {
        self.journals.entry(rank).or_default().begun.insert(entry);
    }

    /// Checks an acknowledged entry; returns a violation.
    pub fn wrote(&mut self, rank: i32, entry: Entry) -> Option<String> {
        self.entries += 1;
        let j = self.journals.entry(rank).or_default();
        if let Some((reader, first)) = j.reader
            && reader > entry.take
        {
            // It may have been written before the later daemon read the journal, and the answer was late.
            return (first < entry).then(|| format!("{entry:?} is durable, and a later daemon had read {first:?}"));
        }
        j.durable = j.durable.max(Some(entry));
        j.begun.retain(|e| *e > entry);
        None
    }

    /// Checks the content that a daemon read from its rank's journal; it got the rank in epoch `take`. Returns a
    /// violation.
    pub fn read(&mut self, rank: i32, take: u64, found: Option<Entry>) -> Option<String> {
        let j = self.journals.entry(rank).or_default();
        let Some(found) = found else {
            return Some(format!("the journal of rank {rank} is empty, after {:?}", j.durable));
        };
        let first = j.reader.is_none_or(|(t, _)| t < take);
        if j.reader.is_some_and(|(t, _)| t > take) {
            // The answer to a replaced daemon is not evidence.
            return None;
        }
        let known = Some(found) == j.durable || j.begun.contains(&found);
        if !known || Some(found) < j.durable {
            return Some(format!("the journal of rank {rank} has {found:?}, after {:?} and {:?}", j.durable, j.begun));
        }
        j.durable = Some(found);
        if first {
            j.reader = Some((take, found));
        }
        // Unanswered entries of earlier daemons that are not in the journal now must never appear.
        j.begun.retain(|e| *e > found && e.take == take);
        None
    }

    /// Records that a daemon gives its rank up and writes nothing any more.
    pub fn leaves(&mut self, rank: i32, gid: u64) {
        for h in self.holders.entry(rank).or_default().iter_mut().filter(|h| h.gid == gid) {
            h.left = true;
        }
    }
}

impl Ctx {
    /// Records that a daemon begins to act for a rank, with this OSD map; returns a violation.
    pub fn begins_to_act(&mut self, rank: i32, take: u64, gid: u64, addrs: AddrVec, map: Arc<OsdMap>) {
        let Some(f) = &mut self.files else { return };
        let all = f.holders.entry(rank).or_default();
        f.takeovers += usize::from(!all.is_empty());
        let new = Holder { gid, addrs, take, map, left: false };
        // One of them got the rank first, and the map of the other one must keep it out.
        let open = |a: &Holder, b: &Holder| {
            let (first, then) = if a.take < b.take { (a, b) } else { (b, a) };
            let kept_out = first.left || first.addrs.0.iter().all(|x| then.map.is_blocklisted(x));
            (!kept_out).then_some((then.gid, then.map.epoch, first.gid))
        };
        let wrong = all.iter().find_map(|h| open(h, &new));
        let epoch = new.map.epoch;
        all.push(new);
        self.line(|| format!("MDS {gid} acts for rank {rank} from OSD map {epoch}"));
        if let Some((then, epoch, first)) = wrong {
            self.violation(format!(
                "MDS {then} acts for rank {rank} with OSD map {epoch}, which does not blocklist {first}"
            ));
        }
    }

    /// Checks a map of the file system that a daemon gets; returns a violation.
    pub fn told_files(&mut self, map: &MdsMap, encoded: &Bytes) {
        let Some(f) = self.files.as_mut().filter(|_| map.enabled) else { return };
        if f.contents.entry(map.epoch).or_insert_with(|| encoded.clone()) != encoded {
            self.violation(format!("a daemon is told another map {} of the file system than others", map.epoch));
        }
    }

    /// Records that the monitor is paused.
    pub fn monitor_pauses(&mut self) {
        let now = self.now();
        if let Some(f) = &mut self.files {
            f.paused = now;
        }
    }

    /// Records that the monitor continues, or has `started`.
    pub fn monitor_goes_on(&mut self, started: bool) {
        let now = self.now();
        if let Some(f) = &mut self.files
            && (started || now - f.paused > STALL)
        {
            f.back = now;
        }
    }
}

/// The commands that make the file system's pools and the file system.
#[must_use]
pub fn commands(o: &Options) -> Vec<String> {
    let (size, min) = (o.pool.copies, o.pool.min_size);
    let mut all = Vec::new();
    for pool in ["fsmeta", "fsdata"] {
        all.push(format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":1,"pgp_num":1,"size":{size}}}"#));
        if size > 1 {
            all.push(format!(r#"{{"prefix":"osd pool set","pool":"{pool}","var":"min_size","val":"{min}"}}"#));
        }
    }
    all.push(format!(r#"{{"prefix":"fs new","fs_name":"{NAME}","metadata":"fsmeta","data":"fsdata"}}"#));
    all
}

/// Notes the daemons of the committed map, before the monitor is paused and when it has started.
pub fn note_daemons(w: &mut World) {
    let placed = oracle::core(w).map(|c| c.state().fs.map.mds_roles.keys().copied().collect());
    if let Some((f, placed)) = w.ctx.files.as_mut().zip(placed) {
        f.placed = placed;
    }
}

/// Checks the committed map, once a second.
pub fn look(w: &mut World) {
    let alive: BTreeSet<u64> = daemons(w).filter_map(|(n, m)| m.place().filter(|_| !w.is_paused(n))).collect();
    let single = w.ctx.options.mons == 1;
    let Some(core) = oracle::core(w) else { return };
    let (map, osd_epoch) = (&core.state().fs.map, core.state().osdmap.epoch);
    let mut wrong: Vec<String> = fsmap::check(map).err().into_iter().collect();
    let fence = map.filesystems.values().map(|f| f.mds_map.last_failure_osd_epoch).max().unwrap_or_default();
    if fence > osd_epoch {
        wrong.push(format!("the map of file systems names OSD map {fence}, and the newest is {osd_epoch}"));
    }
    let (epoch, placed) = (map.epoch, map.mds_roles.keys().copied().collect::<BTreeSet<_>>());
    let now = w.ctx.now();
    let Some(f) = &mut w.ctx.files else { return };
    if single && epoch < f.epoch {
        wrong.push(format!("map {epoch} of file systems follows {}", f.epoch));
    }
    let lost = f.placed.iter().find(|g| alive.contains(g) && !placed.contains(g));
    if let Some(gid) = lost.filter(|_| single && now - f.back < GRACE_MIN) {
        let ago = (now - f.back) / MS;
        wrong.push(format!("MDS {gid} is dismissed {ago} ms after the monitor began to hear again"));
    }
    (f.epoch, f.placed) = (epoch, placed);
    for what in wrong {
        w.ctx.violation(what);
    }
}

fn daemons(w: &World) -> impl Iterator<Item = (NodeId, &crate::node::mds::MdsNode)> {
    w.nodes.iter().enumerate().filter_map(|(n, x)| match x {
        Node::Mds(m) => Some((n, &**m)),
        _ => None,
    })
}

/// The reason why the file system is not served by all its daemons; `None` if it is.
#[must_use]
pub fn unwell(w: &World) -> Option<String> {
    w.ctx.files.as_ref()?;
    let Some(core) = oracle::core(w) else { return Some("no monitor".into()) };
    let map = &core.state().fs.map;
    let Some(fs) = map.fs_by_name(NAME) else { return Some("no file system".into()) };
    let m = &fs.mds_map;
    let served = (0..m.max_mds).all(|r| m.holder(r).is_some_and(|i| i.state == mds_state::ACTIVE));
    if !served || m.up.len() != m.max_mds as usize {
        return Some(format!("ranks {:?} of {} are up, {:?} failed", m.up, m.max_mds, m.failed));
    }
    let now = w.ctx.now();
    daemons(w).find_map(|(n, d)| {
        let info = d.gid().and_then(|g| map.daemon(g));
        d.unwell(info, now).map(|why| format!("MDS node {n} {why}"))
    })
}
