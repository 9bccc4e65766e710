//! Performance counters reported by MDS daemons, for `fs status`: the newest two values of each.

use base::Mono;
use std::collections::BTreeMap;
use wire::codec::Result;
use wire::msg::{MMgrReport, PackedCounters};
use wire::{Decode, DecodeError};

/// Most MDS daemons that are remembered.
const MAX_DAEMONS: usize = 10_000;
/// Most counters of one daemon.
const MAX_COUNTERS: usize = 5_000;

/// A counter's value with its time, and the previous one.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    newest: u64,
    before: u64,
    kind: u8,
}

/// Counters of one daemon, declared on one connection.
#[derive(Clone, Debug, Default)]
struct Daemon {
    conn: u64,
    counters: BTreeMap<String, Sample>,
    /// Times of the newest and the previous values.
    times: (Option<Mono>, Option<Mono>),
}

/// Counters by daemon.
#[derive(Clone, Debug, Default)]
pub struct MdsCounters {
    daemons: BTreeMap<String, Daemon>,
}

impl MdsCounters {
    /// Handles a report. Counters are declared once per connection; a new connection declares them again. Error: the
    /// daemon has declared too many counters, or the packed values cannot be decoded.
    pub fn report(&mut self, name: &str, conn: u64, m: &MMgrReport, now: Mono) -> Result<()> {
        if !self.daemons.contains_key(name) && self.daemons.len() >= MAX_DAEMONS {
            return Ok(());
        }
        let d = self.daemons.entry(name.to_owned()).or_default();
        if d.conn != conn {
            *d = Daemon { conn, ..Daemon::default() };
        }
        for t in &m.declare_types {
            d.counters.insert(t.path.clone(), Sample { kind: t.kind, ..Sample::default() });
        }
        for path in &m.undeclare_types {
            d.counters.remove(path);
        }
        if d.counters.len() > MAX_COUNTERS {
            self.daemons.remove(name);
            return Err(DecodeError::BadValue { what: "number of counters", value: MAX_COUNTERS as u64 });
        }
        if m.packed.is_empty() {
            return Ok(());
        }
        let packed = PackedCounters::from_bytes(&m.packed)?;
        let values = packed.values(d.counters.values().map(|s| s.kind))?;
        for (s, v) in d.counters.values_mut().zip(values) {
            s.before = s.newest;
            s.newest = v.value;
        }
        d.times = (Some(now), d.times.0);
        Ok(())
    }

    /// Newest value of a counter, 0 if it was never reported.
    #[must_use]
    pub fn value(&self, name: &str, path: &str) -> u64 {
        self.daemons.get(name).and_then(|d| d.counters.get(path)).map_or(0, |s| s.newest)
    }

    /// Increase of a counter per second.
    #[must_use]
    pub fn rate(&self, name: &str, path: &str) -> u64 {
        let Some(d) = self.daemons.get(name) else { return 0 };
        let (Some(s), (Some(b), Some(a))) = (d.counters.get(path), d.times) else { return 0 };
        let seconds = b.since(a).as_secs_f64();
        if seconds > 0.0 { (s.newest.saturating_sub(s.before) as f64 / seconds).round() as u64 } else { 0 }
    }

    /// Removes daemons that `known` rejects.
    pub fn keep(&mut self, known: impl Fn(&str) -> bool) {
        self.daemons.retain(|n, _| known(n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Encode;
    use wire::msg::CounterValue;
    use wire::types::PerfCounterType;

    fn report(declare: &[(&str, u8)], values: &[(u8, u64)]) -> MMgrReport {
        let value = |(k, v): &(u8, u64)| (*k, CounterValue { value: *v, ..CounterValue::default() });
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
        let mut c = MdsCounters::default();
        // Values come in the order of paths, not of declaration; averages have three numbers.
        c.report("a", 1, &report(&[("z", 2), ("m", 6)], &[(6, 5), (2, 10)]), Mono(0)).unwrap();
        assert_eq!((c.value("a", "z"), c.value("a", "m"), c.rate("a", "z")), (10, 5, 0));
        c.report("a", 1, &report(&[], &[(6, 5), (2, 30)]), Mono(2_000_000_000)).unwrap();
        assert_eq!((c.value("a", "z"), c.rate("a", "z")), (30, 10));
        assert!(c.report("a", 1, &report(&[], &[(2, 1)]), Mono(3)).is_err(), "too short");
        assert_eq!(c.value("a", "z"), 30, "nothing of it is taken");
        c.report("a", 2, &report(&[("z", 2)], &[(2, 1)]), Mono(4_000_000_000)).unwrap();
        assert_eq!((c.value("a", "z"), c.value("a", "m"), c.rate("a", "z")), (1, 0, 0), "another connection");
        c.keep(|_| false);
        assert_eq!(c.value("a", "z"), 0);
    }
}
