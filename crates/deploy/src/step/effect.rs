//! Effects of steps on facts, by which a plan looks ahead.

use super::{Action, Step, Target};
use crate::conf;
use crate::facts::{Cluster, ClusterState, ConfFact, Facts, HostFacts, Member, OsdFacts, Release, StoreFact, Unit};
use crate::inventory::Inventory;
use crate::next::moves;
use std::collections::BTreeMap;

fn unit(h: &mut HostFacts, name: &str, active: bool) {
    h.units.insert(name.to_owned(), Unit { active, ..Unit::default() });
}

impl Step {
    /// Changes the facts as the finished step does.
    pub fn apply_to(&self, i: &Inventory, f: &mut Facts) {
        let host = self.host.clone();
        if self.on_cluster(i, f) {
            return;
        }
        if matches!(self.action, Action::Configure) {
            let Some(text) = f.host(&host).map(|h| conf::ceph_conf(i, f, &host, h)) else { return };
            let (fsid, authority) = (f.fsid.clone(), f.authority.clone());
            let is_monitor = i.monitors.contains(&host);
            let keeps = f.host(&host).is_some_and(|h| moves::keeps_conf(i, f, &host, h));
            let Some(h) = f.host_mut(&host) else { return };
            if is_monitor {
                h.has_admin_key = true;
                h.certificate = i.has_etcd().then_some(authority);
            }
            if keeps {
                return;
            }
            h.conf = Some(ConfFact { digest: conf::digest(&text), fsid, has_etcd: i.has_etcd() });
            if let Some(u) = h.units.get_mut(&format!("belemnite-mon@{host}")) {
                u.old_conf = true;
            }
            return;
        }
        if let Action::StateToEtcd | Action::StateToFile = self.action {
            return move_state(&host, i, f);
        }
        let (release, in_file) = (f.release.clone(), !i.has_etcd());
        if let (Action::MakeState, true, Some(h)) = (&self.action, in_file, f.host_mut(&host)) {
            h.states.insert(host.clone());
        }
        if let Some(h) = f.host_mut(&host) {
            on_host(&self.action, &host, h, release);
        }
        if let (Action::Leave, true) = (&self.action, f.former.contains_key(&host)) {
            f.former.remove(&host);
            f.hosts.remove(&host);
        }
    }

    /// Effects on the cluster; true if the step has no others.
    fn on_cluster(&self, i: &Inventory, f: &mut Facts) -> bool {
        if let Action::MakeState = self.action {
            make_state(&self.host, i, f);
            return false;
        }
        if let (Action::StartMonitor | Action::RestartMonitor, Some(c)) = (&self.action, f.cluster_mut())
            && c.monitors.contains_key(&self.host)
        {
            c.quorum.insert(self.host.clone());
        }
        let host = self.host.clone();
        let Some(c) = f.cluster_mut() else { return false };
        match &self.action {
            Action::AddMonitor(a) => drop(c.monitors.insert(host, *a)),
            Action::RemoveMonitor => {
                c.monitors.remove(&host);
                c.quorum.remove(&host);
                return false;
            }
            Action::AddMember(a) => c.etcd.push(Member { started: false, healthy: false, ..member(*a) }),
            Action::RemoveMember(id) => c.etcd.retain(|m| m.id != *id),
            Action::StartEtcd { .. } => {
                let address = i.hosts.get(&host).map(|h| h.address);
                for m in c.etcd.iter_mut().filter(|m| Some(m.address) == address) {
                    (m.started, m.healthy) = (true, true);
                }
                return false;
            }
            Action::SetOption(who, k, v) => drop(c.options.insert((who.clone(), k.clone()), v.clone())),
            Action::Place(to) => drop(c.places.insert(host, to.iter().cloned().collect())),
            Action::MakeFilesystem(n) => drop(c.filesystems.insert(n.clone())),
            Action::Drain(ids) => {
                for (_, o) in c.osds.iter_mut().filter(|(id, _)| ids.contains(id)) {
                    (o.is_in, o.needed, o.used) = (false, false, 0);
                }
            }
            Action::DropHost => drop(c.places.remove(&host)),
            Action::HoldOut => (c.noout, c.noout_is_ours) = (true, true),
            Action::ReleaseOut => (c.noout, c.noout_is_ours) = (false, false),
            Action::Retire(all) => {
                all.iter().for_each(|(id, _)| drop(c.osds.remove(id)));
                return false;
            }
            Action::CreateOsds(targets) => {
                let place = i.hosts.get(&host).map(|h| h.place.clone()).unwrap_or_default();
                let made = make_osds(c, &host, place, targets);
                let Some(h) = f.host_mut(&host) else { return true };
                for s in made {
                    unit(h, &format!("belemnite-osd@{}", s.id), true);
                    h.making.remove(&s.path);
                    h.stores.push(s);
                }
            }
            _ => return false,
        }
        true
    }
}

/// A new cluster with its first monitor.
fn make_state(host: &str, i: &Inventory, f: &mut Facts) {
    let etcd = f.hosts.keys().filter(|n| i.has_etcd() && f.host(n).is_some_and(|h| !h.etcd.is_empty()));
    let etcd = etcd.filter_map(|n| Some(member(i.hosts.get(n)?.address))).collect();
    let mut c = Cluster { etcd, is_clean: true, ..Cluster::default() };
    if let Some(h) = i.hosts.get(host) {
        c.monitors.insert(host.to_owned(), h.address);
        c.quorum.insert(host.to_owned());
    }
    f.cluster = ClusterState::Answers(Box::new(c));
}

/// Moves the state between a host's file and etcd, with the configuration that says so.
fn move_state(host: &str, i: &Inventory, f: &mut Facts) {
    let Some(text) = f.host(host).map(|h| conf::ceph_conf(i, f, host, h)) else { return };
    let members = f.hosts.keys().filter(|n| i.has_etcd() && f.host(n).is_some_and(|h| !h.etcd.is_empty()));
    let members: Vec<Member> = members.filter_map(|n| Some(member(i.hosts.get(n)?.address))).collect();
    let fsid = f.fsid.clone();
    if let Some(h) = f.host_mut(host) {
        h.conf = Some(ConfFact { digest: conf::digest(&text), fsid, has_etcd: i.has_etcd() });
        if i.has_etcd() {
            h.states.remove(host);
        } else {
            h.states.insert(host.to_owned());
        }
        unit(h, &format!("belemnite-mon@{host}"), true);
    }
    if let Some(c) = f.cluster_mut() {
        c.etcd = members;
        c.quorum.insert(host.to_owned());
    }
}

/// Adds OSDs of a host to the map; returns their stores.
fn make_osds(c: &mut Cluster, host: &str, place: BTreeMap<String, String>, targets: &[Target]) -> Vec<StoreFact> {
    c.places.entry(host.to_owned()).or_insert(place);
    let mut made = Vec::new();
    for t in targets {
        let id = (0..).find(|id| !c.osds.contains_key(id)).unwrap_or_default();
        let bytes = t.bytes.unwrap_or(1 << 40);
        c.osds.insert(id, OsdFacts { host: host.to_owned(), up: true, is_in: true, bytes, ..OsdFacts::default() });
        made.push(StoreFact { id, path: t.path.clone() });
    }
    made
}

fn member(address: std::net::IpAddr) -> Member {
    Member { id: address.to_string(), address, started: true, healthy: true }
}

/// Effects on a host.
fn on_host(action: &Action, name: &str, h: &mut HostFacts, release: Release) {
    match action {
        Action::Install(packages) => {
            h.packages.extend(packages.iter().map(|p| (p.clone(), "installed".to_owned())));
            match release {
                Release::Package(v) => drop(h.packages.insert("belemnite".into(), v)),
                Release::Program(d) => h.program = Some(d),
            }
            for (_, u) in
                h.units.iter_mut().filter(|(n, _)| n.starts_with("belemnite-mon@") || n.starts_with("belemnite-osd@"))
            {
                u.old_program = u.active;
            }
        }
        Action::ClearEtcd => {
            h.etcd.clear();
            h.units.remove(&format!("belemnite-etcd@{name}"));
        }
        Action::StartEtcd { members, .. } => {
            h.etcd.entry(name.to_owned()).or_insert_with(|| conf::etcd_cluster(members));
            unit(h, &format!("belemnite-etcd@{name}"), true);
        }
        Action::MakeState | Action::StartMonitor | Action::RestartMonitor => {
            unit(h, &format!("belemnite-mon@{name}"), true);
        }
        Action::RemoveMonitor => {
            h.units.remove(&format!("belemnite-mon@{name}"));
            h.states.remove(name);
        }
        Action::BootstrapKey => h.has_bootstrap_key = true,
        Action::StartOsds(ids) | Action::RestartOsds(ids) => {
            ids.iter().for_each(|id| unit(h, &format!("belemnite-osd@{id}"), true));
        }
        Action::StartMds => unit(h, &format!("ceph-mds@{name}"), true),
        Action::StartGateway => unit(h, &format!("ceph-radosgw@rgw.{name}"), true),
        Action::StopMds => drop(h.units.remove(&format!("ceph-mds@{name}"))),
        Action::StopGateway => drop(h.units.remove(&format!("ceph-radosgw@rgw.{name}"))),
        Action::Retire(all) => {
            for (id, _) in all {
                h.stores.retain(|s| s.id != *id);
                h.units.remove(&format!("belemnite-osd@{id}"));
            }
        }
        Action::Leave => {
            (h.conf, h.certificate) = (None, None);
            (h.has_bootstrap_key, h.has_admin_key) = (false, false);
        }
        _ => {}
    }
}
