//! Rotating secrets that seal tickets: three per service (previous, current, next).
//!
//! [`ServiceKeys`] is the monitor's store for all services. It makes new secrets according to the time passed in and
//! can be encoded for persistence. [`RotatingKeys`] has the secrets of one service, which its daemons fetch to check
//! tickets.
//!
//! Invariants:
//!  1. A service has at most [`KEEP`] secrets, and their numbers only grow.
//!  2. New tickets are sealed with the current secret, which is never the newest once there are three. So every daemon
//!     has a whole period to fetch a secret before the first ticket under it appears.
//!  3. A secret remains usable for a period after it stopped being current: as long as a ticket sealed with it can live.
//!
//! Tests: below.

use crate::{CryptoKey, KeyKind, Random};
use base::{EntityKind, Utime};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{Decode, Encode, Reader, Writer};

/// Secrets kept per service.
pub const KEEP: usize = 3;

/// Most secrets in one encoding.
const DECODE_MAX: usize = 64;

/// Services that have rotating secrets.
pub const SERVICES: [EntityKind; 5] =
    [EntityKind::MON, EntityKind::MDS, EntityKind::OSD, EntityKind::MGR, EntityKind::AUTH];

/// A secret and the time until which it is current (`ExpiringCryptoKey`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringKey {
    /// Secret.
    pub key: CryptoKey,
    /// Time at which the next secret becomes current.
    pub expiration: Utime,
}

impl Encode for ExpiringKey {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.key);
        w.put(&self.expiration);
    }
}
impl Decode for ExpiringKey {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        r.u8()?;
        Ok(Self { key: r.get()?, expiration: r.get()? })
    }
}

/// The secrets of one service (`RotatingSecrets`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotatingKeys {
    secrets: BTreeMap<u64, ExpiringKey>,
    max_ver: u64,
}

impl Encode for RotatingKeys {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.secrets);
        w.u64(self.max_ver);
    }
}
impl Decode for RotatingKeys {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        r.u8()?;
        let n = r.count(8, "rotating secrets")?;
        if n > DECODE_MAX {
            return Err(wire::DecodeError::BadValue { what: "rotating secrets", value: n as u64 });
        }
        let mut secrets = BTreeMap::new();
        for _ in 0..n {
            let id = r.u64()?;
            secrets.insert(id, r.get()?);
        }
        Ok(Self { secrets, max_ver: r.u64()? })
    }
}

impl RotatingKeys {
    /// The secret with this number, as named in a ticket.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&CryptoKey> {
        self.secrets.get(&id).map(|e| &e.key)
    }

    /// The secret that seals new tickets, with its number.
    #[must_use]
    pub fn current(&self) -> Option<(u64, &ExpiringKey)> {
        let skip = usize::from(self.secrets.len() >= KEEP);
        self.secrets.iter().nth(skip).map(|(id, k)| (*id, k))
    }

    /// All secrets, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &ExpiringKey)> {
        self.secrets.iter().map(|(id, k)| (*id, k))
    }

    /// True if there are no secrets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// True if a daemon should fetch secrets: the newest but one has become current, or some are missing.
    #[must_use]
    pub fn need_fetch(&self, now: Utime) -> bool {
        self.need_new(now)
    }

    fn need_new(&self, now: Utime) -> bool {
        self.secrets.len() < KEEP || self.current().is_none_or(|(_, k)| k.expiration <= now)
    }

    fn add(&mut self, key: ExpiringKey) {
        self.max_ver += 1;
        self.secrets.insert(self.max_ver, key);
        while self.secrets.len() > KEEP {
            self.secrets.pop_first();
        }
    }

    /// Makes new secrets if they are due; true if anything changed.
    ///
    /// A clock that jumps costs no ticket. Of a complete set one secret is replaced at a time, however far `now` lies
    /// ahead, so the next current secret is one that the daemons have. A set made by a clock far ahead gets times by
    /// the present one.
    pub fn rotate(&mut self, now: Utime, ttl: Duration, kind: KeyKind, random: &dyn Random) -> bool {
        let mut changed = self.bring_back(now, ttl);
        let one_more = self.secrets.len() >= KEEP && self.need_new(now);
        while self.secrets.len() < KEEP {
            let from = self.secrets.last_key_value().map_or(now, |(_, newest)| newest.expiration.max(now));
            self.add(ExpiringKey { key: CryptoKey::generate(kind, now, random), expiration: from.plus(ttl) });
            changed = true;
        }
        if one_more {
            let key = CryptoKey::generate(kind, now, random);
            self.add(ExpiringKey { key, expiration: Utime::ZERO });
            // The times of the current secret and of the new one: the one was made in time, unless the clock jumped.
            let mut from = now;
            for (_, k) in self.secrets.iter_mut().skip(1) {
                k.expiration = k.expiration.max(from.plus(ttl));
                from = k.expiration;
            }
            changed = true;
        }
        changed
    }

    /// Gives secrets that were made by a clock far ahead the times that they would have by this one.
    fn bring_back(&mut self, now: Utime, ttl: Duration) -> bool {
        let mut changed = false;
        let mut latest = now;
        for k in self.secrets.values_mut() {
            latest = latest.plus(ttl);
            // A period more is usual after a change of the clock by seconds.
            if k.expiration > latest.plus(ttl) {
                k.expiration = latest;
                changed = true;
            }
        }
        changed
    }
}

/// Secrets of all services, as the monitor stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceKeys {
    services: BTreeMap<EntityKind, RotatingKeys>,
}

impl Encode for ServiceKeys {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| w.put(&self.services));
    }
}
impl Decode for ServiceKeys {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        r.versioned("ServiceKeys", 1, |r, _| Ok(Self { services: r.get()? }))
    }
}

impl ServiceKeys {
    /// The secrets of one service.
    #[must_use]
    pub fn get(&self, service: EntityKind) -> Option<&RotatingKeys> {
        self.services.get(&service)
    }

    /// Makes new secrets for all services where due; true if the store must be persisted. `auth_ttl` is the life of
    /// monitor tickets, `service_ttl` that of all others.
    pub fn tick(
        &mut self,
        now: Utime,
        auth_ttl: Duration,
        service_ttl: Duration,
        kind: KeyKind,
        random: &dyn Random,
    ) -> bool {
        let mut changed = false;
        for s in SERVICES {
            let ttl = if s == EntityKind::AUTH { auth_ttl } else { service_ttl };
            changed |= self.services.entry(s).or_default().rotate(now, ttl, kind, random);
        }
        changed
    }

    /// Drops all secrets, which invalidates all tickets; the next [`ServiceKeys::tick`] makes new ones.
    pub fn wipe(&mut self) {
        // Numbers continue, so that an old ticket never meets a new secret of the same number.
        for k in self.services.values_mut() {
            k.secrets.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(std::cell::Cell<u8>);
    impl Random for Count {
        fn fill(&self, out: &mut [u8]) {
            self.0.set(self.0.get().wrapping_add(1));
            out.fill(self.0.get());
        }
    }

    fn at(sec: u32) -> Utime {
        Utime { sec, nsec: 0 }
    }

    #[test]
    fn rotates_with_time_and_keeps_old_tickets_valid() {
        let rnd = Count(0.into());
        let mut k = RotatingKeys::default();
        let ttl = Duration::from_secs(100);
        assert!(k.rotate(at(1000), ttl, KeyKind::Aes, &rnd));
        assert_eq!(k.iter().map(|(i, e)| (i, e.expiration.sec)).collect::<Vec<_>>(), [(1, 1100), (2, 1200), (3, 1300)]);
        assert!(!k.rotate(at(1199), ttl, KeyKind::Aes, &rnd));
        let (id, _) = k.current().unwrap();
        assert_eq!(id, 2);
        assert!(k.rotate(at(1200), ttl, KeyKind::Aes, &rnd));
        assert_eq!(k.current().unwrap().0, 3);
        assert!(k.get(2).is_some(), "sealed a moment ago, still opens");
        assert!(k.rotate(at(9000), ttl, KeyKind::Aes, &rnd), "after a long stop");
        assert!(k.current().unwrap().1.expiration > at(9000));
        assert!(!k.need_fetch(at(9000)));
    }

    #[test]
    fn a_clock_far_ahead_for_a_while_costs_no_ticket_and_leaves_no_secret_for_a_year() {
        let rnd = Count(0.into());
        let mut k = RotatingKeys::default();
        let ttl = Duration::from_secs(100);
        k.rotate(at(1000), ttl, KeyKind::Aes, &rnd);
        let (sealed_with, _) = k.current().unwrap();
        let fetched: Vec<u64> = k.iter().map(|(id, _)| id).collect();
        assert!(k.rotate(at(30_000_000), ttl, KeyKind::Aes, &rnd));
        assert!(k.get(sealed_with).is_some(), "tickets of before open");
        assert!(fetched.contains(&k.current().unwrap().0), "daemons have the secret of new tickets");
        assert!(!k.rotate(at(30_000_000), ttl, KeyKind::Aes, &rnd));
        // The clock is right again.
        let ids = |k: &RotatingKeys| k.iter().map(|(id, _)| id).collect::<Vec<_>>();
        let before = ids(&k);
        assert!(k.rotate(at(1010), ttl, KeyKind::Aes, &rnd));
        assert_eq!(ids(&k), before, "with other times only");
        assert!(k.current().unwrap().1.expiration <= at(1010 + 300));
        assert!(!k.rotate(at(1011), ttl, KeyKind::Aes, &rnd), "once");
        assert!(k.rotate(at(1310), ttl, KeyKind::Aes, &rnd), "the next one comes in time");
        // A step of some seconds back changes nothing.
        assert!(!k.rotate(at(1300), ttl, KeyKind::Aes, &rnd));
    }

    #[test]
    fn store_survives_encoding_and_numbers_survive_a_wipe() {
        let rnd = Count(0.into());
        let mut s = ServiceKeys::default();
        let h = Duration::from_secs(3600);
        assert!(s.tick(at(5), 72 * h, h, KeyKind::Aes256K, &rnd));
        assert!(!s.tick(at(6), 72 * h, h, KeyKind::Aes256K, &rnd));
        let b = s.to_bytes(wire::Features::PACIFIC);
        assert_eq!(ServiceKeys::from_bytes(&b).unwrap(), s);
        s.wipe();
        assert!(s.tick(at(7), 72 * h, h, KeyKind::Aes256K, &rnd));
        assert_eq!(s.get(EntityKind::OSD).unwrap().iter().next().unwrap().0, 4);
    }
}
