//! Description of a cluster, stored in its directory so that a later `up` starts the same cluster.

use super::layout::{Layout, etcd_ports, mgr_port, mgr_port_of, mon_port, osd_ports};
use base::EntityAddr;
use serde::{Deserialize, Serialize};
use state::etcd::EtcdOptions;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// One OSD of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OsdPlan {
    /// Id of the OSD.
    pub(crate) id: u32,
    /// Uuid of the OSD, passed to `osd new` and stored in the OSD.
    pub(crate) uuid: String,
    /// Key of the OSD in keyring format.
    pub(crate) key: String,
    /// Block device; `None` for a file in the data directory.
    pub(crate) device: Option<PathBuf>,
    /// Size of the file in bytes.
    pub(crate) size: u64,
    /// Whether the monitor was told of this OSD. Such an OSD that the monitor does not know any more was purged.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub(crate) registered: bool,
}

/// An S3 gateway of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct S3Plan {
    /// Port it listens on.
    pub(crate) port: u16,
    /// Key of the gateway in keyring format.
    pub(crate) key: String,
    /// Access key of the first user.
    pub(crate) access: String,
    /// Secret key of the first user.
    pub(crate) secret: String,
    /// Root directory that it runs in; `None` for this machine's.
    pub(crate) root: Option<PathBuf>,
}

/// A cluster on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Format version of the plan.
    pub(crate) version: u32,
    /// Cluster id.
    pub(crate) fsid: String,
    /// Address the daemons listen on.
    pub(crate) ip: IpAddr,
    /// Port of the monitor.
    pub(crate) port: u16,
    /// `cephx` or `none`.
    pub(crate) auth: String,
    /// Copies of a new pool's objects.
    pub(crate) pool_size: u32,
    /// The OSDs.
    pub(crate) osds: Vec<OsdPlan>,
    /// Number of monitors: 1 with its state in a file, or 3 with their state in an etcd that `up` also runs.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) mons: u32,
    /// The gateway, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) s3: Option<S3Plan>,
    /// The file system whose MDS daemons `up` runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fs: Option<FsPlan>,
    /// Ceph's manager, if it has the manager role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mgr: Option<MgrPlan>,
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_yes(b: &bool) -> bool {
    *b
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

/// Name of a monitor.
pub(crate) fn mon_name(i: u32) -> String {
    ["a", "b", "c"].get(i as usize).map_or_else(|| i.to_string(), |n| (*n).to_owned())
}

/// Ceph's manager instead of the built-in role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MgrPlan {
    /// Root directory with `ceph-mgr`; `None` for this machine's.
    pub(crate) ceph_root: Option<PathBuf>,
}

/// A file system and its MDS daemons.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FsPlan {
    /// Name of the file system.
    pub(crate) name: String,
    /// Number of MDS daemons.
    pub(crate) mds: u32,
    /// Root directory with `ceph-mds`; `None` for this machine's.
    pub(crate) ceph_root: Option<PathBuf>,
}

/// Reactors of each OSD: half of the machine's cores divided by the OSDs; the other half is for clients on this machine
/// (docs/adr/0005).
fn reactors(cores: usize, osds: usize) -> usize {
    (cores / 2 / osds.max(1)).max(1)
}

/// Environment variable for tests: reactors of each OSD, regardless of the cores.
const REACTORS: &str = "BELEMNITE_OSD_REACTORS";

/// Reactors of each OSD on this machine.
pub(crate) fn reactors_here(osds: usize) -> usize {
    let told = std::env::var(REACTORS).ok().and_then(|v| v.parse::<usize>().ok()).filter(|n| *n > 0);
    told.unwrap_or_else(|| reactors(std::thread::available_parallelism().map_or(1, usize::from), osds))
}

/// Format version of the plan that this program writes.
pub(crate) const VERSION: u32 = 1;

/// Last line of a `ceph.conf` written by `up`.
const OWN_OPTIONS: &str = "# Your own options: what follows this line is kept. Daemons read it when they start.";

impl Plan {
    /// The address in the form for URLs and address lists.
    #[must_use]
    pub(crate) fn host(&self) -> String {
        match self.ip {
            IpAddr::V4(a) => a.to_string(),
            IpAddr::V6(a) => format!("[{a}]"),
        }
    }

    /// Section `[global]`, for all clients and daemons.
    #[must_use]
    pub(crate) fn conf_global(&self) -> String {
        let (auth, modes) = (&self.auth, if self.auth == "none" { "ms_mon_client_mode = crc\n" } else { "" });
        format!(
            "[global]\n\
             fsid = {}\n\
             mon_host = {}\n\
             auth_cluster_required = {auth}\n\
             auth_service_required = {auth}\n\
             auth_client_required = {auth}\n\
             {modes}\
             osd_pool_default_size = {}\n\
             osd_crush_chooseleaf_type = 0\n\
             mon_max_pg_per_osd = 1000\n",
            self.fsid,
            self.mon_host(),
            self.pool_size,
        )
    }

    /// Address of a monitor.
    #[must_use]
    pub(crate) fn mon_addr(&self, i: u32) -> EntityAddr {
        EntityAddr::msgr2(SocketAddr::new(self.ip, mon_port(self.port, i)), 0)
    }

    fn mon_host(&self) -> String {
        let one = |i| format!("[v2:{}:{}/0]", self.host(), mon_port(self.port, i));
        (0..self.mons).map(one).collect::<Vec<_>>().join(",")
    }

    /// Options for the monitors' access to etcd.
    #[must_use]
    pub(crate) fn etcd(&self) -> EtcdOptions {
        EtcdOptions {
            endpoints: (0..self.mons).map(|i| format!("http://127.0.0.1:{}", etcd_ports(self.port, i).0)).collect(),
            prefix: format!("belemnite/{}/", self.fsid),
            ..EtcdOptions::default()
        }
    }

    /// Sections for several monitors.
    fn mon_sections(&self) -> String {
        if self.mons == 1 {
            return String::new();
        }
        let etcd = self.etcd();
        let mut out =
            format!("mon_state_etcd = {}\nmon_state_etcd_prefix = {}\n", etcd.endpoints.join(","), etcd.prefix);
        for i in 0..self.mons {
            let (name, host, port) = (mon_name(i), self.host(), mon_port(self.port, i));
            let mgr = mgr_port_of(self.port, i);
            let _ = write!(out, "\n[mon.{name}]\npublic_addr = [v2:{host}:{port}/0]\nmgr_port = {mgr}\n");
        }
        out
    }

    /// The `ceph.conf` of the cluster, with the operator's own options from the existing file.
    #[must_use]
    pub(crate) fn conf_beside(&self, l: &Layout, have: &str) -> String {
        let own = have.split_once(OWN_OPTIONS).map_or("", |(_, own)| own);
        format!("{}\n{OWN_OPTIONS}{}", self.conf(l), if own.is_empty() { "\n" } else { own })
    }

    /// The part of `ceph.conf` that `up` generates.
    #[must_use]
    pub(crate) fn conf(&self, l: &Layout) -> String {
        let host = self.host();
        let mut out = format!(
            "# Written by `belemnite up` each time it starts; the last line says where your own options go.\n{}",
            self.conf_global()
        );
        let d = l.dir.display();
        let _ = write!(
            out,
            "\n[client.admin]\nkeyring = {}\n\n[mon]\nmon_data = {d}/mon.$id\nkeyring = {d}/mon.$id/keyring\n\
             admin_socket = {d}/run/mon.$id.asok\nmgr_port = {}\nmon_allow_pool_delete = true\n\
             mon_backup_dir = {d}/backups/mon.$id\n\
             mon_osd_reporter_subtree_level = osd\nmon_osd_min_down_reporters = {}\n{}{}\n\
             [osd]\nosd_data = {d}/osd.$id\nkeyring = {d}/osd.$id/keyring\nadmin_socket = {d}/run/osd.$id.asok\n\
             public_addr = {host}\ncluster_addr = {host}\nosd_count_on_host = {}\nosd_reactors = {}\n",
            l.admin_keyring().display(),
            mgr_port(self.port),
            // All OSDs are on one host, so each OSD counts as a failure reporter of its own. With two OSDs only one can
            // report the other.
            if self.osds.len() > 2 { 2 } else { 1 },
            if self.mgr.is_some() { "mgr = external\n" } else { "" },
            self.mon_sections(),
            self.osds.len(),
            reactors_here(self.osds.len()),
        );
        for o in &self.osds {
            let (lo, hi) = osd_ports(self.port, o.id, reactors_here(self.osds.len()));
            let _ = write!(out, "\n[osd.{}]\nms_bind_port_min = {lo}\nms_bind_port_max = {hi}\n", o.id);
            if let Some(dev) = &o.device {
                let _ = writeln!(out, "osd_block_path = {}", dev.display());
            }
        }
        out
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn osd(id: u32, uuid: &str) -> OsdPlan {
        OsdPlan { id, uuid: uuid.into(), key: String::new(), device: None, size: 1 << 30, registered: true }
    }

    pub(crate) fn plan() -> Plan {
        Plan {
            version: VERSION,
            fsid: "6c3f4e2a-0000-4000-8000-000000000000".into(),
            ip: "127.0.0.1".parse().unwrap(),
            port: 3300,
            auth: "cephx".into(),
            pool_size: 1,
            osds: Vec::new(),
            mons: 1,
            s3: None,
            fs: None,
            mgr: None,
        }
    }

    #[test]
    fn own_options_are_kept() {
        let l = Layout { dir: "/data".into() };
        let first = plan().conf_beside(&l, "");
        assert!(first.ends_with(&format!("{OWN_OPTIONS}\n")), "{first}");
        assert_eq!(plan().conf_beside(&l, &first), first);
        let with = format!("{first}[osd]\ndebug_osd = 5\n");
        let p = Plan { mgr: Some(MgrPlan { ceph_root: None }), ..plan() };
        let next = p.conf_beside(&l, &with);
        assert!(next.contains("mgr = external\n") && next.ends_with("\n[osd]\ndebug_osd = 5\n"), "{next}");
        assert!(!plan().conf_beside(&l, &next).contains("external"));
        // A file of an earlier build has no such line.
        assert_eq!(plan().conf_beside(&l, &plan().conf(&l)), first);
    }
}
