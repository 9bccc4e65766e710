//! The version that a shard's bytes have if its log ends before other logs: missing entries that spare the shard don't
//! count.
//!
//! Writes are deferred on the shards that they spare ([`crate::pg::backend::ec::defer`]), so the logs of an interval
//! end at different versions. The longest of these logs says which entries touch which shards. The primary asks its
//! holder before it chooses the version.
//!
//! Invariants:
//!  1. A shard *reaches* the version before the first entry that touches it and that it lacks. So it reaches every
//!     acknowledged entry, since such an entry is durable on every shard that it touches.
//!  2. Of any `k` shards of an interval, one has a given acknowledged entry, because each entry touches more than `m`
//!     shards.
//!
//! Tests: `tests/coded_starts.rs`.

use crate::exec::{Step, Stop};
use crate::info::PgInfo;
use crate::interval::PastInterval;
use crate::log::{LogEntry, LogKind};
use crate::peer::Body;
use crate::pg::backend::ec::spare::Touched;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::PeeringAction;
use crate::pg::ops::plan::Verdict;
use crate::pg::{Pg, State, Turn};
use crate::shards::{PeerId, ShardSet};
use base::errno::EIO;
use base::planted::{Bug, acts};
use base::{Epoch, Eversion, ShardId};
use std::collections::BTreeSet;
use store::ObjectStore;

/// Number of answers in one interval about another log than the reported one, after which the shard counts as failed. A
/// log may change between report and answer, but not often.
const CONTRADICTIONS_MAX: u8 = 4;

impl Pg {
    /// Complete shards that took part in the last interval that started, or may have.
    pub(in crate::pg) fn shards_that_took_part(&self) -> Vec<(PeerId, &PgInfo)> {
        let mut infos = self.infos();
        let known = infos.iter().map(|(_, i)| i.history.last_epoch_started).max().unwrap_or_default();
        let complete = infos.iter().filter(|(_, i)| i.is_complete()).map(|(_, i)| i.last_epoch_started);
        let perhaps = complete.filter(|at| {
            let never = *at > known && never_started(*at, &self.journal.info().past, &infos);
            if never {
                tracing::debug!(pg = %self.env.spg(), epoch = %at, "an interval that members took part in never started");
            }
            *at > known && !never
        });
        let started = perhaps.max().unwrap_or(known);
        infos.retain(|(_, i)| i.is_complete() && i.last_epoch_started >= started);
        infos
    }

    /// Stores that the interval of an erasure-coded PG has started, before the PG serves and before any undo data is
    /// dropped. So an interval whose start its primary has not stored did not serve ([`never_started`]).
    pub(in crate::pg) fn run_save_start(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let mut info = self.journal.info().clone();
        info.note_start();
        match self.commit_with_info(self.tag(id), info, Vec::new(), turn.store) {
            Ok(()) => {
                self.on_durable(Action::Peering(PeeringAction::StartSaved(self.life.generation())));
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// Goes on with the activation once the start of the interval is durable.
    pub(in crate::pg) fn start_saved(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.life.state(), State::Activating { .. }) {
            self.mark_log_safe();
            self.wait_for_leases(turn);
        }
    }

    /// The version that a shard reaches if its log ends at `last`.
    pub(in crate::pg) fn reach(&self, last: Eversion, shard: ShardId) -> Eversion {
        if acts(Bug::ForgetDeferred) {
            return last;
        }
        self.ec.touched().map_or(last, |t| t.reach(last, shard))
    }

    /// Asks the holder of the longest log which shards its newest entries touch, if that is needed and not known.
    /// Returns true while the answer is awaited.
    pub(in crate::pg) fn asks_touched(&mut self) -> bool {
        let me = self.me();
        let all = self.shards_that_took_part();
        let since = all.iter().map(|(_, i)| i.last_update).min().unwrap_or_default();
        let longest = all.iter().min_by_key(|(p, i)| (std::cmp::Reverse(i.last_update), *p != me, i.log_tail, *p));
        let Some((holder, upto)) = longest.map(|(p, i)| (*p, i.last_update)).filter(|(_, v)| *v > since) else {
            return false;
        };
        if self.ec.touched().is_some_and(|t| t.since <= since && t.upto == upto) {
            return false;
        }
        if self.ec.ask_touched((holder, since, upto)) {
            self.send_to(holder, &Body::GetTouched { since });
        }
        true
    }

    /// Handles the answer of the holder of the longest log.
    pub(in crate::pg) fn take_touched(&mut self, from: PeerId, touched: Touched, turn: &mut Turn<'_>) {
        let peers = matches!(self.life.state(), State::GetInfo | State::Down(_) | State::Inactive(_));
        let asked = self.ec.open_question().filter(|a| peers && a.0 == from && a.1 == touched.since);
        let Some((_, _, upto)) = asked else { return };
        let other = touched.upto != upto;
        let contradictions = self.ec.answered(other);
        if other && contradictions < CONTRADICTIONS_MAX {
            tracing::warn!(pg = %self.env.spg(), %from, version = %touched.upto, "the log of a shard is not the one that it reported; its state is queried again");
            self.peers.known.remove(&from);
            return self.send_to(from, &Body::Query);
        }
        if other || !touched.is_sound() {
            tracing::error!(pg = %self.env.spg(), %from, "a shard's list of touched shards is invalid; the copy counts as failed");
            return if from == self.me() { self.fail(EIO, turn.out) } else { self.take_failed(from, EIO, turn) };
        }
        self.ec.set_touched(touched);
        self.check_infos(turn);
    }

    /// Answers a primary that asks which shards the newest entries touch.
    pub(in crate::pg) fn run_send_touched(
        &mut self,
        id: u64,
        to: PeerId,
        since: Eversion,
        turn: &mut Turn<'_>,
    ) -> Verdict {
        match self.touched_since(id, since, turn.store) {
            Ok(entries) => {
                self.send_to(to, &Body::Touched { since, upto: self.journal.info().last_update, entries });
                Verdict::Done
            }
            Err(Stop::Wait) => Verdict::Park(crate::pg::ops::plan::Stage::Reading),
            Err(Stop::Errno(errno)) => {
                self.fail(errno, turn.out);
                Verdict::Done
            }
        }
    }

    fn touched_since(&self, id: u64, since: Eversion, store: &mut dyn ObjectStore) -> Step<Vec<(Eversion, u32)>> {
        let records = store.log_entries(self.tag(id), self.env.cid(), since)?;
        let mut entries = Vec::with_capacity(records.len() + 1);
        if since < self.journal.log().tail {
            // Trimmed entries may touch all shards.
            entries.push((self.journal.log().tail, u32::MAX));
        }
        for (v, r) in records {
            let e = LogEntry::from_record(&r).map_err(|_| Stop::Errno(EIO))?;
            // Entries of objects that were split off touch no shard here.
            let other = e.kind != LogKind::Error && !self.is_mine(&e.soid);
            entries.push((v, if other { 0 } else { e.touch.map_or(u32::MAX, |t| t.shards) }));
        }
        Ok(entries)
    }
}

/// True if the interval that was to start in epoch `at` certainly did not serve. Some shards have stored that they take
/// part in it. But another member has not, or its primary has not stored the start, which it does before it serves.
fn never_started(at: Epoch, past: &[PastInterval], infos: &[(PeerId, &PgInfo)]) -> bool {
    let Some(p) = past.iter().find(|p| p.first <= at && at <= p.last) else { return false };
    let members = ShardSet::new(&p.acting, true);
    // A copy that never took part in an interval may have been created later, so it is no evidence.
    let says = |(o, i): &(PeerId, &PgInfo)| i.is_complete() && i.last_epoch_started.0 > 0 && members.contains(*o);
    let primary = members.iter().find(|o| o.osd == p.primary);
    infos
        .iter()
        .filter(|m| says(m))
        .any(|(o, i)| i.last_epoch_started < at || Some(*o) == primary && i.history.last_epoch_started < at)
}

/// The versions that a shard has and can have.
#[derive(Clone, Copy, Debug)]
pub(in crate::pg) struct Reach {
    pub shard: ShardId,
    pub last_update: Eversion,
    pub undo_floor: Eversion,
    pub reach: Eversion,
}

/// The oldest reached version that `k` shards can have. A shard can have a version if its log ends there, if it can be
/// undone to it, or if the shard reaches it.
pub(in crate::pg) fn version_to_have(all: &[Reach], k: usize) -> Option<Eversion> {
    let mut versions: Vec<Eversion> = all.iter().map(|r| r.reach).collect();
    versions.sort_unstable();
    let can = |v: Eversion| {
        let there = |r: &Reach| match r.last_update.cmp(&v) {
            std::cmp::Ordering::Less => r.reach >= v,
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => r.undo_floor <= v,
        };
        let shards: BTreeSet<ShardId> = all.iter().filter(|r| there(r)).map(|r| r.shard).collect();
        shards.len() >= k
    };
    versions.iter().copied().find(|v| can(*v)).or_else(|| versions.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(n: u64) -> Eversion {
        Eversion::new(3, n)
    }

    fn shard(n: i8, last: u64, floor: u64) -> Reach {
        Reach { shard: ShardId(n), last_update: v(last), undo_floor: v(floor), reach: v(last) }
    }

    fn chosen(all: &[Reach], k: usize) -> Option<u64> {
        version_to_have(all, k).map(|v| v.version)
    }

    #[test]
    fn the_oldest_version_that_k_shards_can_have_is_chosen() {
        assert_eq!(chosen(&[shard(0, 12, 0), shard(1, 12, 0), shard(2, 10, 0)], 2), Some(10));
        assert_eq!(chosen(&[shard(0, 12, 12), shard(1, 12, 11), shard(2, 10, 0)], 2), Some(12));
        assert_eq!(chosen(&[shard(0, 12, 12), shard(1, 11, 10), shard(2, 10, 0)], 2), Some(10));
        assert_eq!(chosen(&[], 2), None);
    }

    /// Shape 4+2: entries 11 and 13 touch shard 1, entry 12 touches shard 2, and each touches shards 0, 4 and 5.
    #[test]
    fn a_shard_reaches_the_entry_before_the_first_that_it_lacks() {
        let entries = vec![(v(11), 0b11_0011), (v(12), 0b11_0101), (v(13), 0b11_0011), (v(14), u32::MAX)];
        let t = Touched { since: v(10), upto: v(14), entries };
        let reach = |last, shard| t.reach(v(last), ShardId(shard)).version;
        assert_eq!((reach(10, 0), reach(10, 1), reach(10, 2), reach(10, 3)), (10, 10, 11, 13));
        assert_eq!((reach(11, 1), reach(12, 2), reach(13, 3), reach(14, 3)), (12, 13, 13, 14));
        // A log that ends after or before the known entries counts as it is.
        assert_eq!((reach(15, 3), reach(9, 3)), (15, 9));
        let with = |n: i8, last: u64| Reach { reach: t.reach(v(last), ShardId(n)), ..shard(n, last, 0) };
        assert!(t.is_sound() && !Touched { since: v(11), ..t.clone() }.is_sound());
        assert!(!Touched { upto: v(13), ..t.clone() }.is_sound());
        assert!(!Touched { entries: t.entries.iter().rev().copied().collect(), ..t.clone() }.is_sound());
        // Entries 11 and 12 are acknowledged: the shards that they touch have them.
        assert_eq!(chosen(&[with(1, 11), with(2, 12), with(3, 10), with(4, 13)], 4), Some(12));
        // The chosen version is one at which no log ends.
        assert_eq!(chosen(&[with(1, 11), with(2, 13), with(3, 13), with(4, 13)], 4), Some(12));
    }
}
