//! Reports of a PG: `pg_stat_t` for the manager, operations in flight for the admin socket.

use super::idle::Idleness;
use super::{Pg, State};
use crate::event::OpRequest;
use crate::pg::ops::work::Work;
use crate::pg::peering::Member;
use crate::pg::recovery::reserve::Kind;
use crate::stats::Counters;
use crate::stats::OpDump;
use crate::stats::Stamps;
use base::ledger::Cause;
use base::{Mono, Now, OsdId, Utime};
use std::hash::Hasher as _;
use wire::types::{ObjectStatSum, PgShard, PgStat, pg_state};
use wire::{Encode as _, Features};

/// Reports in a row that carry a change: a manager with an older map may have dropped the first.
const NEWS_TIMES: u64 = 3;
/// Bits of the stored fingerprint that count these reports.
const TIMES: u64 = 7;

/// Counters and times for reports, and the last report.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Report {
    counters: Counters,
    stamps: Stamps,
    /// Number of the last report.
    seq: u64,
    /// Fingerprint of the last report without its times, and how often it was sent.
    last: u64,
    idleness: Idleness,
}

impl Report {
    /// Prefetches what every operation reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        base::prefetch(&self.counters.ops);
        base::prefetch(&self.counters.replans);
    }

    /// Counts since the machine was made.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts an operation that was answered.
    #[inline]
    pub(super) fn count_op(&mut self) {
        self.counters.ops += 1;
    }

    /// Counts a plan that runs again because the store has brought what it needs.
    #[inline]
    pub(super) fn count_replan(&mut self) {
        self.counters.replans += 1;
    }

    /// Counts a resent write that was answered from the log.
    pub(super) fn count_dup(&mut self) {
        self.counters.dups += 1;
    }

    /// Counts operations that get no answer.
    pub(super) fn count_dropped(&mut self, n: u64) {
        self.counters.dropped += n;
    }

    /// Counts a write that was not sent to a member, since it spares its shard.
    pub(super) fn count_spared(&mut self) {
        self.counters.shards_spared += 1;
    }

    /// Counts reads from other shards.
    pub(super) fn count_shard_reads(&mut self, n: usize) {
        self.counters.shard_reads += n as u64;
    }

    /// Counts an object that was recovered, here or on a member.
    pub(super) fn count_recovered_object(&mut self) {
        self.counters.recovered_objects += 1;
    }

    /// Counts bytes and omap keys of objects that are recovered.
    pub(super) fn count_recovered(&mut self, bytes: u64, keys: u64) {
        self.counters.recovered_bytes += bytes;
        self.counters.recovered_keys += keys;
    }

    /// Times of state changes.
    pub(super) fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// Notes a change of the interval or the state.
    pub(super) fn state_changed(&mut self, now: Now) {
        self.stamps.changed(now);
    }

    /// Notes that the PG has become active.
    pub(super) fn became_active(&mut self, now: Now) {
        self.stamps.activated(now);
    }

    /// Number of the last report.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Sets the number of the last report, as it is stored.
    pub(super) fn set_seq(&mut self, seq: u64) {
        self.seq = seq;
    }

    /// Takes over what another machine of the PG has counted.
    pub(super) fn restore(&mut self, counters: Counters, stamps: Stamps, seq: u64) {
        (self.counters, self.stamps, self.seq) = (counters, stamps, seq);
    }

    /// Notes that the host asked the machine to release memory; returns the number of such calls in a row without an operation.
    pub(super) fn look(&mut self, busy: bool) -> u8 {
        self.idleness.look(busy, self.counters.ops)
    }
}

impl Pg {
    /// State bits as Ceph reports them ([`pg_state`]).
    #[must_use]
    pub fn state_bits(&self) -> u64 {
        match self.life.state() {
            State::Loading
            | State::Splitting
            | State::Merging
            | State::GetInfo
            | State::GetLog { .. }
            | State::WaitUpThru { .. } => pg_state::PEERING | self.copies_bits(),
            State::Creating => pg_state::CREATING | pg_state::PEERING,
            // A failed primary serves nothing until another OSD leads.
            State::Failed(_) if self.is_primary() => pg_state::DOWN,
            State::Stray
            | State::ReplicaActive
            | State::Leaving
            | State::Arriving
            | State::Deleting { .. }
            | State::Deleted
            | State::Stopped
            | State::Failed(_) => 0,
            State::Inactive(_) => pg_state::INCOMPLETE,
            State::Down(_) => pg_state::DOWN,
            State::Activating { .. } => pg_state::ACTIVATING | self.copies_bits(),
            State::WaitLease { .. } => pg_state::ACTIVE | pg_state::WAIT | self.copies_bits(),
            State::Quiesced => {
                let clean = if self.peers.is_clean() { pg_state::CLEAN } else { 0 };
                pg_state::PEERED | pg_state::PREMERGE | clean | self.copies_bits() | self.recovery_bits()
            }
            State::Peered => pg_state::PEERED | self.copies_bits() | self.recovery_bits(),
            State::Active => {
                let trimming = if self.is_trimming() {
                    pg_state::SNAPTRIM
                } else if self.trim.is_done() {
                    0
                } else {
                    pg_state::SNAPTRIM_WAIT
                };
                let copies = self.copies_bits();
                let clean = self.peers.is_clean() && copies & pg_state::UNDERSIZED == 0;
                let laggy = if self.mail.waits_for_lease() { pg_state::LAGGY } else { 0 };
                let clean = if clean { pg_state::CLEAN } else { 0 };
                pg_state::ACTIVE | clean | copies | self.recovery_bits() | laggy | trimming | self.scrub_bits()
            }
        }
    }

    /// State bits about the number and placement of copies.
    fn copies_bits(&self) -> u64 {
        if !self.is_primary() {
            return 0;
        }
        let i = &self.journal.info().interval;
        let m = &i.mapping;
        let mut bits = 0;
        if self.acting_set().len() < i.size as usize {
            bits |= pg_state::UNDERSIZED;
            if self.journal.info().stats.num_objects > 0 {
                bits |= pg_state::DEGRADED;
            }
        }
        if m.acting != m.up {
            bits |= pg_state::REMAPPED;
        }
        if !self.recovery.missing().is_empty() || self.peers.members().values().any(|p| !p.missing.is_empty()) {
            bits |= pg_state::DEGRADED;
        }
        bits
    }

    fn recovery_bits(&self) -> u64 {
        let lacking =
            !self.recovery.missing().is_empty() || self.peers.members().values().any(|p| !p.missing.is_empty());
        let unfound = if self.unfound() == 0 {
            0
        } else if !lacking && self.is_backfill_stuck() {
            pg_state::BACKFILL_UNFOUND
        } else {
            pg_state::RECOVERY_UNFOUND
        };
        let forced = match self.recovery.forced() {
            0 => 0,
            1 => pg_state::FORCED_RECOVERY,
            2 => pg_state::FORCED_BACKFILL,
            _ => pg_state::FORCED_RECOVERY | pg_state::FORCED_BACKFILL,
        };
        let r = self.recovery.reservation();
        // Without a reservation the map's flags forbid recovery, or the remaining objects are unfound.
        let (wait, going, full) = match r.kind() {
            Some(Kind::Recovery) => (pg_state::RECOVERY_WAIT, pg_state::RECOVERING, pg_state::RECOVERY_TOOFULL),
            Some(Kind::Backfill) => (pg_state::BACKFILL_WAIT, pg_state::BACKFILLING, pg_state::BACKFILL_TOOFULL),
            None => (0, 0, 0),
        };
        let busy = if r.is_held() {
            going
        } else if r.waits() {
            wait
        } else if r.kind().is_none() && !lacking && self.peers.members().values().any(|m| m.backfill.is_some()) {
            // Flags of the map hold the backfill back. Ceph shows it as waiting, and tools look for that.
            pg_state::BACKFILL_WAIT
        } else {
            0
        };
        let full = if r.is_too_full() { full } else { 0 };
        unfound | forced | busy | full
    }

    /// Reason why the PG is not active, if the state has one.
    #[must_use]
    pub fn inactive_reason(&self) -> Option<String> {
        match self.life.state() {
            State::Inactive(why) => Some(why.clone()),
            State::Down(osds) => {
                let names: Vec<String> = osds.iter().map(OsdId::to_string).collect();
                Some(format!("data may be on {}", names.join(", ")))
            }
            State::Failed(errno) => Some(format!("this copy failed: {}", base::errno::name(*errno))),
            State::WaitUpThru { .. } => Some("waiting for up_thru".to_owned()),
            State::GetInfo => match self.peers.want() {
                Some(w) => Some(format!("waiting for acting set {w:?}")),
                None => Some("waiting for the infos of other copies".to_owned()),
            },
            State::Quiesced => Some("about to be merged with another PG".to_owned()),
            State::Peered => Some("too few copies".to_owned()),
            State::WaitLease { .. } => Some("waiting for read leases of an older interval to end".to_owned()),
            _ => None,
        }
    }

    /// The copy that must give the authoritative log although its OSD is down in the map; for checks. `Some` is a bug:
    /// no interval would end that wait.
    #[must_use]
    pub fn waits_for_dead(&self) -> Option<OsdId> {
        let auth = self.life.auth()?.osd;
        self.maps.newest().is_some_and(|m| !m.osds.is_up(auth)).then_some(auth)
    }

    /// A report for the manager, without [`Pg::purged_snaps`]. Each report has a larger sequence number. Only the
    /// primary reports.
    pub fn report(&mut self, now: Now) -> PgStat {
        self.report.seq += 1;
        let h = &self.journal.info().history;
        let m = &self.journal.info().interval.mapping;
        let (active, bits) = (self.is_active(), self.state_bits());
        let last = self.report.stamps.see(bits, now);
        let mut s = PgStat {
            version: self.journal.info().last_update,
            reported_seq: self.report.seq,
            reported_epoch: self.epoch(),
            log_start: self.journal.log().tail,
            ondisk_log_start: self.journal.log().tail,
            created: h.epoch_created,
            last_epoch_clean: h.last_epoch_clean,
            last_scrub: h.last_scrub,
            last_scrub_stamp: h.last_scrub_stamp,
            last_deep_scrub: h.last_deep_scrub,
            last_deep_scrub_stamp: h.last_deep_scrub_stamp,
            last_clean_scrub_stamp: h.last_clean_scrub_stamp,
            log_size: self.journal.log().len() as i64,
            ondisk_log_size: self.journal.log().len() as i64,
            up: m.up.clone(),
            acting: m.acting.clone(),
            up_primary: m.up_primary,
            acting_primary: m.acting_primary,
            mapping_epoch: h.same_interval_since,
            last_fresh: now.wall,
            last_change: self.report.stamps.last_change(),
            last_active: last.active,
            last_clean: last.clean,
            last_peered: last.peered,
            last_unstale: now.wall,
            last_undegraded: last.undegraded,
            last_fullsized: last.fullsized,
            last_became_active: self.report.stamps.last_became_active(),
            last_became_peered: self.report.stamps.last_became_active(),
            snaptrimq_len: u32::try_from(self.trim.left()).unwrap_or(u32::MAX),
            ..PgStat::default()
        };
        s.set_state(bits);
        if let State::Down(osds) = self.life.state() {
            s.blocked_by.clone_from(osds);
        }
        if active && s.state() & pg_state::CLEAN == 0 {
            s.avail_no_missing = self.complete_copies();
        }
        self.sum_up(&mut s.stats.sum);
        s
    }

    /// The counts of a report.
    fn sum_up(&self, sum: &mut ObjectStatSum) {
        let c = &self.journal.info().stats;
        sum.num_bytes = c.num_bytes;
        sum.num_objects = c.num_objects;
        sum.num_object_clones = c.num_object_clones;
        sum.num_object_copies = c.num_objects * i64::from(self.journal.info().interval.size).max(1);
        let lacking: i64 = self.peers.members().values().map(|p| p.missing.len() as i64).sum();
        let here = self.recovery.missing().len() as i64;
        let absent = (i64::from(self.journal.info().interval.size) - self.acting_set().len() as i64).max(0);
        let filling = self.left_to_backfill();
        // Objects to be backfilled are misplaced if the acting set is full, and degraded otherwise.
        let (degraded, misplaced) = if absent > 0 { (c.num_objects * absent, 0) } else { (0, filling) };
        sum.num_objects_missing_on_primary = here;
        sum.num_objects_missing = here;
        sum.num_objects_degraded = here + lacking + degraded;
        sum.num_objects_misplaced = misplaced;
        sum.num_objects_unfound = self.unfound() as i64;
        sum.num_objects_omap = c.num_objects_omap;
        sum.num_objects_dirty = c.num_objects_dirty;
        sum.num_wr = c.num_wr;
        sum.num_wr_kb = c.num_wr_kb;
        sum.num_rd = c.num_rd;
        sum.num_rd_kb = c.num_rd_kb;
        // Counts since this OSD became primary; the manager derives rates from their growth.
        sum.num_objects_recovered = self.report.counters.recovered_objects as i64;
        sum.num_bytes_recovered = self.report.counters.recovered_bytes as i64;
        sum.num_keys_recovered = self.report.counters.recovered_keys as i64;
        sum.num_shallow_scrub_errors = c.num_shallow_scrub_errors;
        sum.num_deep_scrub_errors = c.num_deep_scrub_errors;
        sum.num_scrub_errors = c.num_shallow_scrub_errors + c.num_deep_scrub_errors;
        sum.num_large_omap_objects = c.num_large_omap_objects;
        sum.num_omap_bytes = c.num_omap_bytes;
        sum.num_omap_keys = c.num_omap_keys;
        sum.num_objects_repaired = c.num_objects_repaired;
    }

    /// Removed snapshots that are purged here, as `(first, number)`, for a report that is sent. The monitor takes those
    /// that all PGs have purged off the queue. A PG reports the lowest ones, at most [`crate::limits::PURGED_RANGES_MAX`] ranges.
    #[must_use]
    pub fn purged_snaps(&self) -> Vec<(u64, u64)> {
        self.trim.purged()
    }

    /// Members of the acting set that have all objects, as far as the primary knows.
    fn complete_copies(&self) -> Vec<PgShard> {
        let me = PgShard { osd: self.env.whoami(), shard: self.env.spg().shard };
        let acting = self.acting_set();
        let whole = |p: &Member| p.activated && p.missing.is_empty() && p.backfill.is_none();
        let others = self.peers.members().iter().filter(|(o, p)| whole(p) && acting.contains(**o));
        let others = others.map(|(o, _)| PgShard { osd: o.osd, shard: o.shard });
        self.recovery.missing().is_empty().then_some(me).into_iter().chain(others).collect()
    }

    /// True if the report differs from earlier ones in more than times that advance by themselves. A change is news
    /// `NEWS_TIMES` times.
    pub fn is_news(&mut self, st: &mut PgStat) -> bool {
        let f = (fingerprint(st) ^ self.trim.version().rotate_left(17)) | TIMES;
        let times = if self.report.last | TIMES == f { (self.report.last & TIMES) + 1 } else { 1 };
        self.report.last = f & !TIMES | times.min(NEWS_TIMES + 1);
        times <= NEWS_TIMES
    }

    /// All watches of the PG's objects.
    #[must_use]
    pub fn watches(&self) -> Vec<crate::watch::WatchDump> {
        self.watches.dump()
    }

    /// The member that has not acknowledged the oldest write, if others have.
    #[must_use]
    pub fn behind(&self) -> Option<OsdId> {
        let first = self.peers.unacked().front()?.seq;
        self.peers.members().iter().filter(|(_, m)| m.acked < first).min_by_key(|(_, m)| m.acked).map(|(p, _)| p.osd)
    }

    /// Client operations without an answer, oldest first.
    #[must_use]
    pub fn dump_ops(&self, now: Mono) -> Vec<OpDump> {
        let mut ops: Vec<OpDump> = self
            .plans
            .iter()
            .filter_map(|p| match &p.work {
                Work::Client(req, _) => Some(dump(req, p.stage.text(), p.stage.cause(), now)),
                _ => None,
            })
            .collect();
        ops.extend(self.mail.held().iter().map(|r| dump(r, "waiting for map or peering", r.ledger.waits_for(), now)));
        ops.extend(self.journal.commits().flat_map(|c| c.waiting(now)));
        ops.sort_by_key(|o| std::cmp::Reverse(o.age));
        ops
    }
}

/// Hash of a report without its sequence number and the times that advance by themselves.
fn fingerprint(st: &mut PgStat) -> u64 {
    fn times(st: &mut PgStat) -> [&mut Utime; 7] {
        [
            &mut st.last_fresh,
            &mut st.last_active,
            &mut st.last_clean,
            &mut st.last_peered,
            &mut st.last_unstale,
            &mut st.last_undegraded,
            &mut st.last_fullsized,
        ]
    }
    let seq = std::mem::take(&mut st.reported_seq);
    let kept = times(st).map(std::mem::take);
    let mut h = rustc_hash::FxHasher::default();
    h.write(&st.to_bytes(Features::PACIFIC));
    for (slot, t) in times(st).into_iter().zip(kept) {
        *slot = t;
    }
    st.reported_seq = seq;
    h.finish()
}

fn dump(req: &OpRequest, stage: &'static str, cause: Cause, now: Mono) -> OpDump {
    OpDump { client: req.client, tid: req.msg.tid, age: now.since(req.received.mono), stage, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_differs_only_in_times_is_no_news() {
        let t = |sec| Utime { sec, nsec: 0 };
        let mut a = PgStat { reported_seq: 1, last_fresh: t(1), last_active: t(1), ..PgStat::default() };
        let mut b = PgStat { reported_seq: 9, last_fresh: t(5), last_active: t(5), ..PgStat::default() };
        let same = a.clone();
        assert_eq!(fingerprint(&mut a), fingerprint(&mut b));
        assert_eq!(a, same, "it is left as it was");
        for change in [
            |s: &mut PgStat| s.stats.sum.num_wr += 1,
            |s: &mut PgStat| s.set_state(pg_state::ACTIVE),
            |s: &mut PgStat| s.last_change.sec += 1,
            |s: &mut PgStat| s.reported_epoch = base::Epoch(7),
            |s: &mut PgStat| s.acting.push(OsdId(3)),
        ] {
            let mut c = a.clone();
            change(&mut c);
            assert_ne!(fingerprint(&mut a), fingerprint(&mut c));
        }
    }
}
