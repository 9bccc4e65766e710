//! Performance counters that daemons report: OSDs, MDS daemons, gateways, mirrors. The newest two values of each.
//!
//! A daemon declares its counters once per connection, then sends values in the order of their paths. Daemons of a kind
//! declare the same counters, so they share one `Schema`.
//!
//! Invariants: number and text of a daemon's counters are bounded, whatever it declares; a report that cannot be decoded
//! changes no value.
//!
//! Tests: below.

use base::Mono;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use wire::Decode as _;
use wire::msg::{CounterValue, MMgrReport, PackedCounters};

/// Most daemons whose counters are kept.
const MAX_DAEMONS: usize = 20_000;
/// Most counters of one daemon.
pub const MAX_COUNTERS: usize = 5_000;
/// Most bytes of paths and help of one daemon's counters.
pub const MAX_TEXT: usize = 256 << 10;
/// Longest path of a counter.
const MAX_PATH: usize = 512;
/// Longest help that is kept of a counter.
const MAX_HELP: usize = 256;
/// Schemas that new declarations are compared with.
const RECENT: usize = 8;

/// A declared counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Section and name, separated by a dot.
    pub path: String,
    /// One line of help.
    pub help: String,
    /// Ceph's type bits: 1 time, 2 number, 4 average, 8 only grows, 16 histogram.
    pub kind: u8,
    /// Priority, 0 to 10.
    pub priority: u8,
}

/// Counters of a daemon, sorted by path.
type Schema = Vec<Declared>;

/// Values of a counter: the newest and the previous one.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    newest: CounterValue,
    before: u64,
}

/// Counters of one daemon, declared on one connection.
#[derive(Clone, Debug, Default)]
struct Daemon {
    conn: u64,
    schema: Rc<Schema>,
    samples: Vec<Sample>,
    /// Times of the newest and the previous values.
    times: (Option<Mono>, Option<Mono>),
    /// The connection has declared too much; its reports are ignored.
    refused: bool,
}

/// A report of counters that is not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CounterError {
    /// The daemon declares more than is kept.
    #[error("more than {MAX_COUNTERS} counters or {MAX_TEXT} bytes of names and help")]
    TooMany,
    /// The values are too short for the declared counters, or are not understood.
    #[error("malformed values: {0}")]
    Values(#[from] wire::DecodeError),
}

/// Counters by daemon, such as `osd.3`.
#[derive(Clone, Debug, Default)]
pub struct DaemonCounters {
    daemons: BTreeMap<String, Daemon>,
    recent: VecDeque<Rc<Schema>>,
}

/// A help text of bounded length.
fn cut(help: &str) -> String {
    let end = (0..=help.len().min(MAX_HELP)).rev().find(|i| help.is_char_boundary(*i)).unwrap_or(0);
    help.get(..end).unwrap_or_default().to_owned()
}

/// The schema after a report's declarations. Error: it is too large.
fn declared(old: &Schema, m: &MMgrReport) -> Result<Schema, CounterError> {
    if m.declare_types.len() > MAX_COUNTERS || m.undeclare_types.len() > MAX_COUNTERS {
        return Err(CounterError::TooMany);
    }
    let gone: BTreeSet<&String> = m.undeclare_types.iter().collect();
    let mut all: BTreeMap<&str, Declared> = BTreeMap::new();
    all.extend(old.iter().map(|d| (d.path.as_str(), d.clone())));
    for t in &m.declare_types {
        if t.path.len() > MAX_PATH {
            return Err(CounterError::TooMany);
        }
        let d = Declared { path: t.path.clone(), help: cut(&t.description), kind: t.kind, priority: t.priority };
        all.insert(&t.path, d);
    }
    let all: Schema = all.into_values().filter(|d| !gone.contains(&d.path)).collect();
    let text: usize = all.iter().map(|d| d.path.len() + d.help.len()).sum();
    if all.len() > MAX_COUNTERS || text > MAX_TEXT { Err(CounterError::TooMany) } else { Ok(all) }
}

impl DaemonCounters {
    /// Handles a report of `daemon` on connection `conn`. A new connection declares its counters again. Error: the daemon
    /// declares too much, which is reported once per connection, or its values cannot be decoded.
    pub fn report(&mut self, daemon: &str, conn: u64, m: &MMgrReport, now: Mono) -> Result<(), CounterError> {
        if !self.daemons.contains_key(daemon) && self.daemons.len() >= MAX_DAEMONS {
            return Ok(());
        }
        let d = self.daemons.entry(daemon.to_owned()).or_default();
        if d.conn != conn {
            *d = Daemon { conn, ..Daemon::default() };
        }
        if d.refused {
            return Ok(());
        }
        if !m.declare_types.is_empty() || !m.undeclare_types.is_empty() {
            let schema = match declared(&d.schema, m) {
                Ok(s) => shared(&mut self.recent, s),
                Err(e) => {
                    *d = Daemon { conn, refused: true, ..Daemon::default() };
                    return Err(e);
                }
            };
            let old = |path: &str| d.schema.binary_search_by(|x| x.path.as_str().cmp(path)).ok();
            let sample = |x: &Declared| old(&x.path).and_then(|i| d.samples.get(i)).copied().unwrap_or_default();
            d.samples = schema.iter().map(sample).collect();
            d.schema = schema;
        }
        if m.packed.is_empty() {
            return Ok(());
        }
        let packed = PackedCounters::from_bytes(&m.packed)?;
        let values = packed.values(d.schema.iter().map(|x| x.kind))?;
        for (s, v) in d.samples.iter_mut().zip(values) {
            (s.before, s.newest) = (s.newest.value, v);
        }
        d.times = (Some(now), d.times.0);
        Ok(())
    }

    fn sample(&self, daemon: &str, path: &str) -> Option<(&Daemon, &Sample)> {
        let d = self.daemons.get(daemon)?;
        let i = d.schema.binary_search_by(|x| x.path.as_str().cmp(path)).ok()?;
        Some((d, d.samples.get(i)?))
    }

    /// Newest value of a counter, 0 if it was never reported.
    #[must_use]
    pub fn value(&self, daemon: &str, path: &str) -> u64 {
        self.sample(daemon, path).map_or(0, |(_, s)| s.newest.value)
    }

    /// Increase of a counter per second; `None` without two values.
    #[must_use]
    pub fn rate(&self, daemon: &str, path: &str) -> Option<u64> {
        let (d, s) = self.sample(daemon, path)?;
        let seconds = d.times.0?.since(d.times.1?).as_secs_f64();
        let grown = s.newest.value.saturating_sub(s.before);
        (seconds > 0.0).then(|| (grown as f64 / seconds).round() as u64)
    }

    /// Daemons with their counters and the newest values. Daemons without values are left out.
    pub fn iter(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = (&Declared, CounterValue)>)> {
        let heard = self.daemons.iter().filter(|(_, d)| d.times.0.is_some());
        heard.map(|(name, d)| (name.as_str(), d.schema.iter().zip(d.samples.iter().map(|s| s.newest))))
    }

    /// Removes daemons that `known` rejects.
    pub fn keep(&mut self, known: impl Fn(&str) -> bool) {
        self.daemons.retain(|n, _| known(n));
    }

    /// Removes a daemon.
    pub fn remove(&mut self, daemon: &str) {
        self.daemons.remove(daemon);
    }
}

/// The recent schema that equals a new one, or the new one.
fn shared(recent: &mut VecDeque<Rc<Schema>>, new: Schema) -> Rc<Schema> {
    if let Some(s) = recent.iter().find(|s| ***s == new) {
        return Rc::clone(s);
    }
    let new = Rc::new(new);
    recent.push_front(Rc::clone(&new));
    recent.truncate(RECENT);
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Encode;
    use wire::types::PerfCounterType;

    fn report(declare: &[(&str, u8)], values: &[(u8, u64)]) -> MMgrReport {
        let value = |(k, v): &(u8, u64)| (*k, CounterValue { value: *v, avgcount: 3, avgcount2: 3 });
        MMgrReport {
            declare_types: declare
                .iter()
                .map(|(p, k)| PerfCounterType { path: (*p).into(), kind: *k, ..PerfCounterType::default() })
                .collect(),
            packed: PackedCounters::from_values(values.iter().map(value)).to_bytes(wire::Features::PACIFIC),
            ..MMgrReport::default()
        }
    }

    #[test]
    fn values_and_rates() {
        let mut c = DaemonCounters::default();
        // Values come in the order of paths, not of declaration; averages have three numbers.
        c.report("a", 1, &report(&[("z", 2), ("m", 6)], &[(6, 5), (2, 10)]), Mono(0)).unwrap();
        assert_eq!((c.value("a", "z"), c.value("a", "m"), c.rate("a", "z")), (10, 5, None));
        c.report("a", 1, &report(&[], &[(6, 5), (2, 30)]), Mono(2_000_000_000)).unwrap();
        assert_eq!((c.value("a", "z"), c.rate("a", "z")), (30, Some(10)));
        assert!(c.report("a", 1, &report(&[], &[(2, 1)]), Mono(3)).is_err(), "too short");
        assert_eq!(c.value("a", "z"), 30, "nothing of it is taken");
        // A further declaration leaves the others' values.
        c.report("a", 1, &report(&[("b", 2)], &[(2, 1), (6, 5), (2, 50)]), Mono(4_000_000_000)).unwrap();
        assert_eq!((c.value("a", "b"), c.value("a", "z"), c.rate("a", "z")), (1, 50, Some(10)));
        let fewer = MMgrReport { undeclare_types: vec!["m".into()], ..report(&[], &[(2, 2), (2, 60)]) };
        c.report("a", 1, &fewer, Mono(6_000_000_000)).unwrap();
        assert_eq!((c.value("a", "b"), c.value("a", "m"), c.value("a", "z")), (2, 0, 60));
        c.report("a", 2, &report(&[("z", 2)], &[(2, 1)]), Mono(8_000_000_000)).unwrap();
        assert_eq!((c.value("a", "z"), c.value("a", "b"), c.rate("a", "z")), (1, 0, None), "another connection");
        let shown: Vec<(&str, usize)> = c.iter().map(|(n, all)| (n, all.count())).collect();
        assert_eq!(shown, [("a", 1)]);
        c.keep(|_| false);
        assert_eq!(c.value("a", "z"), 0);
    }

    #[test]
    fn daemons_of_a_kind_share_the_text_of_their_counters() {
        let mut c = DaemonCounters::default();
        for n in 0..3 {
            c.report(&format!("osd.{n}"), n, &report(&[("osd.op", 10)], &[(10, n)]), Mono(n)).unwrap();
        }
        assert!(c.daemons.values().all(|d| Rc::ptr_eq(&d.schema, &c.daemons["osd.0"].schema)));
    }

    #[test]
    fn a_daemon_that_declares_too_much_is_refused_until_it_connects_again() {
        let many: Vec<String> = (0..=MAX_COUNTERS).map(|n| n.to_string()).collect();
        let many: Vec<(&str, u8)> = many.iter().map(|n| (n.as_str(), 2)).collect();
        let long = "x".repeat(MAX_PATH + 1);
        let heavy: Vec<String> = (0..MAX_TEXT / MAX_PATH + 1).map(|n| format!("{n:0MAX_PATH$}")).collect();
        let heavy: Vec<(&str, u8)> = heavy.iter().map(|n| (n.as_str(), 2)).collect();
        for declares in [many, vec![(long.as_str(), 2)], heavy] {
            let mut c = DaemonCounters::default();
            assert_eq!(c.report("a", 1, &report(&declares, &[]), Mono(0)), Err(CounterError::TooMany));
            assert_eq!(c.report("a", 1, &report(&[("z", 2)], &[(2, 1)]), Mono(0)), Ok(()), "said once");
            assert_eq!(c.iter().count(), 0);
            assert_eq!(c.report("a", 2, &report(&[("z", 2)], &[(2, 1)]), Mono(0)), Ok(()));
            assert_eq!(c.value("a", "z"), 1);
        }
        // Piece by piece is no way around the bound.
        let mut c = DaemonCounters::default();
        let refused = (0..=MAX_COUNTERS).find(|n| {
            let name = format!("{n:0>500}");
            c.report("a", 1, &report(&[(&name, 2)], &vec![(2, 1); n + 1]), Mono(0)).is_err()
        });
        assert_eq!(refused, Some(MAX_TEXT / 500));
    }
}
