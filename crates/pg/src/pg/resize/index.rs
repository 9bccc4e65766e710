//! The snapshot index when PGs are split or joined: as long as it likes, a page at a time.
//!
//! What fits a page goes in the transaction that splits or joins. Of a longer index, pages go before it, each in a transaction of
//! its own: in a split to the own object of the PG that will come, which lies in its part of the collection already; in a join
//! to that of the PG that takes over.
//!
//! Invariants:
//!  1. Nothing else happens to the PG meanwhile, and a crash in between leaves the split or join to be done again from the stored
//!     maps: what was moved is not in the index any more then, or is put there once more.
//!  2. A key whose clone is not in the collection (of a join that was called off) is dropped when its snapshot is trimmed.

use crate::effect::Effect;
use crate::exec::{Step, index_clone};
use crate::object::own_objects;
use crate::pg::ops::commit::Action;
use crate::pg::ops::plan::Work;
use crate::pg::{Pg, State};
use base::{Now, PgId, SpgId};
use bytes::Bytes;
use store::{Cid, ObjectStore, Op};

/// Keys of the index that go in one transaction.
pub(in crate::pg) const INDEX_PAGE: usize = 1024;
/// Bytes of them, about.
const INDEX_PAGE_BYTES: usize = 1 << 20;

type Keys = Vec<(Bytes, Bytes)>;

impl Pg {
    /// The index, if it is no more than a page. Of a longer one a page of what will be other PGs' is handed over: those of these
    /// seeds, the last in hash order first. `None` if there may be more.
    pub(in crate::pg) fn rest_of_index(
        &mut self,
        id: u64,
        seeds: &[u32],
        store: &mut dyn ObjectStore,
    ) -> Step<Option<Keys>> {
        let (tag, cid, spg) = (self.tag(id), self.cid, self.cfg.spg);
        loop {
            let from = self.index_from.clone();
            let page = store.omap_range(tag, cid, &self.meta(), &from, !from.is_empty(), INDEX_PAGE, INDEX_PAGE_BYTES);
            let page = match page {
                Err(store::ReadError::NoObject) => return Ok(Some(Vec::new())),
                r => r?,
            };
            if from.is_empty() && !page.more {
                return Ok(Some(page.entries));
            }
            let Some((last, _)) = page.entries.last().cloned() else { return Ok(Some(Vec::new())) };
            let mut parts: Vec<(u32, Keys)> = seeds.iter().map(|s| (*s, Vec::new())).collect();
            for (k, v) in page.entries {
                // Keys that don't decode stay for trimming to complain of.
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
                self.index_from = last;
                self.on_durable(Action::IndexMoved(None));
                return Ok(None);
            }
            if !page.more {
                return Ok(Some(Vec::new()));
            }
            self.index_from = last;
            // What was pinned may go.
            store.release(tag);
        }
    }

    /// Takes over a page of the index of the PG that is joined, if that is longer; false if there is no more than a page.
    pub(in crate::pg) fn take_over_index(&mut self, id: u64, from: Cid, store: &mut dyn ObjectStore) -> Step<bool> {
        let Some((source, heir)) = self.good_heir() else { return Ok(false) };
        let left = heir.index.len().saturating_sub(INDEX_PAGE);
        if left == 0 {
            return Ok(false);
        }
        let entries = heir.index.get(left..).unwrap_or_default().to_vec();
        let op = Op::OmapSet { cid: self.cid, oid: self.meta(), entries };
        self.commit_entries(self.tag(id), vec![op], &mut [], store)?;
        self.heir_index_taken(source, left);
        self.on_durable(Action::IndexMoved(Some(from)));
        Ok(true)
    }

    /// A page of it is durable where it goes.
    pub(in crate::pg) fn index_moved(
        &mut self,
        from: Option<Cid>,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        match (&self.state, from) {
            _ if self.stopping => {}
            (State::Splitting, None) => self.start_work(Work::Split, None, now, store, out),
            (State::Joining, Some(from)) => self.start_work(Work::Join(Some(from)), None, now, store, out),
            _ => {}
        }
    }
}
