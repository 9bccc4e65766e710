//! A lease as seen by its holder: how long it may act by its own clock.
//!
//! The store expires a lease no earlier than its time to live after receiving the last renewal. The holder counts from
//! sending that renewal, so it always ends first. A margin covers a slow local clock, and messages that are sent after
//! the decision to send them.

use std::time::Duration;

use base::Mono;

use crate::api::LeaseId;

/// The holder leaves one part in this many of the time to live unused.
const MARGIN: u32 = 5;
/// Number of renewals in the usable time of a lease. If renewals begin to fail, most of the usable time remains for
/// etcd to elect a leader.
const RENEWALS: u32 = 8;

/// A held lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Identifier of the lease.
    pub id: LeaseId,
    ttl: Duration,
    until: Mono,
    /// Time at which the pending renewal was sent.
    asked: Option<Mono>,
}

impl Held {
    /// A lease granted by a request sent at `sent`.
    #[must_use]
    pub fn new(id: LeaseId, ttl: Duration, sent: Mono) -> Self {
        Self { id, ttl, until: sent + usable(ttl), asked: None }
    }

    /// True if the holder may act at `now`.
    #[must_use]
    pub fn holds(&self, now: Mono) -> bool {
        now < self.until
    }

    /// Time at which the holder must stop unless a renewal succeeds.
    #[must_use]
    pub fn until(&self) -> Mono {
        self.until
    }

    /// True if a renewal is due at `now`; it counts as sent then.
    pub fn take_renewal(&mut self, now: Mono) -> bool {
        let begun = Mono(self.until.0.saturating_sub(usable(self.ttl).as_nanos() as u64));
        let due = self.asked.is_none() && now.since(begun) >= usable(self.ttl) / RENEWALS;
        if due {
            self.asked = Some(now);
        }
        due
    }

    /// Reports the result of the pending renewal; `false` means that the lease has expired.
    pub fn renewed(&mut self, alive: bool) {
        match (self.asked.take(), alive) {
            (Some(sent), true) => self.until = self.until.max(sent + usable(self.ttl)),
            (_, true) => {}
            (_, false) => self.until = Mono(0),
        }
    }

    /// Reports a renewal with unknown outcome, after which the next one may be sent.
    pub fn renewal_failed(&mut self) {
        self.asked = None;
    }
}

fn usable(ttl: Duration) -> Duration {
    ttl - ttl / MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    #[test]
    fn the_holder_ends_before_the_store_and_counts_from_the_request() {
        let mut l = Held::new(LeaseId(1), Duration::from_secs(5), at(1000));
        assert!(l.holds(at(4999)) && !l.holds(at(5000)));
        assert!(!l.take_renewal(at(1499)) && l.take_renewal(at(2000)) && !l.take_renewal(at(2500)), "one at a time");
        l.renewed(true);
        assert_eq!(l.until(), at(6000), "from when the renewal was sent");
        assert!(l.take_renewal(at(3000)));
        l.renewal_failed();
        assert!(l.holds(at(5999)) && !l.holds(at(6000)), "an unknown outcome gives no time");
        assert!(l.take_renewal(at(3100)));
        l.renewed(false);
        assert!(!l.holds(at(3101)), "gone");
    }
}
