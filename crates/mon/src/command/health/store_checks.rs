//! Alerts about what daemons run on: the etcd cluster or the file system with the state, and limits of open descriptors.

use super::Severity::{Err, Warn};
use super::checks::Adder;
use crate::command::units::bytes;
use crate::state::ClusterState;
use crate::state::config::mon_option;
use crate::state::options::OPEN_FILES;
use state::etcd::care::Member;

/// Share of its quota, in percent, from which a member's file is reported.
const NEAR_QUOTA: u64 = 80;

/// Adds the alerts.
pub(super) fn add(a: &mut Adder, state: &ClusterState) {
    etcd(a, state);
    space(a, state);
    let few = |(name, found): (String, Option<u64>)| {
        let n = found.filter(|n| *n < net::descriptors::WANTED)?;
        Some(format!("{name} may open {n} descriptors, of which each client takes one"))
    };
    let limit = |m: &std::collections::BTreeMap<String, String>| m.get(OPEN_FILES).and_then(|v| v.parse().ok());
    let osds = state.osds.metadata.iter().filter(|(o, _)| state.osdmap.is_up(**o));
    let osds = osds.map(|(o, m)| (o.to_string(), limit(m)));
    let own = (state.mon_name.clone(), limit(&state.options.host_metadata));
    let runs = |n: &String| state.mons.up.as_ref().is_none_or(|up| up.contains(n));
    let others = state.mons.metadata.iter().filter(|(n, _)| **n != state.mon_name && runs(n));
    let mons = others.map(|(n, m)| (n.clone(), limit(m))).chain([own]).map(|(n, l)| (format!("mon.{n}"), l));
    let detail: Vec<String> = mons.chain(osds).filter_map(few).collect();
    let what = format!("daemons may open fewer than {} descriptors", net::descriptors::WANTED);
    a.add_some("DAEMON_FEW_DESCRIPTORS", Warn, &what, detail);
}

/// Little room on the file system with the state. Shares of a large one say little: a monitor's state has at most
/// `mon_data_size_warn` bytes, so there is no alert while as much is free.
fn space(a: &mut Adder, state: &ClusterState) {
    let Some((free, all)) = state.store.space else { return };
    let number = |name: &str, otherwise: u64| mon_option(state, name).trim().parse().unwrap_or(otherwise);
    let percent = u128::from(free) * 100 / u128::from(all.max(1));
    let is_below = |name: &str, otherwise: u64| percent <= u128::from(number(name, otherwise));
    if free >= number("mon_data_size_warn", 15 << 30) {
        return;
    }
    let (code, severity, very) = if is_below("mon_data_avail_crit", 5) {
        ("MON_DISK_CRIT", Err, "very ")
    } else if is_below("mon_data_avail_warn", 30) {
        ("MON_DISK_LOW", Warn, "")
    } else {
        return;
    };
    let name = &state.mon_name;
    let detail = vec![format!("mon.{name} has {percent}% avail")];
    a.add(code, severity, 1, format!("mon {name} is {very}low on available space"), detail);
}

fn etcd(a: &mut Adder, state: &ClusterState) {
    let Some(c) = &state.mons.etcd else { return };
    let list = |keep: &dyn Fn(&Member) -> bool, text: &dyn Fn(&Member) -> String| -> Vec<String> {
        c.members.iter().filter(|m| keep(m)).map(text).collect()
    };
    let alarms = list(&|m| !m.alarms.is_empty(), &|m| format!("etcd at {}: {}", m.name, m.alarms.join("; ")));
    a.add_some("MON_STATE_ALARM", Err, "members of etcd raise alarms", alarms);
    let near = list(&|m| m.size / NEAR_QUOTA >= m.quota / 100, &|m| {
        let (size, used, quota) = (bytes(m.size), bytes(m.used), bytes(m.quota));
        format!("etcd at {}: the file has {size} ({used} in use) of a quota of {quota}", m.name)
    });
    a.add_some("MON_STATE_NEARFULL", Warn, "members of etcd are near their quota", near);
    let silent = c.silent.iter().map(|(n, why)| format!("etcd at {n}: {why}")).collect();
    a.add_some("MON_STATE_MEMBER_DOWN", Warn, "members of etcd do not answer", silent);
}
