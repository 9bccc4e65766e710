//! Progress of a long vector: a vector of many operations runs in parts, and goes on where it stopped.
//!
//! A vector stops after an operation when its part has done enough work for one turn of the reactor, or before one
//! that waits for data. Otherwise each wait would repeat all operations before it, which with thousands of cold reads
//! takes minutes.
//!
//! Invariants:
//!  1. Progress belongs to one version of the object, whose lock its plan holds between the parts.
//!  2. A vector that went on has the same result as one that ran in one go.
//!
//! Tests: `tests/vectors.rs`.

use super::omap::Lookups;
use super::view::Mark;
use super::{OpCtx, Snapc, WatchEffects};
use crate::object::ObjectInfo;
use crate::object::intervals::RangeLog;
use crate::stats::StatSum;
use base::Eversion;
use base::rng::Rng;
use store::Op;

/// Work of one part, in bytes read; see [`OP_WORK`] and [`KEY_WORK`].
pub(crate) const PART_WORK: u64 = 16 << 20;
/// Work of any operation.
pub(crate) const OP_WORK: u64 = 512;
/// Work of an omap key that is looked up or listed, beside its bytes.
pub(crate) const KEY_WORK: u64 = 1024;
/// Operations after which a vector that waits keeps its progress. Shorter ones are planned again from their start,
/// which costs less.
pub(super) const KEEP_AFTER: usize = 32;

/// State of a vector after its first operations; see the module.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The object's version.
    of: Eversion,
    /// Index of the next operation.
    next: usize,
    /// Result of the operation before.
    result: i32,
    /// Bytes of output so far.
    output: usize,
    /// Number of the next fold of a class method.
    fold: usize,
    ops: Vec<Op>,
    sums: super::view::Sums,
    exists: bool,
    oi: ObjectInfo,
    omap: bool,
    snapc: Snapc,
    modified: RangeLog,
    delta: StatSum,
    user_modify: bool,
    modify: bool,
    undirty: bool,
    effects: WatchEffects,
    copied_version: Option<u64>,
    copied_mtime: Option<base::Utime>,
    rng: Rng,
    bytes_read: u64,
    bytes_written: u64,
    attr_bytes: Option<usize>,
    lookups: Option<Box<Lookups>>,
}

impl Progress {
    /// True if the progress is that of a vector on this version of the object.
    pub(crate) fn is_of(&self, version: Eversion) -> bool {
        self.of == version
    }
}

/// State of a vector that an operation may change before it waits.
pub(super) struct Before {
    mark: Mark,
    exists: bool,
    /// Info without its watches.
    oi: ObjectInfo,
    watchers: usize,
    omap: bool,
    modified: usize,
    delta: StatSum,
    user_modify: bool,
    modify: bool,
    undirty: bool,
    effects: usize,
    rng: Rng,
    bytes_read: u64,
    bytes_written: u64,
    attr_bytes: Option<usize>,
    fold: usize,
}

impl OpCtx<'_> {
    /// Notes the state before an operation.
    pub(super) fn before_op(&mut self) -> Before {
        let watchers = std::mem::take(&mut self.oi.watchers);
        let oi = self.oi.clone();
        self.oi.watchers = watchers;
        Before {
            mark: self.view.mark(),
            exists: self.exists,
            oi,
            watchers: self.oi.watchers.len(),
            omap: self.omap,
            modified: self.modified.len(),
            delta: self.delta,
            user_modify: self.change.by_user,
            modify: self.change.any,
            undirty: self.change.undirty,
            effects: self.effects.len(),
            rng: self.rng.clone(),
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            attr_bytes: self.attr_bytes,
            fold: self.long.parts.next(),
        }
    }

    /// Takes back what an operation changed before it had to wait. False if that is not possible.
    pub(super) fn take_back(&mut self, b: Before) -> bool {
        if self.oi.watchers.len() != b.watchers
            || self.effects.len() != b.effects
            || !self.modified.truncate(b.modified)
            || !self.view.rewind(&b.mark)
        {
            return false;
        }
        let watchers = std::mem::take(&mut self.oi.watchers);
        self.oi = ObjectInfo { watchers, ..b.oi };
        (self.exists, self.omap, self.delta) = (b.exists, b.omap, b.delta);
        (self.change.by_user, self.change.any, self.change.undirty) = (b.user_modify, b.modify, b.undirty);
        (self.bytes_read, self.bytes_written, self.rng) = (b.bytes_read, b.bytes_written, b.rng);
        self.attr_bytes = b.attr_bytes;
        self.long.parts.go_to(b.fold);
        true
    }

    /// Takes the state before operation `next`.
    pub(super) fn save(&mut self, next: usize, result: i32, output: usize) -> Box<Progress> {
        Box::new(Progress {
            of: self.before.oi.version,
            next,
            result,
            output,
            fold: self.long.parts.next(),
            ops: std::mem::take(&mut self.view.ops),
            sums: self.view.sums,
            exists: self.exists,
            oi: std::mem::take(&mut self.oi),
            omap: self.omap,
            snapc: std::mem::take(&mut self.snapc),
            modified: std::mem::take(&mut self.modified),
            delta: self.delta,
            user_modify: self.change.by_user,
            modify: self.change.any,
            undirty: self.change.undirty,
            effects: std::mem::take(&mut self.effects),
            copied_version: self.copy.version,
            copied_mtime: self.copy.mtime,
            rng: self.rng.clone(),
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            attr_bytes: self.attr_bytes,
            lookups: self.long.lookups.take(),
        })
    }

    /// Goes on from the state. Returns the index of the next operation, the result of the one before, and the bytes of
    /// output so far.
    pub(super) fn restore(&mut self, p: Progress) -> (usize, i32, usize) {
        self.view.ops = p.ops;
        self.view.sums = p.sums;
        (self.exists, self.oi, self.omap, self.snapc) = (p.exists, p.oi, p.omap, p.snapc);
        (self.modified, self.delta, self.effects) = (p.modified, p.delta, p.effects);
        (self.change.by_user, self.change.any, self.change.undirty) = (p.user_modify, p.modify, p.undirty);
        (self.copy.version, self.copy.mtime, self.rng) = (p.copied_version, p.copied_mtime, p.rng);
        (self.bytes_read, self.bytes_written) = (p.bytes_read, p.bytes_written);
        (self.attr_bytes, self.long.lookups) = (p.attr_bytes, p.lookups);
        self.long.parts.go_to(p.fold);
        (p.next, p.result, p.output)
    }
}
