//! Telling the processor what will be read soon.

/// Begins to bring the cache line in which `what` starts. Nothing waits for it, and nothing but time follows from it.
///
/// Of use where several things that lie far apart are known some hundred instructions before the first is needed.
#[inline]
pub fn prefetch<T: ?Sized>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and changes nothing that a program sees; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// As [`prefetch`], all cache lines of `what`.
#[inline]
pub fn prefetch_all<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of::<T>()).step_by(64) {
        // SAFETY: as above; the address is inside `what`.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast::<i8>().add(at));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}
