//! How many scrubs an OSD takes part in at a time (`osd_max_scrubs`), led here or elsewhere, over all its reactors.

use base::Mono;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Default of `osd_max_scrubs`.
pub const SCRUBS_MAX: u32 = 1;

/// The slots, shared by all PGs of an OSD.
#[derive(Debug)]
pub struct ScrubSlots {
    max: AtomicU32,
    used: AtomicU32,
    /// No PG led here asks others for slots before.
    pause: AtomicU64,
}

impl Default for ScrubSlots {
    fn default() -> Self {
        Self { max: AtomicU32::new(SCRUBS_MAX), used: AtomicU32::new(0), pause: AtomicU64::new(0) }
    }
}

impl ScrubSlots {
    /// Changes how many there are; those taken stay taken.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Free ones.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.max.load(Ordering::Relaxed).saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Takes one for a PG led here, which will ask its members for theirs.
    pub(crate) fn lead(self: &Arc<Self>, now: Mono) -> Option<ScrubSlot> {
        if now.0 < self.pause.load(Ordering::Relaxed) { None } else { self.take() }
    }

    /// Members had none for a PG led here: others led here do not try before `until`. Each PG waits by itself, too, but where many want
    /// to be scrubbed there is always one that has waited, and OSDs that hold their own slot while they ask each other get nowhere.
    pub(crate) fn pause(&self, until: Mono) {
        self.pause.fetch_max(until.0, Ordering::Relaxed);
    }

    /// Takes one until it is dropped, if one is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<ScrubSlot> {
        let max = self.max.load(Ordering::Relaxed);
        let took = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |u| (u < max).then_some(u + 1));
        took.is_ok().then(|| ScrubSlot(Arc::clone(self)))
    }
}

/// One of them.
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
    fn after_a_refusal_nobody_leads_for_a_while_but_members_serve() {
        let s = Arc::new(ScrubSlots::default());
        s.pause(Mono(100));
        s.pause(Mono(50));
        assert!(s.lead(Mono(99)).is_none());
        assert!(s.take().is_some());
        assert!(s.lead(Mono(100)).is_some());
    }
}
