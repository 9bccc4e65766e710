//! Programs and configuration of hosts.

use super::{Steps, moves, present};
use crate::conf;
use crate::facts::{Facts, HostFacts};
use crate::inventory::Inventory;
use crate::step::{Action, Step};

/// Packages of the distribution that a host needs.
fn packages(i: &Inventory, name: &str) -> Vec<&'static str> {
    let has = |names: &[String]| names.iter().any(|n| n == name);
    let roles: [(bool, &[&'static str]); 4] = [
        (i.has_etcd() && has(&i.monitors), &["etcd-server", "etcd-client"]),
        (has(&i.monitors), &["ceph-common"]),
        (has(&i.metadata_servers), &["ceph-mds"]),
        (has(&i.gateways), &["radosgw"]),
    ];
    roles.into_iter().filter(|(is, _)| *is).flat_map(|(_, p)| p.iter().copied()).collect()
}

/// Packages that a host lacks.
fn lacking(i: &Inventory, name: &str, h: &HostFacts) -> Vec<String> {
    packages(i, name).into_iter().filter(|p| !h.packages.contains_key(*p)).map(str::to_owned).collect()
}

/// A host with another release keeps it; an upgrade changes that.
pub(super) fn install(i: &Inventory, f: &Facts) -> Steps {
    let steps = present(i, f).filter_map(|(n, h)| {
        let missing = lacking(i, n, h);
        (!missing.is_empty() || !h.has_program()).then(|| Step::new(n, Action::Install(missing)))
    });
    Ok(steps.collect())
}

fn is_configured(i: &Inventory, f: &Facts, name: &str, h: &HostFacts) -> bool {
    let wanted = conf::digest(&conf::ceph_conf(i, f, name, h));
    let is_monitor = i.monitors.iter().any(|m| m == name);
    let has_certificate = !i.has_etcd() || h.certificate.as_ref() == Some(&f.authority);
    let is_written = h.conf.as_ref().is_some_and(|c| c.digest == wanted) || moves::keeps_conf(i, f, name, h);
    is_written && (!is_monitor || h.has_admin_key && has_certificate)
}

pub(super) fn configure(i: &Inventory, f: &Facts) -> Steps {
    let steps = present(i, f).filter(|(n, h)| !is_configured(i, f, n, h));
    Ok(steps.map(|(n, _)| Step::new(n, Action::Configure)).collect())
}
