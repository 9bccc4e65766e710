//! Counters in Ceph's JSON: `perf dump`, `perf schema`, `counter dump`, `counter schema` and `perf histogram …`.

use crate::admin_socket::{Arg, Command};
use base::counter::{Counter, Kind, Section, Value};
use serde_json::{Map, Value as Json, json};

fn number(kind: Kind, v: Value) -> Json {
    let seconds = |ns: u64| ns as f64 / 1e9;
    match kind {
        Kind::Gauge | Kind::Count => v.sum.into(),
        Kind::Average => json!({ "avgcount": v.n, "sum": v.sum }),
        Kind::Time => {
            let mean = if v.n == 0 { 0.0 } else { seconds(v.sum) / v.n as f64 };
            json!({ "avgcount": v.n, "sum": seconds(v.sum), "avgtime": mean })
        }
    }
}

fn definition(c: &Counter) -> Json {
    json!({
        "type": c.kind.bits(),
        "metric_type": if c.kind == Kind::Count { "counter" } else { "gauge" },
        "value_type": match c.kind {
            Kind::Gauge | Kind::Count => "integer",
            Kind::Average => "integer-integer-pair",
            Kind::Time => "real-integer-pair",
        },
        "description": c.help,
        "nick": c.nick,
        "priority": c.priority,
        "units": if c.bytes { "bytes" } else { "none" },
    })
}

/// The sections and counters that a command asks for: a name, or all where it is missing or empty.
#[derive(Clone, Copy, Debug, Default)]
struct Asked<'a> {
    logger: Option<&'a str>,
    counter: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// Reads the arguments `logger` and `counter` of a command.
    fn of(cmd: &'a Map<String, Json>) -> Self {
        let name = |key: &str| cmd.get(key).and_then(Json::as_str).filter(|t| !t.is_empty());
        Self { logger: name("logger"), counter: name("counter") }
    }

    fn wants(self, section: &str) -> bool {
        self.logger.is_none_or(|l| l == section)
    }

    fn wants_counter(self, name: &str) -> bool {
        self.counter.is_none_or(|c| c == name)
    }
}

fn body(s: &Section, asked: Asked<'_>, one: impl Fn(&Counter, Value) -> Json) -> Map<String, Json> {
    let all = s.iter().filter(|(c, _)| asked.wants_counter(c.name));
    all.map(|(c, v)| (c.name.to_owned(), one(c, v))).collect()
}

fn plain(all: &[Section], asked: Asked<'_>, one: impl Fn(&Counter, Value) -> Json) -> Json {
    let wanted = all.iter().filter(|s| asked.wants(&s.name));
    let all = wanted.map(|s| (s.name.to_string(), body(s, asked, &one).into()));
    // With one counter asked for, Ceph leaves out the sections that do not have it.
    let all = all.filter(|(_, b): &(_, Json)| asked.counter.is_none() || b.as_object().is_some_and(|b| !b.is_empty()));
    all.collect::<Map<_, _>>().into()
}

fn dump(all: &[Section], asked: Asked<'_>) -> Json {
    plain(all, asked, |c, v| number(c.kind, v))
}

fn schema(all: &[Section], asked: Asked<'_>) -> Json {
    plain(all, asked, |c, _| definition(c))
}

fn labelled(all: &[Section], asked: Asked<'_>, one: impl Fn(&Counter, Value) -> Json) -> Json {
    let wanted = all.iter().filter(|s| asked.wants(&s.name));
    wanted
        .map(|s| (s.name.to_string(), json!([{ "labels": {}, "counters": body(s, asked, &one) }])))
        .collect::<Map<_, _>>()
        .into()
}

fn labelled_dump(all: &[Section], asked: Asked<'_>) -> Json {
    labelled(all, asked, |c, v| number(c.kind, v))
}

fn labelled_schema(all: &[Section], asked: Asked<'_>) -> Json {
    labelled(all, asked, |c, _| definition(c))
}

const LOGGER: Arg = Arg { name: "logger", kind: "CephString", optional: true, many: false };
const ONE: &[Arg] = &[LOGGER, Arg { name: "counter", ..LOGGER }];

/// The commands that [`answer`] serves.
pub const COMMANDS: &[Command] = &[
    Command { prefix: "counter dump", args: ONE, help: "dump all labeled and non-labeled counters and their values" },
    Command { prefix: "counter schema", args: ONE, help: "dump all labeled and non-labeled counters schemas" },
    Command { prefix: "perf dump", args: ONE, help: "dump perfcounters value" },
    Command { prefix: "perf schema", args: ONE, help: "dump perfcounters schema" },
];

/// Answers one of [`COMMANDS`].
#[must_use]
pub fn answer(all: &[Section], prefix: &str, cmd: &Map<String, Json>) -> Json {
    let asked = Asked::of(cmd);
    match prefix {
        "perf dump" => dump(all, asked),
        "perf schema" => schema(all, asked),
        "counter dump" => labelled_dump(all, asked),
        _ => labelled_schema(all, asked),
    }
}

/// An axis of a histogram with buckets that double.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Quantity on the axis, with its unit.
    pub name: &'static str,
    /// Width of the first bucket.
    pub quantum: u64,
    /// Number of buckets: one below 0, then doubling ones, the last without an end.
    pub buckets: usize,
}

impl Axis {
    fn show(&self) -> Json {
        let bound = |i: usize| self.quantum.saturating_mul(1_u64.checked_shl(i as u32).unwrap_or(u64::MAX));
        let ranges: Vec<Json> = (0..self.buckets)
            .map(|i| match i {
                0 => json!({ "max": -1 }),
                1 => json!({ "min": 0, "max": bound(0) - 1 }),
                i if i + 1 == self.buckets => json!({ "min": bound(i - 2) }),
                i => json!({ "min": bound(i - 2), "max": bound(i - 1) - 1 }),
            })
            .collect();
        json!({
            "name": self.name, "min": 0, "quant_size": self.quantum, "buckets": self.buckets, "scale_type": "log2",
            "ranges": ranges,
        })
    }
}

/// A histogram over two axes: `counts` by row, empty for zeros.
#[must_use]
pub fn histogram(rows: &Axis, columns: &Axis, counts: &[u64]) -> Json {
    let at = |row: usize, column: usize| counts.get(row * columns.buckets + column).copied().unwrap_or(0);
    let values: Vec<Vec<u64>> = (0..rows.buckets).map(|r| (0..columns.buckets).map(|c| at(r, c)).collect()).collect();
    json!({ "axes": [rows.show(), columns.show()], "values": values })
}

/// Definition of a histogram, for `perf histogram schema`.
#[must_use]
pub fn histogram_schema(help: &str) -> Json {
    json!({
        "type": 26, "metric_type": "counter", "value_type": "integer-2d-histogram", "description": help, "nick": "",
        "priority": 5, "units": "none",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::counter::{CRITICAL, count, time};

    const TABLE: &[Counter] =
        &[count("op", "Client operations").nick("ops").at(CRITICAL), time("op_latency", "Latency")];

    #[test]
    fn counters_have_the_json_of_ceph() {
        let mut s = Section::new("osd", TABLE);
        s.put("op", 4_u64).put("op_latency", (2_000_000, 4));
        let all = [s, Section::new("other", &[])];
        assert_eq!(
            dump(&all, Asked::default()).to_string(),
            r#"{"osd":{"op":4,"op_latency":{"avgcount":4,"sum":0.002,"avgtime":0.0005}},"other":{}}"#
        );
        let Json::Object(cmd) = json!({ "logger": "osd", "counter": "op" }) else { unreachable!() };
        assert_eq!(dump(&all, Asked::of(&cmd)).to_string(), r#"{"osd":{"op":4}}"#);
        assert_eq!(
            schema(&all, Asked::of(&cmd)).to_string(),
            r#"{"osd":{"op":{"type":10,"metric_type":"counter","value_type":"integer","description":"Client operations","nick":"ops","priority":10,"units":"none"}}}"#
        );
        assert_eq!(labelled_dump(&all, Asked::of(&cmd)).to_string(), r#"{"osd":[{"labels":{},"counters":{"op":4}}]}"#);
        assert_eq!(labelled_schema(&all, Asked::default())["osd"][0]["counters"]["op_latency"]["type"], 5);
    }

    #[test]
    fn ranges_of_histograms_are_those_of_ceph() {
        let axis = |name| Axis { name, quantum: 100_000, buckets: 32 };
        let mut counts = vec![0; 32 * 32];
        counts[33] = 7;
        let h = histogram(&axis("Latency (usec)"), &axis("Request size (bytes)"), &counts);
        let r = &h["axes"][0]["ranges"];
        assert_eq!(r[0], json!({ "max": -1 }));
        assert_eq!(r[2], json!({ "min": 100_000, "max": 199_999 }));
        assert_eq!(r[31], json!({ "min": 100_000_u64 << 29 }));
        assert_eq!((h["values"][1][1].as_u64(), h["values"].as_array().map(Vec::len)), (Some(7), Some(32)));
        assert_eq!(histogram(&axis("a"), &axis("b"), &[])["values"][3][3], 0);
    }
}
