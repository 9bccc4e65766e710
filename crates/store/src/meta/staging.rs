//! Pages that were read and wait until a question takes them to their places in a tree.

use crate::superblock::BlobPtr;
use bytes::Bytes;
use rustc_hash::FxHashMap;

/// Bytes read for a page, or why they could not be.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) loc: BlobPtr,
    pub(crate) data: Result<Bytes, String>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Staging {
    /// By first block.
    pages: FxHashMap<u64, Staged>,
    bytes: usize,
}

impl Staging {
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn put(&mut self, s: Staged) {
        let Some(first) = s.loc.runs.first().map(|r| r.0) else { return };
        self.take(first);
        self.bytes += s.loc.len as usize;
        self.pages.insert(first, s);
    }

    pub(crate) fn take(&mut self, first: u64) -> Option<Staged> {
        let s = self.pages.remove(&first)?;
        self.bytes -= s.loc.len as usize;
        Some(s)
    }

    /// Forgets what nobody took.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.bytes = 0;
    }
}
