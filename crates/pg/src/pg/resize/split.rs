//! Splits: a PG becomes several PGs when a map raises `pg_num`.
//!
//! Each copy splits at that map, by itself. Log records, missing objects and the snapshot index go with their
//! objects, in the transaction that creates the children's collections (a long index before it,
//! [`crate::pg::resize::index`]). The children see that map and later ones as any PG does. The map starts a new
//! interval for parent and children, and peering follows. Both continue the parent's history.
//!
//! The host (`osd::core::pgs::life`) also derives the children from the map. It creates a machine for each at once
//! ([`Pg::promise`]), which holds its inputs until it is [`Pg::born`].
//!
//! Invariants:
//!  1. A collection's hash bits tell how far it was split, and change in the same transaction as the records. So a
//!     split that a crash interrupted is done again from the stored maps, and a finished one is not.
//!  2. A child's log has the parent's records of its objects, and begins and ends where the parent's did. So copies
//!     of the child have in common what copies of the parent had.
//!
//! Tests: `tests/merge.rs` (1, `a_long_snapshot_index_is_split_and_merged`),
//! `crates/sim/tests/are_planted_bugs_found.rs` (2, `a_split_that_forgets_the_log`).

use crate::effect::Effect;
use crate::exec::{Step, Stop, index_clone, split_bits};
use crate::info::PgInfo;
use crate::log::{LogEntry, PgLog};
use crate::map::MapView;
use crate::object::own_objects;
use crate::per_peer::PerOsd;
use crate::pg::keys::{missing_key, set_missing};
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::ResizeWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, PgConfig, State, Turn};
use crate::stats::StatSum;
use base::errno::{E2BIG, EIO};
use base::planted::{Bug, acts};
use base::unreached;
use base::{Epoch, Eversion, HObject, Mono, Now, OsdId, PgId, SpgId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Cid, ObjectStore, Oid, Op};
use wire::msg::MPgPeer;

/// Omap entries per read.
const OMAP_PAGE: usize = 1024;
/// Delay before a split that waits for a removal is tried again.
const SPLIT_RETRY: Duration = Duration::from_millis(200);

/// State that a child of a split begins with.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    cid: Cid,
    info: PgInfo,
    log: PgLog,
    missing: BTreeMap<HObject, Eversion>,
    granted: PerOsd<Mono>,
    /// Only for a shard: objects set aside for undo, with the versions of their entries.
    aside: Vec<(Eversion, HObject)>,
}

/// Parent or child, as one part of a split.
struct Part {
    spg: SpgId,
    cid: Cid,
    /// Hash bits of the PG after the split.
    bits: u32,
    /// The lowest bit-reversed hash of the PG.
    first: u32,
    records: Vec<(Eversion, Bytes)>,
    log: PgLog,
    missing: BTreeMap<HObject, Eversion>,
    index: Vec<(Bytes, Bytes)>,
}

/// Records that a split divides among its parts.
struct Content<'a> {
    log: &'a [(Eversion, Bytes, LogEntry)],
    /// True if the oldest records of the log were left out.
    cut: bool,
    index: &'a [(Bytes, Bytes)],
}

/// The part to which an object belongs.
fn part_of<'a>(parts: &'a mut [Part], o: &HObject) -> Option<&'a mut Part> {
    parts.iter_mut().find(|p| o.bitwise_key() >= p.first)
}

/// Seeds of the children of `pg`, which has `bits` hash bits, for `pg_num` PGs; descending in hash order.
fn children(pg: PgId, bits: u32, pg_num: u32) -> Vec<u32> {
    let step = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
    let mut all: Vec<u32> = (1u64..)
        .map_while(|i| i.checked_mul(step)?.checked_add(pg.seed.into()))
        .take_while(|s| *s < u64::from(pg_num))
        .map(|s| s as u32)
        .collect();
    all.sort_unstable_by_key(|s| std::cmp::Reverse(s.reverse_bits()));
    all
}

impl Pg {
    /// The machine of a child that a split in progress will create. The host hands in the map of the split and later
    /// ones; the machine holds them until it is [`Pg::born`].
    #[must_use]
    pub fn promise(cfg: PgConfig, bits: u32) -> Self {
        tracing::debug!(pg = %cfg.spg, bits, "waits for a split of its parent");
        let mut pg = Self::blank(cfg, State::Creating);
        pg.resize.set_bits(bits);
        pg
    }

    /// The children of the split that a map with `pg_num` does, with their hash bits. The host calls this before it
    /// hands in the map.
    pub fn splits_at(&mut self, pg_num: u32) -> Vec<(SpgId, u32)> {
        let spg = self.env.spg();
        let seeds = children(spg.pg, self.resize.bits_coming, pg_num);
        if !seeds.is_empty() {
            self.resize.bits_coming = split_bits(spg.pg, pg_num);
        }
        let pg = |seed| PgId { seed, ..spg.pg };
        seeds.into_iter().map(|s| (SpgId { pg: pg(s), ..spg }, split_bits(pg(s), pg_num))).collect()
    }

    /// Takes over the state of a split. The split's transaction was submitted before any of this machine.
    pub fn born(&mut self, c: Child, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let turn = &mut Turn { now, store, out };
        if *self.life.state() != State::Creating || self.life.is_stopping() {
            return;
        }
        let Child { cid, info, log, missing, granted, aside } = c;
        self.env.set_cid(cid);
        self.journal.restore(info, log);
        self.recovery.set_missing(missing);
        self.peers.set_granted(granted);
        if !aside.is_empty() {
            self.ec.set_aside(aside);
        }
        self.journal.info_changed();
        self.journal.await_parent();
        self.life.enter(State::Stray);
        self.take_early_maps(turn);
        let mut more = self.mail.take_posted();
        turn.out.append(&mut more);
    }

    /// Fails with the parent, whose copy failed before the split.
    pub fn fail_with_parent(&mut self, errno: base::errno::Errno, out: &mut Vec<Effect>) {
        if *self.life.state() == State::Creating {
            self.withdraw(errno, "the copy of its parent failed before the split", out);
        }
    }

    /// True if the machine waits for its split.
    #[must_use]
    pub fn awaits_split(&self) -> bool {
        *self.life.state() == State::Creating && self.plans.is_empty() && self.journal.is_settled()
    }

    /// Notes the children of the split that `map` does; true if there are any.
    pub(in crate::pg) fn await_children(&mut self, map: &MapView) -> bool {
        let Some(pool) = &map.pool else { return false };
        let spg = self.env.spg();
        let seeds = children(spg.pg, self.resize.bits, pool.pg_num);
        self.resize.awaited = seeds.into_iter().map(|seed| SpgId { pg: PgId { seed, ..spg.pg }, ..spg }).collect();
        !self.resize.awaited.is_empty()
    }

    /// Peer messages held by a machine that its split never created, or that came during a removal.
    #[must_use]
    pub fn into_held_messages(mut self) -> Vec<(OsdId, Box<MPgPeer>)> {
        self.mail.take_peers()
    }

    /// Reports a split without children: this copy is removed with all its content.
    pub(in crate::pg) fn nothing_to_split(&mut self, out: &mut Vec<Effect>) {
        let all = std::mem::take(&mut self.resize.awaited);
        if !all.is_empty() {
            self.resize.bits = self.resize.bits_coming.max(self.resize.bits);
            out.push(Effect::Split(all.into_iter().map(|spg| (spg, None)).collect()));
        }
    }

    /// Ends the interval at the map of the split, and starts the split.
    pub(in crate::pg) fn start_split(&mut self, map: MapView, turn: &mut Turn<'_>) {
        tracing::info!(pg = %self.env.spg(), epoch = %map.epoch, children = self.resize.awaited.len(), "splitting");
        self.close_collection(State::Splitting, self.is_primary() && !self.life.is_stopping(), turn);
        self.resize.index_from = Bytes::new();
        self.maps.put_first(map);
        self.start_work(Work::Resize(ResizeWork::Split), None, turn);
    }

    pub(in crate::pg) fn run_split(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let there = turn.store.collections();
        if self
            .resize
            .awaited
            .iter()
            .any(|c| self.env.reserver().is_being_removed(*c) || self.free_name(*c, &there).is_none())
        {
            tracing::debug!(pg = %self.env.spg(), "the split waits: a removed PG of a child's name still has its collection");
            self.plans.retry_at(turn.now.mono + SPLIT_RETRY);
            return Verdict::Done;
        }
        match self.split(id, turn.store) {
            Ok(None) => Verdict::Submitted,
            Ok(Some(parts)) => {
                self.resize.awaited.clear();
                turn.out.push(Effect::Split(parts));
                self.life.enter(State::Stray);
                self.take_early_maps(turn);
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// A free name for a child's collection, which is not among those `there`.
    fn free_name(&self, spg: SpgId, there: &[(Cid, u32)]) -> Option<Cid> {
        self.env.reserver().free_name(spg, |c| there.iter().any(|(t, _)| *t == c))
    }

    /// Decodes an entry of this copy's log.
    pub(in crate::pg) fn own_entry(&self, record: &Bytes) -> Step<LogEntry> {
        LogEntry::from_record(record).map_err(|error| {
            tracing::error!(pg = %self.env.spg(), %error, "log record does not decode");
            Stop::Errno(EIO)
        })
    }

    #[allow(clippy::type_complexity, reason = "as the effect has it; none if a part of the index was moved")]
    fn split(&mut self, id: u64, store: &mut dyn ObjectStore) -> Step<Option<Vec<(SpgId, Option<Box<Child>>)>>> {
        let Some((epoch, pg_num)) = self.maps.first_postponed().and_then(|m| Some((m.epoch, m.pool.as_ref()?.pg_num)))
        else {
            return Ok(Some(Vec::new()));
        };
        let seeds = children(self.env.spg().pg, self.resize.bits, pg_num);
        let Some(index) = self.rest_of_index(id, &seeds, store)? else { return Ok(None) };
        let records = store.log_entries(self.tag(id), self.env.cid(), Eversion::default())?;
        let mut entries = Vec::with_capacity(records.len());
        for (v, r) in records {
            let e = self.own_entry(&r)?;
            entries.push((v, r, e));
        }
        // A log that is too long for one transaction is cut; copies that are further behind are then backfilled.
        let mut skip = 0;
        loop {
            let content = Content { log: entries.get(skip..).unwrap_or_default(), cut: skip > 0, index: &index };
            match self.try_split(id, epoch, pg_num, &content, store) {
                Err(Stop::Errno(E2BIG)) if skip < entries.len() => skip += (entries.len() - skip).div_ceil(2),
                r => return r.map(Some),
            }
        }
    }

    /// Reads the whole snapshot index.
    pub(in crate::pg) fn read_omap(&self, id: u64, store: &mut dyn ObjectStore) -> Step<Vec<(Bytes, Bytes)>> {
        let mut all: Vec<(Bytes, Bytes)> = Vec::new();
        loop {
            let from = all.last().map(|(k, _)| k.clone()).unwrap_or_default();
            let page = match store.omap_range(
                self.tag(id),
                self.env.cid(),
                &self.meta(),
                &from,
                !all.is_empty(),
                OMAP_PAGE,
                1 << 20,
            ) {
                Err(store::ReadError::NoObject) => return Ok(all),
                r => r?,
            };
            all.extend(page.entries);
            if !page.more {
                return Ok(all);
            }
        }
    }

    #[allow(clippy::type_complexity, reason = "as the effect has it")]
    fn try_split(
        &mut self,
        id: u64,
        epoch: Epoch,
        pg_num: u32,
        content: &Content<'_>,
        store: &mut dyn ObjectStore,
    ) -> Step<Vec<(SpgId, Option<Box<Child>>)>> {
        let tail = match content.log.first() {
            _ if !content.cut => self.journal.log().tail,
            Some((_, _, e)) => Eversion { version: e.version.version.saturating_sub(1), ..e.version },
            None => self.journal.info().last_update,
        };
        let mut parts = self.empty_parts(pg_num, tail, &store.collections())?;
        self.divide(content, &mut parts);

        let mut before = self.journal.info().clone();
        before.history.last_epoch_split = epoch;
        // The children must not process older maps, in which they do not exist.
        before.epoch = epoch;
        before.log_tail = tail;
        let (ops, infos) = self.split_ops(&parts, &before);
        if let Some(info) = infos.last() {
            self.commit_with_info(self.tag(id), info.clone(), ops, store)?;
        }
        Ok(self.take_split(parts, infos, before.stats, store))
    }

    /// The parts of a split, still empty: the children, then the rest, which stays with this PG.
    fn empty_parts(&self, pg_num: u32, tail: Eversion, there: &[(Cid, u32)]) -> Step<Vec<Part>> {
        let spg = self.env.spg();
        let part = |pg: PgId, cid: Cid, first: u32| Part {
            spg: SpgId { pg, ..spg },
            cid,
            bits: split_bits(pg, pg_num),
            first,
            records: Vec::new(),
            log: PgLog::behind(tail),
            missing: BTreeMap::new(),
            index: Vec::new(),
        };
        let seeds = children(spg.pg, self.resize.bits, pg_num);
        let mut parts = Vec::with_capacity(seeds.len() + 1);
        for s in seeds {
            let pg = PgId { seed: s, ..spg.pg };
            let cid = self.free_name(SpgId { pg, ..spg }, there).ok_or(Stop::Errno(EIO))?;
            parts.push(part(pg, cid, s.reverse_bits()));
        }
        parts.push(part(spg.pg, self.env.cid(), 0));
        Ok(parts)
    }

    /// Gives each part the log records, missing objects and index entries of its objects.
    fn divide(&self, content: &Content<'_>, parts: &mut [Part]) {
        for (v, r, e) in content.log.iter().filter(|(_, _, e)| self.is_mine(&e.soid)) {
            if let Some(p) = part_of(parts, &e.soid) {
                if p.first > 0 && acts(Bug::SplitForgetsLog) {
                    continue;
                }
                p.records.push((*v, r.clone()));
                p.log.push(e.dup());
            }
        }
        for (o, v) in self.recovery.missing() {
            if let Some(p) = part_of(parts, o) {
                p.missing.insert(o.clone(), *v);
            }
        }
        for (k, v) in content.index {
            // Undecodable keys stay here; trimming reports them.
            let p = match index_clone(k) {
                Some(c) => part_of(parts, &c),
                None => parts.last_mut(),
            };
            if let Some(p) = p {
                p.index.push((k.clone(), v.clone()));
            }
        }
    }

    /// The transaction of a split, without this PG's info, and the info of each part. `before`: this PG's info, with
    /// the changes that all parts have.
    fn split_ops(&self, parts: &[Part], before: &PgInfo) -> (Vec<Op>, Vec<PgInfo>) {
        let mut total = before.stats;
        let (n, own) = (parts.len() as i64, parts.len() - 1);
        let coded = self.is_coded();
        let mut ops = Vec::new();
        let mut infos = Vec::new();
        for p in parts.iter().take(own) {
            ops.push(Op::Split { cid: self.env.cid(), dst: p.cid, first: p.first, bits: p.bits });
        }
        for (i, p) in parts.iter().enumerate() {
            let mut info = before.clone();
            if i == own {
                info.stats = total;
                info.stats.estimated = 1;
                if coded {
                    info.log_tail = self.journal.log().tail;
                }
                self.forget_given(parts, &mut ops);
            } else {
                // A share; corrected later by what the child has.
                info.stats = total.take_share(1, n - i as i64);
                info.stats.estimated = 1;
                info.history.epoch_created = before.epoch;
                info.last_backfill = backfill_of(&info.last_backfill, p);
                child_ops(p, &info, &mut ops);
            }
            if i != own || !coded {
                let append = |(v, r): &(Eversion, Bytes)| Op::LogAppend { cid: p.cid, version: *v, entry: r.clone() };
                ops.extend(p.records.iter().map(append));
            }
            infos.push(info);
        }
        (ops, infos)
    }

    /// Removes the index entries, missing objects and log records that the children get.
    fn forget_given(&self, parts: &[Part], ops: &mut Vec<Op>) {
        let Some((own, children)) = parts.split_last() else { return unreached("the last part is the parent's own") };
        let cid = own.cid;
        let (meta, missing) = own_objects(own.spg);
        let gone = |keys: Vec<Bytes>, oid: Oid, ops: &mut Vec<Op>| {
            if !keys.is_empty() {
                ops.push(Op::OmapRmKeys { cid, oid, keys });
            }
        };
        gone(children.iter().flat_map(|p| p.index.iter().map(|(k, _)| k.clone())).collect(), meta, ops);
        gone(children.iter().flat_map(|p| p.missing.keys().map(missing_key)).collect(), missing, ops);
        // The parent's log of a shard is left alone: with a removed record the store would drop its undo data.
        if !self.is_coded() {
            ops.push(Op::LogRewind { cid, to: Eversion::default() });
        }
    }

    /// Takes over the own part of a split, and makes the state that the children begin with.
    #[allow(clippy::type_complexity, reason = "as the effect has it")]
    fn take_split(
        &mut self,
        parts: Vec<Part>,
        infos: Vec<PgInfo>,
        stats: StatSum,
        store: &mut dyn ObjectStore,
    ) -> Vec<(SpgId, Option<Box<Child>>)> {
        // The real number of objects and bytes of each part is known now.
        let usage: Vec<(i64, i64)> = parts
            .iter()
            .map(|p| {
                let (objects, bytes, _) = store.collection_usage(p.cid);
                (objects as i64 - 1 - i64::from(!p.missing.is_empty()), bytes as i64)
            })
            .collect();
        let own = parts.len() - 1;
        let mut rest = (stats, usage.iter().map(|u| u.1).sum::<i64>());
        let mut born = Vec::new();
        for (i, (p, mut info)) in parts.into_iter().zip(infos).enumerate() {
            if i == own {
                if !self.is_coded() {
                    self.journal.set_log(p.log);
                }
                self.recovery.set_missing(p.missing);
                self.resize.bits = p.bits;
                self.journal.estimate_stats(rest.0);
                break;
            }
            let (objects, bytes) = usage.get(i).copied().unwrap_or_default();
            info.stats = rest.0.take(objects, bytes, rest.1);
            info.stats.estimated = 1;
            rest.1 -= bytes;
            let granted = self.peers.granted().clone();
            let (cid, log, missing) = (p.cid, p.log, p.missing);
            let aside = self.ec.give_aside(|o| o.bitwise_key() >= p.first);
            born.push((p.spg, Some(Box::new(Child { cid, info, log, missing, granted, aside }))));
        }
        born
    }
}

/// The first records of a child's collection.
fn child_ops(p: &Part, info: &PgInfo, ops: &mut Vec<Op>) {
    let cid = p.cid;
    let (meta, missing) = own_objects(p.spg);
    ops.push(Op::Touch { cid, oid: meta.clone() });
    if !p.index.is_empty() {
        ops.push(Op::OmapSet { cid, oid: meta, entries: p.index.clone() });
    }
    if !p.missing.is_empty() {
        ops.push(set_missing(cid, missing, &p.missing));
    }
    ops.push(Op::PgInfo { cid, info: info.to_blob() });
}

impl Pg {
    /// True if the object belongs to this PG after its splits. A shard's log may have records of objects that were
    /// split off.
    pub(in crate::pg) fn is_mine(&self, o: &HObject) -> bool {
        let mask = 1u32.checked_shl(self.resize.bits).map_or(u32::MAX, |b| b - 1);
        o.hash & mask == self.env.spg().pg.seed & mask
    }
}

/// Progress of a copy's backfill, restricted to one part of it.
fn backfill_of(last: &HObject, p: &Part) -> HObject {
    let end = p.first | u32::MAX.checked_shr(p.bits).unwrap_or(0);
    if last.max || last.bitwise_key() > end {
        HObject::max()
    } else if last.bitwise_key() < p.first {
        HObject::min()
    } else {
        last.clone()
    }
}

impl StatSum {
    /// Takes the share of a PG with `objects` objects and `bytes` of `all` stored bytes.
    fn take(&mut self, objects: i64, bytes: i64, all: i64) -> Self {
        let (total, stored) = (self.num_objects, self.num_bytes);
        let objects = objects.clamp(0, total.max(0));
        let mut part = self.take_share(objects, total);
        part.num_objects = objects;
        self.num_objects = total - objects;
        // Stored bytes differ from those that clients see, by holes and shared blocks.
        part.num_bytes = if stored == all { bytes } else { share(stored, bytes, all) };
        self.num_bytes = stored - part.num_bytes;
        part
    }

    /// Takes `n` parts out of `of`.
    fn take_share(&mut self, n: i64, of: i64) -> Self {
        let mut part = Self::default();
        self.each_with(&mut part, |mine, theirs| {
            *theirs = share(*mine, n, of);
            *mine -= *theirs;
        });
        part
    }
}

fn share(v: i64, n: i64, of: i64) -> i64 {
    if of <= 0 { 0 } else { (i128::from(v) * i128::from(n) / i128::from(of)) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_and_children_cover_exactly_the_parents_range() {
        for old in [1u32, 2, 3, 5, 8, 12] {
            for new in old + 1..40 {
                let mut seen: Vec<u32> = (0..old).collect();
                for seed in 0..old {
                    let pg = PgId::new(1, seed);
                    let kids = children(pg, split_bits(pg, old), new);
                    let want: Vec<u32> = cluster::osdmap::interval::children(seed, old, new).collect();
                    let mut sorted = kids.clone();
                    sorted.sort_unstable();
                    assert_eq!(sorted, want, "{seed} of {old} to {new}");
                    assert!(kids.is_sorted_by(|a, b| a.reverse_bits() > b.reverse_bits()));
                    assert!(
                        kids.iter().all(|k| k.reverse_bits() > seed.reverse_bits()),
                        "the parent's hashes come first"
                    );
                    seen.extend(kids);
                }
                seen.sort_unstable();
                assert_eq!(seen, (0..new).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn statistics_are_divided_without_remainder() {
        let all = StatSum { num_objects: 10, num_bytes: 1000, num_objects_dirty: 10, num_wr: 33, ..StatSum::default() };
        let mut rest = all;
        let (a, b) = (rest.take(3, 300, 1000), rest.take(7, 700, 700));
        assert_eq!((a.num_objects, a.num_bytes, a.num_objects_dirty, a.num_wr), (3, 300, 3, 9));
        assert_eq!((b.num_objects, b.num_bytes), (7, 700));
        let mut sum = rest;
        sum.add(&a);
        sum.add(&b);
        assert_eq!(sum, all);
    }
}
