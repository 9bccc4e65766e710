//! Options, file systems, metadata servers and gateways.

use super::{Steps, present};
use crate::facts::Facts;
use crate::inventory::Inventory;
use crate::step::{Action, Step};

pub(super) fn options(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let all = i.options.iter().flat_map(|(who, m)| m.iter().map(move |(k, v)| (who.clone(), k.clone(), v.clone())));
    let differs = |(who, k, v): &(String, String, String)| c.options.get(&(who.clone(), k.clone())) != Some(v);
    Ok(all.filter(differs).map(|(who, k, v)| Step::new("", Action::SetOption(who, k, v))).collect())
}

pub(super) fn filesystems(i: &Inventory, f: &Facts) -> Steps {
    let Some(c) = f.cluster() else { return Ok(Vec::new()) };
    let missing = i.filesystems.iter().filter(|n| !c.filesystems.contains(*n));
    Ok(missing.map(|n| Step::new("", Action::MakeFilesystem(n.clone()))).collect())
}

/// Units of a host's metadata server and gateway.
pub(super) fn units(host: &str) -> [String; 2] {
    [format!("ceph-mds@{host}"), format!("ceph-radosgw@rgw.{host}")]
}

pub(super) fn start(i: &Inventory, f: &Facts) -> Steps {
    if f.cluster().is_none() {
        return Ok(Vec::new());
    }
    let mut steps = Vec::new();
    for (n, h) in present(i, f) {
        let [mds, gateway] = units(n);
        let is_in = |names: &[String]| names.iter().any(|m| m == n);
        if is_in(&i.metadata_servers) && !h.runs(&mds) {
            steps.push(Step::new(n, Action::StartMds));
        }
        if is_in(&i.gateways) && !h.runs(&gateway) {
            steps.push(Step::new(n, Action::StartGateway));
        }
    }
    Ok(steps)
}
