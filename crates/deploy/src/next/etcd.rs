//! Members of the etcd that holds the state of several monitors.
//!
//! Until the cluster is made, or its state moves to etcd, etcd holds nothing that is missed. After that, a member with an
//! empty directory must not start under an old identity, since it would have forgotten its votes: it is removed and
//! added again.

use super::moves::{self, Move};
use super::{Steps, monitor_hosts};
use crate::conf;
use crate::facts::{ClusterState, Facts, Member};
use crate::inventory::Inventory;
use crate::problem::Problem;
use crate::step::{Action, Step};
use std::net::IpAddr;

fn unit(host: &str) -> String {
    format!("belemnite-etcd@{host}")
}

/// True while no cluster has its state in etcd: one that was not made, or one whose state is to move there.
fn is_unused(i: &Inventory, f: &Facts) -> bool {
    matches!(f.cluster, ClusterState::Absent) || matches!(moves::wanted(i, f), Some(Move::ToEtcd(_)))
}

/// Members that answer are a majority of `all` members.
pub(super) fn is_majority(members: &[Member], without: Option<&str>, all: usize) -> bool {
    members.iter().filter(|m| m.healthy && Some(m.id.as_str()) != without).count() > all / 2
}

/// Removes data of an etcd that began with other members, before a cluster is made.
pub(super) fn clear_unused(i: &Inventory, f: &Facts) -> Steps {
    if !is_unused(i, f) {
        return Ok(Vec::new());
    }
    let wanted = conf::etcd_cluster(&conf::first_members(i));
    let has_other = |n: &str| {
        let own = f.host(n).map(|h| &h.etcd);
        own.is_some_and(|e| {
            !e.is_empty() && (!i.has_etcd() || !i.monitors.iter().any(|m| m == n) || e.get(n) != Some(&wanted))
        })
    };
    Ok(f.hosts.keys().filter(|n| has_other(n)).map(|n| Step::new(n, Action::ClearEtcd)).collect())
}

/// Name and address of each member; a member that no inventory names gets its address as name.
fn names(i: &Inventory, members: &[Member]) -> Vec<(String, IpAddr)> {
    let name = |a: IpAddr| i.host_at(a).map_or_else(|| a.to_string(), str::to_owned);
    members.iter().map(|m| (name(m.address), m.address)).collect()
}

pub(super) fn start(i: &Inventory, f: &Facts) -> Steps {
    if moves::wanted(i, f) == Some(Move::ToFile) {
        return Ok(start_all(f));
    }
    if !i.has_etcd() {
        return Ok(Vec::new());
    }
    let is_unused = is_unused(i, f);
    let idle = monitor_hosts(i, f).filter(|(n, h)| !h.runs(&unit(n)));
    let steps = idle.filter_map(|(n, h)| {
        let has_data = h.etcd.contains_key(n);
        let action = match &f.cluster {
            _ if is_unused => Action::StartEtcd { existing: false, members: conf::first_members(i) },
            ClusterState::Absent => return None,
            // The configuration of a member with data is not read again.
            ClusterState::Silent(_) if has_data => Action::StartEtcd { existing: true, members: Vec::new() },
            ClusterState::Answers(_) if has_data => Action::StartEtcd { existing: true, members: Vec::new() },
            ClusterState::Answers(c) => {
                let own = i.hosts.get(n)?.address;
                c.etcd.iter().find(|m| m.address == own && !m.started)?;
                Action::StartEtcd { existing: true, members: names(i, &c.etcd) }
            }
            ClusterState::Silent(_) => return None,
        };
        Some(Step::new(n, action))
    });
    Ok(steps.collect())
}

/// Starts all members that have data: the state is to leave them.
fn start_all(f: &Facts) -> Vec<Step> {
    let idle = f.hosts.keys().filter(|n| f.host(n).is_some_and(|h| h.etcd.contains_key(*n) && !h.runs(&unit(n))));
    idle.map(|n| Step::new(n, Action::StartEtcd { existing: true, members: Vec::new() })).collect()
}

/// Removes a member whose data is gone, so that it can be added again.
pub(super) fn remove_lost(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster().filter(|_| i.has_etcd()) else { return Ok(Vec::new()) };
    let is_lost = |m: &&Member| {
        let host = i.host_at(m.address).and_then(|n| Some((n, f.host(n)?)));
        m.started && host.is_some_and(|(n, h)| !h.etcd.contains_key(n))
    };
    let Some(m) = c.etcd.iter().find(is_lost) else { return Ok(Vec::new()) };
    let host = i.host_at(m.address).unwrap_or_default();
    if !is_majority(&c.etcd, Some(&m.id), c.etcd.len()) {
        let what = "its member of etcd has lost its data, and the others are no majority: start them first";
        return Err(vec![Problem::new(host, what)]);
    }
    Ok(vec![Step::new("", Action::RemoveMember(m.id.clone()))])
}

/// Adds one member. It starts before the next one is added.
pub(super) fn add(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster().filter(|c| i.has_etcd() && !c.etcd.is_empty()) else { return Ok(Vec::new()) };
    let mut missing = monitor_hosts(i, f).filter_map(|(n, _)| Some((n, i.hosts.get(n)?.address)));
    let Some((n, a)) = missing.find(|(_, a)| !c.etcd.iter().any(|m| m.address == *a)) else { return Ok(Vec::new()) };
    if !is_majority(&c.etcd, None, c.etcd.len() + 1) {
        let what = "its member cannot join etcd, of which no majority answers with one more: start the other members";
        return Err(vec![Problem::new(n, what)]);
    }
    // Data of an earlier member would be of another identity.
    if f.host(n).is_some_and(|h| h.etcd.contains_key(n)) {
        return Ok(vec![Step::new(n, Action::ClearEtcd)]);
    }
    Ok(vec![Step::new("", Action::AddMember(a))])
}
