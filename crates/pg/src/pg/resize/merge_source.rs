//! A PG whose pool gets fewer PGs gives what it has to another one, and goes.
//!
//! It does so at the map that says so, alone and without asking, as a split does. Before, while the map only announces it
//! (`pg_num_pending`), both PGs serve nothing ([`State::Quiesced`]); their primary says that all copies are equal
//! ([`Effect::ReadyToMerge`]), and the map that joins them tells as of which versions. A copy that is of another version missed
//! something; nothing it has is used.
//!
//! Invariants:
//!  1. What is told to the target does not change any more.
//!  2. Objects are removed here only when the target has them durably, or needs none of them.

use crate::effect::Effect;
use crate::exec::{Step, Stop};
use crate::kin::{Heir, Kin};
use crate::limits::{PUSH_BYTES, PUSH_OMAP_ENTRIES, PUSH_READ};
use crate::map::MapView;
use crate::pg::backend::ec::kept::Kept;
use crate::pg::ops::commit::Action;
use crate::pg::ops::plan::{Plan, Verdict, Work};
use crate::pg::report::Stage;
use crate::pg::{Pg, State};
use base::errno::EIO;
use base::{Epoch, Eversion, HObject, Now, PgId, SpgId};
use bytes::Bytes;
use cluster::osdmap::interval::children;
use cluster::pool::{pg_mask, stable_mod};
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag};

/// Objects listed at once.
const LIST: usize = 64;

/// Where in an object the next part begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::pg) enum Cursor {
    #[default]
    Start,
    Data(u64),
    Omap(Option<Bytes>),
}

/// How far the objects of a PG that leaves have been given away.
#[derive(Debug, Default)]
pub(in crate::pg) struct Cargo {
    /// Objects listed, next one last.
    listed: Vec<Oid>,
    /// Where the list goes on.
    next: Option<Oid>,
    started: bool,
    cursor: Cursor,
    /// Stays the same until the part was given.
    asked: bool,
}

impl MapView {
    /// The PG of the pool's present number that has what `pg` had; `None` if `pg` is one of them.
    pub(in crate::pg) fn joined_to(&self, pg: PgId) -> Option<PgId> {
        let n = self.pool.as_ref()?.pg_num;
        (pg.seed >= n).then(|| PgId { seed: stable_mod(pg.seed, n, pg_mask(n)), ..pg })
    }

    /// True if that PG is about to be joined with another one, and serves nothing until then.
    pub(in crate::pg) fn premerge(&self, pg: PgId) -> bool {
        let Some((n, soon)) = self.pool.as_ref().map(|p| (p.pg_num, p.pg_num_pending)) else { return false };
        soon > 0 && soon < n && (pg.seed >= soon || children(pg.seed, soon, n).next().is_some())
    }
}

impl Pg {
    /// The map says that there is no such PG any more.
    pub(in crate::pg) fn start_leave(
        &mut self,
        map: MapView,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        tracing::info!(pg = %self.cfg.spg, epoch = %map.epoch, "leaving, its objects go to another PG");
        self.close_collection(State::Leaving, false, now, out);
        // Clients whose maps are older send to the other PG when they see this one; of newer ones the host keeps them.
        self.held.clear();
        for c in &mut self.commits {
            c.actions.retain(|a| matches!(a, Action::Joined(..)));
        }
        self.map = Some(map);
        self.leaver = Some(Box::new(self.reserver.leave(self.cfg.spg)));
        self.start_work(Work::Leave, None, now, store, out);
    }

    /// Who takes over.
    fn target(&self) -> Option<SpgId> {
        let pg = self.map.as_ref()?.joined_to(self.cfg.spg.pg)?;
        Some(SpgId { pg, ..self.cfg.spg })
    }

    pub(in crate::pg) fn run_leave(&mut self, id: u64, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) -> Verdict {
        let Some(to) = self.target() else { return Verdict::Done };
        match self.heir(id, store).and_then(|h| Ok((h, self.forget_undo(id, store)?))) {
            Ok((h, wrote)) => {
                out.push(Effect::Kin { to, kin: Kin::Heir(Some(Box::new(h))) });
                if wrote { Verdict::Submitted } else { Verdict::Done }
            }
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                self.fail(errno, out);
                out.push(Effect::Kin { to, kin: Kin::Heir(None) });
                Verdict::Done
            }
        }
    }

    /// Of a shard: nothing is undone any more, and a collection that keeps something can't be joined to another one. True if
    /// that took a transaction.
    fn forget_undo(&mut self, id: u64, store: &mut dyn ObjectStore) -> Step<bool> {
        if !self.is_coded() {
            return Ok(false);
        }
        let cid = self.cid;
        let to = Eversion { epoch: Epoch(u32::MAX), version: u64::MAX };
        let mut ops = self.forget_aside();
        ops.push(Op::DropKept { cid, to });
        self.commit_alone(self.tag(id), ops, store)?;
        self.shard.kept = Kept::default();
        Ok(true)
    }

    fn heir(&self, id: u64, store: &mut dyn ObjectStore) -> Step<Heir> {
        let map = self.map.as_ref();
        let meta = map.and_then(|m| m.pool.as_ref()).map(|p| p.last_merge);
        let as_known =
            meta.is_some_and(|m| m.source == self.cfg.spg.pg.seed && m.source_version == self.info.last_update);
        let good = as_known && self.info.is_complete() && self.missing.is_empty() && self.info.served;
        let (mut records, mut index) = (Vec::new(), Vec::new());
        if good {
            records = self.own_records(id, store)?;
            index = self.read_omap(id, store)?;
        } else {
            tracing::info!(pg = %self.cfg.spg, version = %self.info.last_update, ?meta, "this copy missed something before it leaves");
        }
        let epoch = map.map(|m| m.epoch).unwrap_or_default();
        Ok(Heir { epoch, cid: self.cid, good, info: self.info.clone(), records, index, granted: self.granted.clone() })
    }

    /// What the target wants.
    pub(in crate::pg) fn kin_of_leaver(
        &mut self,
        kin: Kin,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        match kin {
            // It was told, or will be.
            Kin::Await(_) => {}
            Kin::Next(_) if self.cargo.as_ref().is_none_or(|c| !c.asked) => {
                self.cargo.get_or_insert_default().asked = true;
                self.start_work(Work::Cargo, None, now, store, out);
            }
            Kin::Joined { taken: true, .. } => {
                self.state = State::Deleted;
                for p in std::mem::take(&mut self.plans).into_keys() {
                    self.abandoned.push(p);
                }
                out.push(Effect::Deleted);
            }
            Kin::Joined { taken: false, .. } => self.start_delete(now, store, out),
            _ => tracing::debug!(pg = %self.cfg.spg, ?kin, "nothing to say to that"),
        }
    }

    pub(in crate::pg) fn run_cargo(
        &mut self,
        plan: &mut Plan,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let Some(to) = self.target() else { return Verdict::Done };
        let mut c = self.cargo.take().unwrap_or_default();
        let step = self.next_cargo(plan.id, &mut c, store);
        match step {
            Ok((ops, damaged, last)) => {
                c.asked = false;
                self.cargo = Some(c);
                for object in &damaged {
                    tracing::error!(pg = %self.cfg.spg, %object, "object does not read here, the PG it goes to needs another copy of it");
                }
                out.push(Effect::Kin { to, kin: Kin::Cargo { ops, damaged, last } });
                Verdict::Done
            }
            // From where the last part ended.
            Err(stop) => {
                self.cargo = Some(c);
                match stop {
                    Stop::Wait => Verdict::Park(Stage::Reading),
                    Stop::Errno(errno) => {
                        self.fail(errno, out);
                        Verdict::Done
                    }
                }
            }
        }
    }

    /// Changes that make the next part, objects that don't read, and whether that is all; `c` moves on only if there is a part.
    fn next_cargo(&self, id: u64, c: &mut Cargo, store: &mut dyn ObjectStore) -> Step<(Vec<Op>, Vec<HObject>, bool)> {
        let (tag, cid) = (self.tag(id), self.cid);
        if c.listed.is_empty() && (!c.started || c.next.is_some()) {
            let first = Oid { generation: 0, ..Oid::new(HObject::min()) };
            let from = c.next.clone().unwrap_or(first);
            let (found, next) = store.list(tag, cid, &from, None, LIST)?;
            let own = [self.meta(), self.meta_missing()];
            // What is set aside for undoing stays behind: no entry of the log is undone any more.
            let goes = |o: &Oid| !own.contains(o) && o.generation == Oid::NO_GEN;
            c.listed = found.into_iter().filter(goes).rev().collect();
            (c.started, c.next) = (true, next);
        }
        let (mut ops, mut bytes, mut damaged) = (Vec::new(), 0usize, Vec::new());
        let (mut left, mut cursor) = (c.listed.len(), c.cursor.clone());
        while bytes < PUSH_BYTES
            && let Some(oid) = left.checked_sub(1).and_then(|i| c.listed.get(i))
        {
            let part = match object_part(store, tag, cid, oid, cursor, &mut ops, &mut bytes) {
                Err(ReadError::Io { errno: EIO, .. }) => {
                    damaged.push(oid.hobj.head());
                    None
                }
                r => r?,
            };
            cursor = part.unwrap_or_else(|| {
                left -= 1;
                Cursor::Start
            });
        }
        c.listed.truncate(left);
        c.cursor = cursor;
        Ok((ops, damaged, c.listed.is_empty() && c.next.is_none()))
    }
}

/// Changes that make the next part of an object, up to a bound; where the one behind it begins, if there is one.
pub(in crate::pg) fn object_part(
    store: &mut dyn ObjectStore,
    tag: Tag,
    cid: Cid,
    oid: &Oid,
    cursor: Cursor,
    ops: &mut Vec<Op>,
    bytes: &mut usize,
) -> Result<Option<Cursor>, ReadError> {
    Ok(Some(match cursor {
        Cursor::Start => {
            let size = store.stat(tag, cid, oid)?.size;
            *bytes += 64;
            ops.push(Op::Touch { cid, oid: oid.clone() });
            ops.push(Op::Truncate { cid, oid: oid.clone(), size });
            Cursor::Data(0)
        }
        Cursor::Data(off) => {
            let size = store.stat(tag, cid, oid)?.size;
            let len = PUSH_READ.min(size.saturating_sub(off));
            for (o, l) in store.extents(tag, cid, oid, off, len)? {
                let data = store.read(tag, cid, oid, o, l.min(size.saturating_sub(o)))?;
                *bytes += data.len();
                if !data.is_empty() {
                    ops.push(Op::Write { cid, oid: oid.clone(), off: o, data });
                }
            }
            if off + len < size { Cursor::Data(off + len) } else { Cursor::Omap(None) }
        }
        Cursor::Omap(from) => {
            if from.is_none() {
                let header = store.omap_header(tag, cid, oid)?;
                if !header.is_empty() {
                    ops.push(Op::OmapSetHeader { cid, oid: oid.clone(), header });
                }
            }
            let (key, after) = from.as_ref().map_or((&b""[..], false), |k| (&k[..], true));
            let page = store.omap_range(tag, cid, oid, key, after, PUSH_OMAP_ENTRIES, PUSH_BYTES)?;
            *bytes += page.entries.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
            let end = page.entries.last().map(|(k, _)| k.clone()).filter(|_| page.more);
            if !page.entries.is_empty() {
                ops.push(Op::OmapSet { cid, oid: oid.clone(), entries: page.entries });
            }
            if end.is_some() {
                Cursor::Omap(end)
            } else {
                let attrs = store.attrs(tag, cid, oid)?;
                *bytes += attrs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
                ops.push(Op::SetAttrs { cid, oid: oid.clone(), attrs });
                return Ok(None);
            }
        }
    }))
}
