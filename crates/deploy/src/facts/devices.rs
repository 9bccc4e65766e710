//! Disks of a host, from `lsblk`'s JSON.

use crate::inventory::Kind;
use serde_json::Value;
use std::collections::BTreeSet;

/// Contents of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Nothing that is recognised.
    Nothing,
    /// Something, in words.
    Other(String),
    /// The system uses it: it is mounted, or has partitions that are.
    System,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Path in `/dev`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// True if it has a motor.
    pub rotational: bool,
    /// Contents.
    pub holds: Holds,
}

impl Device {
    /// True if the disk is of a kind.
    #[must_use]
    pub fn is(&self, kind: Kind) -> bool {
        let nvme = self.path.starts_with("/dev/nvme");
        match kind {
            Kind::Any => true,
            Kind::Nvme => nvme,
            Kind::Ssd => !self.rotational,
            Kind::Hdd => self.rotational,
        }
    }
}

/// Deepest nesting of devices that is looked at.
const DEPTH_MAX: usize = 8;

fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or_default()
}

fn is_true(v: &Value) -> bool {
    v.as_bool().unwrap_or(v.as_str() == Some("1") || v.as_u64() == Some(1))
}

/// True if a device or one on it is mounted or used for swapping.
fn is_mounted(v: &Value, depth: usize) -> bool {
    let children = v["children"].as_array().into_iter().flatten();
    !text(v, "mountpoint").is_empty() || depth < DEPTH_MAX && { children }.any(|c| is_mounted(c, depth + 1))
}

fn holds(v: &Value) -> Holds {
    let children = v["children"].as_array().map_or(0, Vec::len);
    match (text(v, "fstype"), text(v, "pttype")) {
        _ if is_mounted(v, 0) => Holds::System,
        (f, _) if !f.is_empty() => Holds::Other(format!("{f} data")),
        (_, p) if !p.is_empty() => Holds::Other(format!("a partition table ({p})")),
        _ if children > 0 => Holds::Other(format!("{children} devices on top")),
        _ => Holds::Nothing,
    }
}

/// The disks in an answer of `lsblk`; `labelled` are those with a store of an OSD.
pub(super) fn parse(json: &str, labelled: &BTreeSet<String>) -> Option<Vec<Device>> {
    let v: Value = serde_json::from_str(json).ok()?;
    let bytes = |d: &Value| d["size"].as_u64().or_else(|| text(d, "size").parse().ok()).unwrap_or_default();
    let is_disk = |d: &&Value| text(d, "type") == "disk" && bytes(d) > 0 && !is_true(&d["ro"]);
    let device = |d: &Value| {
        let path = text(d, "path").to_owned();
        let holds = match holds(d) {
            Holds::Nothing if labelled.contains(&path) => Holds::Other("a store of an OSD".into()),
            h => h,
        };
        Device { bytes: bytes(d), rotational: is_true(&d["rota"]), holds, path }
    };
    let small = ["/dev/ram", "/dev/zram", "/dev/fd", "/dev/sr", "/dev/nbd", "/dev/rbd"];
    let wanted = |d: &Device| d.path.starts_with("/dev/") && !small.iter().any(|s| d.path.starts_with(s));
    Some(v["blockdevices"].as_array()?.iter().filter(is_disk).map(device).filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_say_what_they_hold() {
        let json = r#"{"blockdevices": [
            {"path":"/dev/nvme0n1","size":1000,"rota":false,"type":"disk","fstype":null,"pttype":null,"mountpoint":null},
            {"path":"/dev/nvme1n1","size":"1000","rota":"0","type":"disk","fstype":null,"pttype":"gpt","mountpoint":null,
             "children":[{"path":"/dev/nvme1n1p1","type":"part","mountpoint":"/"}]},
            {"path":"/dev/sda","size":9,"rota":true,"type":"disk","fstype":"ext4","pttype":null,"mountpoint":null},
            {"path":"/dev/sdb","size":9,"rota":true,"type":"disk","fstype":null,"pttype":null,"mountpoint":null},
            {"path":"/dev/loop0","size":9,"rota":true,"type":"loop","fstype":null,"pttype":null,"mountpoint":null},
            {"path":"/dev/zram0","size":9,"rota":false,"type":"disk","fstype":null,"pttype":null,"mountpoint":null}]}"#;
        let labelled = BTreeSet::from(["/dev/sdb".to_owned()]);
        let all = parse(json, &labelled).unwrap();
        let held: Vec<_> = all.iter().map(|d| (d.path.as_str(), d.holds.clone())).collect();
        let other = |s: &str| Holds::Other(s.into());
        assert_eq!(
            held,
            [
                ("/dev/nvme0n1", Holds::Nothing),
                ("/dev/nvme1n1", Holds::System),
                ("/dev/sda", other("ext4 data")),
                ("/dev/sdb", other("a store of an OSD"))
            ]
        );
        assert!(all[0].is(Kind::Nvme) && all[0].is(Kind::Ssd) && !all[0].is(Kind::Hdd) && all[2].is(Kind::Hdd));
        assert!(parse("{", &labelled).is_none());
    }
}
