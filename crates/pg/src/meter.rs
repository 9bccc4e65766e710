//! Counters of the operations of all PGs of a reactor, for `perf dump`.
//!
//! The reactor owns the [`Meter`]; its PGs count in it. A count is an addition in memory of that thread: no lock, no
//! allocation but that of a histogram at its first use, no clock. Time within a turn stands still for the PGs, so the host
//! gives the time at the turn's end ([`Meter::end_turn`]), when the answers leave, and each gets the rest of the turn added.

use crate::exec::OpAccess;
use base::ledger::Book;
use base::{Mono, counter::Value};
use std::array;
use std::cell::{Cell, OnceCell, RefCell};
use std::time::Duration;

/// Buckets of each axis of a histogram, as in Ceph.
pub const BUCKETS: usize = 32;
/// Width of the first bucket of latencies: 100 µs.
pub const LATENCY_QUANTUM_NS: u64 = 100_000;
/// Width of the first bucket of sizes.
pub const SIZE_QUANTUM: u64 = 512;

/// Class of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The operation reads.
    Read,
    /// The operation writes.
    Write,
    /// The operation reads and writes.
    Both,
}

impl Class {
    /// Class of an operation with this access.
    pub(crate) fn of(a: &OpAccess) -> Self {
        match (a.may_read(), a.may_write()) {
            (true, true) => Self::Both,
            (_, true) => Self::Write,
            _ => Self::Read,
        }
    }
}

/// Operations by latency and size: `BUCKETS` rows of latency with `BUCKETS` columns of size.
#[derive(Debug, Default)]
pub struct Histogram(OnceCell<Box<[Cell<u64>]>>);

/// Bucket of a value on a logarithmic axis that begins at 0. Bucket 0 is for values below that, so it stays empty.
#[must_use]
pub fn bucket(value: u64, quantum: u64) -> usize {
    let bits = u64::BITS - (value / quantum).leading_zeros();
    (bits as usize + 1).min(BUCKETS - 1)
}

impl Histogram {
    fn add(&self, ns: u64, bytes: u64) {
        let all = self.0.get_or_init(|| vec![Cell::new(0); BUCKETS * BUCKETS].into());
        let at = bucket(ns, LATENCY_QUANTUM_NS) * BUCKETS + bucket(bytes, SIZE_QUANTUM);
        if let Some(c) = all.get(at) {
            c.set(c.get() + 1);
        }
    }

    /// The counts, row by row; empty if nothing was counted.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        self.0.get().map(|all| all.iter().map(Cell::get).collect()).unwrap_or_default()
    }
}

/// A count that a PG adds to.
#[derive(Debug, Default)]
pub struct Tally(Cell<u64>);

impl Tally {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    /// The sum.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

impl From<&Tally> for Value {
    fn from(t: &Tally) -> Self {
        t.get().into()
    }
}

/// Answered operations of a class.
#[derive(Debug, Default)]
pub struct Operations {
    /// Number of operations.
    pub n: Tally,
    /// Bytes written to objects.
    pub bytes_in: Tally,
    /// Bytes read from objects.
    pub bytes_out: Tally,
    /// Summed latency in nanoseconds, from receipt to answer.
    pub ns: Tally,
    /// Operations by latency and bytes read.
    pub by_out: Histogram,
    /// Operations by latency and bytes written.
    pub by_in: Histogram,
    /// Number of operations answered in this turn, and sum of the times of their answers (which may wrap around).
    turn: Cell<(u64, u64)>,
}

impl Operations {
    /// Latency as the value of a counter.
    #[must_use]
    pub fn latency(&self) -> Value {
        (self.ns.get(), self.n.get()).into()
    }
}

/// Messages of other OSDs that a PG carried out as a member, and those that it sent for recovery.
#[derive(Debug, Default)]
pub struct Replication {
    /// Writes applied for the primary.
    pub writes: Tally,
    /// Bytes of these writes.
    pub write_bytes: Tally,
    /// Summed time from their receipt until they are durable here, in nanoseconds.
    pub write_ns: Tally,
    /// Writes that became durable.
    pub writes_durable: Tally,
    /// Requests for an object.
    pub pulls_in: Tally,
    /// Parts of objects received.
    pub pushes_in: Tally,
    /// Bytes of these parts.
    pub push_bytes_in: Tally,
    /// Objects asked for.
    pub pulls_out: Tally,
    /// Parts of objects sent.
    pub pushes_out: Tally,
    /// Bytes of these parts.
    pub push_bytes_out: Tally,
    /// Objects recovered, as primary.
    pub recovered: Tally,
    /// Bytes of recovered objects, as primary.
    pub recovered_bytes: Tally,
}

impl Replication {
    pub(crate) fn durable(&self, took: Duration) {
        self.writes_durable.add(1);
        self.write_ns.add(ns(took));
    }

    /// Counts a sent part of an object; `recovers` if this primary recovers a member by it.
    pub(crate) fn pushed(&self, bytes: usize, recovers: bool) {
        self.pushes_out.add(1);
        self.push_bytes_out.add(bytes as u64);
        if recovers {
            self.recovered_bytes.add(bytes as u64);
        }
    }
}

/// Counters of a reactor; see the module.
#[derive(Debug, Default)]
pub struct Meter {
    classes: [Operations; 3],
    /// Work between OSDs.
    pub replication: Replication,
    /// Time of operations by cause.
    pub book: RefCell<Book>,
    /// Time of the present input.
    now: Cell<Mono>,
}

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Meter {
    /// Operations of a class.
    #[must_use]
    pub fn of(&self, class: Class) -> &Operations {
        let [read, write, both] = &self.classes;
        match class {
            Class::Read => read,
            Class::Write => write,
            Class::Both => both,
        }
    }

    /// Notes the time of an input.
    pub(crate) fn set_now(&self, now: Mono) {
        self.now.set(now);
    }

    /// Time of the present input.
    pub(crate) fn now(&self) -> Mono {
        self.now.get()
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, class: Class, received: Mono, now: Mono, read: u64, written: u64) {
        let (o, ns) = (self.of(class), ns(now.since(received)));
        o.n.add(1);
        o.ns.add(ns);
        let (n, sum) = o.turn.get();
        o.turn.set((n + 1, sum.wrapping_add(now.0)));
        if class != Class::Read {
            o.bytes_in.add(written);
            o.by_in.add(ns, written);
        }
        if class != Class::Write {
            o.bytes_out.add(read);
            o.by_out.add(ns, read);
        }
    }

    /// True if this turn has answered operations, so that [`Meter::end_turn`] is due.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        self.classes.iter().any(|o| o.turn.get().0 > 0)
    }

    /// Adds to the answers of a turn the time until its end, `now`, which is not before any of them.
    pub fn end_turn(&self, now: Mono) {
        let mut all = 0;
        for o in &self.classes {
            let (n, sum) = o.turn.take();
            let rest = n.wrapping_mul(now.0).wrapping_sub(sum);
            o.ns.add(rest);
            all += rest;
        }
        if all > 0 {
            self.book.borrow_mut().turn(all / 1000, now);
        }
    }

    /// Number, latency, bytes in and bytes out of all operations.
    #[must_use]
    pub fn total(&self) -> (u64, Value, u64, u64) {
        let [n, ns, bytes_in, bytes_out] = array::from_fn(|i| {
            let one = |o: &Operations| [&o.n, &o.ns, &o.bytes_in, &o.bytes_out].map(Tally::get)[i];
            self.classes.iter().map(one).sum()
        });
        (n, (ns, n).into(), bytes_in, bytes_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_get_the_time_of_their_turn() {
        let m = Meter::default();
        assert!(!m.has_answers());
        let far = u64::MAX / 2 + 1_000_000;
        let at = |us: u64| Mono(far + us * 1000);
        m.answered(Class::Read, at(0), at(3), 4096, 0);
        m.answered(Class::Read, at(4), at(4), 4096, 0);
        m.answered(Class::Write, at(0), at(900), 0, 512);
        assert!(m.has_answers());
        m.end_turn(at(901));
        assert!(!m.has_answers());
        m.end_turn(at(5000));
        let read = m.of(Class::Read);
        assert_eq!((read.latency(), read.bytes_out.get()), ((901_000 + 897_000, 2).into(), 8192));
        assert_eq!(m.of(Class::Write).latency(), (901_000, 1).into());
        assert_eq!(m.total(), (3, (2_699_000, 3).into(), 512, 8192));
        // 900 µs and 512 bytes.
        assert_eq!(m.of(Class::Write).by_in.counts()[5 * BUCKETS + 2], 1);
        assert_eq!(read.by_out.counts().iter().sum::<u64>(), 2);
        assert!(read.by_in.counts().is_empty());
    }

    #[test]
    fn buckets_double() {
        let of = |v| bucket(v, 512);
        assert_eq!([0, 511, 512, 1023, 1024, 2047, 2048].map(of), [1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(of(u64::MAX), BUCKETS - 1);
    }
}
