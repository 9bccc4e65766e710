//! Crash reports of daemons. `ceph-crash` posts them; they are kept where Ceph's module keeps them, in the keys
//! `mgr/crash/crash/<id>`.
//!
//! Daemons of this program post no reports: the reason why one ended is in its log. So the list holds crashes of
//! Ceph's daemons, and of other programs that post here.

use crate::command::language::text::{Left, Table};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, flag as cf, invalid, plain, refuse};
use crate::json::J;
use crate::state::ClusterState;
use crate::state::crash::{CrashSummary, PREFIX, REPORT_MAX};
use base::{Now, Utime, errno};
use serde_json::Value;
use std::collections::BTreeMap;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("crash ls", "mgr", "r", cf::MGR, |c| ls(c, false), "list crashes"),
    cmd("crash ls-new", "mgr", "r", cf::MGR, |c| ls(c, true), "list crashes that are not archived"),
    cmd("crash stat", "mgr", "r", cf::MGR, stat, "count crashes"),
    cmd(
        "crash json_report hours:String",
        "mgr",
        "r",
        cf::MGR,
        json_report,
        "count the crashes of so many hours by program",
    ),
    cmd("crash info id:String", "mgr", "r", cf::MGR, info, "show a crash"),
    cmd("crash post", "mgr", "rw", cf::MGR, post, "add a crash, given as input in JSON"),
    cmd("crash rm id:String", "mgr", "rw", cf::MGR, rm, "remove a crash"),
    cmd("crash prune keep:String", "mgr", "rw", cf::MGR, prune, "remove crashes older than so many days"),
    cmd("crash archive id:String", "mgr", "w", cf::MGR, archive, "archive a crash, so that it raises no alert"),
    cmd("crash archive-all", "mgr", "w", cf::MGR, archive_all, "archive all crashes"),
];

/// Longest crash id, in bytes.
const ID_MAX: usize = 512;
/// Most crash reports kept.
const CRASHES_MAX: usize = 1000;
/// Days for which a crash that is not archived raises an alert (`mgr/crash/warn_recent_interval`).
const RECENT_DAYS: u64 = 14;
const DAY: u64 = 86_400;

/// All crashes, the oldest first.
fn all(state: &ClusterState) -> Vec<(&String, &CrashSummary)> {
    let mut v: Vec<_> = state.kv.crashes().iter().collect();
    v.sort_by(|a, b| a.1.stamp.cmp(&b.1.stamp));
    v
}

/// The report of a crash.
fn report(state: &ClusterState, id: &str) -> Option<Value> {
    serde_json::from_slice(state.kv.get(&format!("{PREFIX}{id}"))?).ok()
}

/// The time `days` days ago, in the form of [`CrashSummary::stamp`].
fn days_ago(now: Now, days: u64) -> String {
    let secs = u64::from(now.wall.sec).saturating_sub(days.saturating_mul(DAY));
    zulu(Utime { sec: u32::try_from(secs).unwrap_or(0), nsec: now.wall.nsec })
}

fn zulu(t: Utime) -> String {
    t.iso().replace("+0000", "Z")
}

/// One line for each recent crash that is not archived, for health.
pub(in crate::command) fn recent(state: &ClusterState, now: Now) -> Vec<String> {
    let since = days_ago(now, RECENT_DAYS);
    let line = |c: &CrashSummary| format!("{} crashed on host {} at {}", c.entity, c.host, c.time);
    all(state).into_iter().filter(|(_, c)| c.new && c.stamp >= since).map(|(_, c)| line(c)).collect()
}

fn ls(c: &mut Ctx<'_>, new: bool) -> Res<CommandOutcome> {
    let list: Vec<_> = all(c.state).into_iter().filter(|(_, x)| !new || x.new).collect();
    let tree = || J::Raw(list.iter().filter_map(|(id, _)| report(c.state, id)).collect::<Value>().to_string());
    let text = || {
        if list.is_empty() {
            return String::new();
        }
        let mut t = Table::new(&["ID", "ENTITY", "NEW"].map(|h| (h, Left, Left)));
        for (id, x) in &list {
            t.row([id.as_str(), &x.entity, if x.new { "*" } else { "" }]);
        }
        // Each line ends in the padding of the last column.
        t.render().lines().map(|l| format!("{l}  \n")).collect()
    };
    c.tree("crashes", tree).written(J::compact).line().text(text)
}

/// The number of crashes in the last hours by the name of the process.
fn json_report(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let hours = c.args.str("hours")?;
    let Ok(hours) = hours.trim().parse::<u64>() else {
        return invalid(format!("hours argument must be a whole number, not '{hours}'"));
    };
    let secs = u64::from(c.now.wall.sec).saturating_sub(hours.saturating_mul(3600));
    let since = zulu(Utime { sec: u32::try_from(secs).unwrap_or(0), nsec: c.now.wall.nsec });
    let mut by: BTreeMap<String, u64> = BTreeMap::new();
    for (id, _) in all(c.state).into_iter().filter(|(_, x)| x.stamp >= since) {
        let report = report(c.state, id).unwrap_or_default();
        let name = report.get("process_name").and_then(Value::as_str).filter(|n| !n.is_empty()).unwrap_or("unknown");
        *by.entry(name.to_owned()).or_default() += 1;
    }
    plain(format!("{}\n", serde_json::json!(by)))
}

fn stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let list = all(c.state);
    let mut s = format!("{} crashes recorded\n", list.len());
    for days in [1, 3, 7] {
        let before = days_ago(c.now, days);
        let old: Vec<&str> = list.iter().filter(|(_, x)| x.stamp < before).map(|(id, _)| id.as_str()).collect();
        if !old.is_empty() {
            s += &format!("{} older than {days} days old:\n{}\n", old.len(), old.join("\n"));
        }
    }
    plain(s)
}

/// Id and report of the crash that the command's `id` names. Error: EINVAL.
fn named(c: &Ctx<'_>) -> Res<(String, Value)> {
    let id = c.args.str("id")?;
    match report(c.state, &id) {
        Some(x) => Ok((id, x)),
        None => invalid(format!("{}: {id} not found", c.prefix)),
    }
}

fn info(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    plain(format!("{:#}\n", named(c)?.1))
}

fn post(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.input.len() > REPORT_MAX {
        return refuse(errno::EFBIG, format!("a report of a crash has at most {REPORT_MAX} bytes"));
    }
    let report: Value = match serde_json::from_slice(c.input) {
        Ok(v) => v,
        Err(e) => return invalid(format!("malformed crash metadata: {e}")),
    };
    let Some(id) = report.get("crash_id").and_then(Value::as_str) else {
        return invalid("malformed crash metadata: 'crash_id'");
    };
    if id.is_empty() || id.len() > ID_MAX || id.chars().any(char::is_control) {
        return invalid("malformed crash metadata: 'crash_id' is empty, too long or no text");
    }
    if report.get("timestamp").and_then(Value::as_str).is_none() {
        return invalid("malformed crash metadata: 'timestamp'");
    }
    let key = format!("{PREFIX}{id}");
    if c.pending.kv(c.state, &key).is_some() {
        // `ceph-crash` posts a report again until it succeeds.
        return done("");
    }
    if c.state.kv.crashes().len() >= CRASHES_MAX {
        return refuse(
            errno::ENOSPC,
            format!("{CRASHES_MAX} crashes are recorded: remove some with 'ceph crash prune'"),
        );
    }
    c.pending.set_kv(key, Some(c.input.clone()));
    committed("")
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let key = format!("{PREFIX}{}", c.args.str("id")?);
    if c.pending.kv(c.state, &key).is_none() {
        return done("");
    }
    c.pending.set_kv(key, None);
    committed("")
}

fn prune(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let Ok(days) = c.args.str("keep")?.parse::<u64>() else { return invalid("keep argument must be numeric") };
    let before = days_ago(c.now, days);
    let old = c.state.kv.crashes().iter().filter(|(_, x)| x.stamp < before);
    let old: Vec<String> = old.map(|(id, _)| format!("{PREFIX}{id}")).collect();
    if old.is_empty() {
        return done("");
    }
    old.into_iter().for_each(|k| c.pending.set_kv(k, None));
    committed("")
}

/// Archives a crash: it no longer raises an alert.
fn set_aside(c: &mut Ctx<'_>, id: &str, mut report: Value) {
    if let Some(m) = report.as_object_mut() {
        m.insert("archived".into(), zulu(c.now.wall).into());
    }
    c.pending.set_kv(format!("{PREFIX}{id}"), Some(report.to_string().into()));
}

fn archive(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, x) = named(c)?;
    if x.get("archived").is_some() {
        return done("");
    }
    set_aside(c, &id, x);
    committed("")
}

fn archive_all(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let new: Vec<String> = c.state.kv.crashes().iter().filter(|(_, x)| x.new).map(|(id, _)| id.clone()).collect();
    if new.is_empty() {
        return done("");
    }
    for id in new {
        if let Some(x) = report(c.state, &id) {
            set_aside(c, &id, x);
        }
    }
    committed("")
}
