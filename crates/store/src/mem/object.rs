//! An object of the in-memory store: its blocks, its attributes and its omap.

use crate::api::{BLOCK, ObjectStat};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) type Block = Arc<Vec<u8>>;
static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// An object; also used for comparisons.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    /// Identity of the object, independent of its name.
    pub(super) id: Arc<()>,
    pub(super) size: u64,
    pub(super) blocks: BTreeMap<u64, Block>,
    pub(crate) attrs: BTreeMap<Bytes, Bytes>,
    pub(crate) omap_header: Bytes,
    pub(crate) omap: BTreeMap<Bytes, Bytes>,
}

impl Object {
    pub(super) fn write(&mut self, off: u64, data: &[u8]) {
        let mut pos = off;
        let mut rest = data;
        while !rest.is_empty() {
            let (b, at) = (pos / BLOCK, (pos % BLOCK) as usize);
            let n = rest.len().min(BLOCK as usize - at);
            let blk = self.blocks.entry(b).or_insert_with(|| Arc::new(vec![0; BLOCK as usize]));
            Arc::make_mut(blk)[at..at + n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            pos += n as u64;
        }
        if !data.is_empty() {
            self.size = self.size.max(pos);
        }
    }

    /// Zeroes a range without growing: drops whole blocks, clears the edges.
    pub(super) fn clear(&mut self, off: u64, end: u64) {
        let mut pos = off;
        while pos < end {
            let (b, at) = (pos / BLOCK, (pos % BLOCK) as usize);
            let n = (end - pos).min(BLOCK - at as u64) as usize;
            if n as u64 == BLOCK {
                // Whole blocks in between are dropped at once.
                let last = end / BLOCK;
                let gone: Vec<u64> = self.blocks.range(b..last).map(|(k, _)| *k).collect();
                for k in gone {
                    self.blocks.remove(&k);
                }
                pos = last.max(b + 1) * BLOCK;
                continue;
            }
            if let Some(blk) = self.blocks.get_mut(&b) {
                Arc::make_mut(blk)[at..at + n].fill(0);
            }
            pos += n as u64;
        }
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            let tail = size.next_multiple_of(BLOCK);
            self.blocks.retain(|b, _| b * BLOCK < tail);
            self.clear(size, tail);
        }
        self.size = size;
    }

    pub(super) fn read(&self, off: u64, len: u64) -> Vec<u8> {
        let end = off.saturating_add(len).min(self.size);
        let mut out = vec![0; end.saturating_sub(off) as usize];
        for (b, blk) in self.blocks.range(off / BLOCK..) {
            let start = b * BLOCK;
            if start >= end {
                break;
            }
            let (from, to) = (start.max(off), (start + BLOCK).min(end));
            if from < to {
                out[(from - off) as usize..(to - off) as usize]
                    .copy_from_slice(&blk[(from - start) as usize..(to - start) as usize]);
            }
        }
        out
    }

    pub(super) fn clone_range(&mut self, src: &Object, src_off: u64, len: u64, dst_off: u64) {
        let end = src_off.saturating_add(len).min(src.size);
        let len = end.saturating_sub(src_off);
        if len == 0 {
            return;
        }
        self.clear(dst_off, dst_off + len);
        for (from, n) in src.extents(src_off, len) {
            let data = src.read(from, n);
            self.write(dst_off + (from - src_off), &data);
        }
        self.size = self.size.max(dst_off + len);
    }

    pub(crate) fn extents(&self, off: u64, len: u64) -> Vec<(u64, u64)> {
        let end = off.saturating_add(len).min(self.size);
        let mut out: Vec<(u64, u64)> = Vec::new();
        for b in self.blocks.range(off / BLOCK..).map(|(b, _)| *b) {
            let (from, to) = ((b * BLOCK).max(off), ((b + 1) * BLOCK).min(end));
            if from >= end {
                break;
            }
            match out.last_mut() {
                Some(l) if l.0 + l.1 == from => l.1 += to - from,
                _ => out.push((from, to - from)),
            }
        }
        out
    }

    pub(super) fn stored(&self) -> u64 {
        let Some((last, _)) = self.blocks.last_key_value() else { return 0 };
        // No block lies entirely beyond the size.
        self.blocks.len() as u64 * BLOCK - ((last + 1) * BLOCK).saturating_sub(self.size)
    }

    pub(crate) fn stat(&self) -> ObjectStat {
        ObjectStat { size: self.size, allocated: self.blocks.len() as u64 * BLOCK, omap: self.omap_bytes() }
    }

    /// First offset at which the content differs from `got`, without copying it; the size if the lengths
    /// differ.
    pub(crate) fn differs(&self, got: &[u8]) -> Option<u64> {
        if got.len() as u64 != self.size {
            return Some(self.size);
        }
        let mut blocks = self.blocks.iter().peekable();
        for (b, have) in (0..).zip(got.chunks(BLOCK as usize)) {
            let block = blocks.next_if(|(n, _)| **n == b).map(|(_, d)| d);
            let same = match block {
                Some(d) => d.get(..have.len()).is_some_and(|d| d == have),
                None => ZEROS.get(..have.len()).is_some_and(|z| z == have),
            };
            if !same {
                let want = |i: usize| block.and_then(|d| d.get(i).copied()).unwrap_or(0);
                let at = have.iter().enumerate().position(|(i, x)| *x != want(i)).unwrap_or(0);
                return Some(b * BLOCK + at as u64);
            }
        }
        None
    }

    pub(super) fn omap_bytes(&self) -> u64 {
        self.omap.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum()
    }
}
