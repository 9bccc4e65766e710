//! Families of Ceph's commands that this program does not have, each with what to use instead.
//!
//! A row refuses all commands that begin with its words. A separate manager answers those of its modules itself.
//! `absent/signatures.txt` has the signatures of their commands (service, permission, signature), because `ceph` sends
//! only what the monitor describes. They are those of Ceph 20.2, without `format`, which is an option of `ceph`; families
//! of modules that are not in Ceph's own packages have one signature that takes any words.

use super::language::sig::Sig;
use super::{Res, refuse};
use base::errno;
use std::sync::OnceLock;

const VOLUMES: &str = "a ceph-mgr serves it with its module volumes (`belemnite up --mgr ceph`, or `mgr = external`)";

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
    ("telegraf", true, "read the metrics as Prometheus does: `ceph mgr module enable prometheus`"),
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
        "osd pool set autoscale-profile",
        true,
        "`ceph osd pool set POOL bulk true` gives a pool its full number of PGs at once",
    ),
    ("osd pool get threshold", true, "the autoscaler changes pools that are off by a factor of 3"),
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
        "osd pool availability-status",
        false,
        "no score is kept; `ceph health detail` and the metrics name PGs that are not available",
    ),
    ("osd pool clear-availability-status", false, "no score is kept"),
    ("osd force_healthy_stretch_mode", false, "there is no stretch mode"),
    ("osd force_recovery_stretch_mode", false, "there is no stretch mode"),
    ("osd set-allow-crimson", false, "each OSD has one reactor per core, and pools need no flag for it"),
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
    (
        "mon set",
        false,
        "keys of all types are taken; `ceph auth get-or-create NAME --key-type aes256k` makes one of a type",
    ),
    ("mgr set", false, "the monitors have the manager role; `ceph mgr fail` makes it begin anew"),
    ("mgr module force disable", false, "use `ceph mgr module disable`"),
    ("mgr self-test", true, "it tests Ceph's manager"),
    ("test_orchestrator", true, "it tests Ceph's manager"),
    ("prometheus file_sd_config", true, "`ceph mgr services` names the address of the metrics"),
    ("fs volume rename", true, "use `ceph fs rename`, and `ceph osd pool rename` for its pools"),
    ("fs quiesce", true, VOLUMES),
    ("fs subvolume", true, VOLUMES),
    ("fs subvolumegroup", true, VOLUMES),
    ("fs clone", true, VOLUMES),
    ("auth dump-keys", false, "`ceph auth ls` shows the keys of all entities"),
    ("auth wipe-rotating-service-keys", false, "rotating keys are replaced by themselves"),
];

/// The family of a command with these words.
fn of(prefix: &str) -> Option<&'static (&'static str, bool, &'static str)> {
    let is_of =
        |f: &&(&str, bool, &str)| prefix.strip_prefix(f.0).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    FAMILIES.iter().filter(is_of).max_by_key(|f| f.0.len())
}

/// Signatures of their commands, a line each.
const SIGNATURES: &str = include_str!("absent/signatures.txt");

/// A refused command, as clients get it described.
pub(super) struct Described {
    pub(super) sig: Sig,
    /// The service or manager module whose caps Ceph checks.
    pub(super) module: &'static str,
    /// The permission that Ceph asks for.
    pub(super) perm: &'static str,
    /// True if a module of the manager serves it in Ceph.
    pub(super) of_manager: bool,
}

impl Described {
    fn of_line(line: &'static str) -> Option<Self> {
        let (module, rest) = line.split_once(' ')?;
        let (perm, sig) = rest.split_once(' ')?;
        let sig = Sig::parse(sig)?;
        let of_manager = of(&sig.prefix)?.1;
        Some(Self { sig, module, perm, of_manager })
    }
}

/// Descriptions of the refused commands.
pub(super) fn described() -> &'static [Described] {
    static ALL: OnceLock<Vec<Described>> = OnceLock::new();
    // A malformed line is left out; a test proves that there is none.
    ALL.get_or_init(|| SIGNATURES.lines().filter_map(Described::of_line).collect())
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
        assert!(of("osd pool stretch set").is_some_and(|f| f.0 == "osd pool stretch"));
        assert!(described().iter().all(|d| of(&d.sig.prefix).is_some()));
        assert_eq!(described().len(), SIGNATURES.lines().count());
        for p in ["orchestra", "osd pool set", "osd perf", "mon sets", "healthcheck", ""] {
            assert!(of(p).is_none(), "{p}");
        }
    }
}
