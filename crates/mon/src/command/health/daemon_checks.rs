//! Alerts about daemons that run: old versions, and OSDs outside the public network.
//!
//! Daemons of Ceph, which may be of any release beside ours, are left out of the comparison of versions.

use super::Severity::{Err, Warn};
use super::checks::{Adder, on};
use crate::command::mon::versions::VERSION;
use crate::state::ClusterState;
use crate::state::clocks::seconds;
use crate::state::config::mon_option;
use base::Now;
use cluster::caps::Network;
use std::collections::BTreeMap;
use std::time::Duration;

/// A week in seconds, the default of `mon_warn_older_version_delay`.
const WEEK: f64 = 604_800.0;
/// Daemons of one version that a line names.
const NAMED: usize = 50;

/// Adds the alerts.
pub(super) fn add(a: &mut Adder, state: &ClusterState, now: Now) {
    old_versions(a, state, now);
    unreachable(a, state);
}

/// A version of this program: its numbers, by which versions are ordered, and its text.
type Version = (Vec<u64>, String);

/// The version of this program in the version text of a daemon; `None` for Ceph's daemons.
fn version_of(text: &str) -> Option<Version> {
    let v = text.split_once("(belemnite ")?.1.split(')').next()?;
    let numbers = v.split(['.', '-', '+']).map_while(|n| n.parse().ok()).collect();
    Some((numbers, v.to_owned()))
}

/// The running monitors and OSDs of this program by their versions, the oldest first.
fn by_version(state: &ClusterState) -> BTreeMap<Version, Vec<String>> {
    let text = |m: &BTreeMap<String, String>| m.get("ceph_version").and_then(|v| version_of(v));
    let osds = state.osds.metadata.iter().filter(|(o, _)| state.osdmap.is_up(**o));
    let osds = osds.filter_map(|(o, m)| Some((o.to_string(), text(m)?)));
    let runs = |n: &String| state.mons.up.as_ref().is_none_or(|up| up.contains(n));
    let mons = state.mons.metadata.iter().filter(|(n, _)| **n != state.mon_name && runs(n));
    let mons = mons.filter_map(|(n, m)| Some((format!("mon.{n}"), text(m)?)));
    let own = version_of(VERSION).map(|v| (format!("mon.{}", state.mon_name), v));
    let mut out: BTreeMap<Version, Vec<String>> = BTreeMap::new();
    for (name, version) in own.into_iter().chain(mons).chain(osds) {
        out.entry(version).or_default().push(name);
    }
    out
}

/// True if running monitors and OSDs of this program differ in their versions.
pub(crate) fn versions_differ(state: &ClusterState) -> bool {
    by_version(state).len() > 1
}

/// Daemons that were left behind by an upgrade (`mon_warn_older_version_delay`).
fn old_versions(a: &mut Adder, state: &ClusterState, now: Now) {
    let Some(since) = state.mons.mixed_since else { return };
    let delay = Duration::from_secs_f64(seconds(state, "mon_warn_older_version_delay", WEEK).min(1e9));
    if now.mono.since(since) <= delay || !on(state, "mon_warn_on_older_version") {
        return;
    }
    let mut all = by_version(state);
    all.pop_last();
    let n: usize = all.values().map(Vec::len).sum();
    let line = |((_, version), names): (&Version, &Vec<String>)| {
        let more = names.len().saturating_sub(NAMED);
        let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(" ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let are = if names.len() == 1 { "is" } else { "are" };
        format!("{shown}{rest} {are} running an older version of belemnite: {version}")
    };
    if n > 0 {
        let severity = if all.len() > 1 { Err } else { Warn };
        let are = if n == 1 { "is a daemon" } else { "are daemons" };
        let what = if all.len() > 1 { "multiple old versions" } else { "an older version" };
        let summary = format!("There {are} running {what} of belemnite");
        a.add("DAEMON_OLD_VERSION", severity, n, summary, all.iter().map(line).collect());
    }
}

/// OSDs that serve clients at an address outside `public_network`.
fn unreachable(a: &mut Adder, state: &ClusterState) {
    let text = mon_option(state, "public_network");
    let networks: Vec<Network> = text.split([',', ' ', ';']).filter(|t| !t.is_empty()).map(Network::parse).collect();
    if networks.is_empty() {
        return;
    }
    let map = &state.osdmap;
    let within = |addrs: &base::AddrVec| addrs.0.iter().any(|x| networks.iter().any(|n| n.contains(x)));
    let outside = map.osds().filter(|o| map.is_up(*o) && map.client_addr(*o).is_some_and(|x| !within(x)));
    let detail: Vec<String> = outside.map(|o| format!("{o}'s public address is not in '{text}' subnet")).collect();
    let n = detail.len();
    if n > 0 {
        let are = if n == 1 { "is" } else { "are" };
        a.add("OSD_UNREACHABLE", Err, n, format!("{n} osds(s) {are} not reachable"), detail);
    }
}
