//! Commands about counters: `perf …` and `counter …`.

use super::control::ControlHost;
use super::route::{Ask, Counted, ToReactor};
use crate::core::pgs::counters::HISTOGRAMS;
use base::counter::{self, Section};
use net::admin_socket::{Arg, Command};
use net::perf::{self, Axis};
use pg::meter::{BUCKETS, LATENCY_QUANTUM_NS, SIZE_QUANTUM};
use serde_json::{Map, Value, json};
use std::rc::Rc;

const LOGGER: Arg = Arg { name: "logger", kind: "CephString", optional: true, many: false };
const COUNTER: Arg = Arg { name: "counter", ..LOGGER };
const VAR: Arg = Arg { name: "var", optional: false, ..LOGGER };

/// The commands beside [`perf::COMMANDS`].
pub(super) const COMMANDS: &[Command] = &[
    Command { prefix: "perf histogram dump", args: &[LOGGER, COUNTER], help: "dump perf histogram values" },
    Command { prefix: "perf histogram schema", args: &[], help: "dump perf histogram schema" },
    Command { prefix: "perf reset", args: &[VAR], help: "perf reset <name>: perf reset all or one perfcounter name" },
];

/// Values at the last reset.
#[derive(Debug, Default)]
pub(super) struct Reset {
    sections: Vec<Section>,
    histograms: [Vec<u64>; 4],
}

fn add(into: &mut Vec<u64>, from: &[u64]) {
    into.resize(into.len().max(from.len()), 0);
    into.iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

/// Counters and histograms of all reactors, with those of the control machine, sorted by section.
async fn counted(host: &Rc<ControlHost>) -> Counted {
    let (mut all, mut histograms): Counted = Default::default();
    for i in 0..host.routes.reactors.len() {
        let (tx, rx) = tokio::sync::oneshot::channel();
        host.routes.reactor(i, ToReactor::Ask(Ask::Counters(tx)));
        if let Ok((sections, h)) = rx.await {
            counter::merge(&mut all, sections);
            histograms.iter_mut().zip(&h).for_each(|(a, b)| add(a, b));
        }
    }
    host.count(&mut all);
    all.sort_by(|a, b| a.name.cmp(&b.name));
    (all, histograms)
}

/// Number of PGs here.
pub(super) async fn num_pgs(host: &Rc<ControlHost>) -> u64 {
    let (all, _) = counted(host).await;
    all.iter().find_map(|s| s.value("numpg")).map_or(0, |v| v.sum)
}

/// One object for each section, of which `osd` has the histograms.
fn histograms(all: &[Section], cmd: &Map<String, Value>, one: impl Fn(usize) -> Value) -> Value {
    let asked = |key: &str| cmd.get(key).and_then(Value::as_str).filter(|t| !t.is_empty());
    let (logger, name) = (asked("logger"), asked("counter"));
    let mut out = Map::new();
    for s in all.iter().filter(|s| logger.is_none_or(|l| l == s.name)) {
        let here = HISTOGRAMS.iter().enumerate().filter(|(_, (n, _))| s.name == "osd" && name.is_none_or(|c| c == *n));
        let here: Map<String, Value> = here.map(|(i, (n, _))| ((*n).to_owned(), one(i))).collect();
        out.insert(s.name.to_string(), here.into());
    }
    out.into()
}

/// True for the commands that [`answer`] serves.
pub(super) fn serves(prefix: &str) -> bool {
    COMMANDS.iter().chain(perf::COMMANDS).any(|c| c.prefix == prefix)
}

/// Answers a command about counters.
pub(super) async fn answer(host: &Rc<ControlHost>, prefix: &str, cmd: &Map<String, Value>) -> Value {
    let (mut all, mut counts) = counted(host).await;
    if prefix == "perf reset" {
        return reset(host, cmd, all, counts);
    }
    {
        let base = host.perf_base.borrow();
        for s in &mut all {
            if let Some(before) = base.sections.iter().find(|b| b.name == s.name) {
                s.since(before);
            }
        }
        for (h, before) in counts.iter_mut().zip(&base.histograms) {
            h.iter_mut().zip(before).for_each(|(a, b)| *a = a.saturating_sub(*b));
        }
    }
    match prefix {
        "perf histogram schema" => histograms(&all, cmd, |i| perf::histogram_schema(HISTOGRAMS[i].1)),
        "perf histogram dump" => {
            let latency = Axis { name: "Latency (usec)", quantum: LATENCY_QUANTUM_NS, buckets: BUCKETS };
            let size = Axis { name: "Request size (bytes)", quantum: SIZE_QUANTUM, buckets: BUCKETS };
            histograms(&all, cmd, |i| perf::histogram(&latency, &size, counts.get(i).map_or(&[], Vec::as_slice)))
        }
        _ => perf::answer(&all, prefix, cmd),
    }
}

fn reset(host: &ControlHost, cmd: &Map<String, Value>, all: Vec<Section>, counts: [Vec<u64>; 4]) -> Value {
    let var = cmd.get("var").and_then(Value::as_str).unwrap_or_default();
    let mut base = host.perf_base.borrow_mut();
    let mut found = false;
    for s in all.into_iter().filter(|s| var == "all" || s.name == var) {
        found = true;
        base.sections.retain(|b| b.name != s.name);
        base.sections.push(s);
    }
    if !found {
        return json!({ "error": format!("Not find: {var}") });
    }
    if var == "all" || var == "osd" {
        base.histograms = counts;
    }
    json!({ "success": format!("perf reset {var}") })
}
