//! Pool of buffers for large frames. Buffers are reused because fresh memory costs a page fault per 4 KiB: for a 4 MiB
//! write, as much CPU as receiving it.
//!
//! Invariants:
//!  1. At most [`POOL_BYTES_MAX`] bytes are free in a pool.
//!  2. Old contents of a buffer are never visible: the receiver exposes only the part it has filled.
//!
//! Tests: below (1), `tests/does_every_mode_open_and_carry_messages.rs` (2).

use std::sync::{Arc, Mutex, PoisonError};

/// Most free bytes in a pool.
pub const POOL_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Largest buffer in bytes that is kept.
const KEEP_BYTES_MAX: usize = 9 * 1024 * 1024;
/// Buffer sizes are multiples of this, in bytes, so that similar sizes share buffers.
const STEP: usize = 64 * 1024;

#[derive(Debug, Default)]
struct Free {
    bufs: Vec<Vec<u8>>,
    bytes: usize,
}

/// A buffer pool. Clones share it; a buffer returns to it from whichever thread drops it.
#[derive(Clone, Debug, Default)]
pub struct BufPool {
    free: Arc<Mutex<Free>>,
}

/// A buffer that returns to its pool when dropped.
#[derive(Debug)]
pub struct PoolBuf {
    buf: Vec<u8>,
    pool: Option<BufPool>,
}

impl BufPool {
    /// Takes a buffer of at least `len` bytes, with arbitrary but initialised contents.
    #[must_use]
    pub fn take(&self, len: usize) -> PoolBuf {
        let size = len.next_multiple_of(STEP);
        if size <= KEEP_BYTES_MAX {
            let mut f = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            // The buffer returned last is most likely in the CPU cache.
            if let Some(i) = f.bufs.iter().rposition(|b| b.len() >= size && b.len() <= 2 * size) {
                let buf = f.bufs.swap_remove(i);
                f.bytes -= buf.len();
                return PoolBuf { buf, pool: Some(self.clone()) };
            }
        }
        // The system provides zeroed memory of this size lazily, so a peer that announces much and sends little costs
        // little.
        PoolBuf { buf: vec![0; size], pool: Some(self.clone()) }
    }

    /// Number of free bytes.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl PoolBuf {
    /// Wraps a buffer that belongs to no pool.
    #[must_use]
    pub fn plain(buf: Vec<u8>) -> Self {
        Self { buf, pool: None }
    }

    /// The whole buffer, for filling.
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
