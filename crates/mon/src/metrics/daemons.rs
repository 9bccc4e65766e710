//! Counters that daemons report, and those of this monitor, named as Ceph's module names them: section and name, joined
//! by an underscore; averages as `_sum` and `_count`.
//!
//! Names come from daemons, so they are cut to the alphabet of metrics, and a family that exists already keeps its first
//! meaning: no daemon changes another metric or makes the text invalid.

use super::text::{Kind, Text};
use crate::state::ClusterState;
use base::OsdId;
use base::counter::Section;
use std::collections::BTreeMap;
use wire::msg::CounterValue;

/// Ceph's type bits of a counter.
const TIME: u8 = 1;
const AVERAGE: u8 = 4;
const ONLY_GROWS: u8 = 8;
const HISTOGRAM: u8 = 16;
/// Lowest priority that is shown.
const PRIORITY_MIN: u8 = base::counter::USEFUL;

struct Family {
    kind: Kind,
    help: String,
    /// Labels and value of each sample.
    samples: Vec<(&'static str, String, f64)>,
}

/// A family's name from a counter's path.
fn name_of(path: &str) -> String {
    let text = path.replace("::", "_").replace('+', "_plus");
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The label of a daemon, as Ceph has it.
fn label(daemon: &str) -> (&'static str, String) {
    match daemon.strip_prefix("rgw.") {
        Some(id) => ("instance_id", id.to_owned()),
        None => ("ceph_daemon", daemon.to_owned()),
    }
}

#[derive(Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    fn put(&mut self, name: String, kind: Kind, help: &str, daemon: &str, value: f64) {
        let new = || Family { kind, help: help.replace(['\n', '\\'], " "), samples: Vec::new() };
        let (key, label) = label(daemon);
        let f = self.0.entry(name).or_insert_with(new);
        // Two paths of a daemon may have the same name.
        if f.samples.last().is_none_or(|(k, l, _)| (*k, l) != (key, &label)) {
            f.samples.push((key, label, value));
        }
    }

    fn counter(&mut self, daemon: &str, path: &str, help: &str, bits: u8, v: CounterValue) {
        let value = if bits & TIME != 0 { v.value as f64 / 1e9 } else { v.value as f64 };
        let name = name_of(path);
        if bits & HISTOGRAM != 0 {
            // Clients of Prometheus have no use for two axes.
        } else if bits & AVERAGE != 0 {
            self.put(format!("{name}_sum"), Kind::Counter, &format!("{help} Total"), daemon, value);
            self.put(format!("{name}_count"), Kind::Counter, &format!("{help} Count"), daemon, v.avgcount as f64);
        } else {
            let kind = if bits & ONLY_GROWS != 0 { Kind::Counter } else { Kind::Gauge };
            self.put(name, kind, help, daemon, value);
        }
    }
}

/// Writes the counters of OSDs that are up, of other daemons, and `own`, those of this monitor.
pub(super) fn counters(t: &mut Text, state: &ClusterState, own: &[Section]) {
    let mut all = Families::default();
    for (daemon, counters) in state.mgr.counters().iter() {
        let osd = daemon.strip_prefix("osd.").and_then(|n| n.parse().ok()).map(OsdId);
        if osd.is_some_and(|o| !state.osdmap.is_up(o)) {
            continue;
        }
        for (c, v) in counters.filter(|(c, _)| c.priority >= PRIORITY_MIN) {
            all.counter(daemon, &c.path, &c.help, c.kind, v);
        }
    }
    let me = format!("mon.{}", state.mon_name);
    for s in own {
        for (c, v) in s.iter().filter(|(c, _)| c.priority >= PRIORITY_MIN) {
            let v = CounterValue { value: v.sum, avgcount: v.n, avgcount2: v.n };
            all.counter(&me, &format!("{}.{}", s.name, c.name), c.help, c.kind.bits(), v);
        }
    }
    for (name, f) in all.0 {
        if t.has(&name) {
            continue;
        }
        let mut family = t.family(f.kind, &name, &f.help);
        for (key, label, value) in &f.samples {
            family.put(&[(key, label)], *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_the_first_meaning_stays() {
        assert_eq!(name_of("osd.op_w"), "osd_op_w");
        assert_eq!(name_of("AsyncMessenger::Worker-0.msgr \"x\n"), "AsyncMessenger_Worker_0_msgr__x_");
        let mut all = Families::default();
        let v = |value| CounterValue { value, avgcount: 2, avgcount2: 2 };
        all.counter("osd.0", "osd.l", "latency", 5, v(3_000_000_000));
        all.counter("osd.0", "osd-l", "another", 5, v(7));
        all.counter("rgw.41", "osd.l", "latency", 10, v(9));
        all.counter("osd.0", "osd.h", "histogram", 26, v(9));
        let shown: Vec<_> = all.0.iter().map(|(n, f)| (n.as_str(), f.samples.clone())).collect();
        let of = |l: &str, v| ("ceph_daemon", l.to_owned(), v);
        assert_eq!(
            shown,
            [
                ("osd_l", vec![("instance_id", "41".to_owned(), 9.0)]),
                ("osd_l_count", vec![of("osd.0", 2.0)]),
                ("osd_l_sum", vec![of("osd.0", 3.0)]),
            ]
        );
    }
}
