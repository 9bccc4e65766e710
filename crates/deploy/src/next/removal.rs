//! Removal of parts that are in no inventory any more: services, OSDs, monitors, members of etcd, hosts.

use super::etcd::is_majority;
use super::{Steps, monitors, services as units_of};
use crate::facts::{Cluster, Facts, Member, Reach};
use crate::inventory::Inventory;
use crate::problem::Problem;
use crate::step::{Action, Step};
use base::size;
use std::collections::BTreeSet;

/// Share of the remaining OSDs, in percent, that the data of all may take.
const FULL_PERCENT: u64 = 85;

/// Hosts that an earlier run worked on and that are in no inventory any more.
fn former<'a>(i: &'a Inventory, f: &'a Facts) -> impl Iterator<Item = &'a String> {
    f.former.keys().filter(|n| !i.hosts.contains_key(*n))
}

/// OSDs of a host in the CRUSH map.
fn osds_of(c: &Cluster, host: &str) -> Vec<u32> {
    c.osds.iter().filter(|(_, o)| o.host == host).map(|(id, _)| *id).collect()
}

/// Stops services on hosts that are not to have them.
pub(super) fn services(i: &Inventory, f: &Facts) -> Steps {
    let mut steps = Vec::new();
    for (n, h) in f.hosts.keys().filter_map(|n| Some((n, f.host(n)?))) {
        let [mds, gateway] = units_of::units(n);
        if h.runs(&mds) && !i.metadata_servers.contains(n) {
            steps.push(Step::new(n, Action::StopMds));
        }
        if h.runs(&gateway) && !i.gateways.contains(n) {
            steps.push(Step::new(n, Action::StopGateway));
        }
    }
    Ok(steps)
}

/// Problems that keep the pools from living on the OSDs other than `leaving`.
fn no_room(c: &Cluster, leaving: &BTreeSet<u32>) -> Vec<Problem> {
    let stay: Vec<_> = c.osds.iter().filter(|(id, o)| !leaving.contains(id) && o.is_in && o.up).collect();
    let mut all = Vec::new();
    for p in &c.pools {
        let places: BTreeSet<String> = stay
            .iter()
            .filter_map(|(id, o)| match p.domain.as_str() {
                "osd" => Some(id.to_string()),
                "host" => Some(o.host.clone()),
                domain => c.places.get(&o.host)?.get(domain).cloned(),
            })
            .collect();
        if places.len() < p.size {
            let (domain, n) = (&p.domain, places.len());
            all.push(Problem::new(
                "",
                format!(
                    "the hosts cannot be removed: pool {} has {} copies or shards, each on another {domain}, and {n} {domain}s \
                     with OSDs would stay",
                    p.name, p.size
                ),
            ));
        }
    }
    let used: u64 = c.osds.values().map(|o| o.used).sum();
    let room = stay.iter().map(|(_, o)| o.bytes).sum::<u64>() / 100 * FULL_PERCENT;
    if used > room && used > 0 {
        let (used, room) = (size::show(used), size::show(room));
        all.push(Problem::new(
            "",
            format!("the hosts cannot be removed: {used} are stored, and the other OSDs have room for {room} ({FULL_PERCENT} %)"),
        ));
    }
    all
}

pub(super) fn drain(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let mut steps = Vec::new();
    let mut leaving = BTreeSet::new();
    for n in former(i, f) {
        let ids = osds_of(c, n);
        leaving.extend(ids.iter().copied());
        let wait: Vec<u32> = ids.into_iter().filter(|id| c.osds[id].is_in || c.osds[id].needed).collect();
        if !wait.is_empty() {
            steps.push(Step::new(n, Action::Drain(wait)));
        }
    }
    if steps.is_empty() {
        return Ok(steps);
    }
    let problems = no_room(c, &leaving);
    if problems.is_empty() { Ok(steps) } else { Err(problems) }
}

pub(super) fn retire(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let mut steps = Vec::new();
    for n in former(i, f) {
        let host = f.host(n);
        let store = |id: u32| host.and_then(|h| Some(h.stores.iter().find(|s| s.id == id)?.path.clone()));
        let mut all: Vec<(u32, Option<String>)> = osds_of(c, n).into_iter().map(|id| (id, store(id))).collect();
        if host.is_none() && all.iter().any(|(id, _)| c.osds[id].up) {
            return Err(vec![silent(n, f, "and its OSDs are up: they cannot be stopped")]);
        }
        // Stores of OSDs that are out of the map: an earlier run was cut short before it erased them.
        let left = host.into_iter().flat_map(|h| &h.stores).filter(|s| !c.osds.contains_key(&s.id));
        all.extend(left.map(|s| (s.id, Some(s.path.clone()))));
        if !all.is_empty() {
            steps.push(Step::new(n, Action::Retire(all)));
        }
    }
    Ok(steps)
}

fn silent(host: &str, f: &Facts, what: &str) -> Problem {
    let why = match f.hosts.get(host) {
        Some(Reach::Silent(why)) => why.as_str(),
        _ => "it was not asked",
    };
    Problem::new(host, format!("does not answer ({why}), {what}"))
}

pub(super) fn drop_hosts(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let empty = former(i, f).filter(|n| c.places.contains_key(*n) && osds_of(c, n).is_empty());
    Ok(empty.map(|n| Step::new(n, Action::DropHost)).collect())
}

/// Removes one monitor, while all of the inventory's take part.
pub(super) fn monitor(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let strays = f.hosts.keys().filter(|n| f.host(n).is_some_and(|h| h.runs(&monitors::unit(n))));
    let Some(n) = c.monitors.keys().chain(strays).find(|n| !i.monitors.contains(*n)) else { return Ok(Vec::new()) };
    let absent: Vec<&String> = i.monitors.iter().filter(|m| !c.quorum.contains(*m)).collect();
    if let Some(m) = absent.first() {
        return Err(vec![Problem::new(n, format!("its monitor stays as long as mon.{m} does not take part"))]);
    }
    Ok(vec![Step::new(n, Action::RemoveMonitor)])
}

/// Removes one member of etcd, while all of the inventory's answer.
pub(super) fn member(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster().filter(|_| i.has_etcd()) else { return Ok(Vec::new()) };
    let is_wanted = |m: &&Member| i.host_at(m.address).is_some_and(|n| i.monitors.iter().any(|o| o == n));
    let Some(m) = c.etcd.iter().find(|m| !is_wanted(m)) else { return Ok(Vec::new()) };
    if !is_majority(&c.etcd, Some(&m.id), c.etcd.len()) || c.etcd.iter().filter(is_wanted).any(|m| !m.healthy) {
        let what = format!("the member of etcd at {} stays as long as not all others answer", m.address);
        return Err(vec![Problem::new("", what)]);
    }
    Ok(vec![Step::new("", Action::RemoveMember(m.id.clone()))])
}

/// Removes the data of members that are out of etcd.
pub(super) fn clear_etcd(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let address = |n: &String| i.hosts.get(n).map(|h| h.address).or_else(|| f.former.get(n).copied());
    let is_out = |n: &&String| {
        let is_member = address(n).is_some_and(|a| c.etcd.iter().any(|m| m.address == a));
        let is_wanted = i.has_etcd() && i.monitors.contains(n);
        !(is_member || is_wanted) && f.host(n).is_some_and(|h| !h.etcd.is_empty())
    };
    Ok(f.hosts.keys().filter(is_out).map(|n| Step::new(n, Action::ClearEtcd)).collect())
}

/// Removes the rest from hosts that have nothing of the cluster any more.
pub(super) fn leave(i: &Inventory, f: &Facts) -> Steps {
    if f.cluster().is_none() && former(i, f).any(|n| f.host(n).is_some_and(|h| !h.stores.is_empty())) {
        return Ok(Vec::new());
    }
    Ok(former(i, f).map(|n| Step::new(n, Action::Leave)).collect())
}
