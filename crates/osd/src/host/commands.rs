//! Commands: `ceph tell osd.N …` and the admin socket, with the same answers. Those of other files are listed with these
//! (`descriptions`): `tell`, `ledger`, `perf`, and those that are refused (`absent`).

use super::control::ControlHost;
use super::route::{Ask, Inspect, ToReactor};
use super::tracker::HistoryOptions;
use crate::core::control::prio;
use base::PgId;
use base::errno::{EINVAL, EOPNOTSUPP, Errno};
use bytes::Bytes;
use net::admin_config;
use net::admin_socket::{self, Arg, Command};
use serde_json::{Map, Value, json};
use std::rc::Rc;
use std::sync::Arc;
use wire::msg::{MCommand, MCommandReply};
use wire::{Features, Message, WireMessage as _};

const fn arg(name: &'static str) -> Arg {
    Arg { name, kind: "CephString", optional: false, many: false }
}

const fn optional(name: &'static str) -> Arg {
    Arg { name, kind: "CephString", optional: true, many: false }
}

const fn optional_int(name: &'static str) -> Arg {
    Arg { name, kind: "CephInt", optional: true, many: false }
}

/// Any further words.
pub(super) const WORDS: &[Arg] = &[Arg { name: "words", kind: "CephString", optional: true, many: true }];

pub(super) const fn command(prefix: &'static str, args: &'static [Arg], help: &'static str) -> Command {
    Command { prefix, args, help }
}

/// The refusal of `ceph tell --daemon-output-file`.
const NO_FILE: &str = "answers are not written to files of this host; redirect the output of ceph";

const PGID: &[Arg] = &[arg("pgid")];

/// Supported commands.
pub(super) const COMMANDS: &[Command] = &[
    command(
        "bench",
        &[optional_int("count"), optional_int("size")],
        "OSD benchmark: write <count> <size>-byte objects",
    ),
    command("dump_blocked_ops", &[], "show the blocked ops currently in flight"),
    command("dump_blocklist", &[], "dump blocklisted clients and times"),
    command("dump_historic_ops", &[], "show recent ops"),
    command("dump_historic_ops_by_duration", &[], "show slowest recent ops, sorted by duration"),
    command("dump_historic_slow_ops", &[], "show slowest recent ops"),
    command("dump_ops_in_flight", &[], "show the ops currently in flight"),
    command("dump_recovery_reservations", &[], "show recovery reservations"),
    command("dump_reactors", &[], "show which PGs each reactor serves, and which are to move to another one"),
    command("dump_watchers", &[], "show clients which have active watches, and on which objects"),
    command("git_version", &[], "get git sha1"),
    command("grow", &[], "use all of the OSD's file or device after it was made larger"),
    command("list_unfound", PGID, "list unfound objects on this pg"),
    command("log", &[optional("logtext")], "log a message to the cluster log"),
    command("log flush", &[], "flush log entries to log file"),
    command(
        "mark_unfound_lost",
        &[arg("pgid"), arg("mulcmd")],
        "mark all unfound objects in this pg as lost, either removing or reverting to a prior version if one is available",
    ),
    command("ops", &[], "show the ops currently in flight"),
    command("query", PGID, "show details of a specific pg"),
    command("status", &[], "high-level status of OSD"),
    command("version", &[], "report version of OSD"),
];

/// Result of a command: output, or an errno and text.
pub(super) type Answer = Result<Value, (Errno, String)>;

/// Descriptions of the commands, as the answer of `get_command_descriptions` has them.
#[must_use]
pub fn descriptions() -> Value {
    let mut out = Map::new();
    let mut put = |sig: Vec<Value>, help: &str| {
        let n = out.len();
        out.insert(format!("cmd{n:03}"), json!({"sig": sig, "help": help, "module": "osd", "perm": "r", "flags": 0}));
    };
    for c in COMMANDS
        .iter()
        .chain(super::tell::COMMANDS)
        .chain(super::absent::COMMANDS)
        .chain(super::ledger::COMMANDS)
        .chain(super::perf::COMMANDS)
        .chain(net::perf::COMMANDS)
        .chain(net::messengers::COMMANDS)
        .chain(admin_config::COMMANDS)
    {
        // `pg PGID query` carries its argument in the middle, as in Ceph.
        let mut sig: Vec<Value> = Vec::new();
        if matches!(c.prefix, "query" | "list_unfound" | "mark_unfound_lost") {
            sig.push(json!("pg"));
            sig.push(json!({"name": "pgid", "type": "CephPgid"}));
            sig.push(json!({"name": "cmd", "type": "CephChoices", "strings": c.prefix}));
            // `tell PGID query` leaves the PG to the client, which adds it to the request.
            let mut told = vec![json!(c.prefix)];
            if c.prefix == "mark_unfound_lost" {
                let how = json!({"name": "mulcmd", "type": "CephChoices", "strings": "revert|delete"});
                sig.push(how.clone());
                told.push(how);
            }
            put(told, c.help);
        } else {
            sig.extend(c.prefix.split(' ').map(|w| json!(w)));
            for a in c.args {
                let mut m = Map::new();
                m.insert("name".into(), json!(a.name));
                m.insert("type".into(), json!(a.kind));
                if a.optional {
                    m.insert("req".into(), json!(false));
                }
                if a.many {
                    m.insert("n".into(), json!("N"));
                }
                sig.push(Value::Object(m));
            }
        }
        put(sig, c.help);
    }
    Value::Object(out)
}

/// Answers a `tell` command.
pub(super) async fn run(host: &Rc<ControlHost>, m: &Message) -> Message {
    let (r, rs, data) = match MCommand::from_message(m) {
        Ok(c) => {
            let text: String = c.cmd.iter().map(|t| t.0.as_str()).collect::<Vec<_>>().join("");
            match serde_json::from_str::<Map<String, Value>>(&text) {
                // `ceph --daemon-output-file`: whoever may send commands would choose files of this host.
                Ok(cmd) if cmd.contains_key("output-file") => (EOPNOTSUPP, NO_FILE.to_owned(), String::new()),
                Ok(cmd) => {
                    let prefix = cmd.get("prefix").and_then(Value::as_str).unwrap_or("").to_owned();
                    let pretty = cmd.get("format").and_then(Value::as_str) != Some("json");
                    match answer(host, &prefix, &cmd).await {
                        Ok(Value::Null) => (0, String::new(), String::new()),
                        Ok(Value::String(said)) => (0, said, String::new()),
                        Ok(v) if pretty => (0, String::new(), admin_socket::to_pretty(&v)),
                        Ok(v) => (0, String::new(), v.to_string()),
                        Err((e, text)) => (e, text, String::new()),
                    }
                }
                Err(_) => (EINVAL, "command not understood".to_owned(), String::new()),
            }
        }
        Err(e) => (EINVAL, e.to_string(), String::new()),
    };
    let mut out = MCommandReply { r, rs: rs.into(), data: Bytes::from(data) }.to_message(Features::PACIFIC);
    out.header.tid = m.header.tid;
    out
}

/// Serves the admin socket.
pub(super) fn serve(host: &Rc<ControlHost>, path: &std::path::Path) -> std::io::Result<admin_socket::AdminSocket> {
    let host = Rc::downgrade(host);
    admin_socket::serve(
        path,
        &[
            COMMANDS,
            super::tell::COMMANDS,
            super::absent::COMMANDS,
            super::ledger::COMMANDS,
            super::perf::COMMANDS,
            net::perf::COMMANDS,
            net::messengers::COMMANDS,
            admin_config::COMMANDS,
        ],
        Rc::new(move |prefix, cmd| {
            let host = host.clone();
            Box::pin(async move {
                let host = host.upgrade().ok_or((base::errno::ENOTCONN, "stopping".to_owned()))?;
                Ok(admin_socket::to_pretty(&answer(&host, &prefix, &cmd).await?))
            })
        }),
    )
}

pub(super) async fn ask(host: &Rc<ControlHost>, what: Inspect) -> Vec<Value> {
    let mut out = Vec::new();
    for i in 0..host.routes.reactors.len() {
        let (tx, rx) = tokio::sync::oneshot::channel();
        host.routes.reactor(i, ToReactor::Ask(Ask::Inspect(what.clone(), tx)));
        if let Ok(v) = rx.await {
            out.push(v);
        }
    }
    out
}

fn refuse(why: &str) -> Answer {
    Err((EOPNOTSUPP, why.to_owned()))
}

/// Joins the lists of all reactors.
pub(super) async fn collect(host: &Rc<ControlHost>, what: Inspect) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for v in ask(host, what).await {
        if let Value::Array(a) = v {
            all.extend(a);
        }
    }
    all
}

/// Operations in flight, oldest first. Connections know the requests, PGs what each waits for.
async fn in_flight(host: &Rc<ControlHost>) -> Vec<Value> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let pairs = collect(host, Inspect::Stages).await;
    let stages = pairs.iter().map(|p| (text(&p[0]), text(&p[1]))).collect();
    sorted(collect(host, Inspect::Ops(Arc::new(stages))).await, "initiated_at")
}

fn seconds(op: &Value, key: &str) -> f64 {
    op[key].as_f64().unwrap_or(0.0)
}

fn sorted(mut ops: Vec<Value>, key: &str) -> Vec<Value> {
    ops.sort_by(|a, b| a[key].as_str().cmp(&b[key].as_str()));
    ops
}

/// The slowest operations, slowest first.
fn slowest(mut ops: Vec<Value>, n: usize) -> Vec<Value> {
    ops.sort_by(|a, b| seconds(b, "duration").total_cmp(&seconds(a, "duration")));
    ops.truncate(n);
    ops
}

/// A number of seconds, as an integer if it is whole.
fn whole(seconds: f64) -> Value {
    if seconds.fract() == 0.0 { json!(seconds as u64) } else { json!(seconds) }
}

fn history(host: &ControlHost) -> HistoryOptions {
    HistoryOptions::from_settings(&host.settings.borrow())
}

/// Groups of numbers of all reactors, summed up.
pub(super) async fn sums(host: &Rc<ControlHost>, what: Inspect) -> Value {
    let mut sum: Map<String, Value> = Map::new();
    for v in ask(host, what).await {
        let Value::Object(groups) = v else { continue };
        for (g, counters) in groups {
            let group = sum.entry(g).or_insert_with(|| json!({}));
            let (Some(group), Value::Object(counters)) = (group.as_object_mut(), counters) else { continue };
            for (k, v) in counters {
                let total = group.get(&k).and_then(Value::as_u64).unwrap_or(0) + v.as_u64().unwrap_or(0);
                group.insert(k, json!(total));
            }
        }
    }
    Value::Object(sum)
}

/// Lists of operations: those in flight, blocked ones, and recent ones.
async fn dump_ops(host: &Rc<ControlHost>, command: &str) -> Value {
    match command {
        "dump_blocked_ops" => {
            let limit = history(host).complaint.as_secs_f64();
            let mut all = in_flight(host).await;
            all.retain(|o| seconds(o, "age") >= limit);
            json!({ "ops": all, "complaint_time": whole(limit), "num_blocked_ops": all.len() })
        }
        "dump_historic_ops" => {
            let o = history(host);
            let kept = slowest(collect(host, Inspect::Historic).await, o.size);
            json!({ "size": o.size, "duration": o.duration.as_secs(), "ops": sorted(kept, "initiated_at") })
        }
        "dump_historic_ops_by_duration" => {
            let o = history(host);
            let kept = slowest(collect(host, Inspect::Historic).await, o.size);
            json!({ "size": o.size, "duration": o.duration.as_secs(), "ops": kept })
        }
        "dump_historic_slow_ops" => {
            let o = history(host);
            let mut all = sorted(collect(host, Inspect::Slow).await, "initiated_at");
            let surplus = all.len().saturating_sub(o.slow_size);
            all.drain(..surplus);
            json!({
                "num to keep": o.slow_size, "threshold to keep": whole(o.slow_threshold.as_secs_f64()), "Ops": all,
            })
        }
        _ => {
            let all = in_flight(host).await;
            json!({ "ops": all, "num_ops": all.len() })
        }
    }
}

fn pg_named(cmd: &Map<String, Value>) -> Result<PgId, (Errno, String)> {
    let pg = cmd.get("pgid").and_then(Value::as_str).and_then(PgId::parse);
    pg.ok_or((EINVAL, "bad pgid".to_owned()))
}

/// Gives up the unfound objects of a PG led here.
async fn mark_unfound_lost(host: &Rc<ControlHost>, pg: PgId, mode: Option<&str>) -> Answer {
    let revert = match mode {
        Some("revert") => true,
        Some("delete") => false,
        _ => return Err((EINVAL, "mode must be 'revert' or 'delete'; mark not yet implemented".to_owned())),
    };
    for i in 0..host.routes.reactors.len() {
        let (tx, rx) = tokio::sync::oneshot::channel();
        host.routes.reactor(i, ToReactor::Ask(Ask::MarkLost(pg, revert, tx)));
        if let Ok(Some(said)) = rx.await {
            return said.map(Value::String);
        }
    }
    Err((base::errno::ENOENT, format!("i don't have pgid {pg}")))
}

/// The endpoints of all reactors and of the control machine.
async fn messengers(host: &Rc<ControlHost>, cmd: &Map<String, Value>) -> Answer {
    let mut parts = host.messengers();
    for pair in collect(host, Inspect::Messengers).await {
        let name = if pair[0] == "client" { "client" } else { "cluster" };
        parts.push((name, pair[1].clone()));
    }
    net::messengers::answer(parts, cmd)
}

async fn answer(host: &Rc<ControlHost>, prefix: &str, cmd: &Map<String, Value>) -> Answer {
    let text = |k: &str| cmd.get(k).and_then(Value::as_str).map(str::to_owned);
    // `ceph tell osd.N pg PGID query` comes as prefix "pg" with the command as an argument.
    let prefix = match (prefix, text("cmd")) {
        ("pg", Some(c)) => c,
        (p, _) => p.to_owned(),
    };
    let done = admin_config::answer(&mut host.settings.borrow_mut(), &prefix, cmd, ControlHost::observes);
    if let Some(done) = done {
        let done = done?;
        if done.changed {
            host.settings_changed();
        }
        return Ok(done.answer);
    }
    match prefix.as_str() {
        "get_command_descriptions" => Ok(descriptions()),
        "version" => Ok(json!({
            "version": admin_socket::VERSION,
            "release": "pacific",
            "release_type": "stable",
            "server": concat!("belemnite ", env!("CARGO_PKG_VERSION")),
        })),
        "status" => {
            let mut all = host.status();
            all["num_pgs"] = super::perf::num_pgs(host).await.into();
            // An addition to Ceph's answer: the states of the PGs led here.
            all["pgs_by_state"] = sums(host, Inspect::States).await["pgs_by_state"].clone();
            Ok(all)
        }
        "grow" => super::grow::run(host).await,
        "bench" => super::bench::run(&host.reactor, &host.settings, cmd).await,
        "git_version" => Ok(json!({ "git_version": concat!("belemnite ", env!("CARGO_PKG_VERSION")) })),
        "ops"
        | "dump_ops_in_flight"
        | "dump_blocked_ops"
        | "dump_historic_ops"
        | "dump_historic_ops_by_duration"
        | "dump_historic_slow_ops" => Ok(dump_ops(host, &prefix).await),
        "dump_recovery_reservations" => Ok(super::dump::reservations(&host.reserver)),
        "dump_ledger" => super::ledger::answer(host, cmd).await,
        "dump_reactors" => Ok(collect(host, Inspect::Places).await.into()),
        "dump_watchers" => Ok(collect(host, Inspect::Watchers).await.into()),
        "dump_blocklist" => Ok(host.blocklist()),
        // Standard error is not buffered.
        "log flush" => Ok(json!({})),
        p if let Some(why) = super::absent::instead(p) => refuse(why),
        p if super::tell::COMMANDS.iter().any(|c| c.prefix == p) => super::tell::answer(host, p, cmd).await,
        "messenger dump" => messengers(host, cmd).await,
        p if super::perf::serves(p) => Ok(super::perf::answer(host, p, cmd).await),
        "log" => {
            host.log_line(prio::INFO, text("logtext").unwrap_or_default());
            Ok(Value::Null)
        }
        "query" | "list_unfound" => {
            let pg = pg_named(cmd)?;
            let what = if prefix == "query" { Inspect::Pg(pg) } else { Inspect::Unfound(pg) };
            let found = ask(host, what).await.into_iter().find(|v| !v.is_null());
            found.ok_or((base::errno::ENOENT, format!("i don't have pgid {pg}")))
        }
        "mark_unfound_lost" => mark_unfound_lost(host, pg_named(cmd)?, text("mulcmd").as_deref()).await,
        p => {
            tracing::info!(command = p, "command is not supported");
            Err((EOPNOTSUPP, format!("command '{p}' is not supported by this OSD")))
        }
    }
}
