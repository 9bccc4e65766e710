//! Accepted connections of each entity of an endpoint, so that one key does not take all there may be.
//!
//! Invariant: an entity has at most [`share`] of the connections that its endpoint may accept. A key that all machines
//! of a cluster share is the usual case, so the share is large; the rest is for the others.
//!
//! Tests: below.

use std::cell::RefCell;
use std::collections::HashMap;

use base::AuthName;

/// Most accepted connections of one entity where `all` may be accepted.
#[must_use]
pub fn share(all: usize) -> usize {
    (all / 4 * 3).max(1)
}

/// Number of accepted connections by entity.
#[derive(Debug, Default)]
pub(crate) struct Entities(RefCell<HashMap<AuthName, usize>>);

impl Entities {
    /// Counts a connection; false if the entity has its share of `all` already.
    pub(crate) fn enter(&self, name: &AuthName, all: usize) -> bool {
        let mut by = self.0.borrow_mut();
        let n = by.entry(name.clone()).or_default();
        let fits = *n < share(all);
        *n += usize::from(fits);
        fits
    }

    /// Counts a connection no longer.
    pub(crate) fn leave(&self, name: &AuthName) {
        let mut by = self.0.borrow_mut();
        if let Some(n) = by.get_mut(name) {
            *n -= 1;
            if *n == 0 {
                by.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_leaves_a_quarter_to_others() {
        let (e, a, b) = (Entities::default(), AuthName::parse("client.a"), AuthName::parse("client.b"));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!((0..100).filter(|_| e.enter(&a, 100)).count(), 75);
        assert!(e.enter(&b, 100));
        e.leave(&a);
        assert!(e.enter(&a, 100) && !e.enter(&a, 100));
        e.leave(&b);
        assert_eq!(e.0.borrow().len(), 1);
        assert_eq!(share(1), 1);
    }
}
