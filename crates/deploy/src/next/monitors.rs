//! Monitors of the inventory.

use super::{Steps, monitor_hosts};
use crate::facts::{ClusterState, Facts};
use crate::inventory::Inventory;
use crate::problem::Problem;
use crate::step::{Action, Step};

pub(super) fn unit(host: &str) -> String {
    format!("belemnite-mon@{host}")
}

pub(super) fn make_state(i: &Inventory, f: &Facts) -> Steps {
    let ClusterState::Absent = f.cluster else { return Ok(Vec::new()) };
    match i.monitors.iter().find(|m| f.skipped.contains(*m)) {
        Some(m) => Err(vec![Problem::new(m, "a new cluster needs all of its monitors")]),
        None => Ok(i.monitors.first().map(|n| Step::new(n, Action::MakeState)).into_iter().collect()),
    }
}

pub(super) fn start(i: &Inventory, f: &Facts) -> Steps {
    let may = |n: &str| match &f.cluster {
        ClusterState::Absent => false,
        ClusterState::Silent(_) => true,
        ClusterState::Answers(c) => c.monitors.contains_key(n),
    };
    let idle = monitor_hosts(i, f).filter(|(n, h)| may(n) && !h.runs(&unit(n)));
    Ok(idle.map(|(n, _)| Step::new(n, Action::StartMonitor)).collect())
}

pub(super) fn add(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let missing = monitor_hosts(i, f).filter(|(n, _)| !c.monitors.contains_key(*n));
    let steps = missing.filter_map(|(n, _)| Some(Step::new(n, Action::AddMonitor(i.hosts.get(n)?.address))));
    Ok(steps.collect())
}

/// Restarts one of several monitors that has not read its configuration, while another one serves.
pub(super) fn restart(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster().filter(|_| i.has_etcd()) else { return Ok(Vec::new()) };
    let is_old = |n: &str| f.host(n).and_then(|h| h.units.get(&unit(n))).is_some_and(|u| u.active && u.old_conf);
    let Some((n, _)) = monitor_hosts(i, f).find(|(n, _)| is_old(n)) else { return Ok(Vec::new()) };
    if !c.quorum.iter().any(|q| q != n) {
        return Err(vec![Problem::new(
            n,
            "its monitor is to be restarted, and no other one takes part: start another one",
        )]);
    }
    Ok(vec![Step::new(n, Action::RestartMonitor)])
}
