//! The `ceph.conf` of a cluster that the laboratory makes, valid for Ceph's daemons and for Belemnite's.

use crate::plan::{Settings, keys};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Contents of a cluster's configuration.
#[derive(Clone, Debug)]
pub(super) struct Conf<'a> {
    pub(super) fsid: &'a str,
    /// Address of the monitor.
    pub(super) ip: &'a str,
    pub(super) port: u16,
    pub(super) cluster: &'a Settings,
    pub(super) options: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// Address, CRUSH host and block device of each OSD.
    pub(super) osds: &'a [OsdConf],
    /// Reactors of each Belemnite OSD.
    pub(super) reactors: u64,
}

/// Configuration of one OSD.
#[derive(Clone, Debug)]
pub(super) struct OsdConf {
    pub(super) ip: String,
    pub(super) host: String,
    pub(super) device: Option<String>,
}

/// Ports of OSD `id`, counted from the monitor's port `mon`.
pub(super) fn ports(mon: u16, id: usize) -> (u16, u16) {
    let first = mon.saturating_add(20).saturating_add(u16::try_from(id * 24).unwrap_or(u16::MAX));
    (first, first.saturating_add(23))
}

/// Port of the S3 gateway, counted from the monitor's.
pub(super) fn gateway_port(mon: u16) -> u16 {
    mon.saturating_add(3)
}

/// The options of a section by name.
type Section = BTreeMap<String, String>;

/// Sections in the order of the file; those of single OSDs follow.
const ORDER: [&str; 7] = ["global", "client", "mon", "mgr", "osd", "mds", "client.rgw.a"];

impl Conf<'_> {
    /// Text of the configuration file, for programs that see the cluster's directory at `dir`.
    pub(super) fn text(&self, dir: &Path) -> String {
        let mut sections = BTreeMap::new();
        sections.insert("global", self.global(dir));
        self.put_daemons(&mut sections, dir);
        for (who, all) in self.options {
            let known = ORDER.into_iter().find(|s| s == who).unwrap_or("global");
            sections.entry(known).or_default().extend(all.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        let mut out = String::new();
        for (name, all) in ORDER.iter().filter_map(|n| Some((n, sections.get(n)?))) {
            let _ = writeln!(out, "[{name}]");
            for (k, v) in all {
                let _ = writeln!(out, "{k} = {v}");
            }
        }
        self.write_osds(&mut out);
        out
    }

    fn is_floor(&self) -> bool {
        keys::is_floor(self.cluster.text("system"))
    }

    /// The options of all programs.
    fn global(&self, dir: &Path) -> Section {
        let d = dir.display();
        let mode = match self.cluster.text("mode") {
            "secure" => "secure",
            _ => "crc secure",
        };
        // The floor proves and checks no identities.
        let auth = if self.is_floor() { "none" } else { "cephx" };
        // The failure domain is the host if there are at least three hosts, one for each copy.
        let domain = u8::from(self.cluster.int("nodes") >= 3);
        let all = [
            ("fsid", self.fsid.to_owned()),
            ("mon_host", format!("[v2:{}:{}/0]", self.ip, self.port)),
            ("auth_cluster_required", auth.into()),
            ("auth_service_required", auth.into()),
            ("auth_client_required", auth.into()),
            ("ms_cluster_mode", mode.into()),
            ("ms_service_mode", mode.into()),
            ("ms_client_mode", mode.into()),
            ("osd_crush_chooseleaf_type", domain.to_string()),
            ("osd_pool_default_pg_autoscale_mode", "off".into()),
            ("mon_allow_pool_delete", "true".into()),
            // Keys of type `aes` are the only ones that clients of every release read.
            ("mon_auth_allow_insecure_key", "true".into()),
            ("mon_allow_pool_size_one", "true".into()),
            ("mon_max_pg_per_osd", "5000".into()),
            ("mon_warn_on_pool_no_redundancy", "false".into()),
            ("mon_data_avail_warn", "1".into()),
            ("mon_data_avail_crit", "1".into()),
            ("run_dir", format!("{d}/run")),
            ("crash_dir", format!("{d}/run")),
            ("admin_socket", format!("{d}/run/$name.asok")),
            ("log_file", format!("{d}/log/$name.log")),
            ("keyring", format!("{d}/$name.keyring")),
        ];
        all.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
    }

    /// Adds the options of clients and of each kind of daemon.
    fn put_daemons(&self, sections: &mut BTreeMap<&'static str, Section>, dir: &Path) {
        let (d, memory) = (dir.display(), self.cluster.bytes("memory"));
        let mut put = |s: &'static str, k: &str, v: String| sections.entry(s).or_default().insert(k.into(), v);
        for (k, v) in [
            ("keyring", format!("{d}/ceph.client.admin.keyring")),
            ("admin_socket", String::new()),
            ("log_file", String::new()),
            ("rbd_cache", "false".into()),
        ] {
            put("client", k, v);
        }
        put("mon", "mon_data", format!("{d}/mon.$id"));
        put("mon", "mon_initial_members", "a".into());
        put("mon", "mgr_port", (self.port + 1).to_string());
        if self.is_floor() {
            // Its servers send no beacons.
            put("mon", "mon_osd_report_timeout", "31536000".into());
        }
        put("mon", "mon_cluster_log_file", format!("{d}/log/cluster.log"));
        put("mgr", "mgr_data", format!("{d}/mgr.$id"));
        put("mds", "mds_data", format!("{d}/mds.$id"));
        put("mds", "public_addr", self.ip.to_owned());
        put("mds", "ms_bind_port_min", (self.port + 4).to_string());
        put("mds", "ms_bind_port_max", (self.port + 15).to_string());
        for (k, v) in [
            ("keyring", format!("{d}/client.rgw.a.keyring")),
            ("log_file", format!("{d}/log/rgw.a.log")),
            ("rgw_frontends", format!("beast endpoint={}:{} tcp_nodelay=1", self.ip, gateway_port(self.port))),
        ] {
            put("client.rgw.a", k, v);
        }
        for (k, v) in [
            ("osd_data", format!("{d}/osd.$id")),
            ("osd_objectstore", "bluestore".into()),
            ("bluestore_block_size", self.cluster.bytes("osd_size").to_string()),
            ("osd_memory_target", memory.max(900 << 20).to_string()),
            ("store_cache_size", (memory / 2).to_string()),
            ("osd_reactors", self.reactors.to_string()),
            ("osd_count_on_host", self.osds.len().to_string()),
        ] {
            put("osd", k, v);
        }
    }

    /// Adds a section for each OSD.
    fn write_osds(&self, out: &mut String) {
        for (id, o) in self.osds.iter().enumerate() {
            let (lo, hi) = ports(self.port, id);
            let _ = write!(
                out,
                "[osd.{id}]\npublic_addr = {ip}\ncluster_addr = {ip}\nms_bind_port_min = {lo}\nms_bind_port_max = {hi}\n\
                 crush_location = host={host} root=default\n",
                ip = o.ip,
                host = o.host,
            );
            if let Some(p) = &o.device {
                let _ = write!(out, "osd_block_path = {p}\nbluestore_block_path = {p}\n");
            }
        }
    }
}
