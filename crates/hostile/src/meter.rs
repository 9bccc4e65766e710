//! Counts what a piece of code allocates, by standing in for the global allocator of a test binary.
//!
//! The only `unsafe` of this crate: it forwards to the system allocator unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system allocator with a counter per thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter;

fn add(n: isize) {
    if n > 0 {
        let _ = COUNT.try_with(|c| c.set(c.get() + 1));
    }
    // A thread that is going down has no counters any more.
    let _ = LIVE.try_with(|l| {
        let v = l.get() + n;
        l.set(v);
        let _ = PEAK.try_with(|p| p.set(p.get().max(v)));
    });
}

// SAFETY: every call goes to `System` with the arguments it came with; counting touches no allocated memory.
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

/// Runs `f` and tells how many bytes it held at most beyond what was held before. Zero unless [`Meter`] is the global
/// allocator.
pub fn peak_of<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let r = f();
    (r, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

/// Runs `f` and tells how often it allocated or grew an allocation.
pub fn allocations_of<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = COUNT.get();
    let r = f();
    (r, COUNT.get() - before)
}

/// Bytes that are allocated now, seen from this thread: what others allocated and this one freed counts as less.
#[must_use]
pub fn live() -> isize {
    LIVE.get()
}
