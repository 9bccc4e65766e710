//! Families of Ceph's commands that this program does not have, each with what to use instead.
//!
//! A row refuses all commands that begin with its words. A separate manager answers those of its modules itself.

use super::{Res, refuse};
use base::errno;

/// A family: its words, whether a module of the manager serves it in Ceph, and what to use instead.
const FAMILIES: &[(&str, bool, &str)] = &[
    ("orch", true, "`belemnite deploy` makes and changes clusters on hosts, `belemnite osd create` makes OSDs"),
    ("cephadm", true, "`belemnite deploy` makes and changes clusters on hosts"),
    ("nfs", true, "run nfs-ganesha on a file system, with a key of `ceph fs authorize`"),
    ("smb", true, "run Samba on a file system, with a key of `ceph fs authorize`"),
    (
        "nvme-gw",
        false,
        "the monitors have no map of NVMe-oF gateways; map images by `rbd map` and export them by the kernel's nvmet",
    ),
    ("telemetry", true, "nothing is sent to anybody; `belemnite report` writes what a bug report needs"),
    ("insights", true, "`belemnite report` writes health, crashes and the cluster log"),
    ("healthcheck history", true, "`ceph log last 1000 info cluster` shows the changes of health"),
    ("alerts", true, "let Prometheus send alerts: `ceph mgr module enable prometheus`"),
    ("influx", true, "read the metrics as Prometheus does: `ceph mgr module enable prometheus`"),
    ("zabbix", true, "read the metrics as Prometheus does: `ceph mgr module enable prometheus`"),
    ("restful", true, "use the console: `ceph mgr module enable dashboard`"),
    ("dashboard", true, "the console has no users or settings of its own, it takes the cluster's keys"),
    ("fs snapshot mirror", true, "run a ceph-mgr with its module and cephfs-mirror"),
    ("osd perf query", true, "`rbd perf image iotop` counts by image"),
    ("osd perf counters get", true, "`rbd perf image iotop` counts by image"),
    (
        "osd pool set threshold",
        true,
        "the autoscaler changes pools that are off by a factor of 3; `ceph osd pool set POOL pg_num N` changes others",
    ),
    (
        "osd pg-upmap-primary",
        false,
        "clients before Reef cannot read such maps; `ceph osd primary-affinity` moves primaries",
    ),
    ("osd rm-pg-upmap-primary", false, "the map has no such entries"),
    ("osd rm-pg-upmap-primary-all", false, "the map has no such entries"),
    ("osd ok-to-upgrade", true, "`ceph osd ok-to-stop OSD --max N` names OSDs that can stop together"),
    (
        "osd pool stretch",
        false,
        "make a CRUSH rule that takes two copies from each of two datacenters, and a pool of size 4 with it",
    ),
    (
        "osd pool force-remove-snap",
        false,
        "the map keeps a removed snapshot until all OSDs have trimmed it; nothing is left to force",
    ),
    (
        "mon enable_stretch_mode",
        false,
        "the leader holds a lease in etcd: give each of three sites a monitor and a member of etcd",
    ),
    ("mon disable_stretch_mode", false, "there is no stretch mode"),
    ("mon set_location", false, "monitors have no place, because the leader holds a lease in etcd"),
    ("mon set_new_tiebreaker", false, "monitors have no tiebreaker, because the leader holds a lease in etcd"),
    ("mon set-rank", false, "`ceph mon add disallowed_leader NAME` keeps a monitor from leading"),
    ("mon set-weight", false, "clients choose a monitor at random among those of their `mon_host`"),
];

/// The family of a command with these words.
fn of(prefix: &str) -> Option<&'static (&'static str, bool, &'static str)> {
    let is_of =
        |f: &&(&str, bool, &str)| prefix.strip_prefix(f.0).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    FAMILIES.iter().filter(is_of).max_by_key(|f| f.0.len())
}

/// True for the words of a command of these families that a separate manager may serve.
pub(crate) fn has_module(prefix: &str) -> bool {
    of(prefix).is_some_and(|f| f.1)
}

/// Refuses a command of these families. Any other command passes.
pub(super) fn check(prefix: &str) -> Res<()> {
    let Some((_, module, instead)) = of(prefix) else { return Ok(()) };
    let who = if *module { "the built-in manager" } else { "this program" };
    refuse(errno::EOPNOTSUPP, format!("{who} does not support '{prefix}': {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_found_by_their_first_words() {
        assert!(of("orch host ls").is_some_and(|f| f.0 == "orch"));
        assert!(of("nvme-gw create").is_some() && of("nvme-gw").is_some());
        assert!(of("osd rm-pg-upmap-primary-all").is_some_and(|f| f.0 == "osd rm-pg-upmap-primary-all"));
        for p in ["orchestra", "osd pool set", "osd perf", "mon set", "healthcheck", ""] {
            assert!(of(p).is_none(), "{p}");
        }
    }
}
