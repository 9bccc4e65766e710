//! Growing an open store: the part of each reactor's store.
//!
//! The first copies of the roots and the log stay in place. The second copies and the last two superblock slots
//! move to the new end. The owner of a device's stores takes them through the steps of [`Growth`], one step at
//! all its stores before the next. First every root gets a copy at the new end, and new roots go to both ends.
//! Then the superblock states the new size, and writes to the old end stop. Only then does the added space come
//! into use.
//!
//! Invariant: whichever superblock is the newest valid one, its layout finds two copies of each ring's newest
//! root.
//!
//! Tests: `tests/grow.rs` (`every_cut_of_growing_under_load_opens`).

use super::{Role, Store};
use crate::api::{Event, ReadError, Tag};
use crate::layout::{BLOCK, DEVICE_BYTES_MAX, Layout};
use crate::superblock::{Root, Superblock};
use base::device::IoKind;
use base::errno::{self, Errno};

/// Steps of growing, in order. A step is called like a read: after `Wait`, `Ready` follows and the call is
/// repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// For all stores: roots also go to the end of a device with this size in bytes.
    Begin(u64),
    /// For one store, when all have begun: the superblock states the new size.
    Name,
    /// For all stores, after `Name`: writes to the old end stop.
    Switch,
    /// For one store, when all have switched: the added space comes into use.
    Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for a root in flight that goes to the old end only.
    Waiting,
    Copying,
    Begun,
    Naming,
    Named,
    /// Waits for a root in flight that also goes to the old end.
    Leaving,
    Left,
}

/// State of growing.
#[derive(Debug)]
pub(super) struct Growing {
    sb: Superblock,
    layout: Layout,
    stage: Stage,
    /// Requests of the step in flight.
    parts: u32,
    waiting: Vec<Tag>,
}

impl Growing {
    /// Layout of the enlarged device.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }
}

fn refuse(errno: Errno, what: impl Into<String>) -> ReadError {
    ReadError::Io { what: what.into(), errno }
}

impl Store {
    /// Least bytes of a device into which the store can grow: the copies at the new end must not overlap those
    /// at the old end.
    #[must_use]
    pub fn grows_from(&self) -> u64 {
        let l = self.meta.layout();
        self.sb.size() + (l.blocks - l.space_end) * BLOCK
    }

    /// Takes this store one step further; see the module. A completed step may be repeated. `Begin` with another size
    /// starts again, until a store has begun to write the superblock. Error: [`ReadError::Wait`] until the step has
    /// completed, or [`ReadError::Io`] if the store has failed or the step is not possible yet.
    pub fn grow(&mut self, tag: Tag, step: Growth) -> Result<(), ReadError> {
        if let Some(e) = self.failed() {
            return Err(refuse(e, "the store has failed"));
        }
        if let Growth::Begin(bytes) = step {
            self.begin_growing(bytes / BLOCK * BLOCK)?;
        }
        let Some(g) = &mut self.growing else {
            return Err(refuse(errno::EINVAL, "growing has not begun"));
        };
        let done = match step {
            Growth::Begin(_) => !matches!(g.stage, Stage::Waiting | Stage::Copying),
            Growth::Name => matches!(g.stage, Stage::Named),
            Growth::Switch => matches!(g.stage, Stage::Left),
            Growth::Use => true,
        };
        match (step, g.stage) {
            (Growth::Name, Stage::Begun) => {
                g.stage = Stage::Naming;
                self.name_size();
            }
            // This tells a store that another one has written the superblock.
            (Growth::Switch, Stage::Begun | Stage::Named) => {
                g.stage = Stage::Leaving;
                g.sb.features = self.sb.features;
                self.sb = g.sb.clone();
                self.meta.set_layout(g.layout);
                self.step_growing();
                if self.growing.as_ref().is_some_and(|g| g.stage == Stage::Left) {
                    return Ok(());
                }
            }
            (Growth::Use, Stage::Left) => {
                let end = g.layout.space_end;
                self.growing = None;
                self.space.extend(end);
                self.room_was_made();
                return Ok(());
            }
            (Growth::Use, _) => return Err(refuse(errno::EINVAL, "not all stores have switched to the new size")),
            _ => {}
        }
        if done {
            return Ok(());
        }
        // Without a plan, the end of the request would go unnoticed.
        self.tag_state(tag);
        if let Some(g) = &mut self.growing
            && !g.waiting.contains(&tag)
        {
            g.waiting.push(tag);
        }
        Err(ReadError::Wait)
    }

    fn begin_growing(&mut self, bytes: u64) -> Result<(), ReadError> {
        if let Some(g) = &self.growing {
            match g.stage {
                Stage::Left => {}
                _ if g.sb.grown == bytes => return Ok(()),
                Stage::Begun | Stage::Waiting => {}
                _ => return Err(refuse(errno::EBUSY, "growing is under way")),
            }
        }
        if bytes < self.grows_from() {
            return Err(refuse(errno::EINVAL, format!("{bytes} bytes are not enough more than {}", self.sb.size())));
        }
        if bytes > DEVICE_BYTES_MAX {
            let what = format!("{bytes} bytes are more than the {DEVICE_BYTES_MAX} that a store can use");
            return Err(refuse(errno::EFBIG, what));
        }
        if !self.space.extensible() {
            return Err(refuse(errno::EAGAIN, "grown too often since it was opened"));
        }
        let mut sb = self.sb.clone();
        sb.grown = bytes;
        sb.seq += 1;
        let layout = self.meta.layout().grown_to(bytes);
        let waiting = self.growing.take().map(|g| g.waiting).unwrap_or_default();
        self.growing = Some(Growing { sb, layout, stage: Stage::Waiting, parts: 0, waiting });
        self.step_growing();
        Ok(())
    }

    /// Places of a new root: both ends while growing.
    pub(super) fn root_places(&self, root: &Root) -> smallvec::SmallVec<[(u64, u64); 3]> {
        let place = |l: &Layout, copy| (copy, l.root_slot(root.ring, root.seq, copy));
        let l = self.meta.layout();
        let mut out: smallvec::SmallVec<_> = smallvec::smallvec![place(l, 0), place(l, 1)];
        if let Some(g) = self.growing.as_ref().filter(|g| g.layout != *l) {
            out.push(place(&g.layout, 1));
        }
        out
    }

    /// Continues a step that waited for the checkpoint's root.
    pub(super) fn step_growing(&mut self) {
        let on_its_way = self.checkpoint.root_under_way();
        let Some(g) = self.growing.as_mut().filter(|_| !on_its_way) else { return };
        match g.stage {
            Stage::Waiting => {
                g.stage = Stage::Copying;
                let Some(root) = self.checkpoint.newest().cloned() else {
                    return self.fail("a store without a root".into(), errno::EIO);
                };
                let at = g.layout.root_slot(root.ring, root.seq, 1);
                let Some(buf) = root.encode(&self.sb.uuid, 1) else {
                    return self.fail("a root does not fit its slot".into(), errno::EFBIG);
                };
                self.growth_write(at, buf);
                self.growth_flush();
            }
            Stage::Leaving => {
                g.stage = Stage::Left;
                self.growth_step_done();
            }
            _ => {}
        }
    }

    fn name_size(&mut self) {
        let Some(g) = &self.growing else { return };
        let (sb, layout) = (g.sb.clone(), g.layout);
        for slot in sb.slots() {
            self.growth_write(layout.super_slot(slot), sb.encode(slot));
        }
        self.growth_flush();
    }

    fn growth_write(&mut self, block: u64, buf: bytes::Bytes) {
        self.count_growth_part();
        self.request(Role::Growth, IoKind::Write { off: block * BLOCK, bufs: vec![buf] });
    }

    fn growth_flush(&mut self) {
        self.count_growth_part();
        self.request(Role::Growth, IoKind::Flush);
    }

    fn count_growth_part(&mut self) {
        if let Some(g) = &mut self.growing {
            g.parts += 1;
        }
    }

    /// Counts a completed request of the step.
    pub(super) fn growth_part_done(&mut self) {
        let Some(g) = &mut self.growing else { return };
        g.parts = g.parts.saturating_sub(1);
        if g.parts > 0 {
            return;
        }
        g.stage = match g.stage {
            Stage::Copying => Stage::Begun,
            Stage::Naming => Stage::Named,
            s => s,
        };
        self.growth_step_done();
    }

    fn growth_step_done(&mut self) {
        let Some(g) = &mut self.growing else { return };
        self.events.extend(std::mem::take(&mut g.waiting).into_iter().map(Event::Ready));
    }

    /// Ends growing after a failure. Waiting callers learn of it when they repeat the step.
    pub(super) fn abandon_growing(&mut self) {
        self.growth_step_done();
    }
}
