//! `dump_ledger`: where the time of the operations went, and what of the OSD's surroundings explains it.

use super::commands::Answer;
use super::control::ControlHost;
use super::route::{Ask, ToReactor};
use super::{about, surroundings};
use crate::core::refused::Busy;
use base::errno::EINVAL;
use base::ledger::{BUCKETS, CAUSES, Cause, Cpu, Ledger, Peer, SINCE_MAX, Slow, Sums, Window};
use base::{Now, OsdId};
use net::admin_socket::{Arg, Command};
use reactor::clock;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Span that is shown if none is given.
const SPAN: Duration = Duration::from_secs(30);
/// Most clients and objects shown.
const SHOWN_MAX: usize = 32;
/// Most slowest operations shown.
const SLOWEST_MAX: usize = 20;

/// The commands.
pub(super) const COMMANDS: &[Command] = &[Command {
    prefix: "dump_ledger",
    args: &[Arg { name: "seconds", kind: "CephInt", optional: true, many: false }],
    help: "show for what the operations of the last seconds (30, at most 600) took their time, and the slowest",
}];

/// Operations that wait for one cause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// Number of operations.
    pub(crate) ops: u64,
    /// Their summed age.
    pub(crate) age: Duration,
    /// Age of the oldest.
    pub(crate) oldest: Duration,
}

/// Part of a reactor in the answer.
#[derive(Debug)]
pub(crate) struct LedgerPart {
    /// The span.
    pub(crate) window: Window,
    /// Operations of [`SINCE_MAX`], and their microseconds.
    pub(crate) long: (u64, u64),
    /// Operations without an answer, by cause and the OSD they wait for.
    pub(crate) waiting: BTreeMap<(Cause, Option<OsdId>), Waits>,
    /// Age of the device's oldest request in flight.
    pub(crate) pending: Duration,
    /// Histograms since the start.
    pub(crate) histograms: [[u64; BUCKETS]; CAUSES],
    /// The slowest operations.
    pub(crate) slowest: Vec<Slow>,
    /// Objects with refused calls.
    pub(crate) refused: Vec<Busy>,
    /// Space of the store, which all reactors share; `None` for all but the first.
    pub(crate) space: Option<LedgerSpace>,
}

/// Space of an OSD; see [`crate::core::room`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerSpace {
    /// The OSD refuses growing writes.
    pub(crate) short: bool,
    /// Bytes of the store.
    pub(crate) total: u64,
    /// Free bytes of the store, holes of its file included.
    pub(crate) available: u64,
    /// Bytes of holes for which the file system has no room.
    pub(crate) lacks: u64,
    /// Free bytes of the file system.
    pub(crate) free: u64,
}

fn by_cause(s: &Sums) -> Value {
    let all = Cause::ALL.into_iter().map(|c| (c, s.us(c))).filter(|(_, us)| *us > 0);
    all.map(|(c, us)| (c.name().to_owned(), us.into())).collect::<Map<String, Value>>().into()
}

/// A ledger in microseconds, the longest intervals first.
fn shown(l: &Ledger) -> Value {
    let mut all: Vec<(Cause, u32)> = l.causes().collect();
    all.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    let mut out: Map<String, Value> = all.into_iter().map(|(c, us)| (c.name().to_owned(), us.into())).collect();
    if let Some(o) = l.behind() {
        out.insert("behind".into(), format!("osd.{}", o.0).into());
    }
    out.into()
}

/// Adds its ledger to a description of a finished operation, if it is among the slowest.
pub(super) fn attach(op: &mut Value, slowest: &[Slow]) {
    let info = &op["type_data"]["client_info"];
    let found = slowest.iter().find(|s| info["tid"] == s.tid && info["client"] == s.client.to_string());
    if let Some(s) = found {
        op["type_data"]["ledger_us"] = shown(&s.ledger);
    }
}

fn cpu(c: &Cpu) -> Value {
    json!({
        "wall_us": c.wall, "ran_us": c.ran, "waited_us": c.waited, "throttled_us": c.throttled, "steal_us": c.steal,
    })
}

fn space(parts: &[LedgerPart]) -> Value {
    let Some(s) = parts.iter().find_map(|p| p.space) else { return json!({}) };
    json!({ "short": s.short, "total": s.total, "available": s.available, "lacks": s.lacks, "free": s.free })
}

fn peer(osd: OsdId, p: &Peer) -> Value {
    json!({ "osd": osd.0, "acks": p.acks, "us": p.us, "max_us": p.max_us, "blamed_us": p.blamed_us })
}

fn slow(s: &Slow, now: Now) -> Value {
    json!({
        "client": s.client.to_string(), "tid": s.tid, "pool": s.pool.0, "object": s.name(),
        "total_us": s.ledger.total_us(), "ended": now.mono.since(s.end).as_secs_f64(), "us": shown(&s.ledger),
    })
}

/// The entries with the most of something.
fn most<T>(mut all: Vec<T>, key: impl Fn(&T) -> u64) -> Vec<T> {
    all.sort_by_key(|x| std::cmp::Reverse(key(x)));
    all.truncate(SHOWN_MAX);
    all
}

fn histograms(parts: &[LedgerPart]) -> Value {
    let mut out = Map::new();
    for c in Cause::ALL {
        let mut sum = [0; BUCKETS];
        for h in parts.iter().filter_map(|p| p.histograms.get(c as usize)) {
            sum.iter_mut().zip(h).for_each(|(a, b)| *a += b);
        }
        if sum.iter().any(|n| *n > 0) {
            out.insert(c.name().to_owned(), sum.to_vec().into());
        }
    }
    out.into()
}

fn waiting(parts: &[LedgerPart]) -> Value {
    let mut all: BTreeMap<(Cause, Option<OsdId>), Waits> = BTreeMap::new();
    for (k, w) in parts.iter().flat_map(|p| &p.waiting) {
        let sum = all.entry(*k).or_default();
        sum.ops += w.ops;
        sum.age += w.age;
        sum.oldest = sum.oldest.max(w.oldest);
    }
    let one = |((c, behind), w): ((Cause, Option<OsdId>), Waits)| {
        json!({
            "cause": c.name(), "ops": w.ops, "us": w.age.as_micros() as u64, "oldest": w.oldest.as_secs_f64(),
            "behind": behind.map(|o| o.0),
        })
    };
    all.into_iter().map(one).collect()
}

/// Answers `dump_ledger`.
pub(super) async fn answer(host: &Rc<ControlHost>, cmd: &Map<String, Value>) -> Answer {
    let seconds = match cmd.get("seconds") {
        None => Some(SPAN.as_secs()),
        Some(Value::String(t)) => t.parse().ok(),
        Some(v) => v.as_u64(),
    };
    let seconds = seconds.ok_or((EINVAL, "'seconds' is a number, at most 600".to_owned()))?;
    let span = Duration::from_secs(seconds).clamp(Duration::from_secs(1), SINCE_MAX);
    let mut parts = Vec::new();
    for i in 0..host.routes.reactors.len() {
        let (tx, rx) = tokio::sync::oneshot::channel();
        host.routes.reactor(i, ToReactor::Ask(Ask::Ledger(span, tx)));
        parts.extend(rx.await.ok());
    }
    let about = host.metadata();
    let names = ["front_iface", "back_iface"].map(|k| about.get(k).map_or("", String::as_str));
    // The metadata leave the name of the loopback empty.
    let mtu = surroundings::mtus(names.into_iter().map(|n| if n.is_empty() { "lo" } else { n }));
    let mut v = document(host.whoami(), span, &parts, clock::read());
    v["network"]["mtu"] = json!(mtu);
    Ok(v)
}

/// The answer.
fn document(whoami: OsdId, span: Duration, parts: &[LedgerPart], now: Now) -> Value {
    let mut w = Window { from: now.mono, ..Window::default() };
    parts.iter().for_each(|p| w.merge(&p.window));
    let long = parts.iter().fold((0, 0), |(n, us), p| (n + p.long.0, us + p.long.1));
    let pending = parts.iter().map(|p| p.pending).max().unwrap_or_default();
    let mut slowest: Vec<Slow> = parts.iter().flat_map(|p| p.slowest.iter().copied()).collect();
    slowest.sort_by_key(|s| std::cmp::Reverse(s.ledger.total_us()));
    slowest.truncate(SLOWEST_MAX);
    let clients = most(w.clients.clone(), |(_, s)| s.total_us());
    let objects = most(w.objects.clone(), |o| o.ops);
    json!({
        "osd": whoami.0,
        "host": about::hostname(),
        "seconds": span.as_secs_f64(),
        "wall": now.wall.to_unix().as_secs_f64(),
        "ops": w.all.ops,
        "us": by_cause(&w.all),
        "long_ops": long.0,
        "long_us": long.1,
        "pools": w.pools.iter().map(|(p, s)| json!({"pool": p.0, "ops": s.ops, "us": by_cause(s)})).collect::<Value>(),
        "clients": clients
            .iter()
            .map(|(c, s)| json!({"client": c.to_string(), "ops": s.ops, "us": by_cause(s)}))
            .collect::<Value>(),
        "other_clients": {"ops": w.others.ops, "us": by_cause(&w.others)},
        "objects": objects
            .iter()
            .map(|o| {
                json!({"pool": o.pool().0, "object": o.name(), "ops": o.ops, "lock_us": o.lock_us, "busy": o.busy})
            })
            .collect::<Value>(),
        "refused": parts
            .iter()
            .flat_map(|p| &p.refused)
            .map(|b| json!({"pool": b.pool.0, "object": String::from_utf8_lossy(&b.name), "calls": b.calls}))
            .collect::<Value>(),
        "peers": w.peers.iter().map(|(o, p)| peer(*o, p)).collect::<Value>(),
        "waiting": waiting(parts),
        "device": {
            "writes": w.device.acks, "us": w.device.us, "max_us": w.device.max_us,
            "pending_us": pending.as_micros() as u64,
        },
        "reactors": parts.iter().map(|p| cpu(&p.window.cpu)).collect::<Value>(),
        "network": {"sent": w.net.sent, "again": w.net.again},
        "space": space(parts),
        "histograms": histograms(parts),
        "slowest": slowest.iter().map(|s| slow(s, now)).collect::<Value>(),
    })
}
