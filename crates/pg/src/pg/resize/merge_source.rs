//! The source of a merge: a PG that gives its content to another one when `pg_num` shrinks.
//!
//! Each copy leaves at the map of the merge, by itself, as in a split. Before, while the map announces the merge
//! (`pg_num_pending`), source and target serve nothing ([`State::Quiesced`]). Their primaries report when all copies
//! are equal ([`Effect::ReadyToMerge`]), and the map of the merge names the versions. A copy of another version
//! missed a write, and its content is not used.
//!
//! Invariants:
//!  1. The state sent to the target does not change any more.
//!  2. Objects are removed here only when the target has them durably, or needs none.
//!
//! Tests: `tests/merge.rs`.

use crate::effect::Effect;
use crate::exec::{Step, Stop};
use crate::limits::{PUSH_BYTES, PUSH_OMAP_ENTRIES, PUSH_READ};
use crate::map::MapView;
use crate::merge_msg::{MergeMsg, SourceState};
use crate::pg::journal::action::ResizeAction;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::{Plan, Verdict};
use crate::pg::ops::work::ResizeWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, State, Turn};
use base::errno::EIO;
use base::unreached;
use base::{Epoch, Eversion, HObject, PgId, SpgId};
use bytes::Bytes;
use cluster::osdmap::interval::children;
use cluster::pool::{pg_mask, stable_mod};
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag};

/// Objects per list.
const LIST: usize = 64;

/// Position in an object where the next part begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::pg) enum Cursor {
    #[default]
    Start,
    Data(u64),
    Omap(Option<Bytes>),
}

/// Progress of sending the source's objects.
#[derive(Debug, Default)]
pub(in crate::pg) struct Sending {
    /// Objects listed, the next one last.
    listed: Vec<Oid>,
    /// Position where the list continues.
    next: Option<Oid>,
    started: bool,
    cursor: Cursor,
    /// The target has asked for a part that was not sent.
    asked: bool,
}

impl MapView {
    /// The target that `pg` is merged into under this map; `None` if `pg` exists.
    pub(in crate::pg) fn merged_into(&self, pg: PgId) -> Option<PgId> {
        let n = self.pool.as_ref()?.pg_num;
        (pg.seed >= n).then(|| PgId { seed: stable_mod(pg.seed, n, pg_mask(n)), ..pg })
    }

    /// True if the map announces a merge of that PG, so that it serves nothing.
    pub(in crate::pg) fn premerge(&self, pg: PgId) -> bool {
        let Some((n, soon)) = self.pool.as_ref().map(|p| (p.pg_num, p.pg_num_pending)) else { return false };
        soon > 0 && soon < n && (pg.seed >= soon || children(pg.seed, soon, n).next().is_some())
    }
}

impl Pg {
    /// Handles the durability of a transaction of a split or merge.
    pub(in crate::pg) fn act_resize(&mut self, a: ResizeAction, turn: &mut Turn<'_>) {
        match a {
            ResizeAction::IndexMoved(from) => self.index_moved(from, turn),
            a => self.merge_acts(a, turn),
        }
    }

    /// Runs work of splits and merges.
    pub(in crate::pg) fn run_resize(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        match &plan.work {
            Work::Resize(ResizeWork::Split) => self.run_split(id, turn),
            Work::Resize(ResizeWork::Leave) => self.run_leave(id, turn),
            Work::Resize(ResizeWork::SendObjects) => self.run_send_objects(plan, turn),
            Work::Resize(ResizeWork::Intake) => self.run_intake(id, turn),
            Work::Resize(ResizeWork::StoreObjects(ops, last)) => self.run_store_objects(id, ops, *last, turn),
            Work::Resize(ResizeWork::MergeFrom(from)) => self.run_merge_from(id, *from, turn),
            _ => unreached("each part runs its own work"),
        }
    }

    /// Begins to leave: the map has merged this PG into another one.
    pub(in crate::pg) fn start_leave(&mut self, map: MapView, turn: &mut Turn<'_>) {
        tracing::info!(pg = %self.env.spg(), epoch = %map.epoch, "merging into another PG");
        self.close_collection(State::Leaving, false, turn);
        // Clients with older maps send to the target when they see this map. Operations under newer maps are held by
        // the host.
        for req in self.mail.take_held() {
            self.drop_of(req.session, req.msg.tid, turn.out);
        }
        self.maps.follow(map);
        self.resize.leaver = Some(Box::new(self.env.reserver().leave(self.env.spg())));
        self.start_work(Work::Resize(ResizeWork::Leave), None, turn);
    }

    /// The target of the merge.
    fn target(&self) -> Option<SpgId> {
        let pg = self.maps.newest()?.merged_into(self.env.spg().pg)?;
        Some(SpgId { pg, ..self.env.spg() })
    }

    pub(in crate::pg) fn run_leave(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let Some(to) = self.target() else { return Verdict::Done };
        match self.source_state(id, turn.store).and_then(|h| Ok((h, self.forget_undo(id, turn.store)?))) {
            Ok((h, wrote)) => {
                turn.out.push(Effect::Merge { to, msg: MergeMsg::State(Some(Box::new(h))) });
                if wrote { Verdict::Submitted } else { Verdict::Done }
            }
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                self.fail(errno, turn.out);
                turn.out.push(Effect::Merge { to, msg: MergeMsg::State(None) });
                Verdict::Done
            }
        }
    }

    /// Only for a shard: drops all undo data. No entry is undone after the merge, and a collection with undo data
    /// can't be merged. True if that took a transaction.
    fn forget_undo(&mut self, id: u64, store: &mut dyn ObjectStore) -> Step<bool> {
        if !self.is_coded() {
            return Ok(false);
        }
        let cid = self.env.cid();
        let to = Eversion { epoch: Epoch(u32::MAX), version: u64::MAX };
        let mut ops = self.forget_aside();
        ops.push(Op::DropKept { cid, to });
        self.commit_alone(self.tag(id), ops, store)?;
        self.ec.forget_undo();
        Ok(true)
    }

    fn source_state(&self, id: u64, store: &mut dyn ObjectStore) -> Step<SourceState> {
        let map = self.maps.newest();
        let meta = map.and_then(|m| m.pool.as_ref()).map(|p| p.last_merge);
        let as_known = meta
            .is_some_and(|m| m.source == self.env.spg().pg.seed && m.source_version == self.journal.info().last_update);
        let good = as_known
            && self.journal.info().is_complete()
            && self.recovery.missing().is_empty()
            && self.journal.info().served;
        let (mut records, mut index) = (Vec::new(), Vec::new());
        if good {
            records = self.own_records(id, store)?;
            index = self.read_omap(id, store)?;
        } else {
            tracing::info!(pg = %self.env.spg(), version = %self.journal.info().last_update, ?meta, "this copy differs from the version agreed for the merge; its content is not used");
        }
        let epoch = map.map(|m| m.epoch).unwrap_or_default();
        Ok(SourceState {
            epoch,
            cid: self.env.cid(),
            good,
            info: self.journal.info().clone(),
            records,
            index,
            granted: self.peers.granted().clone(),
        })
    }

    /// Handles a message from the merge target.
    pub(in crate::pg) fn handle_as_leaver(&mut self, msg: MergeMsg, turn: &mut Turn<'_>) {
        match msg {
            // The state was sent, or will be.
            MergeMsg::Await(_) => {}
            MergeMsg::Next(_) if self.resize.sending.as_ref().is_none_or(|c| !c.asked) => {
                self.resize.sending.get_or_insert_default().asked = true;
                self.start_work(Work::Resize(ResizeWork::SendObjects), None, turn);
            }
            MergeMsg::Merged { taken: true, .. } => {
                self.life.enter(State::Deleted);
                self.plans.abandon_all();
                turn.out.push(Effect::Deleted);
            }
            MergeMsg::Merged { taken: false, .. } => self.start_delete(turn),
            _ => tracing::debug!(pg = %self.env.spg(), ?msg, "message of a merge ignored"),
        }
    }

    pub(in crate::pg) fn run_send_objects(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let Some(to) = self.target() else { return Verdict::Done };
        let mut c = self.resize.sending.take().unwrap_or_default();
        let step = self.next_objects(plan.id, &mut c, turn.store);
        match step {
            Ok((ops, damaged, last)) => {
                c.asked = false;
                self.resize.sending = Some(c);
                for object in &damaged {
                    tracing::error!(pg = %self.env.spg(), %object, "object is unreadable here; the merge target must recover it");
                }
                turn.out.push(Effect::Merge { to, msg: MergeMsg::Objects { ops, damaged, last } });
                Verdict::Done
            }
            // The part is read again from its start.
            Err(stop) => {
                self.resize.sending = Some(c);
                match stop {
                    Stop::Wait => Verdict::Park(Stage::Reading),
                    Stop::Errno(errno) => {
                        self.fail(errno, turn.out);
                        Verdict::Done
                    }
                }
            }
        }
    }

    /// Reads the next part: its changes, unreadable objects, and whether it is the last. `c` changes only if there is
    /// a part.
    fn next_objects(
        &self,
        id: u64,
        c: &mut Sending,
        store: &mut dyn ObjectStore,
    ) -> Step<(Vec<Op>, Vec<HObject>, bool)> {
        let (tag, cid) = (self.tag(id), self.env.cid());
        if c.listed.is_empty() && (!c.started || c.next.is_some()) {
            let first = Oid::new(HObject::min()).at_generation(0);
            let from = c.next.clone().unwrap_or(first);
            let (found, next) = store.list(tag, cid, &from, None, LIST)?;
            let own = [self.meta(), self.meta_missing()];
            // Objects set aside for undo stay behind: no log entry is undone after the merge.
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

/// Adds the changes of an object's next part, up to a bound. Returns the position of the following part, if there is
/// one.
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
                    ops.push(Op::Write { cid, oid: oid.clone(), off: o, data, sums: None });
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
