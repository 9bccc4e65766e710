//! Peering of an erasure-coded PG: which version counts, and who has which shard.
//!
//! A write is acknowledged when every shard of the acting set has it. So the oldest newest version among complete shards
//! that took part in the last interval that started has all that was acknowledged, and all of those shards can have it: what
//! one has beyond is undone there ([`super::log_merge`]). Where fewer than `k` can go back to it, a newer one counts.
//!
//! Invariants:
//!  1. An entry is undone only if some shard that took part in its interval does not have it.
//!  2. Each place of the acting set has a shard whose log reaches the primary's, or is a hole; there are never fewer than `k`.

use crate::effect::Effect;
use crate::info::PgInfo;
use crate::peer::Body;
use crate::pg::ops::plan::{Verdict, Work};
use crate::pg::peering::choose::Choice;
use crate::pg::{Pg, State};
use crate::shards::PeerId;
use base::{Epoch, Eversion, Now, OsdId, ShardId};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use store::ObjectStore;

impl Pg {
    /// How many shards give the content of this PG; `None` for whole copies.
    pub(in crate::pg) fn shards_needed(&self) -> Option<usize> {
        self.is_coded().then(|| self.pool().and_then(|p| p.code).map_or(usize::MAX, |c| c.k.into()))
    }

    /// Lets a shard that is no member go back to the log of this interval, if it is ahead of that or beside it.
    pub(in crate::pg) fn rewind_stray(
        &mut self,
        p: PeerId,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        let serves = matches!(self.state, State::Active | State::Peered | State::Quiesced);
        let member = self.peers.members.contains_key(&p) || p == self.me();
        let Some(i) = self.peers.known.get(&p).and_then(|k| k.as_ref()).filter(|_| serves && !member) else { return };
        let beside = i.last_update != self.info.last_update && !self.log.has(i.last_update);
        if beside && i.last_update >= self.log.tail {
            let (last_update, les) = (i.last_update, i.last_epoch_started);
            self.start_work(Work::SendRewind { to: p, last_update, les }, None, now, store, out);
        }
    }

    /// Does that for all that are known, when the interval has started.
    pub(in crate::pg) fn rewind_strays(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let all: Vec<PeerId> = self.peers.known.keys().copied().collect();
        for p in all {
            self.rewind_stray(p, now, store, out);
        }
    }

    pub(in crate::pg) fn run_send_rewind(
        &mut self,
        id: u64,
        to: PeerId,
        last_update: Eversion,
        les: Epoch,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let since = self.common_with(last_update, les);
        match store.log_entries(self.tag(id), self.cid, since) {
            Ok(v) => {
                self.tell(to, &Body::Rewind { since, records: v.into_iter().map(|(_, r)| r).collect() });
                Verdict::Done
            }
            Err(e) => self.step_failed(e.into(), out),
        }
    }

    /// As `Pg::choose`, for shards of which `k` give the content.
    pub(in crate::pg) fn choose_shards(&self, k: usize) -> Option<Choice> {
        let infos = self.infos();
        let complete = |i: &PgInfo| i.is_complete();
        let mut started = Epoch(0);
        for (_, i) in &infos {
            started = started.max(i.history.last_epoch_started);
            if complete(i) {
                started = started.max(i.last_epoch_started);
            }
        }
        let took_part = |i: &PgInfo| complete(i) && i.last_epoch_started >= started;
        let me = self.me();
        let version = version_to_have(infos.iter().filter(|(_, i)| took_part(i)), k)?;
        let (auth, best) = infos
            .iter()
            .filter(|(_, i)| took_part(i) && i.last_update == version)
            .min_by_key(|(p, i)| (i.log_tail, *p != me, *p))?;
        let info_of = |p: PeerId| infos.iter().find(|(x, _)| *x == p).map(|(_, i)| *i);
        let blank = PgInfo::default();
        let usable = |p: PeerId, tail: Eversion| {
            let i = info_of(p).unwrap_or(&blank);
            complete(i) && i.last_update >= tail && !self.peers.failed.contains(&p)
        };
        let map = self.map.as_ref()?;
        let m = &self.info.interval.mapping;
        let at = |place: usize, tail: Eversion| -> Option<PeerId> {
            let shard = ShardId(i8::try_from(place).ok()?);
            let of = |set: &[OsdId]| set.get(place).filter(|o| **o != OsdId::NONE).map(|o| PeerId { osd: *o, shard });
            let known = |p: &PeerId| info_of(*p).is_some() && usable(*p, tail) && map.osds.is_up(p.osd);
            let mut strays: Vec<(Reverse<Eversion>, PeerId)> = infos
                .iter()
                .filter(|(p, _)| p.shard == shard && known(p))
                .map(|(p, i)| (Reverse(i.last_update), *p))
                .collect();
            strays.sort_unstable();
            of(&m.up)
                .filter(|p| usable(*p, tail))
                .or_else(|| of(&m.acting).filter(known))
                .or_else(|| strays.first().map(|(_, p)| *p))
        };
        let size = self.info.interval.size as usize;
        // Who leads takes the authoritative log over, and all others must reach the tail of what it has then.
        let primary = (0..size).find_map(|place| at(place, best.log_tail))?;
        let tail = info_of(primary).unwrap_or(&blank).log_tail.max(best.log_tail);
        let (mut want, mut backfill) = (Vec::with_capacity(size), Vec::new());
        for place in 0..size {
            let chosen = at(place, tail);
            want.push(chosen.map_or(OsdId::NONE, |p| p.osd));
            let up = self.up_set().iter().find(|p| usize::try_from(p.shard.0) == Ok(place));
            backfill.extend(up.filter(|p| chosen != Some(*p) && !self.peers.failed.contains(p)));
        }
        let there = want.iter().filter(|o| **o != OsdId::NONE).count();
        (there >= k).then_some(Choice { auth: *auth, want, backfill })
    }
}

/// The oldest version that `k` shards can have: they are there, or can go back to it.
fn version_to_have<'a>(all: impl Iterator<Item = &'a (PeerId, &'a PgInfo)>, k: usize) -> Option<Eversion> {
    let all: Vec<&(PeerId, &PgInfo)> = all.collect();
    let mut versions: Vec<Eversion> = all.iter().map(|(_, i)| i.last_update).collect();
    versions.sort_unstable();
    let can = |v: Eversion| {
        let there = |i: &PgInfo| i.last_update == v || i.last_update > v && i.undo_floor <= v;
        let shards: BTreeSet<ShardId> = all.iter().filter(|(_, i)| there(i)).map(|(p, _)| p.shard).collect();
        shards.len() >= k
    };
    versions.iter().copied().find(|v| can(*v)).or_else(|| versions.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_go_back_to_the_oldest_version_but_not_where_too_few_can() {
        let shard = |n, last, floor| {
            let v = |n| Eversion::new(3, n);
            let id = PeerId { osd: OsdId(i32::from(n)), shard: ShardId(n) };
            (id, PgInfo { last_update: v(last), undo_floor: v(floor), ..PgInfo::default() })
        };
        let chosen = |all: &[(PeerId, PgInfo)], k| {
            let all: Vec<(PeerId, &PgInfo)> = all.iter().map(|(p, i)| (*p, i)).collect();
            version_to_have(all.iter(), k).map(|v| v.version)
        };
        assert_eq!(chosen(&[shard(0, 12, 0), shard(1, 12, 0), shard(2, 10, 0)], 2), Some(10));
        assert_eq!(chosen(&[shard(0, 12, 12), shard(1, 12, 11), shard(2, 10, 0)], 2), Some(12));
        assert_eq!(chosen(&[shard(0, 12, 12), shard(1, 11, 10), shard(2, 10, 0)], 2), Some(10));
        assert_eq!(chosen(&[], 2), None);
    }
}
