//! Sessions of users, and how often strangers may try to begin one.
//!
//! A session is named by a random cookie that only the server and the browser know. Its token is another random word,
//! which the page sends with each change: a page of another origin can make the browser send the cookie, but cannot read
//! the token.

use base::Mono;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Most sessions at a time; another one ends the one that was used longest ago.
pub const SESSIONS_MAX: usize = 64;
/// Time without a request after which a session ends.
pub const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
/// Age at which a session ends.
pub const AGE_MAX: Duration = Duration::from_secs(12 * 3600);
/// Attempts to sign in that an address may make within [`ATTEMPTS_TIME`].
pub const ATTEMPTS: u32 = 8;
/// Attempts of all addresses within that time.
pub const ATTEMPTS_OF_ALL: u32 = 120;
/// Time over which attempts count.
pub const ATTEMPTS_TIME: Duration = Duration::from_secs(60);
/// Most addresses whose attempts are counted.
const ADDRESSES_MAX: usize = 1024;

/// A session of a user `U`.
#[derive(Debug)]
struct Session<U> {
    token: String,
    user: U,
    began: Mono,
    used: Mono,
}

/// All sessions, and attempts to begin one.
#[derive(Debug)]
pub struct Sessions<U> {
    all: BTreeMap<String, Session<U>>,
    attempts: BTreeMap<IpAddr, u32>,
    attempts_of_all: u32,
    counted_since: Mono,
}

impl<U> Default for Sessions<U> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), attempts: BTreeMap::new(), attempts_of_all: 0, counted_since: Mono::default() }
    }
}

/// The part of an address that one host has for itself: of IPv6 the network of 64 bits.
fn network(a: IpAddr) -> IpAddr {
    match a.to_canonical() {
        IpAddr::V6(a) => IpAddr::V6((u128::from(a) >> 64 << 64).into()),
        v4 => v4,
    }
}

impl<U: Clone> Sessions<U> {
    /// Counts an attempt to sign in; false if there were too many.
    pub fn may_try(&mut self, from: IpAddr, now: Mono) -> bool {
        if now.since(self.counted_since) >= ATTEMPTS_TIME {
            self.attempts.clear();
            self.attempts_of_all = 0;
            self.counted_since = now;
        }
        let from = network(from);
        if self.attempts_of_all >= ATTEMPTS_OF_ALL
            || self.attempts.len() >= ADDRESSES_MAX && !self.attempts.contains_key(&from)
        {
            return false;
        }
        let n = self.attempts.entry(from).or_default();
        if *n >= ATTEMPTS {
            return false;
        }
        *n += 1;
        self.attempts_of_all += 1;
        true
    }

    /// Forgets the attempts of an address that has signed in.
    pub fn succeeded(&mut self, from: IpAddr) {
        self.attempts.remove(&network(from));
    }

    /// Begins a session. `id` and `token` are random words.
    pub fn begin(&mut self, id: String, token: String, user: U, now: Mono) {
        self.expire(now);
        if self.all.len() >= SESSIONS_MAX
            && let Some(oldest) = self.all.iter().min_by_key(|(_, s)| s.used).map(|(id, _)| id.clone())
        {
            self.all.remove(&oldest);
        }
        self.all.insert(id, Session { token, user, began: now, used: now });
    }

    /// The user of a session, whose idle time begins again.
    pub fn user(&mut self, id: &str, now: Mono) -> Option<U> {
        self.expire(now);
        let s = self.all.get_mut(id)?;
        s.used = now;
        Some(s.user.clone())
    }

    /// The token of a session.
    #[must_use]
    pub fn token(&self, id: &str) -> Option<&str> {
        self.all.get(id).map(|s| s.token.as_str())
    }

    /// Ends a session.
    pub fn end(&mut self, id: &str) {
        self.all.remove(id);
    }

    /// Ends sessions that are too old or were not used.
    pub fn expire(&mut self, now: Mono) {
        self.all.retain(|_, s| now.since(s.used) < IDLE_MAX && now.since(s.began) < AGE_MAX);
    }

    /// Number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if nobody is signed in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Compares two words in a time that does not depend on where they differ.
#[must_use]
pub fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn sessions_end_by_age_idleness_and_number() {
        let mut s = Sessions::default();
        s.begin("a".into(), "t".into(), 7, at(0));
        assert_eq!((s.user("a", at(10)), s.user("b", at(10))), (Some(7), None));
        assert_eq!(s.token("a"), Some("t"));
        assert_eq!(s.user("a", at(10 + IDLE_MAX.as_secs())), None, "idle");
        s.begin("a".into(), "t".into(), 7, at(0));
        for t in (0..AGE_MAX.as_secs()).step_by(600) {
            assert_eq!(s.user("a", at(t)), Some(7), "{t}");
        }
        assert_eq!(s.user("a", at(AGE_MAX.as_secs())), None, "old");
        for i in 0..SESSIONS_MAX + 1 {
            s.begin(format!("{i}"), "t".into(), 0, at(100_000 + i as u64));
        }
        assert_eq!((s.len(), s.user("0", at(101_000))), (SESSIONS_MAX, None));
        s.end("1");
        assert_eq!(s.len(), SESSIONS_MAX - 1);
    }

    #[test]
    fn attempts_are_bounded_by_address_and_in_all() {
        let mut s = Sessions::<()>::default();
        let tries =
            |s: &mut Sessions<()>, a: &str, n: u32| (0..n).filter(|_| s.may_try(a.parse().unwrap(), at(5))).count();
        assert_eq!(tries(&mut s, "10.0.0.1", 100), ATTEMPTS as usize);
        assert_eq!(tries(&mut s, "::ffff:10.0.0.1", 1), 0, "the same address");
        assert_eq!(tries(&mut s, "10.0.0.2", 1), 1);
        s.succeeded("10.0.0.1".parse().unwrap());
        assert_eq!(tries(&mut s, "10.0.0.1", 1), 1);
        assert_eq!(tries(&mut s, "fd00::1", 4) + tries(&mut s, "fd00::2", 100), ATTEMPTS as usize, "one network");
        let all: usize = (0..200).map(|i| tries(&mut s, &format!("10.1.0.{i}"), 1)).sum();
        assert!(all < ATTEMPTS_OF_ALL as usize && s.attempts.len() <= ADDRESSES_MAX, "{all}");
        assert!(s.may_try("10.0.0.1".parse().unwrap(), at(5) + ATTEMPTS_TIME), "a minute later");
    }

    #[test]
    fn words_are_compared_whole() {
        assert!(is_same("abc", "abc") && !is_same("abc", "abd") && !is_same("abc", "ab") && is_same("", ""));
    }
}
