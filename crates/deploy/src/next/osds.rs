//! OSDs of the inventory's hosts.

use super::{Steps, present};
use crate::facts::{Device, Facts, Holds, HostFacts};
use crate::inventory::{DeviceRule, Inventory, Select};
use crate::step::{Action, Step, Target};
use std::collections::BTreeSet;

/// True if a rule for free devices is about a disk, whatever it holds.
pub(crate) fn is_selected(r: &DeviceRule, d: &Device) -> bool {
    match &r.select {
        Select::Free { kind, min, max, .. } => d.is(*kind) && d.bytes >= *min && d.bytes <= *max,
        _ => false,
    }
}

/// The device that a name of the inventory leads to.
pub(crate) fn resolve(h: &HostFacts, path: &str) -> String {
    h.links.get(path).cloned().unwrap_or_else(|| path.to_owned())
}

/// Devices and files of a host on which OSDs are to be made.
pub(crate) fn targets(i: &Inventory, host: &str, h: &HostFacts) -> Vec<Target> {
    let mut taken: BTreeSet<String> = h.stores.iter().map(|s| s.path.clone()).collect();
    let mut all = Vec::new();
    for r in i.rules_of(host) {
        let (paths, bytes): (Vec<String>, Option<u64>) = match &r.select {
            Select::Free { count, .. } => {
                let of_rule = h.devices.iter().filter(|d| is_selected(r, d));
                let (have, rest): (Vec<&Device>, Vec<&Device>) = of_rule.partition(|d| taken.contains(&d.path));
                let is_free = |d: &&Device| d.holds == Holds::Nothing || h.making.contains(&d.path);
                let free = rest.into_iter().filter(is_free).map(|d| d.path.clone());
                (free.take(count.saturating_sub(have.len())).collect(), None)
            }
            Select::Paths(paths) => (paths.iter().map(|p| resolve(h, p)).collect(), None),
            Select::Files { count, bytes, directory } => {
                ((1..=*count).map(|n| format!("{directory}/disk-{n}")).collect(), Some(*bytes))
            }
        };
        let new = paths.into_iter().filter(|p| taken.insert(p.clone()));
        all.extend(new.map(|path| Target { path, bytes, class: r.class.clone() }));
    }
    all
}

pub(super) fn bootstrap_keys(i: &Inventory, f: &Facts) -> Steps {
    if f.cluster().is_none() {
        return Ok(Vec::new());
    }
    let without = present(i, f).filter(|(n, h)| !h.has_bootstrap_key && i.rules_of(n).next().is_some());
    Ok(without.map(|(n, _)| Step::new(n, Action::BootstrapKey)).collect())
}

/// Moves hosts whose place in the CRUSH map is not that of the inventory. Types that it does not name stay as they are.
pub(super) fn places(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let steps = c.places.iter().filter_map(|(n, have)| {
        let wanted = &i.hosts.get(n)?.place;
        let differs = wanted.iter().any(|(k, v)| have.get(k) != Some(v));
        let to = wanted.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        differs.then(|| Step::new(n, Action::Place(to)))
    });
    Ok(steps.collect())
}

pub(super) fn create(i: &Inventory, f: &Facts) -> Steps {
    if f.cluster().is_none() {
        return Ok(Vec::new());
    }
    let steps = present(i, f).filter_map(|(n, h)| {
        let new = targets(i, n, h);
        (!new.is_empty()).then(|| Step::new(n, Action::CreateOsds(new)))
    });
    Ok(steps.collect())
}

pub(super) fn start(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let steps = present(i, f).filter_map(|(n, h)| {
        let is_idle = |id: &u32| c.osds.contains_key(id) && !h.runs(&format!("belemnite-osd@{id}"));
        let idle: Vec<u32> = h.stores.iter().map(|s| s.id).filter(is_idle).collect();
        (!idle.is_empty()).then(|| Step::new(n, Action::StartOsds(idle)))
    });
    Ok(steps.collect())
}
