//! Operations of a session that have no answer yet, and their share of the connection's limit on unanswered
//! bytes.
//!
//! A connection is read as long as its unanswered bytes are within a bound. An operation that takes very long
//! returns its share, so that later ones need not wait. The bytes returned without an answer are bounded too.
//!
//! Invariant: the cost of an operation is counted exactly once, by its connection or as forgotten, from its
//! arrival to its end.
//!
//! Tests: `no_cost_is_counted_twice_or_forever`, and the simulator at each tick (`crates/sim/src/node/osd/clients.rs`).

use base::Mono;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Age at which operations return their share of the connection's bytes. Their answers take so long that other
/// operations must not wait for them.
pub const FORGET_AFTER: Duration = Duration::from_secs(30);
/// Most bytes that unanswered operations of one session may have returned; [`FORGOTTEN_MAX`] is the limit for
/// all sessions. Beyond, operations keep their share, and the connection is not read.
pub const FORGOTTEN_SESSION_MAX: usize = 64 << 20;
/// Limit of [`FORGOTTEN_SESSION_MAX`] for all sessions together.
pub const FORGOTTEN_MAX: usize = 512 << 20;
/// Most unanswered operations of a session before its connection is not read (Ceph's `osd_client_message_cap`). An
/// operation of another session waits behind at most these.
pub const OPS_MAX: usize = 256;
/// Number of unanswered operations at which a connection is read again.
pub const OPS_RESUME: usize = OPS_MAX / 4 * 3;
/// Most operations of one session, and of all, that may give back their share without an answer.
pub const FORGOTTEN_OPS_SESSION_MAX: usize = 1024;
/// Limit of [`FORGOTTEN_OPS_SESSION_MAX`] for all sessions together.
pub const FORGOTTEN_OPS_MAX: usize = 16_384;
/// Bytes that an operation in flight takes beside its message: its plan, its locks, its answer.
pub const OP_BYTES: usize = 16 << 10;
/// Age at which operations are no longer tracked.
pub const LOSE_AFTER: Duration = Duration::from_secs(3600);

/// Bytes that unanswered operations of all sessions have returned.
#[derive(Debug, Default)]
pub struct Forgotten(usize, usize);

impl Forgotten {
    /// Number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0
    }
}

/// An operation without an answer; `R` is the host's data for it.
#[derive(Debug)]
pub struct InFlight<R> {
    /// Time of arrival.
    pub received: Mono,
    /// The request as received.
    pub request: R,
    cost: usize,
    /// True if its cost was returned before an answer.
    forgotten: bool,
}

/// Unanswered operations of one session; see the module.
#[derive(Debug)]
pub struct Unanswered<R> {
    all: FxHashMap<u64, InFlight<R>>,
    /// Bytes and number of operations that have given back their share.
    forgotten: usize,
    forgotten_ops: usize,
}

impl<R> Default for Unanswered<R> {
    fn default() -> Self {
        Self { all: FxHashMap::default(), forgotten: 0, forgotten_ops: 0 }
    }
}

impl<R> Unanswered<R> {
    /// Registers an operation, whose cost the connection counts. Returns the bytes to give back if an earlier
    /// operation had the same number, whose answer can't be delivered.
    #[must_use]
    pub fn came(&mut self, tid: u64, cost: usize, request: R, now: Mono, of_all: &mut Forgotten) -> usize {
        let new = InFlight { received: now, request, cost, forgotten: false };
        let before = self.all.insert(tid, new);
        before.map_or(0, |b| self.release(&b, of_all))
    }

    /// Removes an operation that is answered or dropped. Also returns the bytes to give back to the connection.
    pub fn take(&mut self, tid: u64, of_all: &mut Forgotten) -> Option<(InFlight<R>, usize)> {
        let f = self.all.remove(&tid)?;
        let back = self.release(&f, of_all);
        Some((f, back))
    }

    fn release(&mut self, f: &InFlight<R>, of_all: &mut Forgotten) -> usize {
        if !f.forgotten {
            return f.cost;
        }
        self.forgotten -= f.cost;
        self.forgotten_ops -= 1;
        of_all.0 -= f.cost;
        of_all.1 -= 1;
        0
    }

    /// Ends the session, together with its connection.
    pub fn end(&mut self, of_all: &mut Forgotten) {
        of_all.0 -= std::mem::take(&mut self.forgotten);
        of_all.1 -= std::mem::take(&mut self.forgotten_ops);
        self.all.clear();
    }

    /// Returns the bytes to give back for operations whose answer takes too long.
    #[must_use]
    pub fn forget_old(&mut self, now: Mono, of_all: &mut Forgotten) -> usize {
        let mut back = 0;
        for f in self.all.values_mut().filter(|f| !f.forgotten && now.since(f.received) >= FORGET_AFTER) {
            let (mine, all) = (self.forgotten + f.cost, of_all.0 + f.cost);
            let few = self.forgotten_ops < FORGOTTEN_OPS_SESSION_MAX && of_all.1 < FORGOTTEN_OPS_MAX;
            if few && mine <= FORGOTTEN_SESSION_MAX && all <= FORGOTTEN_MAX {
                f.forgotten = true;
                (self.forgotten, of_all.0) = (mine, all);
                self.forgotten_ops += 1;
                of_all.1 += 1;
                back += f.cost;
            }
        }
        let lost = |f: &InFlight<R>| now.since(f.received) >= LOSE_AFTER;
        let lost: Vec<u64> = self.all.iter().filter(|(_, f)| lost(f)).map(|(tid, _)| *tid).collect();
        back + lost.into_iter().filter_map(|tid| self.take(tid, of_all)).map(|(_, back)| back).sum::<usize>()
    }

    /// Number of operations that have not given back their share.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.all.len() - self.forgotten_ops
    }

    /// All unanswered operations.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &InFlight<R>)> {
        self.all.iter().map(|(tid, f)| (*tid, f))
    }

    /// Bytes that the connection counts for these operations.
    #[must_use]
    pub fn held(&self) -> usize {
        self.all.values().filter(|f| !f.forgotten).map(|f| f.cost).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    fn at(secs: u64) -> Mono {
        Mono::default() + Duration::from_secs(secs)
    }

    #[test]
    fn each_operations_cost_is_given_back_exactly_once() {
        let (mut u, mut all) = (Unanswered::default(), Forgotten::default());
        assert_eq!(u.came(1, 100, "a", at(0), &mut all), 0);
        assert_eq!(u.came(2, 10, "b", at(1), &mut all), 0);
        assert_eq!(u.came(1, 100, "again", at(2), &mut all), 100);
        assert_eq!(u.held(), 110);
        assert_eq!(u.take(1, &mut all).map(|(f, back)| (f.request, back)), Some(("again", 100)));
        assert!(u.take(1, &mut all).is_none());
        assert_eq!(u.forget_old(at(30), &mut all), 0);
        assert_eq!(u.forget_old(at(31), &mut all), 10);
        assert_eq!((u.forget_old(at(32), &mut all), u.held(), all.bytes()), (0, 0, 10));
        assert_eq!(u.take(2, &mut all).map(|(f, back)| (f.request, back)), Some(("b", 0)));
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn forgotten_operations_are_bounded_for_each_session_and_in_total() {
        let mut all = Forgotten::default();
        let mut sessions: Vec<Unanswered<()>> = (0..10).map(|_| Unanswered::default()).collect();
        let each = FORGOTTEN_SESSION_MAX / 2;
        for u in &mut sessions {
            (0..3).for_each(|tid| assert_eq!(u.came(tid, each, (), at(0), &mut all), 0));
        }
        let back: Vec<usize> = sessions.iter_mut().map(|u| u.forget_old(at(40), &mut all)).collect();
        assert_eq!(back, [[2 * each; 8].as_slice(), &[0; 2]].concat(), "two of three, and eight sessions");
        assert_eq!(all.bytes(), FORGOTTEN_MAX);
        sessions[0].end(&mut all);
        assert_eq!(sessions[9].forget_old(at(41), &mut all), 2 * each, "there is room again");
        assert_eq!(sessions[9].forget_old(at(3599), &mut all), 0);
        assert_eq!(sessions[9].forget_old(at(3600), &mut all), each, "the third one is lost and held its share");
        assert_eq!(sessions[9].iter().count(), 0);
    }

    #[test]
    fn the_number_of_forgotten_operations_is_bounded() {
        let (mut u, mut all) = (Unanswered::default(), Forgotten::default());
        for tid in 0..2000 {
            assert_eq!(u.came(tid, 1, (), at(0), &mut all), 0);
        }
        assert_eq!(u.waiting(), 2000);
        assert_eq!(u.forget_old(at(31), &mut all), FORGOTTEN_OPS_SESSION_MAX);
        assert_eq!(u.waiting(), 2000 - FORGOTTEN_OPS_SESSION_MAX);
        let before = u.waiting();
        for tid in 0..2000 {
            u.take(tid, &mut all);
        }
        assert!(before > OPS_MAX && u.waiting() == 0 && all.1 == 0);
    }

    #[test]
    fn no_cost_is_counted_twice_or_forever() {
        for seed in 0..50 {
            let (mut rng, mut all) = (Rng::new(seed), Forgotten::default());
            let mut sessions: Vec<(Unanswered<()>, usize)> = (0..3).map(|_| Default::default()).collect();
            for step in 0..400 {
                let (u, conn) = &mut sessions[rng.below(3) as usize];
                let (tid, now) = (rng.below(20), at(step * 9));
                match rng.below(8) {
                    0..4 => {
                        let cost = rng.below(40 << 20) as usize;
                        *conn += cost;
                        *conn -= u.came(tid, cost, (), now, &mut all);
                    }
                    4..6 => *conn -= u.take(tid, &mut all).map_or(0, |(_, back)| back),
                    6 => *conn -= u.forget_old(now, &mut all),
                    _ => {
                        u.end(&mut all);
                        *conn = 0;
                    }
                }
                assert_eq!(u.held(), *conn);
                assert_eq!(all.bytes(), sessions.iter().map(|(u, _)| u.forgotten).sum::<usize>());
                assert!(all.bytes() <= FORGOTTEN_MAX);
            }
            for (u, conn) in &mut sessions {
                (0..20).for_each(|tid| *conn -= u.take(tid, &mut all).map_or(0, |(_, back)| back));
                assert_eq!(*conn, 0);
            }
            assert_eq!(all.bytes(), 0);
        }
    }
}
