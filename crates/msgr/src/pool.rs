//! Buffers for large frames, used again instead of returned: fresh memory costs a page fault per 4 KiB, which for a
//! 4 MiB write is as much CPU as receiving it.
//!
//! Invariants:
//!  1. At most [`POOL_BYTES_MAX`] bytes wait in a pool.
//!  2. What a buffer held before is never visible: the receiver hands out only what it filled.

use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that wait for use in one pool.
pub const POOL_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Larger buffers are not kept.
const KEEP_BYTES_MAX: usize = 9 * 1024 * 1024;
/// Buffers are made in multiples of this, so that similar sizes share them.
const STEP: usize = 64 * 1024;

#[derive(Debug, Default)]
struct Free {
    bufs: Vec<Vec<u8>>,
    bytes: usize,
}

/// A pool. Cloning gives another handle to the same; buffers come back from whatever thread drops them last.
#[derive(Clone, Debug, Default)]
pub struct BufPool {
    free: Arc<Mutex<Free>>,
}

/// A buffer that goes back to its pool when dropped.
#[derive(Debug)]
pub struct PoolBuf {
    buf: Vec<u8>,
    pool: Option<BufPool>,
}

impl BufPool {
    /// A buffer of at least `len` bytes with arbitrary (but initialised) content.
    #[must_use]
    pub fn take(&self, len: usize) -> PoolBuf {
        let size = len.next_multiple_of(STEP);
        if size <= KEEP_BYTES_MAX {
            let mut f = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            // The last returned is the likeliest to be in the cache.
            if let Some(i) = f.bufs.iter().rposition(|b| b.len() >= size && b.len() <= 2 * size) {
                let buf = f.bufs.swap_remove(i);
                f.bytes -= buf.len();
                return PoolBuf { buf, pool: Some(self.clone()) };
            }
        }
        // Zeroed memory of this size comes from the system lazily: a peer that announces much and sends little costs
        // little.
        PoolBuf { buf: vec![0; size], pool: Some(self.clone()) }
    }

    /// Bytes waiting for use.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl PoolBuf {
    /// A buffer without a pool.
    #[must_use]
    pub fn plain(buf: Vec<u8>) -> Self {
        Self { buf, pool: None }
    }

    /// All of it, for filling.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buf
    }
}

impl AsRef<[u8]> for PoolBuf {
    fn as_ref(&self) -> &[u8] {
        &self.buf
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let n = self.buf.len();
        let mut f = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if n <= KEEP_BYTES_MAX && f.bytes + n <= POOL_BYTES_MAX {
            f.bytes += n;
            f.bufs.push(std::mem::take(&mut self.buf));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn buffers_come_back_within_the_bound() {
        let p = BufPool::default();
        let b = Bytes::from_owner(p.take(100_000));
        let at = b.as_ptr();
        let part = b.slice(5..10);
        drop(b);
        assert_eq!(p.waiting(), 0, "a slice still holds it");
        drop(part);
        assert_eq!(p.waiting(), 131_072);
        assert_eq!(p.take(90_000).as_ref().as_ptr(), at);
        drop(p.take(KEEP_BYTES_MAX + 1));
        assert_eq!(p.waiting(), 131_072, "too large to keep");
        let many: Vec<_> = (0..40).map(|_| p.take(1 << 20)).collect();
        drop(many);
        assert!(p.waiting() <= POOL_BYTES_MAX);
    }
}
