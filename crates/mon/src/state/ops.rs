//! The op tracker: requests in flight and recent ones, for `dump_ops_in_flight` and `dump_historic_ops`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::{Mono, Now, Utime};
use serde_json::{Value, json};

use super::ConnKey;

/// Most recent requests kept; `HISTORY_SECONDS` bounds their age.
const HISTORY: usize = 20;
const HISTORY_SECONDS: u64 = 600;
/// Duration above which a request counts as slow.
const SLOW: Duration = Duration::from_secs(10);
/// Most requests tracked at once.
const MAX_IN_FLIGHT: usize = 10_000;

#[derive(Clone, Debug)]
struct Op {
    text: String,
    at: Utime,
    start: Mono,
    took: Duration,
}

impl Op {
    fn is_recent(&self, now: Now) -> bool {
        now.mono.since(self.start).saturating_sub(self.took) <= Duration::from_secs(HISTORY_SECONDS)
    }
}

/// The requests in flight and the recent ones.
#[derive(Debug, Default)]
pub struct OpTracker {
    open: BTreeMap<(ConnKey, u64), Op>,
    done: VecDeque<Op>,
}

impl Op {
    fn show(&self, age: Duration) -> Value {
        json!({
            "description": self.text,
            "initiated_at": self.at.iso(),
            "age": age.as_secs_f64(),
            "duration": self.took.as_secs_f64(),
            "type_data": { "events": [{ "time": self.at.iso(), "event": "initiated" }] },
        })
    }
}

impl OpTracker {
    /// Begins to track a request. A second call for the same request changes nothing.
    pub fn begin(&mut self, conn: ConnKey, tid: u64, now: Now, text: impl FnOnce() -> String) {
        if self.open.len() < MAX_IN_FLIGHT {
            self.open.entry((conn, tid)).or_insert_with(|| Op {
                text: text(),
                at: now.wall,
                start: now.mono,
                took: Duration::ZERO,
            });
        }
    }

    /// Ends a request that is answered.
    pub fn end(&mut self, conn: ConnKey, tid: u64, now: Now) {
        if let Some(mut op) = self.open.remove(&(conn, tid)) {
            op.took = now.mono.since(op.start);
            self.done.push_back(op);
            if self.done.len() > HISTORY {
                self.done.pop_front();
            }
        }
    }

    /// Drops the requests of a closed connection.
    pub fn forget(&mut self, conn: ConnKey) {
        self.open.retain(|(c, _), _| *c != conn);
    }

    /// The requests in flight as JSON.
    #[must_use]
    pub fn in_flight(&self, now: Now) -> Value {
        let ops: Vec<Value> = self
            .open
            .values()
            .map(|o| {
                let age = now.mono.since(o.start);
                Op { took: age, ..o.clone() }.show(age)
            })
            .collect();
        json!({ "ops": ops, "num_ops": ops.len() })
    }

    /// The recent requests as JSON.
    #[must_use]
    pub fn historic(&self, now: Now) -> Value {
        Self::listed(self.recent(now, Duration::ZERO))
    }

    /// The recent requests as JSON, those that took longest first.
    #[must_use]
    pub fn by_duration(&self, now: Now) -> Value {
        let mut all: Vec<&Op> = self.recent(now, Duration::ZERO).collect();
        all.sort_by_key(|o| std::cmp::Reverse(o.took));
        Self::listed(all.into_iter())
    }

    /// The slow ones of the recent requests as JSON.
    #[must_use]
    pub fn slow(&self, now: Now) -> Value {
        Self::listed(self.recent(now, SLOW))
    }

    fn recent(&self, now: Now, least: Duration) -> impl Iterator<Item = &Op> {
        self.done.iter().filter(move |o| o.took >= least && o.is_recent(now))
    }

    fn listed<'a>(all: impl Iterator<Item = &'a Op>) -> Value {
        let ops: Vec<Value> = all.map(|o| o.show(o.took)).collect();
        json!({ "size": HISTORY, "duration": HISTORY_SECONDS, "num_ops": ops.len(), "ops": ops })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answered_requests_are_shown_for_a_while_and_slow_ones_separately() {
        let at = |s: u64| Now { mono: Mono(s * 1_000_000_000), wall: Utime { sec: s as u32, nsec: 0 } };
        let mut t = OpTracker::default();
        t.begin(1, 1, at(100), || "quick".into());
        t.begin(1, 2, at(100), || "slow".into());
        assert_eq!(t.in_flight(at(101))["num_ops"], 2);
        t.end(1, 1, at(101));
        t.end(1, 2, at(130));
        assert_eq!(t.in_flight(at(131))["num_ops"], 0);
        assert_eq!(t.historic(at(131))["num_ops"], 2);
        assert_eq!(t.slow(at(131))["ops"][0]["description"], "slow");
        assert_eq!(t.by_duration(at(131))["ops"][0]["description"], "slow");
        assert_eq!(t.by_duration(at(131))["ops"][1]["description"], "quick");
        assert_eq!(t.historic(at(702))["num_ops"], 1, "the quick one ended more than ten minutes ago");
        assert_eq!(t.historic(at(800))["num_ops"], 0);
    }
}
