//! Performance counters: definitions with the attributes that Ceph gives them, and values.
//!
//! A daemon has sections of counters, such as `osd`. A [`Section`] pairs a table of [`Counter`]s with their values at one
//! moment, in the table's order. Reactors make their sections on demand; [`merge`] sums them up.

use std::borrow::Cow;

/// Priorities, as of Ceph's `PerfCountersBuilder`. Managers ask for those of [`USEFUL`] and above.
pub mod priority {
    /// Always shown.
    pub const CRITICAL: u8 = 10;
    /// Shown by `ceph daemonperf`.
    pub const INTERESTING: u8 = 8;
    /// Reported to the manager.
    pub const USEFUL: u8 = 5;
    /// Shown on request only.
    pub const DEBUG: u8 = 0;
}

pub use priority::*;

/// Meaning of a counter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that rises and falls.
    Gauge,
    /// A number that only grows.
    Count,
    /// Sum and number of values.
    Average,
    /// Sum of durations in nanoseconds, and their number.
    Time,
}

impl Kind {
    /// Ceph's type bits: 1 time, 2 number, 4 average, 8 only grows.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Gauge => 2,
            Self::Count => 10,
            Self::Average => 6,
            Self::Time => 5,
        }
    }

    /// True if the value has a sum and a number.
    #[must_use]
    pub const fn is_pair(self) -> bool {
        matches!(self, Self::Average | Self::Time)
    }
}

/// Definition of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name within its section.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Heading of its column in `ceph daemonperf`; empty if it has none.
    pub nick: &'static str,
    /// Meaning of the value.
    pub kind: Kind,
    /// One of [`priority`].
    pub priority: u8,
    /// True if the unit is a byte.
    pub bytes: bool,
}

impl Counter {
    const fn new(name: &'static str, help: &'static str, kind: Kind) -> Self {
        Self { name, help, nick: "", kind, priority: DEBUG, bytes: false }
    }

    /// Sets the heading of its column.
    #[must_use]
    pub const fn nick(self, nick: &'static str) -> Self {
        Self { nick, ..self }
    }

    /// Sets the priority.
    #[must_use]
    pub const fn at(self, priority: u8) -> Self {
        Self { priority, ..self }
    }

    /// Sets the unit to bytes.
    #[must_use]
    pub const fn bytes(self) -> Self {
        Self { bytes: true, ..self }
    }
}

/// A number that rises and falls.
#[must_use]
pub const fn gauge(name: &'static str, help: &'static str) -> Counter {
    Counter::new(name, help, Kind::Gauge)
}

/// A number that only grows.
#[must_use]
pub const fn count(name: &'static str, help: &'static str) -> Counter {
    Counter::new(name, help, Kind::Count)
}

/// A sum of durations.
#[must_use]
pub const fn time(name: &'static str, help: &'static str) -> Counter {
    Counter::new(name, help, Kind::Time)
}

/// Value of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The number; the sum of an average; nanoseconds of a time.
    pub sum: u64,
    /// Number of values of an average or a time; else 0.
    pub n: u64,
}

impl From<u64> for Value {
    fn from(sum: u64) -> Self {
        Self { sum, n: 0 }
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Self {
        (n as u64).into()
    }
}

impl From<(u64, u64)> for Value {
    fn from((sum, n): (u64, u64)) -> Self {
        Self { sum, n }
    }
}

/// A table of counters with their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the section.
    pub name: Cow<'static, str>,
    counters: &'static [Counter],
    values: Vec<Value>,
}

impl Section {
    /// A section whose values follow by [`Section::put`].
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, counters: &'static [Counter]) -> Self {
        Self { name: name.into(), counters, values: Vec::with_capacity(counters.len()) }
    }

    /// Sets the next counter of the table, which must have this name.
    pub fn put(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        let i = self.values.len();
        debug_assert_eq!(self.counters.get(i).map(|c| c.name), Some(name), "order of section {}", self.name);
        self.values.push(value.into());
        self
    }

    /// Counters and their values. A counter without a value has 0.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Counter, Value)> {
        let values = self.values.iter().copied().chain(std::iter::repeat(Value::default()));
        self.counters.iter().zip(values)
    }

    /// The value of a counter.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<Value> {
        self.iter().find(|(c, _)| c.name == name).map(|(_, v)| v)
    }

    /// Adds to the value of a counter, if the section has it.
    pub fn add_to(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if let Some(i) = self.counters.iter().position(|c| c.name == name)
            && let Some(v) = self.values.get_mut(i)
        {
            *v = Value { sum: v.sum.wrapping_add(value.sum), n: v.n.wrapping_add(value.n) };
        }
    }

    fn each(&mut self, o: &Self, f: impl Fn(Kind, Value, Value) -> Value) {
        for ((c, v), w) in self.counters.iter().zip(&mut self.values).zip(&o.values) {
            *v = f(c.kind, *v, *w);
        }
    }

    /// Subtracts the values at an earlier moment. Gauges stay.
    pub fn since(&mut self, earlier: &Self) {
        self.each(earlier, |kind, v, w| match kind {
            Kind::Gauge => v,
            _ => Value { sum: v.sum.saturating_sub(w.sum), n: v.n.saturating_sub(w.n) },
        });
    }
}

/// Adds the sections of another reactor; those of the same name are summed up.
pub fn merge(into: &mut Vec<Section>, from: Vec<Section>) {
    for s in from {
        match into.iter_mut().find(|x| x.name == s.name) {
            Some(x) => {
                x.each(&s, |_, v, w| Value { sum: v.sum.wrapping_add(w.sum), n: v.n.wrapping_add(w.n) });
            }
            None => into.push(s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Counter] =
        &[gauge("pgs", "PGs").nick("pgs").at(USEFUL), count("op", "operations"), time("op_latency", "latency")];

    fn section(pgs: u64, op: u64, ns: u64) -> Section {
        let mut s = Section::new("osd", TABLE);
        s.put("pgs", pgs).put("op", op).put("op_latency", (ns, op));
        s
    }

    #[test]
    fn sections_of_reactors_are_summed_and_a_reset_leaves_gauges() {
        let mut all = vec![section(3, 10, 500)];
        merge(&mut all, vec![section(4, 5, 100), Section::new("other", &[])]);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], section(7, 15, 600));
        let reset = all[0].clone();
        let mut later = section(8, 18, 900);
        later.since(&reset);
        assert_eq!(later, section(8, 3, 300));
        later.add_to("op", 2_u64);
        later.add_to("none", 2_u64);
        assert_eq!(later.value("op"), Some(5_u64.into()));
        assert_eq!(later.value("none"), None);
    }
}
