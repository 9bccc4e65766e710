//! Hints to the CPU about memory that will be read soon.

/// Begins to load the cache line in which `what` starts. The call does not wait and has no effect besides
/// timing.
///
/// Useful where several scattered values are known some hundred instructions before the first is needed.
#[inline]
pub fn prefetch<T: ?Sized>(what: &T) {
    line(std::ptr::from_ref(what).cast());
}

/// Like [`prefetch`], for all cache lines of `what`.
#[inline]
pub fn prefetch_all<T>(what: &T) {
    let start = std::ptr::from_ref(what).cast::<i8>();
    (0..size_of::<T>()).step_by(64).for_each(|at| line(start.wrapping_add(at)));
}

#[inline]
fn line(at: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address, and changes nothing that a program sees; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
