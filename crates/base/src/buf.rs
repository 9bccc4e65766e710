//! Page-aligned buffers for direct I/O.
//!
//! The one place of this crate with `unsafe`: making vectors of zeroed pages, viewing them as bytes, and reusing them.

use bytes::Bytes;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::RefCell;

/// Size and alignment of a page, the unit of device I/O.
pub const PAGE: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; PAGE]);

/// Bytes of freed buffers that a thread keeps for reuse.
pub const POOL_BYTES_MAX: usize = 64 << 20;
/// Size classes of kept buffers. Page counts are rounded up to a power of two, so the largest kept buffer has
/// 1024 pages.
const POOL_CLASSES: usize = 11;

#[derive(Default)]
struct Pool {
    free: [Vec<Vec<Page>>; POOL_CLASSES],
    bytes: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(Pool::default());
}

fn class(pages: usize) -> usize {
    pages.next_power_of_two().trailing_zeros() as usize
}

/// Zeroed pages, which the system gives without touching them where it can. `vec!` would write each.
fn zeros(n: usize) -> Vec<Page> {
    let Ok(layout) = Layout::array::<Page>(n) else { return vec![Page([0; PAGE]); n] };
    if layout.size() == 0 {
        return Vec::new();
    }
    // SAFETY: the layout has a size, and is that of a vector of `n` pages. Zeroed bytes are pages.
    unsafe {
        let p = alloc_zeroed(layout);
        if p.is_null() {
            handle_alloc_error(layout);
        }
        Vec::from_raw_parts(p.cast(), n, n)
    }
}

/// Frees the buffers that this thread keeps for reuse. An idle thread calls this.
pub fn release() {
    let kept = POOL.try_with(|p| std::mem::take(&mut *p.borrow_mut()));
    drop(kept);
}

/// A page-aligned byte buffer of fixed length (a multiple of [`PAGE`]).
///
/// The thread that drops a buffer keeps it for reuse, up to [`POOL_BYTES_MAX`]: allocating aligned memory is
/// expensive, and so is touching fresh memory.
pub struct AlignedBuf {
    pages: Vec<Page>,
}

impl AlignedBuf {
    /// Zeroed buffer of at least `len` bytes, rounded up to whole pages.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut b = Self::dirty(len);
        b.fill(0);
        b
    }

    /// Like `zeroed`, but with the contents of an earlier use. For callers that overwrite the whole buffer.
    #[must_use]
    pub fn dirty(len: usize) -> Self {
        let n = len.div_ceil(PAGE);
        let class = class(n);
        if class >= POOL_CLASSES {
            return Self { pages: zeros(n) };
        }
        let pooled = POOL.try_with(|p| {
            let mut p = p.borrow_mut();
            let got = p.free.get_mut(class).and_then(Vec::pop);
            if got.is_some() {
                p.bytes -= PAGE << class;
            }
            got
        });
        // Every buffer of a class is allocated with all its pages, so shortening and lengthening never touch
        // fresh memory.
        let mut pages = pooled.ok().flatten().unwrap_or_else(|| zeros(1 << class));
        pages.truncate(n);
        Self { pages }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// True if the buffer holds no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Freezes the buffer into shareable, page-aligned bytes without copying.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

/// Bytes that a device can be given: the same if they begin at a page, else a copy. Their length is a multiple of [`PAGE`].
#[must_use]
pub fn aligned(data: Bytes) -> Bytes {
    if data.as_ptr().addr().is_multiple_of(PAGE) {
        return data;
    }
    let mut copy = AlignedBuf::dirty(data.len());
    copy.copy_from_slice(&data);
    copy.freeze()
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let class = class(self.pages.len());
        if self.pages.capacity() != 1 << class || class >= POOL_CLASSES {
            return;
        }
        let mut pages = std::mem::take(&mut self.pages);
        // Errors only while the thread ends.
        let _ = POOL.try_with(|p| {
            let mut p = p.borrow_mut();
            if p.bytes + (PAGE << class) > POOL_BYTES_MAX {
                return;
            }
            // SAFETY: the capacity is `1 << class` pages and all of them were initialised when the buffer was made;
            // truncating drops nothing that `Page`, plain bytes, would need.
            unsafe { pages.set_len(1 << class) };
            p.bytes += PAGE << class;
            if let Some(list) = p.free.get_mut(class) {
                list.push(pages);
            }
        });
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `Page` is `repr(C)` over `[u8; PAGE]` with size == alignment == PAGE, so `n` pages are `n * PAGE`
        // initialised bytes without padding; the lifetime is that of `self`.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast::<u8>(), self.pages.len() * PAGE) }
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the view exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast::<u8>(), self.pages.len() * PAGE) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_buffers_are_zeroed_when_asked_for() {
        for pages in [1, 3, 4, 5, 1500] {
            let mut b = AlignedBuf::zeroed(pages * PAGE);
            b.fill(7);
            let p = b.as_ptr();
            drop(b.freeze());
            let b = AlignedBuf::dirty(pages * PAGE);
            assert_eq!(b.len(), pages * PAGE);
            assert!(pages > 1024 || std::ptr::eq(b.as_ptr(), p));
            drop(b);
            let b = AlignedBuf::zeroed(pages.next_power_of_two() * PAGE);
            assert!(b.iter().all(|x| *x == 0));
        }
        assert!(AlignedBuf::zeroed(0).is_empty());
    }

    #[test]
    fn kept_buffers_are_freed_when_told() {
        release();
        drop(AlignedBuf::zeroed(3 * PAGE));
        assert_eq!(POOL.with(|p| p.borrow().bytes), 4 * PAGE);
        release();
        assert_eq!(POOL.with(|p| (p.borrow().bytes, p.borrow().free.iter().map(Vec::len).sum::<usize>())), (0, 0));
        drop(AlignedBuf::dirty(PAGE));
        assert_eq!(POOL.with(|p| p.borrow().bytes), PAGE);
    }

    #[test]
    fn aligned_and_zeroed() {
        let mut b = AlignedBuf::zeroed(5000);
        assert_eq!(b.len(), 8192);
        assert_eq!(b.as_ptr() as usize % PAGE, 0);
        assert!(b.iter().all(|x| *x == 0));
        b[8191] = 7;
        let f = b.freeze();
        assert_eq!(f.as_ptr() as usize % PAGE, 0);
        assert_eq!(f[8191], 7);
    }
}
