//! The inventory: one TOML file that says what a cluster consists of.
//!
//! `range` has ranges of names and addresses: `node[01-12]` is `node01` to `node12`.

mod range;

use base::size;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Most hosts of an inventory.
pub const HOSTS_MAX: usize = 4096;
/// Longest name of a host.
const NAME_MAX: usize = 63;
/// Types of CRUSH buckets that an inventory may name for a host, from the smallest.
pub const PLACES: [&str; 9] = ["chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region"];

/// Error in an inventory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", .line.map(|l| format!("line {l}: ")).unwrap_or_default())]
pub struct InventoryError {
    /// Line, from 1, if the error has one.
    pub line: Option<usize>,
    /// Words: the value that was found, and those that are accepted.
    pub what: String,
}

fn wrong<T>(what: impl Into<String>) -> Result<T, InventoryError> {
    Err(InventoryError { line: None, what: what.into() })
}

/// A network: an address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

fn number(a: IpAddr) -> (u128, u8) {
    match a {
        IpAddr::V4(a) => (u32::from(a).into(), 32),
        IpAddr::V6(a) => (a.into(), 128),
    }
}

impl Network {
    fn parse(s: &str) -> Option<Self> {
        let (address, bits) = s.split_once('/')?;
        let (address, bits) = (address.parse().ok()?, bits.parse().ok()?);
        (bits <= number(address).1).then_some(Self { address, bits })
    }

    /// True if an address is in the network.
    #[must_use]
    pub fn contains(&self, a: IpAddr) -> bool {
        let ((own, width), (other, other_width)) = (number(self.address), number(a));
        let shift = u32::from(width - self.bits);
        width == other_width && (shift >= 128 || own >> shift == other >> shift)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        Self::parse(&s).ok_or_else(|| de::Error::custom(format!("{s:?}: not a network such as 10.0.0.0/24")))
    }
}

/// A size such as `4G`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        size::parse(&s).map(Self).ok_or_else(|| de::Error::custom(format!("{s:?}: not a size such as 100G")))
    }
}

/// How hosts are reached.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ssh {
    /// Account, which is root or may run `sudo` without a password.
    pub user: String,
    /// More options of the ssh program.
    pub options: Vec<String>,
    /// Most hosts that are worked on at a time.
    pub parallel: usize,
}

impl Default for Ssh {
    fn default() -> Self {
        Self { user: "root".into(), options: Vec::new(), parallel: 16 }
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Address by which it is reached; monitors listen there.
    pub address: IpAddr,
    /// Account, if it differs from that of `[ssh]`.
    pub user: Option<String>,
    /// Names by which rules select it.
    pub labels: BTreeSet<String>,
    /// CRUSH buckets above it, by type; a type of [`PLACES`] to a name.
    pub place: BTreeMap<String, String>,
}

/// A host as the file has it: its address, or a table.
struct RawHost {
    address: String,
    user: Option<String>,
    labels: BTreeSet<String>,
    place: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for RawHost {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawHost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, or a table with `address`")
            }

            fn visit_str<E: de::Error>(self, s: &str) -> Result<RawHost, E> {
                Ok(RawHost { address: s.into(), user: None, labels: BTreeSet::new(), place: BTreeMap::new() })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut m: A) -> Result<RawHost, A::Error> {
                let mut h = self.visit_str("")?;
                while let Some(key) = m.next_key::<String>()? {
                    match key.as_str() {
                        "address" => h.address = m.next_value()?,
                        "user" => h.user = Some(m.next_value()?),
                        "labels" => h.labels = m.next_value()?,
                        k if PLACES.contains(&k) => {
                            h.place.insert(key, m.next_value()?);
                        }
                        _ => return Err(de::Error::unknown_field(&key, &["address", "user", "labels", "rack", "row"])),
                    }
                }
                Ok(h)
            }
        }
        d.deserialize_any(Either)
    }
}

/// Kind of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Any device.
    #[default]
    Any,
    /// NVMe.
    Nvme,
    /// Without a motor.
    Ssd,
    /// With a motor.
    Hdd,
}

/// Devices on which a rule makes OSDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// Free devices by their properties.
    Free {
        /// Kind of the devices.
        kind: Kind,
        /// Smallest size in bytes.
        min: u64,
        /// Largest size in bytes.
        max: u64,
        /// Most devices of a host.
        count: usize,
    },
    /// Devices by their paths.
    Paths(Vec<String>),
    /// Files that are made.
    Files {
        /// Number of files on each host.
        count: usize,
        /// Size of each in bytes.
        bytes: u64,
        /// Directory of the files.
        directory: String,
    },
}

/// A rule that selects devices of hosts for OSDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    /// Label of the hosts; all hosts without it.
    pub label: Option<String>,
    /// The devices.
    pub select: Select,
    /// Device class, if not the kernel's word.
    pub class: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawRule {
    label: Option<String>,
    class: Option<String>,
    kind: Option<Kind>,
    min: Option<Size>,
    max: Option<Size>,
    count: Option<usize>,
    paths: Option<Vec<String>>,
    files: Option<usize>,
    size: Option<Size>,
    directory: Option<String>,
}

/// Directory of files that serve as devices.
const FILES: &str = "/var/lib/ceph/files";

impl RawRule {
    fn check(self) -> Result<DeviceRule, InventoryError> {
        let by_kind = self.kind.is_some() || self.min.is_some() || self.max.is_some() || self.count.is_some();
        let of_files = self.files.is_some() || self.size.is_some() || self.directory.is_some();
        let select = match (self.paths, by_kind, of_files) {
            (Some(paths), false, false) => {
                let bad = paths.iter().find(|p| !is_path(p));
                if let Some(p) = bad {
                    return wrong(format!("[[devices]] paths: {p:?} is not an absolute path"));
                }
                Select::Paths(paths)
            }
            (None, false, true) => {
                let (Some(count), Some(bytes)) = (self.files, self.size) else {
                    return wrong("[[devices]]: `files` and `size` belong together");
                };
                let directory = self.directory.unwrap_or_else(|| FILES.into());
                if !is_path(&directory) || count > 64 {
                    return wrong("[[devices]]: `directory` is an absolute path, and `files` at most 64");
                }
                Select::Files { count, bytes: bytes.0, directory }
            }
            (None, true, false) => Select::Free {
                kind: self.kind.unwrap_or_default(),
                min: self.min.unwrap_or_default().0,
                max: self.max.map_or(u64::MAX, |s| s.0),
                count: self.count.unwrap_or(usize::MAX),
            },
            _ => {
                return wrong(
                    "[[devices]]: one of `kind` (with `min`, `max`, `count`), `paths`, or `files` with `size`",
                );
            }
        };
        Ok(DeviceRule { label: self.label, select, class: self.class })
    }
}

pub(crate) fn is_path(p: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+@".contains(c);
    p.starts_with('/') && p.chars().all(plain) && !p.split('/').any(|s| s == "..")
}

/// Options of daemons: section (`global`, `osd`, `mon`, …) to key to value.
pub type Options = BTreeMap<String, BTreeMap<String, String>>;

/// The parts of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// Debian package or program file that hosts get; a path relative to the inventory.
    pub package: String,
    /// Network of clients and monitors.
    pub public_network: Network,
    /// Network of OSDs among themselves.
    pub cluster_network: Option<Network>,
    /// Hosts with a monitor; 1, 3 or 5.
    pub monitors: Vec<String>,
    /// Hosts with a metadata server.
    pub metadata_servers: Vec<String>,
    /// Hosts with an S3 gateway.
    pub gateways: Vec<String>,
    /// Port of the gateways.
    pub gateway_port: u16,
    /// File systems.
    pub filesystems: Vec<String>,
    /// All hosts by name.
    pub hosts: BTreeMap<String, Host>,
    /// Rules that select devices.
    pub devices: Vec<DeviceRule>,
    /// Options that the monitors keep for the daemons.
    pub options: Options,
    /// How hosts are reached.
    pub ssh: Ssh,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    package: String,
    public_network: Network,
    cluster_network: Option<Network>,
    monitors: Vec<String>,
    #[serde(default)]
    metadata_servers: Vec<String>,
    #[serde(default)]
    gateways: Vec<String>,
    gateway_port: Option<u16>,
    #[serde(default)]
    filesystems: Vec<String>,
    hosts: BTreeMap<String, RawHost>,
    #[serde(default)]
    devices: Vec<RawRule>,
    #[serde(default)]
    options: BTreeMap<String, BTreeMap<String, OptionValue>>,
    #[serde(default)]
    ssh: Ssh,
}

/// The value of an option as text, a number or a boolean.
struct OptionValue(String);

impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = OptionValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }

            fn visit_str<E>(self, s: &str) -> Result<OptionValue, E> {
                Ok(OptionValue(s.into()))
            }

            fn visit_i64<E>(self, n: i64) -> Result<OptionValue, E> {
                Ok(OptionValue(n.to_string()))
            }

            fn visit_f64<E>(self, n: f64) -> Result<OptionValue, E> {
                Ok(OptionValue(n.to_string()))
            }

            fn visit_bool<E>(self, b: bool) -> Result<OptionValue, E> {
                Ok(OptionValue(b.to_string()))
            }
        }
        d.deserialize_any(Any)
    }
}

pub(crate) fn is_name(s: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    !s.is_empty() && s.len() <= NAME_MAX && s.starts_with(|c: char| c.is_ascii_alphanumeric()) && s.chars().all(plain)
}

/// Hosts with their ranges written out.
fn hosts(raw: BTreeMap<String, RawHost>) -> Result<BTreeMap<String, Host>, InventoryError> {
    let mut all = BTreeMap::new();
    for (pattern, h) in raw {
        if h.address.is_empty() {
            return wrong(format!("[hosts] {pattern}: no address"));
        }
        let names = range::expand(&pattern, HOSTS_MAX);
        let addresses = range::expand(&h.address, HOSTS_MAX);
        let (Some(names), Some(addresses)) = (names, addresses) else {
            return wrong(format!("[hosts] {pattern}: a range is [1-9], with at most {HOSTS_MAX} hosts"));
        };
        if names.len() != addresses.len() {
            let (n, a) = (names.len(), addresses.len());
            return wrong(format!("[hosts] {pattern}: {n} names and {a} addresses"));
        }
        for (name, address) in names.into_iter().zip(addresses) {
            let Ok(address) = address.parse() else {
                return wrong(format!("[hosts] {name}: {address:?} is not an address such as 10.0.0.1"));
            };
            let host = Host { address, user: h.user.clone(), labels: h.labels.clone(), place: h.place.clone() };
            if !is_name(&name) || all.insert(name.clone(), host).is_some() || all.len() > HOSTS_MAX {
                return wrong(format!("[hosts] {name}: not a host's name, named twice, or more than {HOSTS_MAX}"));
            }
        }
    }
    Ok(all)
}

impl Inventory {
    /// Parses an inventory.
    ///
    /// # Errors
    /// The text is no TOML, a key is unknown, or the parts do not fit together.
    pub fn parse(text: &str) -> Result<Self, InventoryError> {
        let raw: Raw = toml::from_str(text).map_err(|e| InventoryError {
            line: e.span().map(|s| 1 + text.bytes().take(s.start).filter(|b| *b == b'\n').count()),
            what: e.message().to_owned(),
        })?;
        let values = |m: BTreeMap<String, OptionValue>| m.into_iter().map(|(k, v)| (k, v.0)).collect();
        let inventory = Self {
            package: raw.package,
            public_network: raw.public_network,
            cluster_network: raw.cluster_network,
            monitors: raw.monitors,
            metadata_servers: raw.metadata_servers,
            gateways: raw.gateways,
            gateway_port: raw.gateway_port.unwrap_or(7480),
            filesystems: raw.filesystems,
            hosts: hosts(raw.hosts)?,
            devices: raw.devices.into_iter().map(RawRule::check).collect::<Result<_, _>>()?,
            options: raw.options.into_iter().map(|(k, m)| (k, values(m))).collect(),
            ssh: raw.ssh,
        };
        inventory.check()?;
        Ok(inventory)
    }

    fn check(&self) -> Result<(), InventoryError> {
        if !matches!(self.monitors.len(), 1 | 3 | 5) {
            return wrong(format!("monitors: {} hosts; 1, 3 or 5 are possible", self.monitors.len()));
        }
        let roles =
            [("monitors", &self.monitors), ("metadata_servers", &self.metadata_servers), ("gateways", &self.gateways)];
        for (role, names) in roles {
            let unique: BTreeSet<&String> = names.iter().collect();
            if unique.len() != names.len() {
                return wrong(format!("{role}: a host is named twice"));
            }
            if let Some(n) = names.iter().find(|n| !self.hosts.contains_key(*n)) {
                return wrong(format!("{role}: {n} is not in [hosts]"));
            }
        }
        if let Some(n) = self.metadata_servers.iter().find(|n| n.starts_with(|c: char| c.is_ascii_digit())) {
            return wrong(format!("metadata_servers: {n}: the name of a metadata server begins with a letter"));
        }
        if !self.filesystems.is_empty() && self.metadata_servers.is_empty() {
            return wrong("filesystems need metadata_servers");
        }
        for (n, h) in &self.hosts {
            if !self.public_network.contains(h.address) {
                return wrong(format!("[hosts] {n}: {} is not in public_network {}", h.address, self.public_network));
            }
        }
        let addresses: BTreeSet<IpAddr> = self.hosts.values().map(|h| h.address).collect();
        if addresses.len() != self.hosts.len() {
            return wrong("[hosts]: two hosts have the same address");
        }
        let names = self.filesystems.iter().chain(self.hosts.values().flat_map(|h| h.place.values()));
        let labels = self.hosts.values().flat_map(|h| h.labels.iter().chain(&h.user));
        let classes = self.devices.iter().flat_map(|d| d.class.iter().chain(&d.label));
        if let Some(n) = names.chain(labels).chain(classes).find(|n| !is_name(n)) {
            return wrong(format!("{n:?}: not a name of letters, digits, dots, dashes and underscores"));
        }
        let settings = self.options.iter().flat_map(|(s, m)| m.iter().map(move |(k, v)| (s, k, v)));
        for (section, key, value) in settings {
            if !is_name(section) || !is_name(key) || value.chars().any(char::is_control) {
                return wrong(format!("[options.{section}] {key}: a section, a key, and a value of one line"));
            }
        }
        if self.ssh.parallel == 0 || !is_name(&self.ssh.user) {
            return wrong("[ssh]: `user` is an account, and `parallel` at least 1");
        }
        Ok(())
    }

    /// True if the monitors' state is in etcd, with a member on each monitor's host.
    #[must_use]
    pub fn has_etcd(&self) -> bool {
        self.monitors.len() > 1
    }

    /// Rules that select devices of a host.
    pub fn rules_of<'a>(&'a self, host: &str) -> impl Iterator<Item = &'a DeviceRule> + use<'a> {
        let labels = self.hosts.get(host).map(|h| &h.labels);
        self.devices.iter().filter(move |r| match &r.label {
            None => labels.is_some(),
            Some(l) => labels.is_some_and(|own| own.contains(l)),
        })
    }

    /// The name of the host with an address.
    #[must_use]
    pub fn host_at(&self, address: IpAddr) -> Option<&str> {
        self.hosts.iter().find(|(_, h)| h.address == address).map(|(n, _)| n.as_str())
    }
}

#[cfg(test)]
mod tests;
