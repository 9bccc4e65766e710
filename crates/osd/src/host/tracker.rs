//! Client operations of a reactor's connections: the unanswered ones, and the slowest recent ones, as shown by
//! `dump_ops_in_flight`, `dump_historic_ops` and similar commands.
//!
//! Invariant: an operation costs the handles of its message and one comparison. A description is made only for an
//! operation slower than the kept ones, or on request.
//!
//! Tests: `the_slowest_recent_operations_are_kept`.

use base::{EntityAddr, EntityName, Mono, Now, Utime};
use bytes::Bytes;
use cluster::settings::Settings;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use wire::msg::{Described, MOsdOp, msg_flags};

use wire::{Message, MsgHeader, WireMessage as _};

/// Message of an unanswered operation, as received: it is decoded only if someone looks.
#[derive(Debug)]
pub(crate) struct Received {
    tid: u64,
    version: u16,
    compat: u16,
    front: Bytes,
    data: Bytes,
}

impl Received {
    /// Keeps the message of an operation.
    pub(crate) fn of(m: Message) -> Self {
        Self { tid: m.header.tid, version: m.header.version, compat: m.header.compat, front: m.front, data: m.data }
    }

    /// The operation.
    pub(crate) fn decode(&self) -> Option<MOsdOp> {
        let header = MsgHeader { tid: self.tid, version: self.version, compat: self.compat, ..MsgHeader::default() };
        let m = Message { header, front: self.front.clone(), data: self.data.clone(), ..Message::default() };
        MOsdOp::from_message(&m).ok()
    }

    /// Bytes of data that it brought.
    pub(crate) fn data_len(&self) -> usize {
        self.data.len()
    }
}

/// Settings of `osd_op_history_*` and `osd_op_complaint_time`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HistoryOptions {
    /// Number of slowest operations kept.
    pub size: usize,
    /// Time for which they are kept.
    pub duration: Duration,
    /// Number of kept operations above the threshold.
    pub slow_size: usize,
    /// Duration from which an operation counts as slow.
    pub slow_threshold: Duration,
    /// Age at which an unanswered operation counts as blocked.
    pub complaint: Duration,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            size: 20,
            duration: Duration::from_secs(600),
            slow_size: 20,
            slow_threshold: Duration::from_secs(10),
            complaint: Duration::from_secs(30),
        }
    }
}

/// Most operations kept, whatever is configured.
const HISTORY_LEN_MAX: usize = 10_000;

impl HistoryOptions {
    /// True for options that [`HistoryOptions::from_settings`] reads.
    pub(crate) fn observes(name: &str) -> bool {
        name.starts_with("osd_op_history_") || name == "osd_op_complaint_time"
    }

    /// Settings from the options in force.
    pub(crate) fn from_settings(s: &Settings) -> Self {
        let (or, number) = (Self::default(), |n: &str| s.given(n).and_then(|v| v.trim().parse::<f64>().ok()));
        let count = |n, d| number(n).map_or(d, |v| v.clamp(0.0, HISTORY_LEN_MAX as f64) as usize);
        let secs = |n, d| number(n).map_or(d, |v| Duration::from_secs_f64(v.clamp(0.0, 1e9)));
        Self {
            size: count("osd_op_history_size", or.size),
            duration: secs("osd_op_history_duration", or.duration),
            slow_size: count("osd_op_history_slow_op_size", or.slow_size),
            slow_threshold: secs("osd_op_history_slow_op_threshold", or.slow_threshold),
            complaint: secs("osd_op_complaint_time", or.complaint),
        }
    }
}

/// An answered operation.
#[derive(Clone)]
struct Finished {
    description: String,
    client: EntityName,
    addr: EntityAddr,
    tid: u64,
    write: bool,
    at: Utime,
    end: Mono,
    took: Duration,
}

/// Kept finished operations.
#[derive(Default)]
pub(crate) struct History {
    options: HistoryOptions,
    /// The slowest operations, in order of their end.
    kept: VecDeque<Finished>,
    slow: VecDeque<Finished>,
    /// Shortest duration in `kept` when that is full, else zero. Faster operations are ignored.
    floor: Duration,
    /// Time at which the oldest entry of `kept` expires.
    until: Mono,
}

/// Arrival time of an operation, from now and its duration.
fn began(now: Now, took: Duration) -> Utime {
    Utime::from_unix(now.wall.to_unix().saturating_sub(took))
}

fn events(at: Utime, took: Duration, end: Option<&str>) -> Value {
    let mut all = vec![json!({"event": "initiated", "time": at.iso(), "duration": 0})];
    if let Some(event) = end {
        let time = Utime::from_unix(at.to_unix() + took).iso();
        all.push(json!({"event": event, "time": time, "duration": took.as_secs_f64()}));
    }
    Value::Array(all)
}

impl Finished {
    fn show(&self, now: Now) -> Value {
        let (point, last) =
            if self.write { ("commit sent; apply or cleanup", "commit_sent") } else { ("started", "done") };
        json!({
            "description": self.description,
            "initiated_at": self.at.iso(),
            "age": now.mono.since(self.end).as_secs_f64() + self.took.as_secs_f64(),
            "duration": self.took.as_secs_f64(),
            "type_data": {
                "flag_point": point,
                "client_info": {
                    "client": self.client.to_string(), "client_addr": self.addr.to_string(), "tid": self.tid,
                },
                "events": events(self.at, self.took, Some(last)),
            },
        })
    }
}

impl History {
    /// Applies changed options.
    pub(crate) fn set(&mut self, options: HistoryOptions, now: Mono) {
        self.options = options;
        while self.slow.len() > options.slow_size {
            self.slow.pop_front();
        }
        self.trim(now);
    }

    /// True if an operation of this duration is to be kept.
    #[inline]
    pub(crate) fn wants(&self, took: Duration, now: Mono) -> bool {
        took > self.floor || now >= self.until
    }

    /// Keeps an answered operation if it is among the slowest.
    pub(crate) fn add(&mut self, request: &Received, client: EntityName, addr: EntityAddr, took: Duration, now: Now) {
        let Some(m) = request.decode() else { return };
        let f = Finished {
            description: Described(&m, client).to_string(),
            client,
            addr,
            tid: m.tid,
            write: m.flags & msg_flags::WRITE != 0,
            at: began(now, took),
            end: now.mono,
            took,
        };
        if took >= self.options.slow_threshold && self.options.slow_size > 0 {
            if self.slow.len() >= self.options.slow_size {
                self.slow.pop_front();
            }
            self.slow.push_back(f.clone());
        }
        self.kept.push_back(f);
        self.trim(now.mono);
    }

    fn trim(&mut self, now: Mono) {
        let o = self.options;
        while self.kept.front().is_some_and(|f| now.since(f.end) > o.duration) {
            self.kept.pop_front();
        }
        while self.kept.len() > o.size {
            let Some((quickest, _)) = self.kept.iter().enumerate().min_by_key(|(_, f)| f.took) else { break };
            self.kept.remove(quickest);
        }
        let full = self.kept.len() >= o.size;
        self.floor =
            if full { self.kept.iter().map(|f| f.took).min().unwrap_or(Duration::MAX) } else { Duration::ZERO };
        let oldest = self.kept.front().map_or(now, |f| f.end);
        self.until = oldest + o.duration + Duration::from_nanos(1);
    }

    /// The slowest recent operations.
    pub(crate) fn kept(&mut self, now: Now) -> Vec<Value> {
        self.trim(now.mono);
        self.kept.iter().map(|f| f.show(now)).collect()
    }

    /// Operations above the threshold.
    pub(crate) fn slow(&self, now: Now) -> Vec<Value> {
        self.slow.iter().map(|f| f.show(now)).collect()
    }
}

/// Description of an unanswered operation that is in `stage`.
pub(crate) fn in_flight(
    request: &Received,
    client: EntityName,
    addr: EntityAddr,
    received: Mono,
    stage: &str,
    now: Now,
) -> Option<Value> {
    let m = request.decode()?;
    let took = now.mono.since(received);
    let at = began(now, took);
    Some(json!({
        "description": Described(&m, client).to_string(),
        "initiated_at": at.iso(),
        "age": took.as_secs_f64(),
        "duration": took.as_secs_f64(),
        "type_data": {
            "flag_point": stage,
            "client_info": {"client": client.to_string(), "client_addr": addr.to_string(), "tid": m.tid},
            "events": events(at, took, None),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Features;

    #[test]
    fn the_slowest_recent_operations_are_kept() {
        let mut h = History::default();
        h.set(HistoryOptions { size: 3, ..HistoryOptions::default() }, Mono::default());
        let start = Mono::default();
        let at = |ms: u64| Now { mono: start + Duration::from_millis(ms), wall: Utime { sec: 1_000_000, nsec: 0 } };
        let m = Received::of(MOsdOp::default().to_message(Features::PACIFIC));
        let mut took = Vec::new();
        for (i, ms) in [5u64, 1, 9, 2, 7, 3, 30_000].into_iter().enumerate() {
            let (now, d) = (at(40_000 + i as u64), Duration::from_millis(ms));
            if h.wants(d, now.mono) {
                took.push(ms);
                h.add(&m, EntityName::default(), EntityAddr::default(), d, now);
            }
        }
        assert_eq!(took, [5, 1, 9, 2, 7, 30_000], "3 ms is quicker than all that are kept");
        let now = at(50_000);
        let kept: Vec<f64> = h.kept(now).iter().map(|v| v["duration"].as_f64().unwrap()).collect();
        assert_eq!(kept, [0.009, 0.007, 30.0]);
        assert_eq!(h.slow(now).len(), 1);
        assert!(h.wants(Duration::ZERO, at(700_000).mono), "the old ones make room");
        assert!(h.kept(at(700_000)).is_empty());
        assert_eq!(h.slow(at(700_000)).len(), 1);
    }
}
