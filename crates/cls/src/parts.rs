//! Long calls: methods that go through more omap entries than one turn of a reactor may take run in parts.
//!
//! Each part is a run of the whole vector. A method goes through the omap with `omap_fold`, which pauses with
//! [`ClsError::Wait`] when the part has taken its entries, and goes on where it stopped when the vector is run again.
//! The caller keeps [`Parts`] between the runs, and makes sure that the object does not change meanwhile.
//!
//! Invariants:
//!  1. A part takes at most as many entries as [`Room`] says, and about as many bytes, however many calls the vector
//!     has.
//!  2. A vector comes to its end: each run keeps at least one entry more than the one before.
//!  3. The result does not depend on the room of the parts.
//!  4. Folds over few entries keep nothing, so they allocate nothing.
//!  5. What is kept is bounded in number and in bytes.
//!
//! Tests: `src/tests/parts.rs`.

use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use base::errno::{E2BIG, EIO};
use bytes::Bytes;
use std::any::Any;
use std::collections::BTreeMap;

/// Most folds of a vector of which something is kept; one more fails with `E2BIG`.
const KEPT_MAX: usize = 64;
/// Most bytes that the states of a vector's folds have together ([`Fold::bytes`]); more fails with `E2BIG`. A reactor
/// has states of at most 64 vectors.
pub(crate) const KEPT_BYTES_MAX: usize = 8 << 20;

/// State of a fold.
pub(crate) trait Fold: Clone + 'static {
    /// Bytes that grow with the entries; of a sum there are none.
    fn bytes(&self) -> usize {
        0
    }
}

impl Fold for BTreeMap<u8, i32> {}

impl Fold for Vec<Bytes> {
    fn bytes(&self) -> usize {
        self.iter().map(|b| b.len() + size_of::<Bytes>()).sum()
    }
}

/// Room of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Omap entries.
    pub entries: usize,
    /// Bytes of their keys and values. The last entry may exceed it.
    pub bytes: usize,
}

impl Default for Room {
    /// About a quarter of a millisecond.
    fn default() -> Self {
        Self { entries: 256, bytes: 256 << 10 }
    }
}

/// State of a fold between parts.
enum Kept {
    /// Its state, and the key after which it goes on.
    Open(Bytes, Box<dyn Any>),
    /// Its result.
    Ended(Box<dyn Any>),
    /// Its failure.
    Failed(ClsError),
}

/// Progress of the folds of a vector; see the module.
#[derive(Default)]
pub struct Parts {
    /// By number of the fold in the vector, each with the bytes of its state.
    kept: Vec<(usize, usize, Kept)>,
    room: Room,
    left: Room,
    /// Number of the next fold of this run.
    next: usize,
    paused: bool,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parts({} kept, paused: {})", self.kept.len(), self.paused)
    }
}

impl Parts {
    /// Begins a run of the vector, with this room.
    pub fn begin(&mut self, room: Room) {
        (self.room, self.left) = (room, room);
        (self.next, self.paused) = (0, false);
    }

    /// Number of the next fold of this run.
    #[must_use]
    pub fn next(&self) -> usize {
        self.next
    }

    /// Goes on with the fold of that number. What is kept of earlier ones is dropped: the calls that made them have
    /// ended, and will not run again.
    pub fn go_to(&mut self, number: usize) {
        self.next = number;
        self.kept.retain(|(n, ..)| *n >= number);
    }

    /// True if the run ended because the part was over. A [`ClsError::Wait`] without this waits for data.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// True if nothing is kept for the next run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Counts entries that a fold has read besides its own.
    pub(crate) fn count(&mut self, entries: usize) {
        self.left.entries = self.left.entries.saturating_sub(entries);
    }

    /// True if the part is over.
    fn is_over(&self) -> bool {
        self.left.entries == 0 || self.left.bytes == 0
    }

    fn take(&mut self, number: usize) -> Option<Kept> {
        let at = self.kept.iter().position(|(n, ..)| *n == number)?;
        Some(self.kept.swap_remove(at).2)
    }

    fn keep(&mut self, number: usize, bytes: usize, what: Kept) -> ClsResult<()> {
        let all: usize = self.kept.iter().map(|(_, b, _)| b).sum();
        if self.kept.len() >= KEPT_MAX || all + bytes > KEPT_BYTES_MAX {
            return Err(E2BIG.into());
        }
        self.kept.push((number, bytes, what));
        Ok(())
    }

    /// True if the next run may repeat the folds that have ended in this one: they leave half of a part to the others.
    fn may_repeat(&self) -> bool {
        self.left.entries > self.room.entries / 2 && self.left.bytes > self.room.bytes / 2
    }
}

/// Folds the omap entries with keys after `start_after` that begin with `prefix` into a state, in key order, until `f`
/// returns false. `f` must not have changed the state if it fails with `Wait`.
pub(crate) fn omap_fold<S: Fold>(
    c: &mut dyn ObjectCtx,
    start_after: &[u8],
    prefix: &[u8],
    start: S,
    mut f: impl FnMut(&mut dyn ObjectCtx, &mut S, Bytes, &Bytes) -> ClsResult<bool>,
) -> ClsResult<S> {
    let parts = c.parts();
    let number = parts.next;
    parts.next += 1;
    let (mut state, mut after) = (start, Bytes::copy_from_slice(start_after));
    let before = parts.take(number);
    let kept = before.is_some();
    match before {
        None => {}
        Some(Kept::Open(key, s)) => (after, state) = (key, *s.downcast().map_err(|_| EIO)?),
        Some(Kept::Ended(s)) => {
            let s: Box<S> = s.downcast().map_err(|_| EIO)?;
            parts.keep(number, s.bytes(), Kept::Ended(s.clone()))?;
            return Ok(*s);
        }
        Some(Kept::Failed(e)) => {
            parts.keep(number, 0, Kept::Failed(e.clone()))?;
            return Err(e);
        }
    }
    let done = fold_part(c, prefix, &mut after, &mut state, &mut f);
    let parts = c.parts();
    let repeat = !kept && parts.may_repeat();
    match done {
        Ok(true) if repeat => Ok(state),
        Ok(true) => {
            parts.keep(number, state.bytes(), Kept::Ended(Box::new(state.clone())))?;
            Ok(state)
        }
        Ok(false) => {
            parts.paused = true;
            parts.keep(number, state.bytes(), Kept::Open(after, Box::new(state)))?;
            Err(ClsError::Wait)
        }
        Err(ClsError::Wait) => {
            parts.keep(number, state.bytes(), Kept::Open(after, Box::new(state)))?;
            Err(ClsError::Wait)
        }
        Err(e) if repeat => Err(e),
        Err(e) => {
            parts.keep(number, 0, Kept::Failed(e.clone()))?;
            Err(e)
        }
    }
}

/// Goes on until the fold ends (true) or the part is over (false). The entries up to `after` are in the state.
fn fold_part<S>(
    c: &mut dyn ObjectCtx,
    prefix: &[u8],
    after: &mut Bytes,
    state: &mut S,
    f: &mut impl FnMut(&mut dyn ObjectCtx, &mut S, Bytes, &Bytes) -> ClsResult<bool>,
) -> ClsResult<bool> {
    loop {
        if c.parts().is_over() {
            return Ok(false);
        }
        let left = c.parts().left;
        let (rows, more) = c.omap_part(after, prefix, left)?;
        if rows.is_empty() {
            return Ok(true);
        }
        let mut rows = rows.into_iter();
        while let Some((k, v)) = rows.next() {
            let parts = c.parts();
            if parts.is_over() {
                return Ok(false);
            }
            parts.left.entries -= 1;
            parts.left.bytes = parts.left.bytes.saturating_sub(k.len() + v.len());
            let on = f(c, state, k.clone(), &v)?;
            *after = k;
            if !on {
                // Those that were read for nothing count as well.
                c.parts().count(rows.len());
                return Ok(true);
            }
        }
        if !more {
            return Ok(true);
        }
    }
}
