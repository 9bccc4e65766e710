//! Pacing of background work on a reactor, so that it does not slow down clients.
//!
//! Clients' operations are never queued here: they run when they arrive. Background work asks before each step: parts
//! of objects that recovery sends, steps of trimming, scrub and deletion. The policy has two numbers, chosen by one
//! name ([`Profile`], Ceph's `osd_mclock_profile`). Background work fills the reactor up to a *ceiling* that includes
//! the clients' use, and gets at least its *floor*. While no client is active it takes all there is.
//!
//! mClock's tags express the same for a server that queues everything: the floor is the reservation, the ceiling the
//! limit, and the weights decide between the recovery and best-effort [`Class`]es. Time is virtual: work is charged
//! its average cost ([`cost`]), not measured by a clock, so the same inputs give the same decisions.
//!
//! Invariants:
//!  1. The floor is never zero: clients can't starve any class.
//!  2. [`Pacer::waiting`] names every refused caller at [`Pacer::wake`], at the latest `WAIT_MAX` after the refusal.
//!
//! Tests: below.

use crate::limits::APPLY_BYTES_MAX;
use crate::long::LongCalls;
use base::Mono;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Window over which clients' use is averaged, in nanoseconds.
const WINDOW: u64 = 100_000_000;
/// Most credit that background work may save up, in nanoseconds of the reactor.
const BURST: i64 = 4_000_000;
/// Longest wait before a refused caller asks again, in nanoseconds. A refused class counts as waiting for as long.
const WAIT_MAX: u64 = 20_000_000;
/// Shortest wait worth a timer, in nanoseconds.
const WAIT_MIN: u64 = 1_000_000;
/// Client use below which the reactor counts as idle, in thousandths of it.
const IDLE: u64 = 10;
/// Fixed cost of an operation, message or step, in nanoseconds (4 KiB reads and writes take 15 to 25 µs).
const COST_FIXED: u64 = 20_000;
/// Cost of each KiB, in nanoseconds (a write of 4 MiB takes 2.4 ms).
const COST_PER_KIB: u64 = 600;

/// Average reactor time of work on `bytes` bytes, in nanoseconds.
#[must_use]
pub fn cost(bytes: usize) -> u64 {
    COST_FIXED + (bytes as u64).saturating_mul(COST_PER_KIB) / 1024
}

/// Class of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Recovery of objects that have too few copies.
    Recovery,
    /// Work that can be delayed: moving copies, trimming, scrub, deletion.
    BestEffort,
}

/// Weights of the classes when both want to run.
const WEIGHTS: [u64; 2] = [3, 1];

/// The priorities between clients and background work: the values of `osd_mclock_profile`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Clients first, with a larger share for recovery.
    Balanced,
    /// Clients first.
    #[default]
    HighClientOps,
    /// Recovery first.
    HighRecoveryOps,
}

impl Profile {
    /// Parses a profile's name; `None` if it is unknown (`custom` has no meaning here).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "balanced" => Some(Self::Balanced),
            "high_client_ops" => Some(Self::HighClientOps),
            "high_recovery_ops" => Some(Self::HighRecoveryOps),
            _ => None,
        }
    }

    /// Floor and ceiling of background work, in thousandths of a reactor.
    const fn shares(self) -> (u64, u64) {
        match self {
            Self::Balanced => (150, 600),
            Self::HighClientOps => (75, 400),
            Self::HighRecoveryOps => (400, 950),
        }
    }
}

/// The pacer of a reactor, shared by its PGs; see the module.
#[derive(Debug, Default)]
pub struct Pacer {
    profile: Cell<Profile>,
    /// Start of the current window; `used` and `used_before` are the clients' use in it and in the previous one.
    window: Cell<u64>,
    used: Cell<u64>,
    used_before: Cell<u64>,
    /// Reactor time that background work may use now, in nanoseconds; negative while it has used more than its share.
    credit: Cell<i64>,
    credit_at: Cell<u64>,
    /// Use of each class, divided by its weight.
    virtual_time: [Cell<u64>; 2],
    /// Time of each class's last refusal.
    refused: [Cell<u64>; 2],
    wake: Cell<Option<Mono>>,
    waiting: RefCell<BTreeSet<u32>>,
    /// The reactor's long calls, which take turns with each other.
    pub long: LongCalls,
    /// Writes of primaries that wait to be applied.
    applying: Rc<Cell<usize>>,
    /// Another bound than [`APPLY_BYTES_MAX`], for tests.
    applying_max: Cell<Option<usize>>,
}

/// Bytes of a write that waits to be applied; they count until it is dropped.
#[derive(Debug)]
pub(crate) struct Applying(Rc<Cell<usize>>, usize);

impl Drop for Applying {
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1);
    }
}

impl Pacer {
    /// Sets the profile.
    pub fn set_profile(&self, p: Profile) {
        self.profile.set(p);
    }

    /// Charges a client's operation, or a replica's part of one, with its payload in bytes.
    pub fn client(&self, bytes: usize, now: Mono) {
        self.roll(now);
        self.used.set(self.used.get().saturating_add(cost(bytes)));
    }

    /// Counts a write that waits to be applied.
    pub(crate) fn applies(&self, bytes: usize) -> Applying {
        self.applying.set(self.applying.get() + bytes);
        Applying(Rc::clone(&self.applying), bytes)
    }

    /// Bytes of the writes that wait to be applied.
    #[must_use]
    pub fn applying(&self) -> usize {
        self.applying.get()
    }

    /// True if PGs with a write that waits take no further ones.
    pub(crate) fn applies_too_much(&self) -> bool {
        self.applying.get() > self.applying_max.get().unwrap_or(APPLY_BYTES_MAX)
    }

    /// Sets another bound than [`APPLY_BYTES_MAX`].
    pub fn set_applying_max(&self, bytes: usize) {
        self.applying_max.set(Some(bytes));
    }

    /// Charges reply bytes of a client operation that was charged before.
    pub fn bytes(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_add((bytes as u64).saturating_mul(COST_PER_KIB) / 1024));
    }

    /// Charges background work that could not wait.
    pub fn charge(&self, class: Class, bytes: usize, now: Mono) {
        self.refill(now);
        self.spend(class, bytes);
    }

    /// True if background work on about `bytes` bytes may start now; the work is then charged. If false,
    /// [`Pacer::waiting`] names `who` at [`Pacer::wake`].
    pub fn take(&self, class: Class, bytes: usize, who: u32, now: Mono) -> bool {
        let rate = self.refill(now);
        let (own, other) = match class {
            Class::Recovery => (0, 1),
            Class::BestEffort => (1, 0),
        };
        let other_wants = self.refused[other].get().saturating_add(WAIT_MAX) > now.0 && self.refused[other].get() > 0;
        let ahead = other_wants && self.virtual_time[own].get() > self.virtual_time[other].get();
        if rate.is_none() || self.credit.get() >= 0 && !ahead {
            self.spend(class, bytes);
            return true;
        }
        self.refused[own].set(now.0);
        let debt = self.credit.get().min(0).unsigned_abs();
        let wait = debt.saturating_mul(1000) / rate.unwrap_or(1000).max(1);
        let at = Mono(now.0.saturating_add(wait.clamp(WAIT_MIN, WAIT_MAX)));
        self.wake.set(Some(self.wake.get().map_or(at, |w| w.min(at))));
        self.waiting.borrow_mut().insert(who);
        false
    }

    /// True if clients use almost nothing of the reactor.
    #[must_use]
    pub fn is_alone(&self, now: Mono) -> bool {
        self.client_load(now) < IDLE
    }

    /// Time at which the next refused caller should ask again.
    #[must_use]
    pub fn wake(&self) -> Option<Mono> {
        self.wake.get()
    }

    /// Takes the callers that were refused, once [`Pacer::wake`] has come; empty before.
    pub fn waiting(&self, now: Mono) -> BTreeSet<u32> {
        if self.wake.get().is_none_or(|w| w > now) {
            return BTreeSet::new();
        }
        self.wake.set(None);
        self.waiting.take()
    }

    /// Clients' use of the reactor, in thousandths.
    #[must_use]
    pub fn client_load(&self, now: Mono) -> u64 {
        self.roll(now);
        let into = now.0.saturating_sub(self.window.get()).min(WINDOW);
        let before = self.used_before.get().saturating_mul(WINDOW - into) / WINDOW;
        (before + self.used.get()).saturating_mul(1000) / WINDOW
    }

    fn roll(&self, now: Mono) {
        let into = now.0.saturating_sub(self.window.get());
        if into >= WINDOW {
            self.used_before.set(if into < 2 * WINDOW { self.used.get() } else { 0 });
            self.used.set(0);
            self.window.set(now.0 - into % WINDOW);
        }
    }

    fn spend(&self, class: Class, bytes: usize) {
        let c = cost(bytes);
        self.credit.set(self.credit.get().saturating_sub(c as i64));
        let i = usize::from(class == Class::BestEffort);
        // A class that was idle does not catch up.
        let least = self.virtual_time[1 - i].get().saturating_sub(BURST as u64);
        self.virtual_time[i].set(self.virtual_time[i].get().max(least) + c / WEIGHTS[i]);
    }

    /// Adds the credit that has become due. Returns the share of background work in thousandths of the reactor;
    /// `None`: all.
    fn refill(&self, now: Mono) -> Option<u64> {
        let load = self.client_load(now);
        let passed = now.0.saturating_sub(self.credit_at.get());
        self.credit_at.set(now.0);
        if load < IDLE {
            self.credit.set(0);
            return None;
        }
        let (floor, ceiling) = self.profile.get().shares();
        let rate = ceiling.saturating_sub(load).max(floor);
        let more = i64::try_from(passed.saturating_mul(rate) / 1000).unwrap_or(BURST);
        self.credit.set(self.credit.get().saturating_add(more).min(BURST));
        Some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    /// Runs a second in which clients use `load` thousandths and background work of `classes` asks whenever it may.
    /// Returns the thousandths that each class used.
    fn second(p: &Pacer, load: u64, classes: &[Class], profile: Profile) -> [u64; 2] {
        p.set_profile(profile);
        let mut got = [0; 2];
        let part = 256 << 10;
        for ms in 1..=1200 {
            let now = Mono((10_000 + ms) * MS);
            let mut left = load * MS / 1000;
            while left > 0 {
                p.client(0, now);
                left = left.saturating_sub(cost(0));
            }
            let turn = p.waiting(now);
            assert!(turn.len() <= classes.len());
            for c in classes {
                for _ in 0..20 {
                    if !p.take(*c, part, *c as u32, now) {
                        break;
                    }
                    if ms > 200 {
                        got[*c as usize] += cost(part);
                    }
                }
            }
        }
        got.map(|g| g * 1000 / (1000 * MS))
    }

    #[test]
    fn background_work_fills_up_to_the_ceiling_and_never_gets_less_than_the_floor() {
        for (profile, floor, ceiling) in
            [(Profile::Balanced, 150, 600), (Profile::HighClientOps, 75, 400), (Profile::HighRecoveryOps, 400, 950)]
        {
            for load in [100, 300, 500, 900, 2000] {
                let [got, _] = second(&Pacer::default(), load, &[Class::Recovery], profile);
                let want = ceiling.max(load + floor) - load;
                assert!(got.abs_diff(want) <= want / 8 + 10, "{profile:?} at {load}: {got}, should be {want}");
            }
        }
    }

    #[test]
    fn without_clients_nothing_waits() {
        let p = Pacer::default();
        let [got, _] = second(&p, 0, &[Class::Recovery], Profile::HighClientOps);
        assert!(got > 1000);
        assert_eq!(p.wake(), None);
    }

    #[test]
    fn recovery_gets_three_times_what_best_effort_gets() {
        let [r, b] = second(&Pacer::default(), 500, &[Class::BestEffort, Class::Recovery], Profile::Balanced);
        assert!((2 * b..=4 * b).contains(&r), "{r} and {b}");
        let [r, b] = second(&Pacer::default(), 500, &[Class::BestEffort], Profile::Balanced);
        assert!(r == 0 && b > 120, "{b}");
    }

    #[test]
    fn a_refused_caller_is_named_at_the_wake_time() {
        let p = Pacer::default();
        let mut now = Mono(1000 * MS);
        for _ in 0..4000 {
            p.client(0, now);
        }
        while p.take(Class::Recovery, 1 << 20, 7, now) {}
        assert!(p.waiting(now).is_empty());
        let wake = p.wake().expect("a time is told");
        assert!(wake > now && wake.since(now) <= Duration::from_nanos(WAIT_MAX));
        now = wake;
        assert_eq!(p.waiting(now).into_iter().collect::<Vec<_>>(), [7]);
        assert_eq!(p.wake(), None);
    }
}
