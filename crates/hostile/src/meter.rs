//! Measures the allocations of code, as the global allocator of a test binary.
//!
//! The only `unsafe` code of this crate: it forwards to the system allocator unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system allocator with counters per thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter;

fn add(n: isize) {
    if n > 0 {
        let _ = COUNT.try_with(|c| c.set(c.get() + 1));
    }
    // A thread that is ending has no counters any more.
    let _ = LIVE.try_with(|l| {
        let v = l.get() + n;
        l.set(v);
        let _ = PEAK.try_with(|p| p.set(p.get().max(v)));
    });
}

// SAFETY: every call is forwarded to `System` with its arguments; counting touches no allocated memory.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        add(l.size() as isize);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(l) }
    }
    unsafe fn alloc_zeroed(&self, l: Layout) -> *mut u8 {
        add(l.size() as isize);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc_zeroed(l) }
    }
    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        add(-(l.size() as isize));
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(p, l) }
    }
    unsafe fn realloc(&self, p: *mut u8, l: Layout, new: usize) -> *mut u8 {
        add(new as isize - l.size() as isize);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.realloc(p, l, new) }
    }
}

/// Runs `f` and returns the peak of allocated bytes above the level before. Zero unless [`Meter`] is the global
/// allocator.
pub fn peak_of<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let r = f();
    (r, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

/// Runs `f` and returns the number of its allocations and enlargements.
pub fn allocations_of<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = COUNT.get();
    let r = f();
    (r, COUNT.get() - before)
}

/// Bytes allocated by this thread and not freed by it. Memory that other threads allocated and this one freed counts
/// negatively.
#[must_use]
pub fn live() -> isize {
    LIVE.get()
}
