//! The ledger of an operation: its time as a sum of named intervals, and a [`Book`] that adds ledgers up.
//!
//! Pure: all times are arguments. An operation costs additions in memory of its reactor: no lock, no allocation, no clock.
//!
//! | module | contents |
//! | --- | --- |
//! | `book` | the ledgers of a reactor: minutes of windows, histograms by cause, the slowest operations |
//! | `busiest` | the objects with the most operations of a window, without all of its objects (Misra-Gries) |
//! | `window` | ledgers of some seconds, added up by pool, client, object and culprit |

mod book;
mod busiest;
mod window;

pub use book::{Answered, BUCKETS, Book, SINCE_MAX, Slow};
pub use window::{Cpu, Net, Object, Peer, Sums, Window};

use crate::{Mono, OsdId, Utime};
use std::time::Duration;

/// Number of [`Cause`]s.
pub const CAUSES: usize = 16;

/// Reason for which an operation waits or takes time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// The client's queue and the network, by the stamp of the client. Not part of the OSD's own time.
    Client,
    /// The turn of the reactor in which the operation was answered.
    Turn,
    /// Planning, and everything without another name.
    #[default]
    Plan,
    /// The PG does not serve: it peers, or waits for a map.
    Peering,
    /// Leases of other members had run out.
    Lease,
    /// Other operations hold the object.
    Lock,
    /// Reads of this OSD's device.
    Read,
    /// This OSD's device, until a write is durable.
    Commit,
    /// Other members of the acting set, after the write was durable here.
    Replica,
    /// Shards of other OSDs that a read needs.
    Shards,
    /// The object had to be recovered first.
    Recovery,
    /// A scrub held the object.
    Scrub,
    /// There was no space, in the pool or in the store.
    Space,
    /// Further parts of a long class call.
    Class,
    /// Content of another object that the operation copies.
    Copy,
    /// The cluster's flags pause operations of this kind.
    Paused,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; CAUSES] = [
        Self::Client,
        Self::Turn,
        Self::Plan,
        Self::Peering,
        Self::Lease,
        Self::Lock,
        Self::Read,
        Self::Commit,
        Self::Replica,
        Self::Shards,
        Self::Recovery,
        Self::Scrub,
        Self::Space,
        Self::Class,
        Self::Copy,
        Self::Paused,
    ];

    /// The cause with this number.
    #[must_use]
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.get(usize::from(n)).copied()
    }

    /// The thing that an operation waits for, in a sentence.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Client => "their clients and the network",
            Self::Turn | Self::Plan => "the reactor",
            Self::Peering => "PGs that do not serve",
            Self::Lease => "leases of other OSDs",
            Self::Lock => "other operations on their objects",
            Self::Read | Self::Commit => "the OSD's own device",
            Self::Replica => "acknowledgements of other OSDs",
            Self::Shards => "shards of other OSDs",
            Self::Recovery => "objects that are being recovered",
            Self::Scrub => "a scrub",
            Self::Space => "space",
            Self::Class => "long class calls",
            Self::Copy => "content of other objects",
            Self::Paused => "flags of the OSD map",
        }
    }

    /// Name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Turn => "turn",
            Self::Plan => "plan",
            Self::Peering => "peering",
            Self::Lease => "lease",
            Self::Lock => "lock",
            Self::Read => "read",
            Self::Commit => "commit",
            Self::Replica => "replica",
            Self::Shards => "shards",
            Self::Recovery => "recovery",
            Self::Scrub => "scrub",
            Self::Space => "space",
            Self::Class => "class",
            Self::Copy => "copy",
            Self::Paused => "paused",
        }
    }
}

/// Time of one operation by cause; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    since: Mono,
    at: Cause,
    /// The member whose acknowledgement the write waited for last.
    behind: Option<OsdId>,
    /// Bits of the causes that have time.
    seen: u16,
    us: [u32; CAUSES],
}

/// Longest time that a client's stamp may lie back. An older stamp is no time of sending.
const STAMP_AGE_MAX: Duration = Duration::from_secs(600);

impl Ledger {
    /// Ledger of an operation that a PG gets now. `sent` is the client's stamp, zero if it has none; `wall` the time by
    /// this host's clock.
    #[must_use]
    pub fn begin(now: Mono, wall: Utime, sent: Utime) -> Self {
        let mut l = Self { since: now, ..Self::default() };
        if sent != Utime::ZERO {
            let age = wall.to_unix().saturating_sub(sent.to_unix());
            if age <= STAMP_AGE_MAX {
                l.charge(Cause::Client, age);
            }
        }
        l
    }

    fn charge(&mut self, cause: Cause, took: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        if us > 0 {
            let i = cause as usize % CAUSES;
            self.seen |= 1 << i;
            self.us[i] = self.us[i].saturating_add(us);
        }
    }

    /// Notes for which cause the time from here on is spent, until the next [`Ledger::pass`].
    pub fn wait(&mut self, cause: Cause) {
        self.at = cause;
    }

    /// The cause noted last.
    #[must_use]
    pub fn waits_for(&self) -> Cause {
        self.at
    }

    /// Charges the time up to now to the cause noted last. The time from here on is planning.
    pub fn pass(&mut self, now: Mono) {
        if now > self.since {
            self.charge(self.at, now.since(self.since));
        }
        (self.since, self.at) = (now, Cause::Plan);
    }

    /// Charges the wait for durability: up to `here` to this OSD's device, the rest to the other members, of which `last`
    /// acknowledged last.
    pub fn durable(&mut self, here: Mono, last: Option<OsdId>, now: Mono) {
        self.charge(Cause::Commit, here.since(self.since));
        let from = self.since.max(here);
        let others = now.since(from);
        if others > Duration::ZERO {
            self.charge(Cause::Replica, others);
            self.behind = last;
        }
        (self.since, self.at) = (now, Cause::Plan);
    }

    /// Microseconds of a cause.
    #[must_use]
    pub fn us(&self, cause: Cause) -> u32 {
        self.us[cause as usize % CAUSES]
    }

    /// Microseconds that the operation spent in this OSD: all causes but the client's own.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.causes().filter(|(c, _)| *c != Cause::Client).map(|(_, us)| u64::from(us)).sum()
    }

    /// The member whose acknowledgement the write waited for last, if it waited for one.
    #[must_use]
    pub fn behind(&self) -> Option<OsdId> {
        self.behind
    }

    /// Causes with time, and their microseconds.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, u32)> + '_ {
        let mut bits = self.seen;
        std::iter::from_fn(move || {
            let i = bits.trailing_zeros() as usize;
            let cause = *Cause::ALL.get(i)?;
            bits &= bits - 1;
            Some((cause, self.us[i]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono::default() + Duration::from_millis(ms)
    }

    fn wall(ms: u64) -> Utime {
        Utime::from_unix(Duration::from_millis(1_000_000 + ms))
    }

    #[test]
    fn causes_have_their_own_numbers_and_names() {
        for (i, c) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(c as usize, i);
            assert_eq!(Cause::ALL.iter().filter(|o| o.name() == c.name()).count(), 1);
        }
    }

    #[test]
    fn the_time_of_a_write_is_the_sum_of_its_intervals() {
        let mut l = Ledger::begin(at(10), wall(10), wall(3));
        l.wait(Cause::Lease);
        l.pass(at(14));
        l.wait(Cause::Lock);
        l.pass(at(15));
        l.pass(at(15));
        l.durable(at(18), Some(OsdId(2)), at(25));
        let all: Vec<(Cause, u32)> = l.causes().collect();
        let want = [
            (Cause::Client, 7000),
            (Cause::Lease, 4000),
            (Cause::Lock, 1000),
            (Cause::Commit, 3000),
            (Cause::Replica, 7000),
        ];
        assert_eq!(all, want);
        assert_eq!((l.total_us(), l.behind()), (15_000, Some(OsdId(2))));
    }

    #[test]
    fn members_that_were_faster_than_the_own_device_are_not_blamed() {
        let mut l = Ledger::begin(at(0), wall(0), Utime::ZERO);
        l.durable(at(9), Some(OsdId(2)), at(9));
        assert_eq!((l.us(Cause::Commit), l.us(Cause::Replica), l.behind()), (9000, 0, None));
    }

    #[test]
    fn stamps_of_the_future_and_of_long_ago_count_nothing() {
        for sent in [wall(5000), Utime { sec: 1, nsec: 0 }] {
            assert_eq!(Ledger::begin(at(0), wall(1000), sent).us(Cause::Client), 0);
        }
    }
}
