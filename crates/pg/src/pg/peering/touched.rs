//! The version that a shard really has when its log ends before others': entries that do not touch it are no loss.
//!
//! Writes are not sent at once to shards that they leave as they are ([`crate::pg::backend::ec::defer`]), so logs of an interval end at
//! different versions. Which entries touch which shards the longest of these logs knows; its holder tells the primary, before that
//! chooses the version that counts.
//!
//! Invariants:
//!  1. A shard *reaches* the version before the first entry that touches it and that it lacks. So it reaches all that was
//!     acknowledged: that was durable on every shard that it touches.
//!  2. Of any `k` shards of an interval one has an entry that was acknowledged, as more than `m` shards get each.

use crate::effect::Effect;
use crate::exec::{Step, Stop};
use crate::info::PgInfo;
use crate::interval::PastInterval;
use crate::log::{LogEntry, LogKind, Touch};
use crate::peer::Body;
use crate::pg::ops::commit::Action;
use crate::pg::ops::plan::Verdict;
use crate::pg::peering::choose::note_start;
use crate::pg::{Pg, State};
use crate::shards::{PeerId, ShardSet};
use base::errno::EIO;
use base::planted::{Bug, acts};
use base::{Epoch, Eversion, Now, ShardId};
use std::collections::BTreeSet;
use store::ObjectStore;

/// The shards that each of the newest entries of a log touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::pg) struct Touched {
    /// Entries after this version.
    pub since: Eversion,
    /// The newest version.
    pub upto: Eversion,
    /// Their versions, oldest first, with a bit for each shard; `u32::MAX`: perhaps all.
    pub entries: Vec<(Eversion, u32)>,
}

impl Touched {
    /// True if this can be the end of a log: versions grow, from the one that was asked about to the newest.
    fn is_sound(&self) -> bool {
        let mut last = self.since;
        self.entries.iter().all(|(v, _)| *v <= self.upto && std::mem::replace(&mut last, *v) < *v)
    }

    /// The newest version as of which a shard has its bytes, if its log ends at `last`.
    fn reach(&self, last: Eversion, shard: ShardId) -> Eversion {
        if last < self.since || last >= self.upto {
            return last;
        }
        let mut at = last;
        for (v, shards) in self.entries.iter().filter(|(v, _)| *v > last) {
            if (Touch { shards: *shards, attrs: Vec::new() }).touches(shard) {
                return at;
            }
            at = *v;
        }
        self.upto
    }
}

impl Pg {
    /// Complete shards that took part in the last interval that started, or may have.
    pub(in crate::pg) fn shards_that_took_part(&self) -> Vec<(PeerId, &PgInfo)> {
        let mut infos = self.infos();
        let known = infos.iter().map(|(_, i)| i.history.last_epoch_started).max().unwrap_or_default();
        let complete = infos.iter().filter(|(_, i)| i.is_complete()).map(|(_, i)| i.last_epoch_started);
        let perhaps = complete.filter(|at| {
            let never = *at > known && never_started(*at, &self.info.past, &infos);
            if never {
                tracing::debug!(pg = %self.cfg.spg, epoch = %at, "an interval that members took part in never started");
            }
            *at > known && !never
        });
        let started = perhaps.max().unwrap_or(known);
        infos.retain(|(_, i)| i.is_complete() && i.last_epoch_started >= started);
        infos
    }

    /// Stores that the interval of an erasure-coded PG has started: before the PG serves, and before undo data is
    /// dropped here or on a member. So an interval of which its primary has not stored that served nobody
    /// ([`never_started`]).
    pub(in crate::pg) fn run_save_start(
        &mut self,
        id: u64,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let mut info = self.info.clone();
        note_start(&mut info);
        match self.commit_with_info(self.tag(id), info, Vec::new(), store) {
            Ok(()) => {
                self.on_durable(Action::StartSaved(self.generation));
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, out),
        }
    }

    /// Handles the durability of the start.
    pub(in crate::pg) fn start_saved(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        if self.state == State::Activating {
            self.keep_all();
            self.share_history(false);
            self.wait_for_leases(now, store, out);
        }
    }

    /// The version that a shard reaches whose log ends there.
    pub(in crate::pg) fn reach(&self, last: Eversion, shard: ShardId) -> Eversion {
        if acts(Bug::ForgetDeferred) {
            return last;
        }
        self.shard.touched.as_ref().map_or(last, |t| t.reach(last, shard))
    }

    /// Sees that it is known what shards reach whose logs end at different versions. True if an answer is waited for.
    pub(in crate::pg) fn asks_touched(&mut self) -> bool {
        let me = self.me();
        let all = self.shards_that_took_part();
        let since = all.iter().map(|(_, i)| i.last_update).min().unwrap_or_default();
        let longest = all.iter().min_by_key(|(p, i)| (std::cmp::Reverse(i.last_update), *p != me, i.log_tail, *p));
        let Some((holder, upto)) = longest.map(|(p, i)| (*p, i.last_update)).filter(|(_, v)| *v > since) else {
            return false;
        };
        if self.shard.touched.as_ref().is_some_and(|t| t.since <= since && t.upto == upto) {
            return false;
        }
        if self.shard.asks_touched.replace((holder, since, upto)) != Some((holder, since, upto)) {
            self.tell(holder, &Body::GetTouched { since });
        }
        true
    }

    /// The holder of the longest log answers.
    pub(in crate::pg) fn take_touched(
        &mut self,
        from: PeerId,
        touched: Touched,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        let peers = matches!(self.state, State::GetInfo | State::Down(_) | State::Inactive(_));
        let asked = self.shard.asks_touched.filter(|a| peers && a.0 == from && a.1 == touched.since);
        let Some((_, _, upto)) = asked else { return };
        self.shard.asks_touched = None;
        if touched.upto != upto {
            tracing::warn!(pg = %self.cfg.spg, %from, version = %touched.upto, "shard does not have the log that it said, it is asked anew");
            self.peers.known.remove(&from);
            return self.tell(from, &Body::Query);
        }
        if !touched.is_sound() {
            tracing::error!(pg = %self.cfg.spg, %from, "what a shard says of its log can't be");
            return if from == self.me() { self.fail(EIO, out) } else { self.take_failed(from, EIO, now, store, out) };
        }
        self.shard.touched = Some(touched);
        self.check_infos(now, store, out);
    }

    /// Answers a primary that asks which shards the newest entries touch.
    pub(in crate::pg) fn run_send_touched(
        &mut self,
        id: u64,
        to: PeerId,
        since: Eversion,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        match self.touched_since(id, since, store) {
            Ok(entries) => {
                self.tell(to, &Body::Touched { since, upto: self.info.last_update, entries });
                Verdict::Done
            }
            Err(Stop::Wait) => Verdict::Park(crate::pg::report::Stage::Reading),
            Err(Stop::Errno(errno)) => {
                self.fail(errno, out);
                Verdict::Done
            }
        }
    }

    fn touched_since(&self, id: u64, since: Eversion, store: &mut dyn ObjectStore) -> Step<Vec<(Eversion, u32)>> {
        let records = store.log_entries(self.tag(id), self.cid, since)?;
        let mut entries = Vec::with_capacity(records.len() + 1);
        if since < self.log.tail {
            // What was trimmed may touch all.
            entries.push((self.log.tail, u32::MAX));
        }
        for (v, r) in records {
            let e = LogEntry::from_record(&r).map_err(|_| Stop::Errno(EIO))?;
            // Nothing of what was split off is here.
            let other = e.kind != LogKind::Error && !self.is_mine(&e.soid);
            entries.push((v, if other { 0 } else { e.touch.map_or(u32::MAX, |t| t.shards) }));
        }
        Ok(entries)
    }
}

/// True if the interval that was to start in epoch `at` surely served nobody. Some shards have stored that they take part in it, but not
/// all of its members have; or its primary, which stores that it has started before it serves, has not.
fn never_started(at: Epoch, past: &[PastInterval], infos: &[(PeerId, &PgInfo)]) -> bool {
    let Some(p) = past.iter().find(|p| p.first <= at && at <= p.last) else { return false };
    let members = ShardSet::new(&p.acting, true);
    // One that took part in nothing yet may have been made anew: what it says is no evidence.
    let says = |(o, i): &(PeerId, &PgInfo)| i.is_complete() && i.last_epoch_started.0 > 0 && members.contains(*o);
    let primary = members.iter().find(|o| o.osd == p.primary);
    infos
        .iter()
        .filter(|m| says(m))
        .any(|(o, i)| i.last_epoch_started < at || Some(*o) == primary && i.history.last_epoch_started < at)
}

/// A shard, with what its log has and what it reaches.
#[derive(Clone, Copy, Debug)]
pub(in crate::pg) struct Reach {
    pub shard: ShardId,
    pub last_update: Eversion,
    pub undo_floor: Eversion,
    pub reach: Eversion,
}

/// The oldest version that `k` shards can have and that all reached: they are there, can go back to it, or lack nothing of their own
/// up to it.
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
    fn shards_go_back_to_the_oldest_version_but_not_where_too_few_can() {
        assert_eq!(chosen(&[shard(0, 12, 0), shard(1, 12, 0), shard(2, 10, 0)], 2), Some(10));
        assert_eq!(chosen(&[shard(0, 12, 12), shard(1, 12, 11), shard(2, 10, 0)], 2), Some(12));
        assert_eq!(chosen(&[shard(0, 12, 12), shard(1, 11, 10), shard(2, 10, 0)], 2), Some(10));
        assert_eq!(chosen(&[], 2), None);
    }

    /// Of 4+2: entries 11, 13 touch shard 1, entry 12 shard 2, and all of them shards 0, 4 and 5.
    #[test]
    fn a_shard_reaches_the_entry_before_the_first_that_it_lacks() {
        let entries = vec![(v(11), 0b11_0011), (v(12), 0b11_0101), (v(13), 0b11_0011), (v(14), u32::MAX)];
        let t = Touched { since: v(10), upto: v(14), entries };
        let reach = |last, shard| t.reach(v(last), ShardId(shard)).version;
        assert_eq!((reach(10, 0), reach(10, 1), reach(10, 2), reach(10, 3)), (10, 10, 11, 13));
        assert_eq!((reach(11, 1), reach(12, 2), reach(13, 3), reach(14, 3)), (12, 13, 13, 14));
        // Beyond what is known a log counts as it is; so does one that ends before it.
        assert_eq!((reach(15, 3), reach(9, 3)), (15, 9));
        let with = |n: i8, last: u64| Reach { reach: t.reach(v(last), ShardId(n)), ..shard(n, last, 0) };
        assert!(t.is_sound() && !Touched { since: v(11), ..t.clone() }.is_sound());
        assert!(!Touched { upto: v(13), ..t.clone() }.is_sound());
        assert!(!Touched { entries: t.entries.iter().rev().copied().collect(), ..t.clone() }.is_sound());
        // Acknowledged: 11 and 12, on the shards that they touch.
        assert_eq!(chosen(&[with(1, 11), with(2, 12), with(3, 10), with(4, 13)], 4), Some(12));
        // The version that counts is one at which no log ends.
        assert_eq!(chosen(&[with(1, 11), with(2, 13), with(3, 13), with(4, 13)], 4), Some(12));
    }
}
