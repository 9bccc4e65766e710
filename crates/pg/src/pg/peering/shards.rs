//! Peering of an erasure-coded PG: selection of the version and of each shard's holder.
//!
//! A write is acknowledged when every shard of the acting set that it touches has it. Consider the complete shards that
//! took part in the last interval that started, and the version that each of them *reaches* ([`super::touched`]). The
//! oldest of these versions includes every acknowledged write. Each of the shards can come to it: entries beyond it are
//! undone there ([`super::log_merge`]), and entries that a shard lacks up to it do not touch that shard. If fewer than
//! `k` shards can go back to that version, the next newer one is chosen.
//!
//! Invariants:
//!  1. An entry is undone only if a shard that it touches, and that took part in its interval, lacks it.
//!  2. Each place of the acting set is a hole or has a shard whose log overlaps the primary's. At least `k` places are
//!     no holes.
//!
//! Tests: `tests/coded_starts.rs`, `tests/coded_attack.rs`.

use crate::info::PgInfo;
use crate::peer::Body;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::PeeringWork;
use crate::pg::ops::work::Work;
use crate::pg::peering::choose::Choice;
use crate::pg::peering::touched::{Reach, version_to_have};
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::{Epoch, Eversion, OsdId, ShardId, unreached};
use bytes::Bytes;
use std::cmp::Reverse;

impl Pg {
    /// Number of shards that hold a whole object (`k`); `None` in a replicated PG.
    pub(in crate::pg) fn shards_needed(&self) -> Option<usize> {
        self.is_coded().then(|| self.pool().and_then(|p| p.code).map_or(usize::MAX, |c| c.k.into()))
    }

    /// Rewinds a stray shard whose log is divergent from that of this interval.
    pub(in crate::pg) fn rewind_stray(&mut self, p: PeerId, turn: &mut Turn<'_>) {
        let serves = matches!(self.life.state(), State::Active | State::Peered | State::Quiesced);
        let member = self.peers.members.contains_key(&p) || p == self.me();
        let Some(i) = self.peers.known.get(&p).and_then(|k| k.as_ref()).filter(|_| serves && !member) else { return };
        // A stray whose log is a prefix of the primary's is sent the missing entries if the first of them spares it.
        if i.last_update != self.journal.info().last_update && i.last_update >= self.journal.log().tail {
            let (last_update, les) = (i.last_update, i.last_epoch_started);
            self.start_work(Work::Peering(PeeringWork::SendRewind { to: p, last_update, les }), None, turn);
        }
    }

    /// Rewinds all known strays, when the interval has started.
    pub(in crate::pg) fn rewind_strays(&mut self, turn: &mut Turn<'_>) {
        let all: Vec<PeerId> = self.peers.known.keys().copied().collect();
        for p in all {
            self.rewind_stray(p, turn);
        }
    }

    pub(in crate::pg) fn run_send_rewind(
        &mut self,
        id: u64,
        to: PeerId,
        last_update: Eversion,
        les: Epoch,
        turn: &mut Turn<'_>,
    ) -> Verdict {
        let since = self.common_with(last_update, les);
        let read = turn.store.log_entries(self.tag(id), self.env.cid(), since).map_err(Into::into);
        let first_spares = |v: &[(Eversion, Bytes)]| match v.first() {
            Some((_, r)) => self.own_entry(r).map(|e| self.leaves_alone(&e, to.shard)),
            None => Ok(false),
        };
        match read.and_then(|v| Ok((self.journal.log().has(last_update) && !first_spares(&v)?, v))) {
            Ok((true, _)) => Verdict::Done,
            Ok((false, v)) => {
                self.send_reliably(to, &Body::Rewind { since, records: v.into_iter().map(|(_, r)| r).collect() });
                Verdict::Done
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// Selects the acting set of a PG for which `k` shards are needed; see `Pg::choose`.
    pub(in crate::pg) fn choose_shards(&self, k: usize) -> Option<Choice> {
        let infos = self.infos();
        let (auth, best, version) = self.authority(k)?;
        let me = self.me();
        let info_of = |p: PeerId| infos.iter().find(|(x, _)| *x == p).map(|(_, i)| *i);
        let blank = PgInfo::default();
        let usable = |p: PeerId, tail: Eversion| {
            let i = info_of(p).unwrap_or(&blank);
            i.is_complete() && i.last_update >= tail && !self.peers.failed.contains(&p)
        };
        let map = self.maps.newest()?;
        let m = &self.journal.info().interval.mapping;
        // The shards for a place, the preferred one first.
        let for_place = |place: usize, tail: Eversion| -> Vec<PeerId> {
            let Ok(shard) = i8::try_from(place).map(ShardId) else { return Vec::new() };
            let of = |set: &[OsdId]| set.get(place).filter(|o| **o != OsdId::NONE).map(|o| PeerId { osd: *o, shard });
            let known = |p: &PeerId| info_of(*p).is_some() && usable(*p, tail) && map.osds.is_up(p.osd);
            let mut strays: Vec<(Reverse<Eversion>, PeerId)> = infos
                .iter()
                .filter(|(p, _)| p.shard == shard && known(p))
                .map(|(p, i)| (Reverse(i.last_update), *p))
                .collect();
            strays.sort_unstable();
            let placed = of(&m.up).filter(|p| usable(*p, tail)).into_iter().chain(of(&m.acting).filter(known));
            placed.chain(strays.into_iter().map(|(_, p)| p)).collect()
        };
        let size = self.journal.info().interval.size as usize;
        let peer = |place, osd| PeerId { osd, shard: ShardId(i8::try_from(place).unwrap_or(i8::MAX)) };
        let first =
            |want: &[OsdId]| want.iter().enumerate().find(|(_, o)| **o != OsdId::NONE).map(|(i, o)| peer(i, *o));
        // The shard that leads an acting set which the map gets by a request.
        let lead_of = |want: &[OsdId]| if want == m.up { m.up(true).on(m.up_primary) } else { first(want) };
        // The primary takes over the authoritative log, and all others must reach the tail of the result.
        let fill = |lead: PeerId| {
            let tail = info_of(lead).unwrap_or(&blank).log_tail.max(best.log_tail);
            let all: Vec<Vec<PeerId>> = (0..size).map(|place| for_place(place, tail)).collect();
            let mut want = set_apart(&all);
            if self.journal.info().interval.min_size as usize > k {
                spread(&mut want, &m.up, k);
            }
            want
        };
        let drop_short = |want: &mut Vec<OsdId>, lead: PeerId| {
            let tail = info_of(lead).unwrap_or(&blank).log_tail.max(best.log_tail);
            for (i, o) in want.iter_mut().enumerate().filter(|(_, o)| **o != OsdId::NONE) {
                if !usable(peer(i, *o), tail) {
                    *o = OsdId::NONE;
                }
            }
        };
        let known_first = (0..size).find_map(|place| for_place(place, best.log_tail).first().copied())?;
        // This shard may stay the primary of the present acting set, whatever its place.
        let candidates = [Some(me), m.up(true).on(m.up_primary), Some(known_first)];
        let fits =
            |(lead, want): &(PeerId, Vec<OsdId>)| *lead == me && *want == m.acting || lead_of(want) == Some(*lead);
        let leads = candidates.into_iter().flatten().filter(|p| usable(*p, best.log_tail));
        let (lead, want) = match leads.map(|p| (p, fill(p))).find(fits) {
            Some(found) => found,
            None => {
                let mut want = fill(known_first);
                // The holes may have changed the primary.
                let lead = lead_of(&want)?;
                drop_short(&mut want, lead);
                (lead_of(&want)?, want)
            }
        };
        let backfill = self.shards_to_fill(&want);
        let there = want.iter().filter(|o| **o != OsdId::NONE).count();
        (there >= k).then_some(Choice { auth, version, want, lead, backfill })
    }

    /// The holder of the authoritative log with its info, and the version that all shards come to.
    fn authority(&self, k: usize) -> Option<(PeerId, &PgInfo, Eversion)> {
        let took_part = self.shards_that_took_part();
        let me = self.me();
        let of = |(p, i): &(PeerId, &PgInfo)| Reach {
            shard: p.shard,
            last_update: i.last_update,
            // A log can't go back to before its oldest record either.
            undo_floor: i.undo_floor.max(i.log_tail),
            reach: self.reach(i.last_update, p.shard),
        };
        let reach: Vec<Reach> = took_part.iter().map(of).collect();
        let version = version_to_have(&reach, k)?;
        tracing::debug!(pg = %self.env.spg(), %version, shards = ?reach, "version chosen");
        // The holder of the authoritative log: a log that has the version; newer entries in it are ignored.
        let (auth, best) = took_part
            .iter()
            .filter(|(_, i)| i.last_update >= version)
            .min_by_key(|(p, i)| (i.log_tail, *p != me, i.last_update, *p))?;
        Some((*auth, *best, version))
    }

    /// Shards of the up set that the acting set does not have, to be backfilled.
    fn shards_to_fill(&self, want: &[OsdId]) -> Vec<PeerId> {
        let mut backfill = Vec::new();
        for p in self.up_set().iter() {
            let chosen = usize::try_from(p.shard.0).ok().and_then(|i| want.get(i)) == Some(&p.osd);
            if !chosen && !self.peers.failed.contains(&p) {
                backfill.push(p);
            }
        }
        backfill
    }

    /// The acting set of a PG whose shards lack nothing: each shard where the up set has it, else where it is.
    /// `strays`: shards outside the acting set whose logs overlap the primary's.
    pub(in crate::pg) fn settled_shards(&self, strays: &[PeerId]) -> Vec<OsdId> {
        let m = &self.journal.info().interval.mapping;
        let for_place = |place: usize| -> Vec<PeerId> {
            let shard = ShardId(i8::try_from(place).unwrap_or(i8::MAX));
            let of = |set: &[OsdId]| set.get(place).map(|o| PeerId { osd: *o, shard }).filter(|p| p.osd != OsdId::NONE);
            let sound = |p: &PeerId| !self.peers.failed.contains(p);
            let placed = of(&m.up).filter(sound).into_iter().chain(of(&m.acting).filter(sound));
            placed.chain(strays.iter().copied().filter(|p| p.shard == shard)).collect()
        };
        let all: Vec<Vec<PeerId>> = (0..self.journal.info().interval.size as usize).map(for_place).collect();
        let mut want = set_apart(&all);
        if let Some(k) = self.shards_needed().filter(|k| self.journal.info().interval.min_size as usize > *k) {
            spread(&mut want, &m.up, k);
        }
        want
    }
}

impl Pg {
    /// The acting set with `strays` in its holes, where the PG outlives the death of each OSD with them.
    pub(in crate::pg) fn shards_with(&self, strays: &[PeerId]) -> Vec<OsdId> {
        let m = &self.journal.info().interval.mapping;
        let mut want = m.acting.clone();
        for (place, slot) in want.iter_mut().enumerate().filter(|(_, o)| **o == OsdId::NONE) {
            let stray = strays.iter().find(|p| usize::try_from(p.shard.0) == Ok(place));
            *slot = stray.map_or(OsdId::NONE, |p| p.osd);
        }
        if let Some(k) = self.shards_needed().filter(|k| self.journal.info().interval.min_size as usize > *k) {
            spread(&mut want, &m.up, k);
        }
        want
    }
}

/// The acting set of the first shard of each place, except where that OSD has another place, too, and another OSD has
/// the shard. So an OSD that CRUSH gives a second place, because it has no place for all shards, does not take the
/// shard from an OSD that may go on keeping it: the PG would serve less when one of its OSDs dies.
fn set_apart(all: &[Vec<PeerId>]) -> Vec<OsdId> {
    let mut want: Vec<OsdId> = all.iter().map(|v| v.first().map_or(OsdId::NONE, |p| p.osd)).collect();
    for (place, there) in all.iter().enumerate() {
        let osd = want.get(place).copied().filter(|o| *o != OsdId::NONE);
        if osd.is_none_or(|o| want.iter().filter(|x| **x == o).count() <= 1) {
            continue;
        }
        let other = there.iter().map(|p| p.osd).find(|o| !want.contains(o));
        if let (Some(slot), Some(o)) = (want.get_mut(place), other) {
            *slot = o;
        }
    }
    want
}

/// True if `k` shards of an acting set remain when any one of its OSDs dies; an OSD may have several. Otherwise the
/// acting set does not serve, unless the pool's `min_size` is `k`.
pub(in crate::pg) fn outlives_any(acting: &[OsdId], k: usize) -> bool {
    let there = || acting.iter().copied().filter(|o| *o != OsdId::NONE);
    let most = there().map(|o| there().filter(|x| *x == o).count()).max().unwrap_or(0);
    most <= 1 || there().count() - most >= k
}

/// Leaves places empty until `k` shards remain when any one OSD dies. An OSD may have several shards of earlier
/// intervals. If it served all of them, its death could take more shards than the pool's `min_size` allows for. Places
/// at which the up set names the OSD are kept.
fn spread(want: &mut [OsdId], up: &[OsdId], k: usize) {
    loop {
        let there = || want.iter().copied().filter(|o| *o != OsdId::NONE);
        let of = |osd: OsdId| there().filter(|o| *o == osd).count();
        if outlives_any(want, k) {
            return;
        }
        let most = there().max_by_key(|o| (of(*o), Reverse(*o)));
        let Some(most) = most else { return unreached("an OSD has several shards") };
        let surplus = (0..want.len()).rev().filter(|i| want[*i] == most).max_by_key(|i| up.get(*i) != Some(&most));
        let hole = surplus.and_then(|i| want.get_mut(i));
        let Some(hole) = hole else { return unreached("the OSD has a place") };
        *hole = OsdId::NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_osd_gets_a_second_shard_only_if_no_other_has_it() {
        let of = |all: &[&[i32]]| {
            let peers = |(i, v): (usize, &&[i32])| {
                v.iter().map(|o| PeerId { osd: OsdId(*o), shard: ShardId(i as i8) }).collect::<Vec<_>>()
            };
            let all: Vec<Vec<PeerId>> = all.iter().enumerate().map(peers).collect();
            set_apart(&all).iter().map(|o| if *o == OsdId::NONE { -1 } else { o.0 }).collect::<Vec<_>>()
        };
        assert_eq!(of(&[&[2], &[3], &[1], &[4, 0], &[4]]), [2, 3, 1, 0, 4], "osd.0 is out and keeps its shard");
        assert_eq!(of(&[&[2], &[3], &[1], &[4], &[4, 0]]), [2, 3, 1, 4, 0]);
        assert_eq!(of(&[&[2], &[3], &[1], &[4], &[4]]), [2, 3, 1, 4, 4], "no other has it");
        assert_eq!(of(&[&[2, 3], &[3], &[1], &[4, 1], &[4]]), [2, 3, 1, 4, 4], "no place is taken from another");
        assert_eq!(of(&[&[2], &[3, 0], &[], &[4, 0], &[0]]), [2, 3, -1, 4, 0], "the up set stays");
    }

    #[test]
    fn one_osd_that_dies_leaves_enough_shards() {
        let spread = |want: &[i32], up: &[i32], k| {
            let of = |all: &[i32]| all.iter().map(|o| if *o < 0 { OsdId::NONE } else { OsdId(*o) }).collect::<Vec<_>>();
            let mut w = of(want);
            spread(&mut w, &of(up), k);
            assert!(outlives_any(&w, k));
            w.iter().map(|o| if *o == OsdId::NONE { -1 } else { o.0 }).collect::<Vec<_>>()
        };
        let up = [1, 0, 2, 3, 4, 5];
        assert_eq!(spread(&[1, 0, 2, 3, 4, 5], &up, 4), [1, 0, 2, 3, 4, 5]);
        assert_eq!(spread(&[0, 0, 2, 3, 4, 5], &up, 4), [0, 0, 2, 3, 4, 5], "four are left");
        assert_eq!(spread(&[0, 0, 2, 0, 4, 5], &up, 4), [-1, 0, 2, -1, 4, 5], "where the OSD is up, it stays");
        assert_eq!(spread(&[0, 0, 2, -1, 4, 5], &up, 4), [-1, 0, 2, -1, 4, 5], "with a hole one is too many");
        assert_eq!(spread(&[0, -1, 2, -1, 4, 5], &up, 4), [0, -1, 2, -1, 4, 5], "nobody has two");
    }
}
