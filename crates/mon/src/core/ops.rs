//! Requests that wait for something, and the last ones that were answered: what `dump_ops_in_flight` and
//! `dump_historic_ops` show.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::{Mono, Now, Utime};
use serde_json::{Value, json};

use super::session::ConnKey;

/// Answered requests kept (`mon_op_history_size`).
const HISTORY: usize = 20;
/// Requests followed at once.
const MAX_IN_FLIGHT: usize = 10_000;

#[derive(Clone, Debug)]
struct Op {
    text: String,
    at: Utime,
    start: Mono,
    took: Duration,
}

/// The requests.
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
    /// A request begins. Handling the same one again changes nothing.
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

    /// A request is answered.
    pub fn end(&mut self, conn: ConnKey, tid: u64, now: Now) {
        if let Some(mut op) = self.open.remove(&(conn, tid)) {
            op.took = now.mono.since(op.start);
            self.done.push_back(op);
            if self.done.len() > HISTORY {
                self.done.pop_front();
            }
        }
    }

    /// A connection is gone.
    pub fn forget(&mut self, conn: ConnKey) {
        self.open.retain(|(c, _), _| *c != conn);
    }

    /// What waits now.
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

    /// What was answered last.
    #[must_use]
    pub fn historic(&self) -> Value {
        let ops: Vec<Value> = self.done.iter().map(|o| o.show(o.took)).collect();
        json!({ "size": HISTORY, "duration": 600, "num_ops": ops.len(), "ops": ops })
    }
}
