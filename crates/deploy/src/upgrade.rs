//! Upgrades: the release on all hosts, then monitors one by one, then OSDs by host.
//!
//! Daemons go on with the program that they were started with, so installing changes nothing by itself. Restarted are
//! daemons whose program file is not the installed one. `noout` is held while OSDs restart; one that the operator had
//! set stays set.

use crate::facts::{Facts, HostFacts};
use crate::inventory::Inventory;
use crate::next::{Next, Stage};
use crate::problem::{Problem, problems};
use crate::step::{Action, Step};

fn present<'a>(i: &'a Inventory, f: &'a Facts) -> impl Iterator<Item = (&'a str, &'a HostFacts)> {
    let all = i.hosts.keys().filter(|n| !f.skipped.contains(*n));
    all.filter_map(|n| Some((n.as_str(), f.host(n)?)))
}

fn stage(title: &str, steps: Vec<Step>) -> Next {
    Next::Stage(Stage { title: title.into(), steps })
}

/// Ids of a host's OSDs that run with another program than the installed one.
fn old_osds(h: &HostFacts) -> Vec<u32> {
    let is_old = |id: &u32| h.units.get(&format!("belemnite-osd@{id}")).is_some_and(|u| u.active && u.old_program);
    h.stores.iter().map(|s| s.id).filter(is_old).collect()
}

/// The next stage of an upgrade to the release of the facts.
#[must_use]
pub fn next(i: &Inventory, f: &Facts) -> Next {
    let found = problems(i, f);
    if !found.is_empty() {
        return Next::Blocked(found);
    }
    let Some(c) = f.cluster() else {
        return Next::Blocked(vec![Problem::new("", "no monitor answers; `belemnite deploy apply` starts them")]);
    };
    let install: Vec<Step> = present(i, f)
        .filter(|(_, h)| !h.has(&f.release))
        .map(|(n, _)| Step::new(n, Action::Install(Vec::new())))
        .collect();
    if !install.is_empty() {
        return stage("install", install);
    }
    let is_old =
        |n: &str, h: &HostFacts| h.units.get(&format!("belemnite-mon@{n}")).is_some_and(|u| u.active && u.old_program);
    if let Some((n, _)) = present(i, f).find(|(n, h)| is_old(n, h)) {
        if c.quorum.len() < c.monitors.len() {
            let absent = c.monitors.keys().filter(|m| !c.quorum.contains(*m)).cloned().collect::<Vec<_>>().join(", ");
            return Next::Blocked(vec![Problem::new(
                n,
                format!("its monitor is not restarted while others are down: {absent}"),
            )]);
        }
        return stage("restart a monitor", vec![Step::new(n, Action::RestartMonitor)]);
    }
    let old = present(i, f).map(|(n, h)| (n, old_osds(h))).find(|(_, ids)| !ids.is_empty());
    match old {
        Some(_) if !c.is_clean => {
            let what = "not all PGs are active+clean: OSDs are restarted one host at a time, each once all are";
            Next::Blocked(vec![Problem::new("", what)])
        }
        Some(_) if !c.noout => stage("hold OSDs in", vec![Step::new("", Action::HoldOut)]),
        Some((n, ids)) => stage("restart OSDs of a host", vec![Step::new(n, Action::RestartOsds(ids))]),
        None if c.noout_is_ours => stage("let OSDs go out again", vec![Step::new("", Action::ReleaseOut)]),
        None => Next::Done,
    }
}
