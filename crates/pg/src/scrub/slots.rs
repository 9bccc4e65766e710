//! The scrubs that an OSD takes part in at a time (`osd_max_scrubs`), as primary or member, over all its reactors.

use base::Mono;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Default of `osd_max_scrubs`.
pub const SCRUBS_MAX: u32 = 1;

/// Scrub slots of an OSD, shared by its PGs.
#[derive(Debug)]
pub struct ScrubSlots {
    max: AtomicU32,
    used: AtomicU32,
    /// Time before which no primary on this OSD asks its members for slots, in nanoseconds.
    pause: AtomicU64,
}

impl Default for ScrubSlots {
    fn default() -> Self {
        Self { max: AtomicU32::new(SCRUBS_MAX), used: AtomicU32::new(0), pause: AtomicU64::new(0) }
    }
}

impl ScrubSlots {
    /// Changes the number of slots; those in use stay in use.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Number of slots in use, and of all slots.
    #[must_use]
    pub fn figures(&self) -> (u32, u32) {
        (self.used.load(Ordering::Relaxed), self.max.load(Ordering::Relaxed))
    }

    /// Number of free slots.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.max.load(Ordering::Relaxed).saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Takes a slot for a primary, which then asks its members for theirs; `None` while none is free or during a
    /// pause.
    pub(crate) fn lead(self: &Arc<Self>, now: Mono) -> Option<ScrubSlot> {
        if now.0 < self.pause.load(Ordering::Relaxed) { None } else { self.take() }
    }

    /// Delays all primaries on this OSD until `until`, after a member had no slot. A PG that was refused also waits
    /// by itself, but with many waiting PGs some other one would try at once. Then OSDs that hold their own slot
    /// while they ask each other make no progress.
    pub(crate) fn pause(&self, until: Mono) {
        self.pause.fetch_max(until.0, Ordering::Relaxed);
    }

    /// Takes a slot, if one is free; dropping the value frees it.
    pub(crate) fn take(self: &Arc<Self>) -> Option<ScrubSlot> {
        let max = self.max.load(Ordering::Relaxed);
        let took = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |u| (u < max).then_some(u + 1));
        took.is_ok().then(|| ScrubSlot(Arc::clone(self)))
    }
}

/// A slot in use.
#[derive(Debug)]
pub(crate) struct ScrubSlot(Arc<ScrubSlots>);

impl Drop for ScrubSlot {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_given_back() {
        let s = Arc::new(ScrubSlots::default());
        let one = s.take();
        assert!(one.is_some() && s.take().is_none() && s.free() == 0);
        s.set_max(2);
        let two = s.take();
        assert!(two.is_some());
        s.set_max(0);
        drop(one);
        drop(two);
        assert!(s.free() == 0 && s.take().is_none());
        s.set_max(1);
        assert!(s.take().is_some());
    }

    #[test]
    fn after_a_refusal_primaries_pause_and_members_serve() {
        let s = Arc::new(ScrubSlots::default());
        s.pause(Mono(100));
        s.pause(Mono(50));
        assert!(s.lead(Mono(99)).is_none());
        assert!(s.take().is_some());
        assert!(s.lead(Mono(100)).is_some());
    }
}
