//! Description of a cluster, stored in its directory so that a later `up` starts the same cluster.

use super::layout::{Layout, etcd_ports, mgr_port, mgr_port_of, mon_port, mon_port_msgr1, osd_ports};
use base::{AddrVec, EntityAddr};
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
    /// Whether msgr1 is served to clients; the monitors then have addresses for it.
    #[serde(default, skip_serializing_if = "is_no")]
    pub(crate) msgr1: bool,
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

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_no(b: &bool) -> bool {
    !*b
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
        let msgr1 = if self.msgr1 { "" } else { "ms_bind_msgr1 = false\n" };
        format!(
            "[global]\n\
             fsid = {}\n\
             mon_host = {}\n\
             auth_cluster_required = {auth}\n\
             auth_service_required = {auth}\n\
             auth_client_required = {auth}\n\
             {modes}{msgr1}\
             osd_pool_default_size = {}\n\
             osd_crush_chooseleaf_type = 0\n\
             mon_max_pg_per_osd = 1000\n",
            self.fsid,
            self.mon_host(),
            self.pool_size,
        )
    }

    /// Addresses of a monitor.
    #[must_use]
    pub(crate) fn mon_addrs(&self, i: u32) -> AddrVec {
        let at = |port| SocketAddr::new(self.ip, port);
        let msgr1 = self.msgr1.then(|| at(mon_port_msgr1(self.port, i)));
        net::modes::announced(EntityAddr::msgr2(at(mon_port(self.port, i)), 0), msgr1)
    }

    /// The same as `mon_host` and `public_addr` spell them, with brackets around a single address, too.
    fn mon_addrs_text(&self, i: u32) -> String {
        let text = self.mon_addrs(i).to_string();
        if text.starts_with('[') { text } else { format!("[{text}]") }
    }

    fn mon_host(&self) -> String {
        (0..self.mons).map(|i| self.mon_addrs_text(i)).collect::<Vec<_>>().join(",")
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
            let (name, addrs, mgr) = (mon_name(i), self.mon_addrs_text(i), mgr_port_of(self.port, i));
            let _ = write!(out, "\n[mon.{name}]\npublic_addr = {addrs}\nmgr_port = {mgr}\n");
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
            msgr1: false,
            s3: None,
            fs: None,
            mgr: None,
        }
    }

    #[test]
    fn monitors_have_cephs_ports_for_msgr1_or_others_below_the_first_osd() {
        let plan = || Plan { msgr1: true, ..plan() };
        let hosts = |p: Plan| p.mon_host();
        assert_eq!(hosts(plan()), "[v2:127.0.0.1:3300/0,v1:127.0.0.1:6789/0]");
        assert_eq!(hosts(Plan { port: 7000, ..plan() }), "[v2:127.0.0.1:7000/0,v1:127.0.0.1:7004/0]");
        assert!(!plan().conf_global().contains("msgr1"), "it is served by default");
        let off = Plan { msgr1: false, ..plan() };
        assert!(off.conf_global().contains("\nms_bind_msgr1 = false\n"));
        assert_eq!(hosts(off), "[v2:127.0.0.1:3300/0]");
        let six = Plan { ip: "::1".parse().unwrap(), mons: 3, ..plan() };
        let of = |text: &str| crate::admin::mon_addrvecs(text).unwrap();
        assert_eq!(of(&six.mon_host()), [0, 1, 2].map(|i| six.mon_addrs(i)));
        assert_eq!(
            of("10.0.0.1,[v1:10.0.0.2:6789/0,v2:10.0.0.2:3300/0] 10.0.0.3:1"),
            [
                of("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]").remove(0),
                AddrVec([of("v1:10.0.0.2:6789/0").remove(0).0, of("v2:10.0.0.2:3300/0").remove(0).0].concat()),
                of("v2:10.0.0.3:1/0").remove(0),
            ]
        );
        let old: Plan = serde_json::from_value(serde_json::json!({ "version": 1, "fsid": "", "ip": "::1", "port": 1,
            "auth": "none", "pool_size": 1, "osds": [] }))
        .unwrap();
        assert!(!old.msgr1, "a cluster made before goes on with what its monmap has");
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
