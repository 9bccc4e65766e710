//! Loading of metadata pages that plans miss.
//!
//! A page that was read is staged until its plan, when repeated, puts it in its place in the tree. It is then
//! pinned until that plan ends, so plans make progress however small the budget is.
//!
//! The memory that plans pin this way is bounded. A plan that has brought nothing yet waits while the others
//! have used up the plans' share of the budget. A plan that has begun goes on, so plans never wait for each
//! other. If no plan has brought anything, or nothing is in flight that could end a plan, the next one begins
//! whatever it needs.

use super::suspend::wake;
use super::{Role, Store};
use crate::api::{Event, ReadError, Tag};
use crate::layout::BLOCK;
use crate::meta::asking::Answer;
use crate::meta::page::PAGE_OVERHEAD;
use crate::meta::staging::Staged;
use crate::superblock::BlobPtr;
use base::crc::{SEED, crc32c};
use base::device::IoKind;
use base::errno::{self, Errno};
use base::unreached;
use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Most staged pages; the oldest unclaimed ones are dropped. Staged pages also stay within the share that plans
/// may bring.
const STAGED_MAX: usize = 4096;
/// Share of the budget that all plans may bring together, as a divisor. Another three quarters may be dirty.
const BROUGHT_SHARE: usize = 8;

/// Pages that a plan has brought when it counts as a walk; a page of a bucket's listing needs fewer.
const WALK_PAGES: usize = 64;
/// Most leaves that a walk requests at once.
const AHEAD_MAX: usize = 256;
/// Bytes of a large leaf, for the share of the budget that leaves take up while they are staged.
const LEAF_BYTES: usize = 16 << 10;

/// A page being read from the device.
#[derive(Debug)]
pub(super) struct Load {
    loc: BlobPtr,
    parts: SmallVec<[Option<Result<Bytes, Errno>>; 1]>,
    left: usize,
    /// Plans that wait for the page: tag and plan number.
    waiters: SmallVec<[(Tag, u64); 2]>,
}

/// Metadata pages that plans miss or have brought.
#[derive(Default)]
pub(super) struct Needs {
    loads: Slab<Load>,
    /// Loads by their first device block.
    loading: FxHashMap<u64, usize>,
    loading_bytes: usize,
    /// Estimated bytes of memory that plans have brought.
    brought: usize,
    /// Plans that wait for others to end, with the bytes they will bring.
    queue: VecDeque<(Tag, usize)>,
    /// A submitted transaction is being applied. Its needs never wait for other plans.
    applying: bool,
}

impl Needs {
    /// Bytes of the pages that are being read.
    pub(super) fn loading_bytes(&self) -> usize {
        self.loading_bytes
    }

    /// Notes the end of a plan that has brought this much.
    pub(super) fn ended(&mut self, brought: usize) {
        debug_assert!(brought <= self.brought, "each plan has a part of it");
        self.brought -= brought;
    }

    /// Notes that a plan has ended, whether it waited or not. True if plans waited.
    pub(super) fn waits_no_more(&mut self, tag: Tag) -> bool {
        let waited = !self.queue.is_empty();
        self.queue.retain(|c| c.0 != tag);
        waited
    }

    /// Takes the plans that wait.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = Tag> + use<> {
        std::mem::take(&mut self.queue).into_iter().map(|c| c.0)
    }

    /// Begins or ends the application of a submitted transaction: its needs never wait for other plans.
    pub(super) fn set_applying(&mut self, applying: bool) {
        self.applying = applying;
    }

    /// True if a plan may bring `bytes` more, with this metadata budget.
    fn fits(&self, bytes: usize, budget: usize) -> bool {
        self.brought == 0 || self.brought + bytes <= budget / BROUGHT_SHARE
    }
}

impl Store {
    /// Runs `f` on the metadata. Pages that it misses are read on behalf of `tag`.
    pub(super) fn with_meta<T>(
        &mut self,
        tag: Tag,
        f: impl FnOnce(&mut crate::meta::Meta) -> Option<T>,
    ) -> Result<T, ReadError> {
        let (answer, placed) = self.meta.ask(f);
        for page in placed {
            if let Some(p) = self.meta.same_page(page) {
                p.pins += 1;
                self.tag_state(tag).pages.push(page);
            }
        }
        match answer {
            Answer::Known(t) => Ok(t),
            Answer::Missing(want) => Err(self.wait_pages(tag, want)),
            Answer::Damaged(what) => {
                self.counters.bad_pages += 1;
                tracing::error!(what, "unreadable metadata");
                Err(ReadError::Io { what, errno: errno::EIO })
            }
        }
    }

    /// Leaves that a plan's next scan of an omap requests at once. A plan that has brought many walks through an omap, and
    /// is repeated from its start whenever a leaf is missing; so the more it has brought, the more it requests. Half of
    /// what it may have staged at once is the limit.
    pub(super) fn leaves_ahead(&self, tag: Tag) -> usize {
        let brought = self.tags.get(tag).map_or(0, |p| p.pages.len());
        let room = self.cfg.meta_bytes / BROUGHT_SHARE / 2 / LEAF_BYTES;
        if brought < WALK_PAGES { 0 } else { (brought / 2).min(room).min(AHEAD_MAX) }
    }

    pub(super) fn unpin(&mut self, pages: &[(u32, u64)]) {
        for page in pages {
            if let Some(p) = self.meta.same_page(*page) {
                p.pins -= 1;
            }
        }
    }

    /// Accounts for the bytes that a plan is about to bring. Returns false if the plan has to wait for room.
    fn may_bring(&mut self, tag: Tag, bytes: usize) -> bool {
        let p = self.tag_state(tag);
        if std::mem::take(&mut p.let_in) {
            // Count the present need: it may differ from the one at which the plan began to wait.
            let was = std::mem::replace(&mut p.brought, bytes);
            self.needs.brought = self.needs.brought - was + bytes;
            return true;
        }
        let begun = p.brought > 0 || self.needs.applying;
        let room = begun || self.needs.queue.is_empty() && self.needs.fits(bytes, self.cfg.meta_bytes);
        if !room {
            if !self.needs.queue.iter().any(|c| c.0 == tag) {
                self.needs.queue.push_back((tag, bytes));
            }
            return false;
        }
        self.tag_state(tag).brought += bytes;
        self.needs.brought += bytes;
        true
    }

    /// Lets waiting plans begin for which there is room.
    pub(super) fn let_in(&mut self) {
        while self.needs.queue.front().is_some_and(|c| self.needs.fits(c.1, self.cfg.meta_bytes)) {
            self.let_one_in();
        }
    }

    /// Lets a waiting plan begin when the store is at rest: the plans that hold the share may keep it for long.
    pub(super) fn let_in_if_at_rest(&mut self) {
        if !self.needs.queue.is_empty() && self.io.is_empty() && self.events.is_empty() {
            self.let_one_in();
        }
    }

    fn let_one_in(&mut self) {
        let Some((tag, bytes)) = self.needs.queue.pop_front() else {
            return unreached("the caller has seen a plan that waits");
        };
        let p = self.tag_state(tag);
        (p.brought, p.let_in) = (bytes, true);
        self.needs.brought += bytes;
        self.events.push_back(Event::Ready(tag));
    }

    /// Starts reading missing pages.
    fn wait_pages(&mut self, tag: Tag, want: Vec<BlobPtr>) -> ReadError {
        if want.is_empty() {
            return ReadError::Io {
                what: "a search in a metadata tree ended without a result".into(),
                errno: errno::EIO,
            };
        }
        if !self.may_bring(tag, want.iter().map(memory_of).sum()) {
            return ReadError::Wait;
        }
        let plan = self.tag_state(tag).id;
        for loc in want {
            let Some(first) = loc.runs.first().map(|r| r.0) else { continue };
            let under_way = self
                .needs
                .loading
                .get(&first)
                .copied()
                .filter(|l| self.needs.loads.get(*l).is_some_and(|l| l.loc == loc));
            let key = match under_way {
                Some(k) => k,
                None => self.start_load(first, loc),
            };
            if let Some(l) = self.needs.loads.get_mut(key)
                && !l.waiters.contains(&(tag, plan))
            {
                l.waiters.push((tag, plan));
                self.tag_state(tag).outstanding += 1;
            }
        }
        ReadError::Wait
    }

    fn start_load(&mut self, first: u64, loc: BlobPtr) -> usize {
        let n = loc.runs.len();
        let runs = loc.runs.clone();
        let parts = (0..n).map(|_| None).collect();
        self.needs.loading_bytes += loc.len as usize;
        let key = self.needs.loads.insert(Load { loc, parts, left: n, waiters: SmallVec::new() });
        self.needs.loading.insert(first, key);
        for (part, (b, k)) in runs.iter().enumerate() {
            self.counters.page_reads += 1;
            let kind = IoKind::Read { off: b * BLOCK, len: k * BLOCK as u32 };
            self.request(Role::Load { load: key, part }, kind);
        }
        key
    }

    pub(super) fn load_done(&mut self, load: usize, part: usize, result: Result<Bytes, Errno>) {
        let Some(l) = self.needs.loads.get_mut(load) else { return unreached("each part of a load is done once") };
        let want = l.loc.runs.get(part).map_or(0, |r| u64::from(r.1) * BLOCK);
        let whole = |b: Bytes| if b.len() as u64 == want { Ok(b) } else { Err(errno::EIO) };
        if let Some(p) = l.parts.get_mut(part) {
            *p = Some(result.and_then(whole));
        }
        l.left -= 1;
        if l.left > 0 {
            return;
        }
        let l = self.needs.loads.remove(load);
        self.needs.loading_bytes -= l.loc.len as usize;
        let first = l.loc.runs.first().map_or(0, |r| r.0);
        if self.needs.loading.get(&first) == Some(&load) {
            self.needs.loading.remove(&first);
        }
        let mut wanted = false;
        for (tag, plan) in &l.waiters {
            let Some(p) = self.tags.get_mut(*tag).filter(|p| p.id == *plan) else { continue };
            wanted = true;
            p.outstanding -= 1;
            if p.outstanding == 0 && p.writing == 0 && !wake(&mut self.suspended, *tag) {
                self.events.push_back(Event::Ready(*tag));
            }
        }
        if wanted {
            let data = assemble(&l);
            self.meta.staging_mut().shrink(STAGED_MAX, self.cfg.meta_bytes / BROUGHT_SHARE);
            self.meta.staging_mut().put(Staged { loc: l.loc, data });
        }
    }
}

/// Estimate of the memory of a page in bytes. Onodes and maps need more than their stored form.
fn memory_of(loc: &BlobPtr) -> usize {
    2 * loc.len as usize + PAGE_OVERHEAD
}

fn assemble(l: &Load) -> Result<Bytes, String> {
    let mut buf = BytesMut::with_capacity(l.loc.len as usize);
    for p in &l.parts {
        match p {
            Some(Ok(b)) if l.parts.len() == 1 => {
                let b = b.slice(..(l.loc.len as usize).min(b.len()));
                return if crc32c(SEED, &b) == l.loc.crc { Ok(b) } else { Err("checksum mismatch".into()) };
            }
            Some(Ok(b)) => buf.extend_from_slice(b),
            Some(Err(e)) => return Err(format!("read failed: {}", errno::name(*e))),
            None => return Err("a read without result".into()),
        }
    }
    buf.truncate(l.loc.len as usize);
    let buf = buf.freeze();
    if crc32c(SEED, &buf) == l.loc.crc { Ok(buf) } else { Err("checksum mismatch".into()) }
}
