//! The monitor's answers on its admin socket.

use std::io;
use std::path::Path;
use std::rc::Rc;

use base::errno;
use net::Net;
use net::admin_config::{self, Done};
use net::admin_socket::{self, AdminSocket, Answer, Arg, Command, Handler, to_pretty};
use serde_json::{Map, Value, json};

use super::bridge::Bridge;
use crate::core::options::MonOptions;

const fn string(name: &'static str) -> Arg {
    Arg { name, kind: "CephString", optional: false, many: false }
}

const COMMANDS: &[Command] = &[
    Command { prefix: "perf dump", args: &[], help: "dump perfcounters value" },
    Command { prefix: "git_version", args: &[], help: "get git sha1" },
    Command { prefix: "log flush", args: &[], help: "flush log entries to log file" },
    Command { prefix: "log dump", args: &[], help: "dump recent log entries to log file" },
    Command { prefix: "log reopen", args: &[], help: "reopen log file" },
    Command { prefix: "heap", args: &[string("heapcmd")], help: "show heap usage info" },
    Command { prefix: "dump_mempools", args: &[], help: "get mempool stats" },
    Command { prefix: "dump_ops_in_flight", args: &[], help: "show the ops currently in flight" },
    Command { prefix: "ops", args: &[], help: "show the ops currently in flight" },
    Command { prefix: "dump_historic_ops", args: &[], help: "show recent ops" },
    Command { prefix: "mon_status", args: &[], help: "report status of monitors" },
    Command { prefix: "quorum_status", args: &[], help: "report status of monitor quorum" },
    Command { prefix: "sessions", args: &[], help: "list existing sessions" },
    Command { prefix: "state export", args: &[string("file")], help: "write the monitors' state to a new file" },
];

pub(super) fn serve(bridge: Rc<Bridge>, net: Net, path: &Path) -> io::Result<AdminSocket> {
    let handler: Handler = Rc::new(move |prefix, args| {
        if prefix == "state export" {
            let bridge = Rc::clone(&bridge);
            return Box::pin(async move { export(&bridge, &args).await });
        }
        let answer = answer(&bridge, &net, &prefix, &args);
        Box::pin(std::future::ready(answer))
    });
    admin_socket::serve(path, &[COMMANDS, admin_config::COMMANDS], handler)
}

/// The answer to a command about the options of this process; `None` for other commands. Changes are already in
/// force.
pub(super) fn options(
    o: &mut MonOptions,
    prefix: &str,
    args: &Map<String, Value>,
) -> Option<Result<Done, (errno::Errno, String)>> {
    let done = admin_config::answer(&mut o.settings, prefix, args, MonOptions::observes)?;
    Some(done.map(|d| {
        if d.changed {
            o.apply_settings();
        }
        let answer = match (prefix, args.get("var").and_then(Value::as_str)) {
            // Some defaults differ from Ceph's.
            ("config show", _) => json!(o.all()),
            ("config get", Some(v)) => o.all().remove(v).map_or(d.answer, |value| json!({ v: value })),
            _ => d.answer,
        };
        Done { answer, ..d }
    }))
}

fn answer(bridge: &Bridge, net: &Net, prefix: &str, args: &Map<String, Value>) -> Answer {
    let done = options(&mut bridge.core.borrow_mut().state.options, prefix, args);
    if let Some(done) = done {
        bridge.settings_changed();
        return Ok(to_pretty(&done?.answer));
    }
    let refuse = |why: &str| Err((errno::EOPNOTSUPP, why.to_owned()));
    let v = match prefix {
        "perf dump" => perf_dump(bridge, net),
        "git_version" => json!({ "git_version": concat!("belemnite ", env!("CARGO_PKG_VERSION")) }),
        // Log lines go to standard error without a buffer, so there is nothing to flush.
        "log flush" => json!({}),
        "log dump" => return refuse("no log entries are kept in memory"),
        "log reopen" => return refuse("the log goes to standard error; whoever started the monitor keeps the file"),
        "heap" => return refuse("could not issue heap profiler command -- not using tcmalloc!"),
        "dump_mempools" => return refuse("memory is not accounted by pools"),
        "dump_ops_in_flight" | "ops" => bridge.core.borrow().ops.in_flight(reactor::clock::read()),
        "dump_historic_ops" => bridge.core.borrow().ops.historic(reactor::clock::read()),
        "mon_status" | "quorum_status" | "sessions" => return command(bridge, prefix),
        other => return Err((errno::EINVAL, format!("unknown command '{other}'"))),
    };
    Ok(to_pretty(&v))
}

/// Exports the state to the file that the request names by its absolute path.
async fn export(bridge: &Bridge, args: &Map<String, Value>) -> Answer {
    let path = args.get("file").and_then(Value::as_str).map(Path::new).filter(|p| p.is_absolute());
    let path = path.ok_or((errno::EINVAL, "'file' is to be an absolute path".to_owned()))?;
    let n = super::backup::export(bridge, path.to_owned()).await.map_err(|e| (errno::EIO, e.to_string()))?;
    Ok(format!("{n} records written to {}", path.display()))
}

/// Runs a monitor command with the rights of the machine's administrator.
fn command(bridge: &Bridge, prefix: &str) -> Answer {
    let out = bridge.core.borrow_mut().local_command(prefix);
    let text = String::from_utf8_lossy(&out).into_owned();
    if text.is_empty() { Err((errno::EOPNOTSUPP, format!("'{prefix}' gave no answer"))) } else { Ok(text) }
}

fn perf_dump(bridge: &Bridge, net: &Net) -> Value {
    let core = bridge.core.borrow();
    let s = &core.state;
    let map = &s.osdmap;
    let (osds, up, inn) = map.osd_counts();
    let stat = s.mgr.stats.osd_sum();
    let states = s.mgr.stats.states(map);
    let with = |bits: u64| states.iter().filter(|(st, _)| *st & bits == bits).map(|(_, n)| *n).sum::<i64>();
    let sum = &s.mgr.stats.sum().stats.sum;
    let n = net.stats();
    let c = bridge.counters();
    let (commits, commit_ns) = core.commit_latency();
    let seconds = commit_ns as f64 / 1e9;
    json!({
        "AsyncMessenger::Worker-0": {
            "msgr_recv_messages": n.messages_in,
            "msgr_send_messages": n.messages_out,
            "msgr_recv_bytes": n.bytes_in,
            "msgr_send_bytes": n.bytes_out,
            "msgr_created_connections": c.sessions_opened.get(),
            "msgr_active_connections": n.connections,
        },
        "cluster": {
            "num_mon": s.monmap.mons.len(),
            "num_mon_quorum": s.quorum().len(),
            "num_osd": osds,
            "num_osd_up": up,
            "num_osd_in": inn,
            "osd_epoch": map.epoch.0,
            "osd_bytes": stat.statfs.total,
            "osd_bytes_used": stat.statfs.total - stat.statfs.available,
            "osd_bytes_avail": stat.statfs.available,
            "num_pool": map.pools.len(),
            "num_pg": s.mgr.stats.num_pg(map),
            "num_pg_active_clean": with(wire::types::pg_state::ACTIVE | wire::types::pg_state::CLEAN),
            "num_pg_active": with(wire::types::pg_state::ACTIVE),
            "num_pg_peering": with(wire::types::pg_state::PEERING),
            "num_object": sum.num_objects,
            "num_object_degraded": sum.num_objects_degraded,
            "num_object_misplaced": sum.num_objects_misplaced,
            "num_object_unfound": sum.num_objects_unfound,
            "num_bytes": sum.num_bytes,
        },
        "mon": {
            "num_sessions": core.session_count(),
            "session_add": c.sessions_opened.get(),
            "session_rm": c.sessions_closed.get(),
        },
        "paxos": {
            "begin": c.commits.get(),
            "commit": commits,
            "commit_latency": {
                "avgcount": commits,
                "sum": seconds,
                "avgtime": if commits == 0 { 0.0 } else { seconds / commits as f64 },
            },
        },
    })
}
