//! The monitors' state between a file, for one monitor, and etcd, for several.
//!
//! The configuration of the monitor's host is what a move changes last. Until then the old place serves: a move that
//! was cut short leaves the monitor stopped, and is begun again or left.

use super::{Steps, monitor_hosts};
use crate::facts::{ClusterState, Facts, Home, HostFacts};
use crate::inventory::Inventory;
use crate::problem::Problem;
use crate::step::{Action, Step};

/// A move of the state that the inventory asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// From the file on this host.
    ToEtcd(String),
    /// To a file on the only monitor's host.
    ToFile,
}

/// The move that the inventory asks for, if there is one.
pub(crate) fn wanted(i: &Inventory, f: &Facts) -> Option<Move> {
    match f.home() {
        Home::File(n) if i.has_etcd() => Some(Move::ToEtcd(n)),
        Home::Etcd if !i.has_etcd() => Some(Move::ToFile),
        _ => None,
    }
}

/// True if a host keeps its configuration, with which its monitor finds the state, until the state has moved.
#[must_use]
pub fn keeps_conf(i: &Inventory, f: &Facts, name: &str, h: &HostFacts) -> bool {
    match wanted(i, f) {
        Some(Move::ToEtcd(from)) => name == from,
        Some(Move::ToFile) => {
            let has_etcd = h.conf.as_ref().is_some_and(|c| c.has_etcd);
            has_etcd && (i.monitors.iter().any(|m| m == name) || h.runs(&super::monitors::unit(name)))
        }
        None => false,
    }
}

/// Problems that keep the state from moving as the inventory asks.
pub(crate) fn problems(i: &Inventory, f: &Facts) -> Vec<Problem> {
    let files: Vec<&str> = f.files().collect();
    if !matches!(f.cluster, ClusterState::Absent) && files.len() > 1 {
        let all = files.join(", ");
        let what = "several hosts have a monitors' state in a file, and one is the cluster's: move the others away";
        return vec![Problem::new("", format!("{all}: {what}"))];
    }
    let listed = i.monitors.join(", ");
    match (f.home(), f.cluster()) {
        (Home::File(n), _) if !i.monitors.contains(&n) => {
            let what = "its monitor has the state in a file. Name three monitors, and this one among them; after that, \
                        leave it out";
            vec![Problem::new(&n, what)]
        }
        (Home::Etcd, Some(c)) if !i.has_etcd() && !i.monitors.iter().any(|m| c.monitors.contains_key(m)) => {
            let all = c.monitors.keys().cloned().collect::<Vec<_>>().join(", ");
            let what = format!(
                "monitors = {listed}: of several monitors one stays: name one of {all}, or three with the new one first"
            );
            vec![Problem::new("", what)]
        }
        (_, Some(c)) if i.has_etcd() && c.monitors.len() == 1 && c.monitors.keys().any(|m| f.host(m).is_none()) => {
            let n = c.monitors.keys().next().map_or("", String::as_str);
            vec![Problem::new(n, "its monitor is the only one, and its host must answer before there are more")]
        }
        _ => Vec::new(),
    }
}

/// Moves the state to etcd, of which all members have started.
pub(super) fn to_etcd(i: &Inventory, f: &Facts) -> Steps {
    let Some(Move::ToEtcd(from)) = wanted(i, f) else { return Ok(Vec::new()) };
    match i.monitors.iter().find(|m| f.host(m).is_none() || f.skipped.contains(*m)) {
        Some(m) => Err(vec![Problem::new(m, "the state moves to etcd with all of its members: the host must answer")]),
        None => {
            match f.hosts.keys().find(|n| **n != from && f.host(n).is_some_and(|h| h.runs(&super::monitors::unit(n)))) {
                Some(n) => Err(vec![Problem::new(
                    n,
                    format!("a monitor runs there beside mon.{from}, which has the state: stop it"),
                )]),
                None => Ok(vec![Step::new(&from, Action::StateToEtcd)]),
            }
        }
    }
}

/// Moves the state to a file, once one monitor is left.
pub(super) fn to_file(i: &Inventory, f: &Facts) -> Steps {
    let (Some(Move::ToFile), Some(c)) = (wanted(i, f), f.cluster()) else { return Ok(Vec::new()) };
    let Some((n, _)) = monitor_hosts(i, f).next() else { return Ok(Vec::new()) };
    let is_alone = c.monitors.len() == 1 && c.monitors.contains_key(n);
    Ok(is_alone.then(|| Step::new(n, Action::StateToFile)).into_iter().collect())
}
