//! The snapshot index in splits and merges: of any length, moved page by page.
//!
//! An index of one page is moved in the transaction of the split or merge. Pages of a longer one are moved before it,
//! each in a transaction of its own. A split moves them to the own object of the future child, which lies in the
//! child's part of the collection. A merge moves them to the own object of the target.
//!
//! Invariants:
//!  1. Nothing else happens to the PG meanwhile. After a crash the split or merge is done again from the stored maps:
//!     moved keys are not in the index, or are written once more.
//!  2. A key whose clone is not in the collection (of a merge that was cancelled) is dropped when its snapshot is
//!     trimmed.
//!
//! Tests: `tests/merge.rs` (`a_long_snapshot_index_is_split_and_merged`).

use crate::effect::{Effect, LogLevel};
use crate::exec::{Step, index_clone};
use crate::object::own_objects;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::ResizeAction;
use crate::pg::ops::work::ResizeWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, State, Turn};
use base::errno::EIO;
use base::{PgId, SpgId};
use bytes::Bytes;
use store::{Cid, ObjectStore, Op};

/// Most index keys in one transaction.
pub(in crate::pg) const INDEX_PAGE: usize = 1024;
/// Target size of these keys, in bytes.
const INDEX_PAGE_BYTES: usize = 1 << 20;

type Keys = Vec<(Bytes, Bytes)>;

impl Pg {
    /// The index, if it has at most one page. Of a longer one, moves a page to the children with these seeds
    /// (descending in hash order) and returns `None`: call again.
    pub(in crate::pg) fn rest_of_index(
        &mut self,
        id: u64,
        seeds: &[u32],
        store: &mut dyn ObjectStore,
    ) -> Step<Option<Keys>> {
        let (tag, cid, spg) = (self.tag(id), self.env.cid(), self.env.spg());
        loop {
            let from = self.resize.index_from.clone();
            let page = store.omap_range(tag, cid, &self.meta(), &from, !from.is_empty(), INDEX_PAGE, INDEX_PAGE_BYTES);
            let page = match page {
                Err(store::ReadError::NoObject) => return Ok(Some(Vec::new())),
                Err(store::ReadError::Io { errno: EIO, .. }) if self.is_last_copy() => {
                    self.lose_index();
                    return Ok(Some(Vec::new()));
                }
                r => r?,
            };
            if from.is_empty() && !page.more {
                return Ok(Some(page.entries));
            }
            let Some((last, _)) = page.entries.last().cloned() else { return Ok(Some(Vec::new())) };
            let mut parts: Vec<(u32, Keys)> = seeds.iter().map(|s| (*s, Vec::new())).collect();
            for (k, v) in page.entries {
                // Undecodable keys stay here; trimming reports them.
                let to = index_clone(&k).and_then(|c| parts.iter_mut().find(|p| c.bitwise_key() >= p.0.reverse_bits()));
                if let Some((_, keys)) = to {
                    keys.push((k, v));
                }
            }
            let gone: Vec<Bytes> = parts.iter().flat_map(|p| p.1.iter().map(|(k, _)| k.clone())).collect();
            if !gone.is_empty() {
                let mut ops = vec![Op::OmapRmKeys { cid, oid: self.meta(), keys: gone }];
                for (seed, entries) in parts.into_iter().filter(|p| !p.1.is_empty()) {
                    let (oid, _) = own_objects(SpgId { pg: PgId { seed, ..spg.pg }, ..spg });
                    ops.push(Op::OmapSet { cid, oid, entries });
                }
                self.commit_entries(tag, ops, &mut [], store)?;
                self.resize.index_from = last;
                self.on_durable(Action::Resize(ResizeAction::IndexMoved(None)));
                return Ok(None);
            }
            if !page.more {
                return Ok(Some(Vec::new()));
            }
            self.resize.index_from = last;
            // Pinned data can be released.
            store.release(tag);
        }
    }

    /// True if no other copy of the PG is known in this interval.
    fn is_last_copy(&self) -> bool {
        self.acting_set().iter().all(|p| p == self.me())
    }

    /// Reports that the rest of the index can't be read. The only copy splits without it, rather than fail with all
    /// its objects.
    fn lose_index(&mut self) {
        let (spg, me) = (self.env.spg(), self.env.whoami());
        let text = format!(
            "{spg}: the snapshot index on {me} is unreadable: the PG splits without it, and clones of snapshots that \
             are removed later stay"
        );
        tracing::error!("{text}");
        self.mail.post(Effect::Log(LogLevel::Error, text));
    }

    /// As merge target: takes over a page of the source's index, if it has more than one. False if it has at most one
    /// page.
    pub(in crate::pg) fn take_over_index(&mut self, id: u64, from: Cid, store: &mut dyn ObjectStore) -> Step<bool> {
        let Some((source, state)) = self.good_source() else { return Ok(false) };
        let left = state.index.len().saturating_sub(INDEX_PAGE);
        if left == 0 {
            return Ok(false);
        }
        let entries = state.index.get(left..).unwrap_or_default().to_vec();
        let op = Op::OmapSet { cid: self.env.cid(), oid: self.meta(), entries };
        self.commit_entries(self.tag(id), vec![op], &mut [], store)?;
        self.source_index_taken(source, left);
        self.on_durable(Action::Resize(ResizeAction::IndexMoved(Some(from))));
        Ok(true)
    }

    /// Handles the durability of a moved page.
    pub(in crate::pg) fn index_moved(&mut self, from: Option<Cid>, turn: &mut Turn<'_>) {
        match (self.life.state(), from) {
            _ if self.life.is_stopping() => {}
            (State::Splitting, None) => self.start_work(Work::Resize(ResizeWork::Split), None, turn),
            (State::Merging, Some(from)) => {
                self.start_work(Work::Resize(ResizeWork::MergeFrom(Some(from))), None, turn)
            }
            _ => {}
        }
    }
}
