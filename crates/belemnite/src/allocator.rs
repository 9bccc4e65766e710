//! The program's memory allocator: mimalloc (adr/0008).
//!
//! The crate `mimalloc` requests every allocation with its alignment, which costs three times the instructions of a
//! request by size alone. Nearly all allocations need no more than the default alignment, hence this module.

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};
use std::alloc::{GlobalAlloc, Layout};

/// Alignment of every allocation that is at least this long: `MI_MAX_ALIGN_SIZE`.
const ALIGNED: usize = 16;

unsafe extern "C" {
    /// Part of the library; the crate declares it only with a feature that declares everything else, too.
    safe fn mi_collect(force: bool);
}

/// Returns free memory to the system. An idle thread otherwise keeps its free pages: mimalloc purges them only while it
/// allocates, and without `force` only after a delay.
pub(crate) fn release() {
    mi_collect(true);
}

/// The global allocator; see the module.
pub(crate) struct MiMalloc;

fn plain(l: Layout) -> bool {
    l.align() <= ALIGNED && l.align() <= l.size()
}

// SAFETY: mimalloc's functions are those of a C allocator: they may be called from every thread and never unwind. Each
// allocation has the requested alignment: either by argument, or because it is not above `ALIGNED` and not above the
// size. `mi_realloc` preserves this, as the new size is checked as well. `mi_free` accepts allocations of all these
// functions.
unsafe impl GlobalAlloc for MiMalloc {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        unsafe { if plain(l) { mi_malloc(l.size()) } else { mi_malloc_aligned(l.size(), l.align()) } }.cast()
    }

    unsafe fn dealloc(&self, p: *mut u8, _: Layout) {
        unsafe { mi_free(p.cast()) };
    }

    unsafe fn alloc_zeroed(&self, l: Layout) -> *mut u8 {
        unsafe { if plain(l) { mi_zalloc(l.size()) } else { mi_zalloc_aligned(l.size(), l.align()) } }.cast()
    }

    unsafe fn realloc(&self, p: *mut u8, l: Layout, size: usize) -> *mut u8 {
        let short = l.align() <= ALIGNED && l.align() <= size;
        unsafe { if short { mi_realloc(p.cast(), size) } else { mi_realloc_aligned(p.cast(), size, l.align()) } }.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_and_keep_their_bytes() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
            for size in [1, 3, 8, 9, 15, 16, 17, 24, 40, 48, 100, 1000, 4096, 5000, 1 << 17, 3 << 20] {
                let l = Layout::from_size_align(size, align).unwrap();
                // SAFETY: allocations are written within their sizes, and moved and freed with the layout they have.
                unsafe {
                    let p = MiMalloc.alloc(l);
                    assert!(!p.is_null() && p.addr().is_multiple_of(align), "{size} {align}");
                    p.write_bytes(7, size);
                    let more = size * 2 + 8;
                    let q = MiMalloc.realloc(p, l, more);
                    assert!(!q.is_null() && q.addr().is_multiple_of(align), "{size} {align} again");
                    assert!((0..size).all(|i| *q.add(i) == 7));
                    MiMalloc.dealloc(q, Layout::from_size_align(more, align).unwrap());
                    let z = MiMalloc.alloc_zeroed(l);
                    assert!(!z.is_null() && z.addr().is_multiple_of(align));
                    assert!((0..size).all(|i| *z.add(i) == 0));
                    MiMalloc.dealloc(z, l);
                }
            }
        }
    }
}
