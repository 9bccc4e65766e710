//! The monitor's answers on its admin socket.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::errno;
use net::admin_config::{self, Done};
use net::admin_socket::{self, AdminSocket, Answer, Arg, Command, Handler, to_pretty};
use net::{Net, messengers, perf};
use serde_json::{Map, Value, json};

use super::bridge::Bridge;
use super::counters;
use crate::state::options::MonOptions;

const fn string(name: &'static str) -> Arg {
    Arg { name, kind: "CephString", optional: false, many: false }
}

const COMMANDS: &[Command] = &[
    Command { prefix: "git_version", args: &[], help: "get git sha1" },
    Command { prefix: "log flush", args: &[], help: "flush log entries to log file" },
    Command { prefix: "log dump", args: &[], help: "dump recent log entries to log file" },
    Command { prefix: "log reopen", args: &[], help: "reopen log file" },
    Command { prefix: "heap", args: &[string("heapcmd")], help: "show heap usage info" },
    Command { prefix: "dump_mempools", args: &[], help: "get mempool stats" },
    Command { prefix: "dump_ops_in_flight", args: &[], help: "show the ops currently in flight" },
    Command { prefix: "ops", args: &[], help: "show the ops currently in flight" },
    Command { prefix: "dump_historic_ops", args: &[], help: "show recent ops" },
    Command { prefix: "dump_historic_ops_by_duration", args: &[], help: "show recent ops, sorted by duration" },
    Command {
        prefix: "dump_osd_network",
        args: &[Arg { name: "value", kind: "CephInt", optional: true, many: false }],
        help: "show the slow heartbeats between OSDs",
    },
    Command { prefix: "mgr_status", args: &[], help: "show the state of the manager role" },
    Command { prefix: "mon_status", args: &[], help: "report status of monitors" },
    Command { prefix: "quorum_status", args: &[], help: "report status of monitor quorum" },
    Command { prefix: "sessions", args: &[], help: "list existing sessions" },
    Command { prefix: "state export", args: &[string("file")], help: "write the monitors' state to a new file" },
];

/// Paths of the admin socket: that of the monitor, and with the manager role also the one where tools look for a
/// manager's, if the name of the file tells the kind of daemon.
pub(super) fn paths(mon: &Path, manager: bool) -> Vec<PathBuf> {
    let name = mon.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let other = name.replacen("mon.", "mgr.", 1);
    let mut all = vec![mon.to_owned()];
    if manager && other != name {
        all.push(mon.with_file_name(other));
    }
    all
}

pub(super) fn serve(bridge: Rc<Bridge>, net: Net, path: &Path) -> io::Result<AdminSocket> {
    let handler: Handler = Rc::new(move |prefix, args| {
        if prefix == "state export" {
            let bridge = Rc::clone(&bridge);
            return Box::pin(async move { export(&bridge, &args).await });
        }
        let answer = answer(&bridge, &net, &prefix, &args);
        Box::pin(std::future::ready(answer))
    });
    let all = [COMMANDS, perf::COMMANDS, messengers::COMMANDS, admin_config::COMMANDS];
    admin_socket::serve(path, &all, handler)
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
    let done = bridge.core.borrow_mut().change_options(|o| options(o, prefix, args));
    if let Some(done) = done {
        bridge.settings_changed();
        return Ok(to_pretty(&done?.answer));
    }
    let refuse = |why: &str| Err((errno::EOPNOTSUPP, why.to_owned()));
    let v = match prefix {
        p if perf::COMMANDS.iter().any(|c| c.prefix == p) => perf::answer(&counters::sections(bridge, net), p, args),
        "messenger dump" => messengers::answer_by_kind(net, args)?,
        "git_version" => json!({ "git_version": concat!("belemnite ", env!("CARGO_PKG_VERSION")) }),
        // Log lines go to standard error without a buffer, so there is nothing to flush.
        "log flush" => json!({}),
        "log dump" => return refuse("no log entries are kept in memory"),
        "log reopen" => return refuse("the log goes to standard error; whoever started the monitor keeps the file"),
        "heap" => return refuse("could not issue heap profiler command -- not using tcmalloc!"),
        "dump_mempools" => return refuse("memory is not accounted by pools"),
        "dump_ops_in_flight" | "ops" => bridge.core.borrow().ops().in_flight(reactor::clock::read()),
        "dump_historic_ops" => bridge.core.borrow().ops().historic(reactor::clock::read()),
        "dump_historic_ops_by_duration" => bridge.core.borrow().ops().by_duration(reactor::clock::read()),
        "mon_status" | "quorum_status" | "sessions" | "mgr_status" | "dump_osd_network" => {
            return command(bridge, prefix, args);
        }
        other => return Err((errno::EINVAL, format!("unknown command '{other}'"))),
    };
    Ok(to_pretty(&v))
}

/// The answer to `tell … messenger dump`, whose list of contents is one text.
pub(super) fn messengers(net: &Net, args: &BTreeMap<String, String>) -> (errno::Errno, String, bytes::Bytes) {
    let value = |(k, v): (&String, &String)| match k.as_str() {
        "dumpcontents" => (k.clone(), v.split(' ').collect::<Vec<_>>().into()),
        _ => (k.clone(), Value::from(v.as_str())),
    };
    match messengers::answer_by_kind(net, &args.iter().map(value).collect()) {
        Ok(v) => (0, String::new(), to_pretty(&v).into()),
        Err((rc, rs)) => (rc, rs, bytes::Bytes::new()),
    }
}

/// Exports the state to the file that the request names by its absolute path.
async fn export(bridge: &Bridge, args: &Map<String, Value>) -> Answer {
    let path = args.get("file").and_then(Value::as_str).map(Path::new).filter(|p| p.is_absolute());
    let path = path.ok_or((errno::EINVAL, "'file' is to be an absolute path".to_owned()))?;
    let n = super::backup::export(bridge, path.to_owned()).await.map_err(|e| (errno::EIO, e.to_string()))?;
    Ok(format!("{n} records written to {}", path.display()))
}

/// Runs a monitor command with the rights of the machine's administrator.
fn command(bridge: &Bridge, prefix: &str, args: &Map<String, Value>) -> Answer {
    let out = bridge.core.borrow_mut().local_command(prefix, args);
    let text = String::from_utf8_lossy(&out).into_owned();
    if text.is_empty() { Err((errno::EOPNOTSUPP, format!("'{prefix}' gave no answer"))) } else { Ok(text) }
}
