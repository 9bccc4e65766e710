//! Peering of an erasure-coded PG: which version counts, and who has which shard.
//!
//! A write is acknowledged when every shard of the acting set has it. So the oldest newest version among complete shards
//! that took part in the last interval that started has all that was acknowledged, and all of those shards can have it: what
//! one has beyond is undone there ([`super::log_merge`]).
//!
//! Invariants:
//!  1. An entry is undone only if some shard that took part in its interval does not have it.
//!  2. Each place of the acting set has a shard whose log reaches the primary's, or is a hole; there are never fewer than `k`.

use crate::info::PgInfo;
use crate::pg::Pg;
use crate::pg::peering::choose::Choice;
use crate::shards::PeerId;
use base::{Epoch, Eversion, OsdId, ShardId};
use std::cmp::Reverse;

impl Pg {
    /// How many shards give the content of this PG; `None` for whole copies.
    pub(in crate::pg) fn shards_needed(&self) -> Option<usize> {
        self.is_coded().then(|| self.pool().and_then(|p| p.code).map_or(usize::MAX, |c| c.k.into()))
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
        let (auth, best) = infos
            .iter()
            .filter(|(_, i)| took_part(i))
            .min_by_key(|(p, i)| (i.last_update, i.log_tail, *p != me, *p))?;
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
