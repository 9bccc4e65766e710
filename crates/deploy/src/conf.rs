//! Texts of the configuration that hosts get.

use crate::facts::{Facts, HostFacts};
use crate::inventory::Inventory;
use crate::next::osds::targets;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::net::IpAddr;

/// Port of monitors.
pub const MON_PORT: u16 = 3300;
/// Port of the monitors for msgr1.
const MON_PORT_MSGR1: u16 = 6789;
/// Port of etcd for monitors.
pub const ETCD_PORT: u16 = 2379;
/// Port of etcd for its members.
pub const ETCD_PEER_PORT: u16 = 2380;
/// Directory of the certificates.
pub const TLS: &str = "/etc/belemnite/tls";

/// An address with a port, as in URLs.
#[must_use]
pub fn at(a: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(a, port).to_string()
}

/// SHA-256 of a text, hexadecimal.
#[must_use]
pub fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// Addresses of the monitors.
fn monitors(i: &Inventory) -> impl Iterator<Item = (&str, IpAddr)> {
    i.monitors.iter().filter_map(|m| Some((m.as_str(), i.hosts.get(m)?.address)))
}

/// Addresses of a monitor, for msgr2 and, unless the inventory turns it off, msgr1.
fn mon_addrs(i: &Inventory, ip: IpAddr) -> String {
    let is_off = |section: &str| i.options.get(section)?.get("ms_bind_msgr1").map(|v| v == "false");
    if is_off("mon").or_else(|| is_off("global")).unwrap_or(false) {
        return format!("[v2:{}/0]", at(ip, MON_PORT));
    }
    format!("[v2:{}/0,v1:{}/0]", at(ip, MON_PORT), at(ip, MON_PORT_MSGR1))
}

/// The part of `ceph.conf` that clients need.
#[must_use]
pub fn client(i: &Inventory, fsid: &str) -> String {
    let hosts: Vec<String> = monitors(i).map(|(_, a)| mon_addrs(i, a)).collect();
    let mut s = format!(
        "# Written by `belemnite deploy`, which overwrites changes. Options are in the inventory.\n\
         [global]\nfsid = {fsid}\nmon_host = {}\npublic_network = {}\n",
        hosts.join(","),
        i.public_network
    );
    if let Some(n) = i.cluster_network {
        let _ = writeln!(s, "cluster_network = {n}");
    }
    s
}

/// Number of OSDs that a host has or is to have.
fn osd_count(i: &Inventory, host: &str, h: &HostFacts) -> usize {
    (h.stores.len() + targets(i, host, h).len()).max(1)
}

/// `ceph.conf` of a host.
#[must_use]
pub fn ceph_conf(i: &Inventory, f: &Facts, host: &str, h: &HostFacts) -> String {
    let mut s = client(i, &f.fsid);
    s += "\n[mon]\nadmin_socket = /run/ceph/$name.asok\n";
    if i.has_etcd() {
        let urls: Vec<String> = monitors(i).map(|(_, a)| format!("https://{}", at(a, ETCD_PORT))).collect();
        let _ = write!(
            s,
            "mon_state_etcd = {}\nmon_state_etcd_ca = {TLS}/ca.crt\nmon_state_etcd_cert = {TLS}/etcd.crt\n\
             mon_state_etcd_key = {TLS}/etcd.key\n",
            urls.join(",")
        );
    }
    for (m, a) in monitors(i) {
        let _ = write!(s, "\n[mon.{m}]\npublic_addr = {}\n", mon_addrs(i, a));
    }
    let place = i.hosts.get(host).map(|h| &h.place);
    let above: Vec<String> = place.into_iter().flatten().map(|(k, v)| format!(" {k}={v}")).collect();
    let _ = write!(
        s,
        "\n[osd]\nadmin_socket = /run/ceph/$name.asok\nosd_count_on_host = {}\n\
         crush_location = root=default{} host={host}\n\n[client.admin]\nkeyring = /etc/ceph/ceph.client.admin.keyring\n",
        osd_count(i, host, h),
        above.concat()
    );
    if i.gateways.iter().any(|g| g == host) {
        let any = i.hosts.get(host).is_some_and(|h| h.address.is_ipv6());
        let any = if any { "[::]" } else { "0.0.0.0" };
        let port = i.gateway_port;
        let _ = write!(s, "\n[client.rgw.{host}]\nrgw_frontends = beast endpoint={any}:{port} tcp_nodelay=1\n");
    }
    s
}

/// Members of etcd as its option for the first start has them.
#[must_use]
pub fn etcd_cluster(members: &[(String, IpAddr)]) -> String {
    let one = |(n, a): &(String, IpAddr)| format!("{n}=https://{}", at(*a, ETCD_PEER_PORT));
    members.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The members of a new etcd.
#[must_use]
pub fn first_members(i: &Inventory) -> Vec<(String, IpAddr)> {
    monitors(i).map(|(m, a)| (m.to_owned(), a)).collect()
}

/// Quota of etcd in bytes; the monitors report when a member nears it.
const ETCD_QUOTA: u64 = 4 << 30;

/// Environment of a member of etcd at an address.
#[must_use]
pub fn etcd_env(address: IpAddr, members: &[(String, IpAddr)], existing: bool) -> String {
    let (client, peer) = (at(address, ETCD_PORT), at(address, ETCD_PEER_PORT));
    let state = if existing { "existing" } else { "new" };
    format!(
        "# Written by `belemnite deploy`.\n\
         ETCD_LISTEN_CLIENT_URLS=https://{client}\nETCD_ADVERTISE_CLIENT_URLS=https://{client}\n\
         ETCD_LISTEN_PEER_URLS=https://{peer}\nETCD_INITIAL_ADVERTISE_PEER_URLS=https://{peer}\n\
         ETCD_INITIAL_CLUSTER={}\nETCD_INITIAL_CLUSTER_STATE={state}\nETCD_QUOTA_BACKEND_BYTES={ETCD_QUOTA}\n\
         ETCD_CLIENT_CERT_AUTH=true\nETCD_TRUSTED_CA_FILE={TLS}/ca.crt\n\
         ETCD_CERT_FILE={TLS}/etcd.crt\nETCD_KEY_FILE={TLS}/etcd.key\nETCD_PEER_CLIENT_CERT_AUTH=true\n\
         ETCD_PEER_TRUSTED_CA_FILE={TLS}/ca.crt\nETCD_PEER_CERT_FILE={TLS}/etcd.crt\nETCD_PEER_KEY_FILE={TLS}/etcd.key\n",
        etcd_cluster(members)
    )
}
