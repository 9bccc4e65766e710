//! Page-aligned buffers for direct I/O.
//!
//! The one place of this crate with `unsafe`: viewing a vector of aligned pages as bytes.

use bytes::Bytes;

/// Size and alignment of a page, the unit of device I/O.
pub const PAGE: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; PAGE]);

/// A zeroed, page-aligned byte buffer of fixed length (a multiple of [`PAGE`]).
pub struct AlignedBuf {
    pages: Vec<Page>,
}

impl AlignedBuf {
    /// Zeroed buffer of at least `len` bytes, rounded up to whole pages.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self { pages: vec![Page([0; PAGE]); len.div_ceil(PAGE)] }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// True if it holds no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Freezes the buffer into shareable bytes without copying; they keep its alignment.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
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
