//! Metadata that an OSD sends when it boots: about itself, its machine and its disks (`ceph osd metadata`).
//!
//! The keys are those of Ceph that inventories, `ceph device`, the dashboard and the metrics read. A fact that the
//! system does not tell is an empty text, as in Ceph.

use super::Start;
use super::stores::SyncDevice;
use base::{AddrVec, Utime};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use wire::msg::PeerVersions;

/// Label of a store: the time of its creation.
const CREATED_AT: &str = "created_at";
/// Label of a store: the version of the program that created it.
const CREATED_BY: &str = "ceph_version_when_created";
/// Most disks below one device.
const DISKS_MAX: usize = 64;

/// Name of this machine.
pub(super) fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "localhost".into(), |s| s.trim().to_owned())
}

/// The version of this program in Ceph's form.
fn version() -> String {
    let (ceph, own) = (net::admin_socket::VERSION, env!("CARGO_PKG_VERSION"));
    format!("ceph version {ceph} (belemnite {own}) pacific (stable)")
}

/// Labels of a new store.
pub(super) fn labels_of_creation() -> [(String, bytes::Bytes); 2] {
    [(CREATED_AT.to_owned(), iso(SystemTime::now()).into()), (CREATED_BY.to_owned(), version().into())]
}

fn iso(t: SystemTime) -> String {
    let text = Utime::from_unix(t.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()).iso();
    format!("{}Z", text.trim_end_matches("+0000"))
}

fn first_line(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|l| l.strip_prefix(key).map(|v| v.trim_matches([' ', '\t', ':', '=', '"']).to_owned()))
        .unwrap_or_default()
}

/// The metadata of an OSD.
pub(super) fn metadata(s: &Start) -> BTreeMap<String, String> {
    let (o, a) = (&s.options, &s.addrs);
    let text = |v: &AddrVec| format!("[{}]", v.to_string().trim_matches(['[', ']']));
    let rotational = if s.file.device_class() == "hdd" { "1" } else { "0" };
    let kb = |k: &str| first_line("/proc/meminfo", k).trim_end_matches(" kB").trim().to_owned();
    let class = o.crush.device_class.clone().unwrap_or_else(|| s.file.device_class().to_owned());
    let interface = |v: &AddrVec| {
        let ip = v.msgr2().and_then(|a| a.sock).map(|s| s.ip());
        ip.map_or_else(String::new, |ip| interface_of(Path::new("/"), ip))
    };
    let pairs = [
        ("arch", std::env::consts::ARCH.to_owned()),
        ("back_addr", text(&a.cluster)),
        ("back_iface", interface(&a.cluster)),
        ("front_addr", text(&a.public)),
        ("front_iface", interface(&a.public)),
        ("hb_back_addr", text(&a.hb_back)),
        ("hb_front_addr", text(&a.hb_front)),
        ("ceph_release", "pacific".to_owned()),
        ("ceph_version", version()),
        ("ceph_version_short", net::admin_socket::VERSION.to_owned()),
        (PeerVersions::FIELDS[0], PeerVersions::OURS.oldest.to_string()),
        (PeerVersions::FIELDS[1], PeerVersions::OURS.newest.to_string()),
        ("cpu", first_line("/proc/cpuinfo", "model name")),
        ("default_device_class", class),
        ("distro", first_line("/etc/os-release", "ID=")),
        ("distro_description", first_line("/etc/os-release", "PRETTY_NAME=")),
        ("distro_version", first_line("/etc/os-release", "VERSION_ID=")),
        ("hostname", hostname()),
        ("journal_rotational", rotational.to_owned()),
        ("kernel_description", first_line("/proc/sys/kernel/version", "")),
        ("kernel_version", first_line("/proc/sys/kernel/osrelease", "")),
        ("mem_swap_kb", kb("SwapTotal:")),
        ("mem_total_kb", kb("MemTotal:")),
        ("max_open_files", net::descriptors::limit().map_or_else(String::new, |n| n.to_string())),
        ("os", "Linux".to_owned()),
        ("osd_data", o.data_dir.display().to_string()),
        // Monitors and tools look for this name: a store that verifies what it reads and rolls back overwrites.
        ("osd_objectstore", "bluestore".to_owned()),
        ("osd_store", "belemnite".to_owned()),
        // The plugins whose bytes `ec` produces. The monitor checks this before it creates a pool.
        ("erasure_code_plugins", "isa jerasure".to_owned()),
        ("rotational", rotational.to_owned()),
    ];
    let mut all: BTreeMap<String, String> = pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let nets: BTreeSet<String> =
        ["front_iface", "back_iface"].iter().filter_map(|k| all.get(*k)).filter(|i| !i.is_empty()).cloned().collect();
    let nets: Vec<String> = nets.iter().map(|i| format!("class/net/{i}")).collect();
    if let Some(n) = numa_node(Path::new("/"), nets.iter().map(String::as_str)) {
        all.insert("network_numa_node".to_owned(), n);
    }
    all.extend(binding(&o.numa));
    all.extend(container().map(|(k, v)| (k.to_owned(), v)));
    all.extend(creation(s).map(|(k, v)| (k.to_owned(), v)));
    all.extend(device(s, rotational).map(|(k, v)| (k.to_owned(), v)));
    all
}

/// The NUMA node that the OSD is bound to, and the processors that this thread may really use; or the reason why it is
/// not bound.
fn binding(numa: &Result<Option<reactor::numa::Node>, String>) -> Vec<(String, String)> {
    match numa {
        Ok(None) => Vec::new(),
        Ok(Some(n)) => {
            let cpus = reactor::numa::Cpus::of_this_thread().map_or_else(|_| String::new(), |c| c.to_string());
            vec![("numa_node".to_owned(), n.number.to_string()), ("numa_node_cpus".to_owned(), cpus)]
        }
        Err(why) => vec![("numa_node_error".to_owned(), why.clone())],
    }
}

/// The container that the process runs in, by the environment that orchestrators set.
fn container() -> impl Iterator<Item = (&'static str, String)> {
    let pairs = [
        ("POD_NAME", "pod_name"),
        ("POD_NAMESPACE", "pod_namespace"),
        ("NODE_NAME", "container_hostname"),
        ("CONTAINER_NAME", "container_name"),
        ("CONTAINER_IMAGE", "container_image"),
    ];
    pairs.into_iter().filter_map(|(var, key)| Some((key, std::env::var(var).ok()?)))
}

/// Time and version of the store's creation. Stores without these labels have the time of their directory and no version.
fn creation(s: &Start) -> [(&'static str, String); 2] {
    let labels = store::engine::probe(&mut SyncDevice::new(s.file.clone())).map(|sb| sb.labels).unwrap_or_default();
    let label = |key: &str| labels.get(key).map(|b| String::from_utf8_lossy(b).into_owned());
    let born = || std::fs::metadata(&s.options.data_dir).and_then(|m| m.created().or_else(|_| m.modified())).ok();
    [
        (CREATED_AT, label(CREATED_AT).or_else(|| born().map(iso)).unwrap_or_default()),
        (CREATED_BY, label(CREATED_BY).unwrap_or_default()),
    ]
}

/// The device of the store, and the disks below it. Inventories read the first group under the names of Ceph's store.
fn device(s: &Start, rotational: &str) -> impl Iterator<Item = (&'static str, String)> + use<> {
    let (root, path) = (Path::new("/"), &s.options.device.path);
    let disks = std::fs::metadata(path).map_or_else(
        |_| BTreeSet::new(),
        |m| {
            let dev = if m.file_type().is_block_device() { m.rdev() } else { m.dev() };
            disks_below(root, &numbers(dev))
        },
    );
    let list = |of: &dyn Fn(&str) -> Option<String>| {
        let all: Vec<String> = disks.iter().filter_map(|d| of(d)).collect();
        all.join(",")
    };
    [
        ("bluestore_bdev_access_mode", if s.file.is_block() { "blk" } else { "file" }.to_owned()),
        ("bluestore_bdev_block_size", base::buf::PAGE.to_string()),
        ("bluestore_bdev_devices", list(&|d| Some(d.to_owned()))),
        ("bluestore_bdev_partition_path", path.display().to_string()),
        ("bluestore_bdev_rotational", rotational.to_owned()),
        ("bluestore_bdev_size", s.file.bytes().to_string()),
        ("bluestore_bdev_type", s.file.device_class().to_owned()),
        ("devices", list(&|d| Some(d.to_owned()))),
        ("objectstore_numa_node", {
            let paths: Vec<String> = disks.iter().map(|d| format!("block/{d}")).collect();
            numa_node(root, paths.iter().map(String::as_str)).unwrap_or_default()
        }),
        ("device_ids", list(&|d| Some(format!("{d}={}", id_of(root, d)?)))),
        ("device_paths", list(&|d| Some(format!("{d}={}", path_of(root, d)?)))),
    ]
    .into_iter()
}

/// Major and minor number of a device, as sysfs writes them (`major(3)`, `minor(3)` of Linux).
fn numbers(dev: u64) -> String {
    let major = dev >> 32 & 0xffff_f000 | dev >> 8 & 0xfff;
    let minor = dev >> 12 & 0xffff_ff00 | dev & 0xff;
    format!("{major}:{minor}")
}

/// The NUMA node that all of these devices are at; nothing if the machine does not tell, or they differ.
fn numa_node<'a>(root: &Path, devices: impl Iterator<Item = &'a str>) -> Option<String> {
    let read = |p: PathBuf| std::fs::read_to_string(p).ok()?.trim().parse::<i32>().ok().filter(|n| *n >= 0);
    let of = |d: &str| {
        let dir = root.join("sys").join(d).join("device");
        read(dir.join("numa_node")).or_else(|| read(dir.join("device/numa_node")))
    };
    let all: BTreeSet<Option<i32>> = devices.map(of).collect();
    match all.first() {
        Some(Some(n)) if all.len() == 1 => Some(n.to_string()),
        _ => None,
    }
}

/// Names of the disks below the block device with these numbers: a partition's disk, a mapped device's disks.
fn disks_below(root: &Path, numbers: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut look: Vec<PathBuf> = std::fs::canonicalize(root.join("sys/dev/block").join(numbers)).into_iter().collect();
    let mut steps = 0;
    while let Some(dir) = look.pop().filter(|_| steps < DISKS_MAX) {
        steps += 1;
        let disk = if dir.join("partition").exists() { dir.parent().map_or(dir.clone(), Path::to_owned) } else { dir };
        let below: Vec<PathBuf> = std::fs::read_dir(disk.join("slaves"))
            .map(|all| all.flatten().filter_map(|e| std::fs::canonicalize(e.path()).ok()).collect())
            .unwrap_or_default();
        if below.is_empty() {
            out.extend(disk.file_name().map(|n| n.to_string_lossy().into_owned()));
        } else {
            look.extend(below);
        }
    }
    out
}

/// Name of a disk in sysfs and in udev's database from vendor, model and serial number, as Ceph makes it.
fn id_of(root: &Path, disk: &str) -> Option<String> {
    let dir = root.join("sys/block").join(disk);
    let read = |p: &str| {
        let text = std::fs::read_to_string(dir.join(p)).ok()?;
        Some(text.trim().to_owned()).filter(|t| !t.is_empty())
    };
    let known = read("dev").and_then(|n| std::fs::read_to_string(root.join(format!("run/udev/data/b{n}"))).ok());
    let known = known.unwrap_or_default();
    let udev = |key: &str| {
        let line = known.lines().find_map(|l| l.strip_prefix("E:")?.strip_prefix(key)?.strip_prefix('='));
        line.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty())
    };
    let id = match (udev("ID_VENDOR"), udev("ID_MODEL"), udev("ID_SCSI_SERIAL"), udev("ID_SERIAL_SHORT")) {
        (Some(vendor), Some(model), Some(serial), _) => format!("{vendor}_{model}_{serial}"),
        (_, Some(model), _, Some(serial)) => format!("{model}_{serial}"),
        _ => match udev("ID_SERIAL") {
            Some(serial) => serial,
            None => {
                let serial = read("device/serial").or_else(|| read("serial"))?;
                let name: Vec<String> = ["device/vendor", "device/model"].iter().filter_map(|p| read(p)).collect();
                // A virtual disk has a number of its bus as vendor, and no model.
                if read("device/model").is_none() { serial } else { format!("{}_{serial}", name.join("_")) }
            }
        },
    };
    let id: String = id.chars().map(|c| if c.is_whitespace() || c == ',' || c == '=' { '_' } else { c }).collect();
    Some(id)
}

/// The stable path of a disk by its place in the machine.
fn path_of(root: &Path, disk: &str) -> Option<String> {
    let dir = root.join("dev/disk/by-path");
    let mut all: Vec<String> = std::fs::read_dir(&dir)
        .ok()?
        .flatten()
        .filter(|e| std::fs::read_link(e.path()).is_ok_and(|t| t.file_name().is_some_and(|n| n == disk)))
        .map(|e| format!("/dev/disk/by-path/{}", e.file_name().to_string_lossy()))
        .collect();
    all.sort();
    all.into_iter().next()
}

/// The network interface of an address of this machine: by its own address for IPv6, by the directly connected network
/// for IPv4. Empty if there is none, and for the loopback.
fn interface_of(root: &Path, ip: IpAddr) -> String {
    let read = |p: &str| std::fs::read_to_string(root.join(p)).unwrap_or_default();
    if ip.is_loopback() {
        return String::new();
    }
    match ip.to_canonical() {
        IpAddr::V6(a) => {
            let wanted = format!("{:032x}", u128::from(a));
            let text = read("proc/net/if_inet6");
            text.lines()
                .map(|l| l.split_whitespace().collect::<Vec<_>>())
                .find(|w| w.first().is_some_and(|a| *a == wanted))
                .and_then(|w| w.last().map(|n| (*n).to_owned()))
                .unwrap_or_default()
        }
        IpAddr::V4(a) => {
            let text = read("proc/net/route");
            let addr = u32::from_ne_bytes(a.octets());
            let number = |w: Option<&&str>| w.and_then(|t| u32::from_str_radix(t, 16).ok());
            text.lines()
                .map(|l| l.split_whitespace().collect::<Vec<_>>())
                .filter_map(|w| {
                    let (net, gateway, mask) = (number(w.get(1))?, number(w.get(2))?, number(w.get(7))?);
                    let name = (*w.first()?).to_owned();
                    (gateway == 0 && mask != 0 && addr & mask == net).then_some((mask.count_ones(), name))
                })
                .max()
                .map(|(_, name)| name)
                .unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn put(root: &Path, path: &str, text: &str) {
        let p = root.join(path);
        std::fs::create_dir_all(p.parent().unwrap()).unwrap();
        std::fs::write(p, text).unwrap();
    }

    #[test]
    fn disks_and_their_ids_come_from_the_system() {
        let root = std::env::temp_dir().join(format!("belemnite-about-{}", std::process::id()));
        let devices = root.join("sys/devices");
        // A mapped device over a partition of sda and over nvme0n1.
        put(&root, "sys/devices/sda/sda1/partition", "1\n");
        put(&root, "sys/devices/sda/dev", "8:0\n");
        put(&root, "sys/devices/nvme0n1/device/model", "Fast One   \n");
        put(&root, "sys/devices/nvme0n1/device/serial", "S1,2\n");
        put(&root, "sys/devices/vda/serial", "root-disk\n");
        std::fs::create_dir_all(root.join("sys/devices/dm-0/slaves")).unwrap();
        std::fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        std::fs::create_dir_all(root.join("sys/block")).unwrap();
        std::fs::create_dir_all(root.join("dev/disk/by-path")).unwrap();
        symlink(devices.join("sda/sda1"), root.join("sys/devices/dm-0/slaves/sda1")).unwrap();
        symlink(devices.join("nvme0n1"), root.join("sys/devices/dm-0/slaves/nvme0n1")).unwrap();
        symlink(devices.join("dm-0"), root.join("sys/dev/block/253:0")).unwrap();
        symlink(devices.join("vda"), root.join("sys/dev/block/254:0")).unwrap();
        for d in ["sda", "nvme0n1", "vda"] {
            symlink(devices.join(d), root.join("sys/block").join(d)).unwrap();
        }
        put(&root, "run/udev/data/b8:0", "S:disk\nE:ID_MODEL=ST 1\nE:ID_SERIAL_SHORT=Z9\n");
        symlink("../../sda", root.join("dev/disk/by-path/pci-0")).unwrap();
        symlink("../../sda1", root.join("dev/disk/by-path/pci-0-part1")).unwrap();
        let below = |n| disks_below(&root, n).into_iter().collect::<Vec<_>>();
        assert_eq!(below("253:0"), ["nvme0n1", "sda"]);
        assert_eq!(below("254:0"), ["vda"]);
        assert!(below("0:41").is_empty(), "a file system without a device");
        assert_eq!(id_of(&root, "sda").as_deref(), Some("ST_1_Z9"));
        assert_eq!(id_of(&root, "nvme0n1").as_deref(), Some("Fast_One_S1_2"));
        assert_eq!(id_of(&root, "vda").as_deref(), Some("root-disk"));
        assert_eq!(id_of(&root, "sdz"), None);
        put(&root, "sys/devices/nvme0n1/device/numa_node", "1\n");
        put(&root, "sys/devices/vda/device/numa_node", "-1\n");
        let node = |d: &[&str]| numa_node(&root, d.iter().copied());
        assert_eq!((node(&["block/nvme0n1"]), node(&["block/vda"])), (Some("1".into()), None));
        assert_eq!((node(&["block/nvme0n1", "block/vda"]), node(&[])), (None, None));
        assert_eq!((numbers(0x801), numbers(0xfe00)), ("8:1".into(), "254:0".into()));
        assert_eq!(path_of(&root, "sda").as_deref(), Some("/dev/disk/by-path/pci-0"));
        assert_eq!(path_of(&root, "vda"), None);
        put(&root, "proc/net/if_inet6", "fe800000000000000000000000000001 02 40 20 80     eth1\n");
        let net = u32::from_ne_bytes([10, 1, 0, 0]);
        let mask = u32::from_ne_bytes([255, 255, 0, 0]);
        let head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n";
        let route = format!("{head}eth9 0 0100 3 0 0 0 0\neth0 {net:08X} 00000000 1 0 0 0 {mask:08X} 0 0 0\n");
        put(&root, "proc/net/route", &route);
        let of = |ip: &str| interface_of(&root, ip.parse().unwrap());
        assert_eq!((of("10.1.2.3"), of("10.2.0.1"), of("fe80::1")), ("eth0".into(), String::new(), "eth1".into()));
        assert_eq!(of("127.0.0.1"), "");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn an_osd_tells_why_it_is_not_bound_to_its_numa_node() {
        assert_eq!(binding(&Err("why".to_owned())), [("numa_node_error".to_owned(), "why".to_owned())]);
        assert!(binding(&Ok(None)).is_empty());
    }
}
