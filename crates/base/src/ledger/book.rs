//! The sum of the ledgers of a reactor: windows of the last minutes, histograms by cause, and the slowest operations.

use super::busiest::Busiest;
use super::window::Name;
use super::{CAUSES, Cause, Cpu, Ledger, Net, Peer, Window};
use crate::{EntityName, Mono, OsdId, PoolId};
use std::time::Duration;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(5);
/// Number of windows kept.
const WINDOWS: usize = 120;
/// Longest time back that [`Book::since`] shows.
pub const SINCE_MAX: Duration = Duration::from_secs(600);
/// Buckets of a histogram: bucket `n` has the operations with less than 2^n microseconds, and not less than half of that.
pub const BUCKETS: usize = 28;
/// Number of slowest operations kept.
const SLOWEST: usize = 20;

/// One of the slowest operations.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    /// The operation's ledger.
    pub ledger: Ledger,
    /// The client.
    pub client: EntityName,
    /// The client's number for the operation.
    pub tid: u64,
    /// The pool.
    pub pool: PoolId,
    name: Name,
    /// Time of the answer.
    pub end: Mono,
}

impl Slow {
    /// The object's name, of which the end may be cut.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.text()
    }
}

/// An answered operation.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// The operation's ledger.
    pub ledger: &'a Ledger,
    /// The client.
    pub client: EntityName,
    /// The client's number for the operation.
    pub tid: u64,
    /// The pool.
    pub pool: PoolId,
    /// Name of the object.
    pub name: &'a [u8],
    /// Hash of the object. A client that says another one than its object's misplaces operations that it has sent itself.
    pub hash: u32,
    /// The answer was `EBUSY`.
    pub busy: bool,
}

/// Sum of the ledgers of a reactor; see the module.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// A ring; `at` is the present window.
    windows: Vec<Window>,
    at: usize,
    until: Mono,
    /// Of the present window, which gets them at its end.
    busiest: Busiest,
    /// By cause; empty until the first operation.
    histograms: Vec<[u64; BUCKETS]>,
    slowest: Vec<Slow>,
    /// Shortest time among the kept ones if there are enough of them, in microseconds.
    floor: u64,
}

impl Book {
    /// The present window; a new one begins if the last has ended.
    fn window(&mut self, now: Mono) -> &mut Window {
        if now >= self.until || self.windows.is_empty() {
            self.turn_over(now);
        }
        let at = self.at;
        &mut self.windows[at]
    }

    #[cold]
    fn turn_over(&mut self, now: Mono) {
        self.until = now + WINDOW;
        self.histograms.resize(CAUSES, [0; BUCKETS]);
        if let Some(ended) = self.windows.get_mut(self.at) {
            ended.objects(self.busiest.all());
        }
        self.busiest.clear();
        if self.windows.len() < WINDOWS {
            self.at = self.windows.len();
            self.windows.push(Window::default());
        } else {
            self.at = (self.at + 1) % WINDOWS;
        }
        let at = self.at;
        self.windows[at].begin(now);
        self.slowest.retain(|s| now.since(s.end) < SINCE_MAX);
        self.set_floor();
    }

    fn set_floor(&mut self) {
        let full = self.slowest.len() >= SLOWEST;
        self.floor = if full { self.slowest.iter().map(|s| s.ledger.total_us()).min().unwrap_or(0) } else { 0 };
    }

    /// Adds an answered operation.
    pub fn add(&mut self, a: &Answered<'_>, now: Mono) {
        self.window(now).add(a.pool, a.client, a.ledger);
        self.busiest.add(a);
        for (c, us) in a.ledger.causes() {
            let bucket = (u32::BITS - us.leading_zeros()) as usize;
            if let Some(h) = self.histograms.get_mut(c as usize) {
                h[bucket.min(BUCKETS - 1)] += 1;
            }
        }
        let total = a.ledger.total_us();
        if total > self.floor {
            self.keep(a, now);
        }
    }

    #[cold]
    fn keep(&mut self, a: &Answered<'_>, now: Mono) {
        if self.slowest.len() >= SLOWEST {
            let all = self.slowest.iter().enumerate();
            if let Some((least, _)) = all.min_by_key(|(_, s)| s.ledger.total_us()) {
                self.slowest.swap_remove(least);
            }
        } else if self.slowest.capacity() < SLOWEST {
            self.slowest.reserve_exact(SLOWEST);
        }
        self.slowest.push(Slow {
            ledger: *a.ledger,
            client: a.client,
            tid: a.tid,
            pool: a.pool,
            name: Name::new(a.name),
            end: now,
        });
        self.set_floor();
    }

    /// Adds the time of a turn in which operations were answered, in microseconds summed over them.
    pub fn turn(&mut self, us: u64, now: Mono) {
        self.window(now).all.charge(Cause::Turn, us);
    }

    /// Counts an acknowledgement of a write by another OSD.
    pub fn acked(&mut self, osd: OsdId, took: Duration, now: Mono) {
        self.window(now).acked(osd, took);
    }

    /// Counts a timed flush of this OSD's device.
    pub fn flushed(&mut self, took: Duration, now: Mono) {
        let us = took.as_micros() as u64;
        self.window(now).device.merge(&Peer { acks: 1, us, max_us: us, blamed_us: 0 });
    }

    /// Adds a sample of the surroundings.
    pub fn sample(&mut self, cpu: &Cpu, net: &Net, now: Mono) {
        let w = self.window(now);
        w.cpu.add(cpu);
        w.net.add(net);
    }

    /// Sum of the windows that began within the last `span`, and the window before them.
    #[must_use]
    pub fn since(&self, span: Duration, now: Mono) -> Window {
        let mut sum = Window { from: now, ..Window::default() };
        for w in self.windows.iter().filter(|w| now.since(w.from) < span + WINDOW) {
            sum.merge(w);
        }
        // The present window has none in it.
        if self.windows.get(self.at).is_some_and(|w| now.since(w.from) < span + WINDOW) {
            sum.objects(self.busiest.all());
        }
        sum
    }

    /// Histograms of all causes, in the order of their numbers.
    #[must_use]
    pub fn histograms(&self) -> [[u64; BUCKETS]; CAUSES] {
        Cause::ALL.map(|c| self.histogram(c))
    }

    /// Number of operations by bucket of time.
    #[must_use]
    pub fn histogram(&self, c: Cause) -> [u64; BUCKETS] {
        self.histograms.get(c as usize).copied().unwrap_or_default()
    }

    /// The slowest operations of the last ten minutes, slowest first.
    #[must_use]
    pub fn slowest(&self, now: Mono) -> Vec<Slow> {
        let mut all: Vec<Slow> = self.slowest.iter().filter(|s| now.since(s.end) < SINCE_MAX).copied().collect();
        all.sort_by_key(|s| std::cmp::Reverse(s.ledger.total_us()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntityKind, Utime};

    fn at(ms: u64) -> Mono {
        Mono::default() + Duration::from_millis(ms)
    }

    fn client(n: i64) -> EntityName {
        EntityName::new(EntityKind::CLIENT, n)
    }

    fn add(b: &mut Book, n: i64, name: &str, ms: u64, now: Mono) {
        let mut ledger = Ledger::begin(now, Utime::ZERO, Utime::ZERO);
        ledger.durable(now + Duration::from_millis(ms), None, now + Duration::from_millis(ms));
        let a = Answered {
            ledger: &ledger,
            client: client(n),
            tid: 1,
            pool: PoolId(3),
            name: name.as_bytes(),
            hash: name.bytes().fold(7, |h, b| h * 31 % 65_521 + u32::from(b)),
            busy: false,
        };
        b.add(&a, now);
    }

    #[test]
    fn a_span_shows_its_own_windows() {
        let mut b = Book::default();
        for s in 0..900 {
            add(&mut b, 1, "a", 2, at(s * 1000));
        }
        let now = at(900_000);
        let last = b.since(Duration::from_secs(30), now);
        assert!((30..=35).contains(&last.all.ops), "{}", last.all.ops);
        assert_eq!(last.all.us(Cause::Commit), last.all.ops * 2000);
        let all = b.since(SINCE_MAX, now);
        assert!((600..=605).contains(&all.all.ops), "{}", all.all.ops);
        assert_eq!(b.windows.len(), WINDOWS);
        assert_eq!(b.histogram(Cause::Commit).iter().sum::<u64>(), 900);
        assert_eq!(b.since(Duration::from_secs(30), at(9_000_000)).all.ops, 0);
    }

    #[test]
    fn the_busiest_clients_and_objects_keep_their_places() {
        let mut b = Book::default();
        for i in 0..2000_i64 {
            add(&mut b, 7, "hot", 3, at(0));
            add(&mut b, 100 + i, &format!("cold{i}"), 1, at(0));
        }
        let w = b.since(Duration::from_secs(1), at(10));
        let (most, _) = w.clients.iter().max_by_key(|(_, s)| s.total_us()).unwrap();
        assert_eq!(*most, client(7));
        let clients: u64 = w.clients.iter().map(|(_, s)| s.ops).sum::<u64>() + w.others.ops;
        assert_eq!((clients, w.all.ops), (4000, 4000));
        let hot = w.objects.iter().max_by_key(|o| o.ops).unwrap();
        assert_eq!((hot.name().as_str(), hot.pool()), ("hot", PoolId(3)));
        assert!(hot.ops > 1500 && w.objects.len() <= 16);
    }

    #[test]
    fn objects_are_counted_in_their_own_window() {
        let mut b = Book::default();
        for name in ["a", "b", "a", "b", "once"] {
            add(&mut b, 1, name, 1, at(0));
        }
        add(&mut b, 1, "a", 1, at(10_000));
        add(&mut b, 1, "a", 1, at(10_000));
        let of = |span| {
            let w = b.since(Duration::from_secs(span), at(10_500));
            let mut all: Vec<(String, u64)> = w.objects.iter().map(|o| (o.name(), o.ops)).collect();
            all.sort();
            all
        };
        assert_eq!(of(1), [("a".to_owned(), 2)]);
        assert_eq!(of(60), [("a".to_owned(), 4), ("b".to_owned(), 2)]);
    }

    #[test]
    fn an_object_whose_only_operation_waits_for_its_lock_is_named() {
        let mut b = Book::default();
        let mut ledger = Ledger::begin(at(0), Utime::ZERO, Utime::ZERO);
        ledger.wait(Cause::Lock);
        ledger.pass(at(5));
        let client = client(1);
        b.add(
            &Answered { ledger: &ledger, client, tid: 1, pool: PoolId(3), name: b"held", hash: 1, busy: true },
            at(5),
        );
        let w = b.since(Duration::from_secs(1), at(10));
        let held: Vec<_> = w.objects.iter().map(|o| (o.name(), o.ops, o.lock_us, o.busy)).collect();
        assert_eq!(held, [("held".to_owned(), 1, 5000, 1)]);
    }

    #[test]
    fn the_slowest_are_kept_for_ten_minutes() {
        let mut b = Book::default();
        for ms in (1..=100).rev() {
            add(&mut b, 1, "x", ms, at(0));
        }
        add(&mut b, 2, "slow", 5000, at(1000));
        let kept: Vec<u64> = b.slowest(at(2000)).iter().map(|s| s.ledger.total_us() / 1000).collect();
        assert_eq!((kept.len(), kept[0], kept[19]), (SLOWEST, 5000, 82));
        assert_eq!(b.slowest(at(2000))[0].name(), "slow");
        add(&mut b, 1, "x", 1, at(601_500));
        assert_eq!(b.slowest(at(601_500)).len(), 1);
    }
}
