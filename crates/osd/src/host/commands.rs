//! Commands: `ceph tell osd.N …` and the admin socket, answered alike.

use super::control::ControlHost;
use super::route::{Inspect, ToShard};
use base::PgId;
use base::errno::{EINVAL, EOPNOTSUPP, Errno};
use bytes::Bytes;
use net::admin_socket::{self, Arg, Command};
use serde_json::{Map, Value, json};
use std::rc::Rc;
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

const fn command(prefix: &'static str, args: &'static [Arg], help: &'static str) -> Command {
    Command { prefix, args, help }
}

const PGID: &[Arg] = &[arg("pgid")];

/// What we answer.
pub(super) const COMMANDS: &[Command] = &[
    command(
        "bench",
        &[optional_int("count"), optional_int("size")],
        "OSD benchmark: write <count> <size>-byte objects",
    ),
    command("config get", &[arg("var")], "get the config value"),
    command("config show", &[], "dump current config settings"),
    command("dump_historic_ops", &[], "show recent ops"),
    command("dump_historic_slow_ops", &[], "show slowest recent ops"),
    command("dump_ops_in_flight", &[], "show the ops currently in flight"),
    command("list_unfound", PGID, "list unfound objects on this pg"),
    command("log", &[optional("logtext")], "log a message to the cluster log"),
    command("ops", &[], "show the ops currently in flight"),
    command("perf dump", &[optional("logger"), optional("counter")], "dump perfcounters value"),
    command("query", PGID, "show details of a specific pg"),
    command("status", &[], "high-level status of OSD"),
    command("version", &[], "report version of OSD"),
];

/// Result of a command: output, or an errno and text.
pub(super) type Answer = Result<Value, (Errno, String)>;

fn descriptions() -> Value {
    let mut out = Map::new();
    for (i, c) in COMMANDS.iter().enumerate() {
        // `pg PGID query` carries its argument in the middle, as in Ceph.
        let mut sig: Vec<Value> = Vec::new();
        if matches!(c.prefix, "query" | "list_unfound") {
            sig.push(json!("pg"));
            sig.push(json!({"name": "pgid", "type": "CephPgid"}));
            sig.push(json!({"name": "cmd", "type": "CephChoices", "strings": c.prefix}));
        } else {
            sig.extend(c.prefix.split(' ').map(|w| json!(w)));
            for a in c.args {
                let mut m = Map::new();
                m.insert("name".into(), json!(a.name));
                m.insert("type".into(), json!(a.kind));
                if a.optional {
                    m.insert("req".into(), json!(false));
                }
                sig.push(Value::Object(m));
            }
        }
        out.insert(format!("cmd{i:03}"), json!({"sig": sig, "help": c.help, "module": "osd", "perm": "r", "flags": 0}));
    }
    Value::Object(out)
}

/// Answers a `tell`.
pub(super) async fn run(host: &Rc<ControlHost>, m: &Message) -> Message {
    let (r, rs, data) = match MCommand::from_message(m) {
        Ok(c) => {
            let text: String = c.cmd.iter().map(|t| t.0.as_str()).collect::<Vec<_>>().join("");
            match serde_json::from_str::<Map<String, Value>>(&text) {
                Ok(cmd) => {
                    let prefix = cmd.get("prefix").and_then(Value::as_str).unwrap_or("").to_owned();
                    let pretty = cmd.get("format").and_then(Value::as_str) != Some("json");
                    match answer(host, &prefix, &cmd).await {
                        Ok(Value::Null) => (0, String::new(), String::new()),
                        Ok(v) if pretty => (0, String::new(), format!("{v:#}\n")),
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
        COMMANDS,
        Rc::new(move |prefix, cmd| {
            let host = host.clone();
            Box::pin(async move {
                let host = host.upgrade().ok_or((base::errno::ENOTCONN, "stopping".to_owned()))?;
                Ok(format!("{:#}\n", answer(&host, &prefix, &cmd).await?))
            })
        }),
    )
}

async fn ask(host: &Rc<ControlHost>, what: Inspect) -> Vec<Value> {
    let mut out = Vec::new();
    for i in 0..host.routes.shards.len() {
        let (tx, rx) = tokio::sync::oneshot::channel();
        host.routes.shard(i, ToShard::Inspect(what.clone(), tx));
        if let Ok(v) = rx.await {
            out.push(v);
        }
    }
    out
}

/// The ops of all reactors in one list.
async fn ops(host: &Rc<ControlHost>, what: Inspect, list: &str) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for v in ask(host, what).await {
        if let Value::Array(a) = v {
            all.extend(a);
        }
    }
    json!({ "num_ops": all.len(), list: all })
}

/// Counters of all reactors, added up by name.
async fn perf(host: &Rc<ControlHost>) -> Value {
    let mut sum: Map<String, Value> = Map::new();
    for v in ask(host, Inspect::Perf).await {
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

async fn answer(host: &Rc<ControlHost>, prefix: &str, cmd: &Map<String, Value>) -> Answer {
    let text = |k: &str| cmd.get(k).and_then(Value::as_str).map(str::to_owned);
    // `ceph tell osd.N pg PGID query` comes as prefix "pg" with the command as an argument.
    let prefix = match (prefix, text("cmd")) {
        ("pg", Some(c)) => c,
        (p, _) => p.to_owned(),
    };
    match prefix.as_str() {
        "get_command_descriptions" => Ok(descriptions()),
        "version" => Ok(json!({
            "version": admin_socket::VERSION,
            "release": "pacific",
            "release_type": "stable",
            "server": concat!("belemnite ", env!("CARGO_PKG_VERSION")),
        })),
        "status" => Ok(host.status()),
        "bench" => super::bench::run(&host.shard, cmd).await,
        "config show" => Ok(Value::Object(host.settings())),
        "config get" => {
            let var = text("var").or_else(|| text("key")).ok_or((EINVAL, "which option?".to_owned()))?;
            match host.settings().get(&var) {
                Some(v) => Ok(json!({ var: v })),
                None => Err((base::errno::ENOENT, format!("no option {var} is set"))),
            }
        }
        "ops" | "dump_ops_in_flight" => Ok(ops(host, Inspect::Ops, "ops").await),
        "dump_historic_ops" | "dump_historic_slow_ops" => Ok(ops(host, Inspect::Historic, "ops").await),
        "perf dump" => {
            let all = perf(host).await;
            Ok(match text("logger") {
                Some(l) => json!({ l.clone(): all.get(&l).cloned().unwrap_or(json!({})) }),
                None => all,
            })
        }
        "log" => {
            host.log_line(text("logtext").unwrap_or_default());
            Ok(Value::Null)
        }
        "query" | "list_unfound" => {
            let pg = text("pgid").and_then(|t| PgId::parse(&t)).ok_or((EINVAL, "bad pgid".to_owned()))?;
            let found = ask(host, Inspect::Pg(pg)).await.into_iter().find(|v| !v.is_null());
            match (prefix.as_str(), found) {
                (_, None) => Err((base::errno::ENOENT, format!("i don't have pgid {pg}"))),
                ("query", Some(v)) => Ok(v),
                // One copy: what is missing is nowhere else.
                (_, Some(_)) => Ok(json!({"num_missing": 0, "num_unfound": 0, "objects": [], "more": false})),
            }
        }
        p => {
            tracing::info!(command = p, "command is not supported");
            Err((EOPNOTSUPP, format!("command '{p}' is not supported by this OSD")))
        }
    }
}
