//! Clients of a state that has lost the keys of tickets.
//!
//! Tickets are sealed by keys in the state. A state that was made anew from the OSDs has other keys, and a backup may
//! lack the newest ones. A client would be refused then: it asks to keep its global id, by a ticket that does not open.
//! Ceph's clients do not ask for another id, and wait for ever. So for [`LIFE`] after such a change a client that proves
//! its key keeps its id without its ticket, unless a client of another name with this id is connected.
//!
//! The price: in this time a client with a valid key may take the id of a client that has not come back.

use std::time::Duration;

use base::Utime;

/// Time for which clients keep their ids by their keys alone.
pub const LIFE: Duration = Duration::from_secs(24 * 3600);

/// Number of ids by which the next one moves on at least.
const IDS_SKIPPED: u64 = 1 << 20;

/// True if clients keep their ids without tickets at the time `now`, with the record `until`.
#[must_use]
pub fn holds(until: Option<Utime>, now: Utime) -> bool {
    until.is_some_and(|t| now < t)
}

/// An end of the batch of global ids beyond every id that the cluster has given out. `known` is the one in the state,
/// which may be too low: 256 ids for each second since 1970 are more than any cluster uses.
#[must_use]
pub(crate) fn ids_beyond(known: u64, now: Utime) -> u64 {
    known.saturating_add(IDS_SKIPPED).max(u64::from(now.sec) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_move_on_each_time() {
        let now = Utime { sec: 1_800_000_000, nsec: 0 };
        let first = ids_beyond(0, now);
        assert!(first > 1 << 38);
        assert!(ids_beyond(first + 4096, now) > first + 4096, "a second time within the same second");
    }

    #[test]
    fn the_time_ends() {
        let at = |sec| Utime { sec, nsec: 0 };
        assert!(holds(Some(at(10)), at(9)));
        assert!(!holds(Some(at(10)), at(10)));
        assert!(!holds(None, at(9)));
    }
}
