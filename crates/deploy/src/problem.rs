//! Problems that keep a plan from going on, and notes beside it.

use crate::facts::{ClusterState, Facts, Holds, HostFacts, Reach, Release};
use crate::inventory::{DeviceRule, Inventory, Select};
use crate::next::moves;
use crate::next::osds::{is_selected, resolve};
use std::fmt;

/// Largest difference of a host's clock, in milliseconds. Tickets are valid by the clock.
const CLOCK_MS_MAX: i64 = 2000;

/// Something that must be settled by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The host, or empty for the cluster.
    pub host: String,
    /// The words: the trouble, and the way out.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(host: &str, what: impl Into<String>) -> Self {
        Self { host: host.into(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_str() {
            "" => f.write_str(&self.what),
            h => write!(f, "{h}: {}", self.what),
        }
    }
}

/// A device or file that a rule names and that holds something that is not of this cluster.
fn foreign(r: &DeviceRule, h: &HostFacts) -> Vec<String> {
    let is_ours = |p: &str| h.stores.iter().any(|s| s.path == p) || h.making.contains(p);
    match &r.select {
        Select::Free { .. } => Vec::new(),
        Select::Paths(paths) => {
            let one = |given: &String| {
                let p = resolve(h, given);
                let d = h.devices.iter().find(|d| d.path == p);
                match d.map(|d| &d.holds) {
                    _ if is_ours(&p) => None,
                    None => Some(format!("{given} is no disk of this host")),
                    Some(Holds::Nothing) => None,
                    Some(Holds::System) => Some(format!("{given} is in use by the system")),
                    Some(Holds::Other(what)) => Some(format!(
                        "{given} holds {what}. `belemnite osd zap --force {given}` erases it there; or take it out of the \
                         inventory"
                    )),
                }
            };
            paths.iter().filter_map(one).collect()
        }
        Select::Files { directory, .. } => {
            let files = h.files.iter().filter(|f| f.has_data && !is_ours(&f.path));
            let named = files.filter(|f| f.path.strip_prefix(directory).is_some_and(|n| n.starts_with("/disk-")));
            named.map(|f| format!("{} holds something else; remove it", f.path)).collect()
        }
    }
}

fn of_host(i: &Inventory, f: &Facts, name: &str, h: &HostFacts) -> Vec<Problem> {
    let mut all = Vec::new();
    let mut say = |what: String| all.push(Problem::new(name, what));
    if !h.is_root {
        say("the account is not root and `sudo -n` does not make it so".into());
    }
    if !h.has_systemd {
        say("systemd does not run there".into());
    }
    let has_apt = ["debian", "ubuntu"].iter().any(|s| h.system.starts_with(s));
    if matches!(f.release, Release::Package(_)) && !has_apt {
        say(format!("the package is for Debian, and the system there is {:?}", h.system));
    }
    if h.clock_ms.abs() > CLOCK_MS_MAX {
        let (s, word) = (h.clock_ms.abs() / 1000, if h.clock_ms > 0 { "ahead" } else { "behind" });
        say(format!(
            "its clock is {s} s {word}: start a time service there (chrony, systemd-timesyncd), and try again"
        ));
    }
    if let Some(c) = h.conf.as_ref().filter(|c| c.fsid != f.fsid) {
        say(format!(
            "/etc/ceph/ceph.conf there is of another cluster ({}). A host is part of one cluster; move the file away if \
             nothing uses it",
            c.fsid
        ));
    }
    for what in i.rules_of(name).flat_map(|r| foreign(r, h)) {
        say(what);
    }
    if matches!(f.cluster, ClusterState::Absent) && !h.stores.is_empty() {
        say(format!(
            "it has {} stores of OSDs, but the cluster's state is not known here: use the directory of the earlier run, or \
             restore the monitors' state (docs/operate/monitor-lost.md)",
            h.stores.len()
        ));
    }
    all
}

/// Problems that keep a plan from going on, before anything is done.
#[must_use]
pub fn problems(i: &Inventory, f: &Facts) -> Vec<Problem> {
    let mut all = moves::problems(i, f);
    for name in i.hosts.keys().filter(|n| !f.skipped.contains(*n)) {
        match f.hosts.get(name) {
            Some(Reach::Answers(h)) => all.extend(of_host(i, f, name, h)),
            Some(Reach::Silent(why)) => {
                all.push(Problem::new(name, format!("does not answer: {why}. `--without {name}` goes on without it")))
            }
            None => all.push(Problem::new(name, "was not asked")),
        }
    }
    all
}

/// Notes for the operator that stop nothing.
#[must_use]
pub fn notes(i: &Inventory, f: &Facts) -> Vec<Problem> {
    let mut all = Vec::new();
    for (name, h) in i.hosts.keys().filter_map(|n| Some((n, f.host(n)?))) {
        let free = i.rules_of(name).filter(|r| matches!(r.select, Select::Free { .. }));
        let rules: Vec<&DeviceRule> = free.collect();
        for d in h.devices.iter().filter(|d| rules.iter().any(|r| is_selected(r, d))) {
            let is_ours = h.stores.iter().any(|s| s.path == d.path) || h.making.contains(&d.path);
            if let (Holds::Other(what), false) = (&d.holds, is_ours) {
                all.push(Problem::new(name, format!("{} matches a rule, holds {what}, and is left alone", d.path)));
            }
        }
        if h.has_program() && !h.has(&f.release) {
            all.push(Problem::new(
                name,
                "has another release; `belemnite deploy upgrade` brings all hosts to this one",
            ));
        }
    }
    for name in &f.skipped {
        all.push(Problem::new(name, "is left alone in this run (--without)"));
    }
    let unknown = f.cluster().into_iter().flat_map(|c| c.osds.iter());
    for (id, o) in unknown.filter(|(_, o)| !o.host.is_empty() && !f.hosts.contains_key(&o.host)) {
        all.push(Problem::new(&o.host, format!("has osd.{id}, and is not in the inventory: it is left alone")));
    }
    all
}
