//! Growing while the store is open: what each reactor's store does for it.
//!
//! The roots' first copies and the log stay where they are; the second copies and the last two superblock slots move to the new end.
//! Whoever runs the stores of a device takes them through the steps of [`Growth`], each at all the stores it says before the next one:
//! first every root gets a copy at the new end and each new root goes to both ends, then the superblock names the size, then
//! nobody writes to the old end any more, and only then what was there is space like the rest.
//!
//! Invariant: whatever superblock is the newest whole one, each ring's newest root has two copies where its layout looks for them.

use super::{Role, Store};
use crate::api::{Event, ReadError, Tag};
use crate::layout::{BLOCK, DEVICE_BYTES_MAX, Layout};
use crate::superblock::{Root, Superblock};
use base::device::IoKind;
use base::errno::{self, Errno};

/// Steps of growing, in order. Each is asked for like a read: `Wait` means that `Ready` follows and to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// All stores: roots go to the end of a device of so many bytes, too.
    Begin(u64),
    /// One store, when all have begun: the superblock names the size.
    Name,
    /// All stores, when that is done: nothing goes to the old end any more.
    Switch,
    /// One store, when all have switched: what was added is space.
    Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Until no root is on its way that goes to the old end only.
    Waiting,
    Copying,
    Begun,
    Naming,
    Named,
    /// Until no root is on its way that goes to the old end as well.
    Leaving,
    Left,
}

/// State of growing.
#[derive(Debug)]
pub(super) struct Growing {
    sb: Superblock,
    layout: Layout,
    stage: Stage,
    /// Requests not yet completed.
    parts: u32,
    waiting: Vec<Tag>,
}

impl Growing {
    /// What the device will be.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }
}

fn refuse(errno: Errno, what: impl Into<String>) -> ReadError {
    ReadError::Io { what: what.into(), errno }
}

impl Store {
    /// Bytes a device must have for the store to grow into it: the copies at its new end must not lie over those at the old one.
    #[must_use]
    pub fn grows_from(&self) -> u64 {
        let l = &self.meta.layout;
        self.sb.size() + (l.blocks - l.space_end) * BLOCK
    }

    /// Takes this store one step on; see the module. Steps that are done already are nothing to do; a `Begin` with another size
    /// starts anew as long as no store has been told to name it.
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
            // A store that did not name it itself is told by this that another one did.
            (Growth::Switch, Stage::Begun | Stage::Named) => {
                g.stage = Stage::Leaving;
                (self.sb, self.meta.layout) = (g.sb.clone(), g.layout);
                self.step_growing();
                if self.growing.as_ref().is_some_and(|g| g.stage == Stage::Left) {
                    return Ok(());
                }
            }
            (Growth::Use, Stage::Left) => {
                let end = g.layout.space_end;
                self.growing = None;
                self.space.extend(end);
                self.unpark();
                return Ok(());
            }
            (Growth::Use, _) => return Err(refuse(errno::EINVAL, "not all stores have switched to the new size")),
            _ => {}
        }
        if done {
            return Ok(());
        }
        // The plan exists so that its end is known.
        self.plan(tag);
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
        let layout = self.meta.layout.grown_to(bytes);
        let waiting = self.growing.take().map(|g| g.waiting).unwrap_or_default();
        self.growing = Some(Growing { sb, layout, stage: Stage::Waiting, parts: 0, waiting });
        self.step_growing();
        Ok(())
    }

    /// Where a new root has to go: both ends while growing is under way.
    pub(super) fn root_places(&self, root: &Root) -> smallvec::SmallVec<[(u64, u64); 3]> {
        let place = |l: &Layout, copy| (copy, l.root_slot(root.ring, root.seq, copy));
        let l = &self.meta.layout;
        let mut out: smallvec::SmallVec<_> = smallvec::smallvec![place(l, 0), place(l, 1)];
        if let Some(g) = self.growing.as_ref().filter(|g| g.layout != *l) {
            out.push(place(&g.layout, 1));
        }
        out
    }

    /// Goes on where it waited for the checkpoint's root.
    pub(super) fn step_growing(&mut self) {
        let on_its_way = self.checkpoint.root_under_way();
        let Some(g) = self.growing.as_mut().filter(|_| !on_its_way) else { return };
        match g.stage {
            Stage::Waiting => {
                g.stage = Stage::Copying;
                let Some(root) = self.checkpoint.newest.clone() else {
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

    /// A request of a step has completed.
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

    /// The store failed: who waits is told when it asks again.
    pub(super) fn abandon_growing(&mut self) {
        self.growth_step_done();
    }
}
