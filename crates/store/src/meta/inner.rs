//! Inner pages: separators and pointers to the pages below, and their stored form.
//!
//! Invariant: a page has as many separators as kids, and they ascend.
//!
//! Tests: an assertion, and `decode`, which refuses others and so fails `tests/model.rs`.

use super::key::{self, Key, Sep};
use super::map::DELTA_LEN_MAX;
use super::page::Sum;
use super::seps::Seps;
use super::tree::NONE;
use crate::codec::{Get, Malformed, Put};
use crate::layout::Layout;
use crate::superblock::BlobPtr;

/// Bytes of memory of one kid.
const KID_BYTES: usize = 152;

/// Bytes of memory of one kid; at least the length of its stored form.
pub(super) fn kid_bytes(sep: &Sep) -> usize {
    KID_BYTES + sep.rest.len()
}

/// Pointer to a page below.
#[derive(Clone, Debug)]
pub(crate) struct Kid {
    /// Slot of the page if it is in memory, else [`NONE`].
    pub(crate) page: u32,
    /// Place of its stored form, if it has one.
    pub(crate) loc: BlobPtr,
    /// Sums over its stored form, including the changes in `delta`.
    pub(crate) sum: Sum,
    /// For a leaf of a block map: its changes since it was stored (`map::Delta`).
    pub(crate) delta: Box<[u8]>,
}

impl Kid {
    /// Pointer to a page in memory that was never stored.
    pub(super) fn fresh(page: u32) -> Self {
        Self { page, loc: BlobPtr::default(), sum: Sum::default(), delta: Box::default() }
    }
}

/// Content of an inner page.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) seps: Seps,
    pub(crate) kids: Vec<Kid>,
    /// Bytes of `delta` of all kids.
    pub(crate) delta: usize,
    pub(crate) pace: Pace,
}

/// Rate of changed chunks below a page between two checkpoints. It determines how many bytes of changes are
/// worth keeping in the page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    epoch: u32,
    now: u32,
    before: u32,
}

impl Pace {
    /// Counts a stored chunk. Returns the most bytes of changes that the page may keep beside its pointers.
    ///
    /// With `c` chunks per checkpoint and `b` bytes of changes, storing a chunk has two costs. Its share of
    /// this page includes `b / (4096 c)` blocks of changes. With 12.5 bytes a change and 128 chunks, it also
    /// costs `1600 / b` blocks of its own on average. The sum is least at `2560 sqrt(c)`, and flat around it.
    pub(crate) fn note(&mut self, epoch: u32) -> usize {
        if self.epoch != epoch {
            (self.before, self.now, self.epoch) = (self.now, 0, epoch);
        }
        self.now += 1;
        let c = self.now.max(self.before) as usize;
        (2560 * 2560 * c).isqrt().min(DELTA_BYTES_MAX)
    }
}

/// Most bytes of changes beside the pointers of one page.
const DELTA_BYTES_MAX: usize = 16 << 10;

impl Inner {
    pub(crate) fn mem(&self) -> usize {
        self.seps.iter().map(|s| kid_bytes(&s)).sum::<usize>() + self.delta
    }

    /// Index of a page among the kids; `slot` is where it was last.
    pub(crate) fn index(&self, page: u32, slot: u32) -> Option<usize> {
        let is = |k: &Kid| k.page == page;
        match self.kids.get(slot as usize).filter(|k| is(k)) {
            Some(_) => Some(slot as usize),
            None => self.kids.iter().position(is),
        }
    }

    /// Number of kids whose separator is not above the key.
    pub(crate) fn upto(&self, key: &Key<'_>) -> usize {
        self.seps.upto(key)
    }

    /// Appends the stored form after kind and level:
    ///
    /// | inner page | form |
    /// | --- | --- |
    /// | kind | u8 |
    /// | level | u8 |
    /// | kids | var |
    /// | · hi | u64 |
    /// | · lo | u64 |
    /// | · rest | bytes |
    /// | · page | pointer |
    /// | · entries | var |
    /// | · bytes | var |
    /// | · omap bytes | var |
    /// | · changes | bytes if changes |
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        debug_assert_eq!(self.seps.iter().count(), self.kids.len(), "a kid has one separator");
        w.var(self.kids.len() as u64);
        for (s, k) in self.seps.iter().zip(&self.kids) {
            w.u64(s.hi);
            w.u64(s.lo);
            w.bytes(&s.rest);
            k.loc.encode(w);
            w.var(k.sum.n);
            w.var(k.sum.bytes);
            w.var(k.sum.omap);
            if self.delta > 0 {
                w.bytes(&k.delta);
            }
        }
    }

    /// Decodes the page; `delta` tells whether it has changes beside its pointers.
    pub(crate) fn decode(r: &mut Get<'_>, layout: &Layout, delta: bool) -> Result<Self, Malformed> {
        let n = r.count(26)?;
        let mut out = Self { seps: Seps::with_capacity(n), kids: Vec::with_capacity(n), ..Self::default() };
        let mut last = None;
        for _ in 0..n {
            let sep = Sep { hi: r.u64()?, lo: r.u64()?, rest: r.bytes()? };
            if last.as_ref().is_some_and(|l| *l >= sep) {
                return r.bad();
            }
            let loc = BlobPtr::decode(r, layout)?;
            if loc.len == 0 {
                return r.bad();
            }
            let sum = Sum { n: r.var()?, bytes: r.var()?, omap: r.var()? };
            let delta: Box<[u8]> = if delta { r.bytes()?.as_ref().into() } else { Box::default() };
            if delta.len() > DELTA_LEN_MAX || !delta.is_empty() && key::kind_of(sep.hi) != key::MAP {
                return r.bad();
            }
            out.delta += delta.len();
            out.seps.push(sep.clone());
            last = Some(sep);
            out.kids.push(Kid { page: NONE, loc, sum, delta });
        }
        Ok(out)
    }
}
