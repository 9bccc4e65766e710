//! Inventories and variables of ceph-ansible: groups of hosts, and variables of all hosts, groups and single hosts.

use super::ImportError;
use super::devices::{add, class, of_paths};
use super::draft::{Draft, DraftRule};
use super::yaml::Node;
use crate::inventory::{HOSTS_MAX, is_name};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Most groups.
const GROUPS_MAX: usize = 500;
/// Most memberships of hosts in groups, with those through other groups.
const MEMBERS_MAX: usize = 1 << 20;
/// Most bytes of all variables, about. A line may give its variables to thousands of hosts.
const WEIGHT_MAX: usize = 64 << 20;
/// Deepest nesting of groups in a file.
const DEPTH_MAX: usize = 16;
/// Groups whose hosts are part of a cluster.
const ROLES: [&str; 4] = ["mons", "osds", "mdss", "rgws"];
/// Variables that are taken over, or that say nothing here.
const SAID: &[&str] = &[
    "ansible_host",
    "ansible_ssh_host",
    "ansible_user",
    "ansible_ssh_user",
    "ansible_python_interpreter",
    "ansible_connection",
    "monitor_address",
    "monitor_interface",
    "monitor_address_block",
    "ip_version",
    "radosgw_address",
    "radosgw_interface",
    "radosgw_address_block",
    "radosgw_frontend_port",
    "osd_crush_location",
    "devices",
    "dedicated_devices",
    "bluestore_wal_devices",
    "lvm_volumes",
    "osd_scenario",
    "osd_auto_discovery",
    "osds_per_device",
    "osd_objectstore",
    "dmcrypt",
    "crush_device_class",
    "public_network",
    "cluster_network",
    "cephfs",
    "ceph_conf_overrides",
    "ceph_origin",
    "ceph_repository",
    "ceph_stable_release",
    "cluster",
    "configure_firewall",
];

type Variables = BTreeMap<String, Node>;

#[derive(Debug, Default)]
struct Group {
    hosts: BTreeSet<String>,
    children: BTreeSet<String>,
    variables: Variables,
}

/// Groups, hosts and variables of all files.
#[derive(Debug, Default)]
pub(super) struct Ansible {
    groups: BTreeMap<String, Group>,
    hosts: BTreeMap<String, Variables>,
    weight: usize,
}

impl Ansible {
    /// A group, which is made if it is new.
    pub(super) fn group(&mut self, file: &str, name: &str) -> Result<(), ImportError> {
        self.group_mut(file, name).map(|_| ())
    }

    fn group_mut(&mut self, file: &str, name: &str) -> Result<&mut Group, ImportError> {
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(name) {
            return Err(ImportError::new(file, format!("more than {GROUPS_MAX} groups")));
        }
        Ok(self.groups.entry(name.to_owned()).or_default())
    }

    fn host_mut(&mut self, file: &str, name: &str) -> Result<&mut Variables, ImportError> {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(name) {
            return Err(ImportError::new(file, format!("more than {HOSTS_MAX} hosts")));
        }
        Ok(self.hosts.entry(name.to_owned()).or_default())
    }

    fn count(&mut self, file: &str, k: &str, v: &Node) -> Result<(), ImportError> {
        self.weight += k.len() + v.weight();
        if self.weight > WEIGHT_MAX {
            Err(ImportError::new(file, "hosts and groups have too many variables"))
        } else {
            Ok(())
        }
    }

    pub(super) fn group_variable(&mut self, file: &str, group: &str, k: &str, v: Node) -> Result<(), ImportError> {
        self.count(file, k, &v)?;
        self.group_mut(file, group)?.variables.insert(k.to_owned(), v);
        Ok(())
    }

    pub(super) fn host_variable(&mut self, file: &str, host: &str, k: &str, v: Node) -> Result<(), ImportError> {
        self.count(file, k, &v)?;
        self.host_mut(file, host)?.insert(k.to_owned(), v);
        Ok(())
    }

    pub(super) fn member(&mut self, file: &str, group: &str, host: &str) -> Result<(), ImportError> {
        self.host_mut(file, host)?;
        self.group_mut(file, group)?.hosts.insert(host.to_owned());
        Ok(())
    }

    pub(super) fn child(&mut self, file: &str, group: &str, child: &str) -> Result<(), ImportError> {
        self.group_mut(file, child)?;
        self.group_mut(file, group)?.children.insert(child.to_owned());
        Ok(())
    }

    /// Takes an inventory in YAML.
    pub(super) fn hosts(&mut self, file: &str, n: &Node) -> Result<(), ImportError> {
        n.entries().try_for_each(|(name, g)| self.nested(file, name, g, 0))
    }

    fn nested(&mut self, file: &str, name: &str, n: &Node, depth: usize) -> Result<(), ImportError> {
        if depth > DEPTH_MAX {
            return Err(ImportError::new(file, "groups are nested too deeply"));
        }
        self.group(file, name)?;
        for (host, variables) in n.get("hosts").into_iter().flat_map(Node::entries) {
            self.member(file, name, host)?;
            for (k, v) in variables.entries() {
                self.host_variable(file, host, k, v.clone())?;
            }
        }
        for (k, v) in n.get("vars").into_iter().flat_map(Node::entries) {
            self.group_variable(file, name, k, v.clone())?;
        }
        for (child, g) in n.get("children").into_iter().flat_map(Node::entries) {
            self.child(file, name, child)?;
            self.nested(file, child, g, depth + 1)?;
        }
        Ok(())
    }

    /// Takes a file of variables: of a host in `host_vars`, else of the group that the file is named after.
    pub(super) fn variables(&mut self, file: &str, n: &Node) -> Result<(), ImportError> {
        let parts: Vec<&str> = file.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
        let stem = parts.last().copied().unwrap_or_default();
        let stem = ["yml", "yaml", "json"].iter().find_map(|e| stem.strip_suffix(&format!(".{e}"))).unwrap_or(stem);
        // A directory of files has the name, too: `group_vars/osds/disks.yml`.
        let of = |dir: &str| {
            let at = parts.iter().rposition(|p| *p == dir)?;
            Some(if at + 2 == parts.len() { stem } else { *parts.get(at + 1)? })
        };
        if let Some(host) = of("host_vars") {
            return n.entries().try_for_each(|(k, v)| self.host_variable(file, host, k, v.clone()));
        }
        let group = of("group_vars").unwrap_or(if ROLES.contains(&stem) { stem } else { "all" });
        n.entries().try_for_each(|(k, v)| self.group_variable(file, group, k, v.clone()))
    }

    /// Hosts of each group, with those of the groups in it.
    fn members(&self) -> Result<BTreeMap<&str, BTreeSet<&str>>, ImportError> {
        let (mut all, mut count) = (BTreeMap::new(), 0);
        for name in self.groups.keys() {
            let (mut seen, mut open) = (BTreeSet::from([name.as_str()]), vec![name.as_str()]);
            let mut hosts: BTreeSet<&str> = BTreeSet::new();
            while let Some(g) = open.pop().and_then(|g| self.groups.get(g)) {
                hosts.extend(g.hosts.iter().map(String::as_str));
                open.extend(g.children.iter().map(String::as_str).filter(|c| seen.insert(c)));
            }
            count += hosts.len();
            if count > MEMBERS_MAX {
                return Err(ImportError::new(name, "its groups have too many hosts"));
            }
            all.insert(name.as_str(), hosts);
        }
        Ok(all)
    }

    /// Writes what maps into a draft.
    pub(super) fn read(&self, d: &mut Draft) -> Result<(), ImportError> {
        if self.groups.is_empty() && self.hosts.is_empty() {
            return Ok(());
        }
        let members = self.members()?;
        let of = |g: &str| members.get(g).cloned().unwrap_or_default();
        for host in ROLES.iter().flat_map(|r| of(r)) {
            d.host(host)?;
        }
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        // Groups that name a host themselves come first; `all` is last.
        for direct in [true, false] {
            for (g, hosts) in members.iter().rev().filter(|(g, _)| **g != "all") {
                for h in hosts {
                    if self.groups[*g].hosts.contains(*h) == direct {
                        groups.entry(h).or_default().push(g);
                    }
                }
            }
        }
        let site = Site { a: self, groups };
        self.notes(d, &members);
        site.networks(d);
        let names: Vec<String> = d.hosts.keys().cloned().collect();
        names.iter().for_each(|n| site.host(d, n));
        let known =
            |d: &Draft, g: &str| of(g).into_iter().map(str::to_owned).filter(|n| d.hosts.contains_key(n)).collect();
        let hosts: Vec<String> = known(d, "mons");
        Draft::add(&mut d.monitors, hosts);
        let hosts: Vec<String> = known(d, "mdss");
        if let Some(first) = hosts.first() {
            let fs = site.text(first, "cephfs").unwrap_or("cephfs").to_owned();
            if is_name(&fs) {
                Draft::add(&mut d.filesystems, [fs]);
            }
        }
        Draft::add(&mut d.metadata_servers, hosts);
        let hosts: Vec<String> = known(d, "rgws");
        if let Some(first) = hosts.first() {
            let port = site.text(first, "radosgw_frontend_port").and_then(|p| p.parse().ok());
            d.gateway_port = d.gateway_port.or(port).or(Some(8080));
        }
        Draft::add(&mut d.gateways, hosts);
        let hosts: Vec<String> = known(d, "osds");
        hosts.iter().for_each(|n| site.devices(d, n));
        Ok(())
    }

    /// Notes groups and variables that say nothing here.
    fn notes(&self, d: &mut Draft, members: &BTreeMap<&str, BTreeSet<&str>>) {
        for (g, hosts) in members {
            match *g {
                "mgrs" => d.note("group mgrs: the monitors have the manager's role"),
                "clients" if !hosts.is_empty() => {
                    d.note(format!("group clients: {} hosts get no daemons and are not in the inventory", hosts.len()));
                }
                "all" | "ungrouped" => {}
                g if ROLES.contains(&g) || hosts.iter().all(|h| d.hosts.contains_key(*h)) && !is_service(g) => {}
                g => d.note(format!("group {g}: services of this kind are not deployed")),
            }
        }
        let mut say = |whose: String, all: &Variables| {
            for (k, v) in all.iter().filter(|(k, v)| !SAID.contains(&k.as_str()) && **v != Node::Null) {
                d.note(format!("{whose}: {k} = {}: not mapped", v.shown_of(k)));
            }
        };
        for (g, group) in &self.groups {
            say(format!("variables of {g}"), &group.variables);
        }
        for (h, variables) in &self.hosts {
            say(format!("variables of the host {h}"), variables);
        }
    }
}

/// True for groups of ceph-ansible's other services.
fn is_service(g: &str) -> bool {
    let all = ["nfss", "rbdmirrors", "iscsigws", "grafana-server", "monitoring", "rgwloadbalancers", "restapis"];
    all.contains(&g)
}

/// Variables as a host has them.
struct Site<'a> {
    a: &'a Ansible,
    groups: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Site<'a> {
    fn get(&self, host: &str, key: &str) -> Option<&'a Node> {
        let own = self.a.hosts.get(host).and_then(|v| v.get(key));
        let groups = self.groups.get(host).into_iter().flatten().copied().chain(["all"]);
        let of_group = |g: &str| self.a.groups.get(g)?.variables.get(key);
        own.or_else(|| { groups }.find_map(of_group)).filter(|n| **n != Node::Null)
    }

    fn text(&self, host: &str, key: &str) -> Option<&'a str> {
        self.get(host, key)?.text()
    }

    fn networks(&self, d: &mut Draft) {
        let names: Vec<String> = d.hosts.keys().cloned().collect();
        for (key, is_public) in [("public_network", true), ("cluster_network", false)] {
            let mut said = BTreeSet::new();
            for v in names.iter().filter_map(|n| self.text(n, key)).filter(|v| said.insert(*v)) {
                d.network(is_public, "variables", v);
            }
        }
        let mut said: BTreeSet<*const Node> = BTreeSet::new();
        for n in names.iter().filter_map(|n| self.get(n, "ceph_conf_overrides")) {
            if !said.insert(n) {
                continue;
            }
            for (section, options) in n.entries() {
                for (k, v) in options.entries() {
                    match v.text() {
                        Some(v) => d.option("ceph_conf_overrides", section, k, v),
                        None => d.note(format!("ceph_conf_overrides: {section}/{k}: {}: not a value", v.shown())),
                    }
                }
            }
        }
    }

    fn host(&self, d: &mut Draft, name: &str) {
        let keys = ["monitor_address", "ansible_host", "ansible_ssh_host", "radosgw_address"];
        let address = |k: &&str| self.text(name, k)?.parse::<IpAddr>().ok();
        let all: Vec<IpAddr> = keys.iter().filter_map(address).collect();
        let user = self.text(name, "ansible_user").or_else(|| self.text(name, "ansible_ssh_user"));
        let bad_user = user.filter(|u| !is_name(u));
        let Some(h) = d.hosts.get_mut(name) else { return };
        h.address = h.address.or(all.first().copied()).or(name.parse().ok());
        h.user = user.filter(|u| is_name(u)).map(str::to_owned).or(h.user.take());
        let used = h.address;
        if let Some(u) = bad_user {
            d.note(format!("host {name}: account {u:?}: not a name"));
        }
        if let Some(other) = all.iter().find(|a| Some(**a) != used) {
            let used = used.map(|a| a.to_string()).unwrap_or_default();
            d.note(format!("host {name}: {other}: a host has one address, {used}"));
        }
        let Some(place) = self.get(name, "osd_crush_location") else { return };
        let parsed = place.text().and_then(|s| super::yaml::parse(name, s).ok()?.into_iter().next());
        let place = parsed.as_ref().unwrap_or(place);
        let buckets = place.entries().map(|(k, v)| (k.clone(), v.text().unwrap_or_default().to_owned()));
        d.place(name, buckets.collect::<Vec<_>>().into_iter());
    }

    /// Devices of a host, as a rule that other hosts may share.
    fn devices(&self, d: &mut Draft, host: &str) {
        let texts = |n: &Node| n.items().filter_map(Node::text).map(str::to_owned).collect::<Vec<String>>();
        let is = |k: &str| self.get(host, k).is_some_and(Node::is_true);
        let mut paths: Vec<String> = self.get(host, "devices").map(texts).unwrap_or_default();
        let mut classes: BTreeSet<Option<&str>> = paths.iter().map(|_| self.text(host, "crush_device_class")).collect();
        for v in self.get(host, "lvm_volumes").into_iter().flat_map(Node::items) {
            match v.text_of("data").filter(|p| p.starts_with('/')) {
                Some(p) => {
                    paths.push(p.to_owned());
                    classes.insert(v.text_of("crush_device_class").or_else(|| self.text(host, "crush_device_class")));
                }
                None => d.note(format!("host {host}: lvm_volumes {}: an OSD takes a whole disk", v.shown())),
            }
            if v.get("db").is_some() || v.get("wal").is_some() || v.get("journal").is_some() {
                d.note(format!("host {host}: lvm_volumes with db, wal or journal: an OSD has one device"));
            }
        }
        let split = ["dedicated_devices", "bluestore_wal_devices"];
        for k in split.iter().filter(|k| self.get(host, k).is_some_and(|n| n.items().len() > 0)) {
            d.note(format!("{k}: an OSD has one device; these are not used"));
        }
        if self.text(host, "osds_per_device").is_some_and(|n| n != "1") {
            d.note("osds_per_device: each device has one OSD");
        }
        if let Some(s) = self.text(host, "osd_scenario").filter(|s| !["lvm", "collocated"].contains(s)) {
            d.note(format!("osd_scenario {s}: each of `devices` has one OSD, with all that belongs to it"));
        }
        if self.text(host, "osd_objectstore").is_some_and(|s| s != "bluestore") {
            d.note("osd_objectstore: the store is Belemnite's");
        }
        let mut off = is("dmcrypt").then(|| "dmcrypt: no rule makes OSDs on dm-crypt".to_owned());
        let selected = if is("osd_auto_discovery") && paths.is_empty() {
            Ok(vec![("kind", "\"any\"".to_owned())])
        } else {
            of_paths(&paths)
        };
        let mut keys = match selected {
            Ok(keys) => keys,
            Err(why) => {
                off = Some(why);
                Vec::new()
            }
        };
        if classes.len() > 1 {
            d.note(format!("host {host}: crush_device_class of single devices: name one `class` for a rule"));
        } else if let Some(c) = classes.into_iter().next().or(Some(self.text(host, "crush_device_class"))) {
            class(d, host, &mut keys, c);
        }
        let name = if off.is_some() && keys.is_empty() { format!("host {host}") } else { "osds".to_owned() };
        add(d, DraftRule { name, hosts: BTreeSet::from([host.to_owned()]), label: None, keys, off });
    }
}
