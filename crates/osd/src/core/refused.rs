//! Objects whose calls were refused with `EBUSY`, as a lock of another client does it: the last few of them.

use base::{Mono, PoolId};
use std::time::Duration;

/// Most objects kept. A further one takes the place of that which was refused longest ago.
const OBJECTS_MAX: usize = 16;
/// Longest name kept; calls on objects with longer names are not counted.
const NAME_MAX: usize = 256;

/// An object with refused calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Its pool.
    pub pool: PoolId,
    /// Its name.
    pub name: Vec<u8>,
    /// Number of refused calls since it was noted.
    pub calls: u64,
    last: Mono,
}

/// Objects with refused calls; see the module.
#[derive(Debug, Default)]
pub struct Refused(Vec<Busy>);

impl Refused {
    /// Notes a refused call.
    pub fn note(&mut self, pool: PoolId, name: &[u8], now: Mono) {
        if name.len() > NAME_MAX {
            return;
        }
        if let Some(b) = self.0.iter_mut().find(|b| b.pool == pool && b.name == name) {
            (b.calls, b.last) = (b.calls + 1, now);
            return;
        }
        if self.0.len() >= OBJECTS_MAX {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, b)| b.last).map_or(0, |(i, _)| i);
            self.0.swap_remove(oldest);
        }
        self.0.push(Busy { pool, name: name.to_vec(), calls: 1, last: now });
    }

    /// Objects with a refused call in the last `span`.
    #[must_use]
    pub fn since(&self, span: Duration, now: Mono) -> Vec<Busy> {
        self.0.iter().filter(|b| now.since(b.last) <= span).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_objects_are_kept_and_their_calls_counted() {
        let (mut r, at) = (Refused::default(), |s| Mono(0) + Duration::from_secs(s));
        for s in 0..40 {
            r.note(PoolId(2), b"locked", at(s));
            r.note(PoolId(2), format!("other{s}").as_bytes(), at(s));
        }
        let all = r.since(Duration::from_secs(5), at(40));
        assert_eq!((all.len(), r.0.len()), (6, OBJECTS_MAX));
        assert!(all.iter().any(|b| b.name == b"locked" && b.calls == 40));
        r.note(PoolId(2), &[b'x'; NAME_MAX + 1], at(40));
        assert_eq!(r.since(Duration::ZERO, at(40)), []);
    }
}
