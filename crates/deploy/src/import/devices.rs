//! Rules for devices, from cephadm's drive groups and ceph-ansible's lists.

use super::draft::{Draft, DraftRule};
use super::write::{list, quote};
use super::yaml::Node;
use crate::inventory::{is_name, is_path};

/// Bytes of a size as a drive group has it, in powers of 1000.
fn bytes(s: &str) -> Option<u64> {
    let s = s.trim();
    let digits = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let unit = match s[digits..].trim().to_ascii_uppercase().as_str() {
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        _ => return None,
    };
    s[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

/// Smallest and largest size of a filter `LOW:HIGH`, `LOW:`, `:HIGH` or `EXACT`. Disks of a size have some bytes more
/// or less, so an exact one is a range of a hundredth.
fn sizes(s: &str) -> Option<(Option<u64>, Option<u64>)> {
    match s.split_once(':') {
        None => {
            let n = bytes(s)?;
            Some((Some(n - n / 200), Some(n.checked_add(n / 200)?)))
        }
        Some((low, high)) => {
            let side = |s: &str| if s.trim().is_empty() { Some(None) } else { bytes(s).map(Some) };
            let (low, high) = (side(low)?, side(high)?);
            (low.is_some() || high.is_some()).then_some((low, high))
        }
    }
}

/// Devices that a filter selects, or why that cannot be told.
fn select(d: &mut Draft, name: &str, n: &Node, is_or: bool) -> Result<Vec<(&'static str, String)>, String> {
    let filters = n.entries().filter(|(k, v)| *v != Node::Null && (k != "all" || v.is_true()));
    let filters: Vec<&(String, Node)> = filters.collect();
    if is_or && filters.len() > 1 {
        return Err("filter_logic OR: a rule needs all of its conditions".into());
    }
    let (mut keys, mut kind) = (Vec::new(), None);
    for (k, v) in filters {
        match k.as_str() {
            "all" => kind = kind.or(Some("any")),
            "rotational" => kind = Some(if v.is_true() { "hdd" } else { "ssd" }),
            "size" => {
                let (low, high) = v.text().and_then(sizes).ok_or_else(|| format!("size {}: not a size", v.shown()))?;
                keys.extend(low.map(|n| ("min", quote(&n.to_string()))));
                keys.extend(high.map(|n| ("max", quote(&n.to_string()))));
            }
            "limit" => {
                let n = v.text().and_then(|s| s.parse::<u64>().ok());
                keys.push(("count", n.ok_or_else(|| format!("limit {}: not a number", v.shown()))?.to_string()));
            }
            "paths" => {
                let path = |p: &Node| p.text().or_else(|| p.text_of("path")).map(str::to_owned);
                let paths: Vec<String> = v.items().filter_map(path).collect();
                if v.items().any(|p| p.get("crush_device_class").is_some()) {
                    d.note(format!("{name}: crush_device_class of single paths: name one `class` for a rule"));
                }
                return of_paths(&paths);
            }
            other => return Err(format!("{other} {}: a rule has kind, min, max and count", v.shown())),
        }
    }
    if kind.is_none() && keys.is_empty() {
        return Err("no filter".into());
    }
    keys.insert(0, ("kind", quote(kind.unwrap_or("any"))));
    Ok(keys)
}

/// Most paths of a rule.
const PATHS_MAX: usize = 512;

/// A rule of paths.
pub(super) fn of_paths(paths: &[String]) -> Result<Vec<(&'static str, String)>, String> {
    if paths.len() > PATHS_MAX {
        return Err(format!("more than {PATHS_MAX} paths"));
    }
    match paths.iter().find(|p| !is_path(p)) {
        _ if paths.is_empty() => Err("no path".into()),
        Some(p) => Err(format!("{p:?}: not the path of a device")),
        None => Ok(vec![("paths", list(paths))]),
    }
}

/// Adds the device class to a rule.
pub(super) fn class(d: &mut Draft, name: &str, keys: &mut Vec<(&'static str, String)>, class: Option<&str>) {
    match class {
        Some(c) if is_name(c) => keys.push(("class", quote(c))),
        Some(c) => d.note(format!("{name}: crush_device_class {c:?}: not a name")),
        None => {}
    }
}

/// The rule of a drive group.
pub(super) fn drive_group(d: &mut Draft, mut r: DraftRule, spec: &Node, unmanaged: bool) {
    let name = r.name.clone();
    let is_or = spec.text_of("filter_logic").is_some_and(|l| l.eq_ignore_ascii_case("or"));
    let selected = match spec.get("data_devices") {
        Some(n) => select(d, &name, n, is_or),
        None => Err("no data_devices".into()),
    };
    for (k, v) in spec.entries().filter(|(_, v)| *v != Node::Null) {
        match k.as_str() {
            "data_devices" | "filter_logic" | "crush_device_class" | "method" | "placement" => {}
            "service_type" | "service_id" | "service_name" | "unmanaged" | "preview_only" => {}
            "objectstore" if v.text() == Some("bluestore") => {}
            "osds_per_device" if v.text() == Some("1") => {}
            "encrypted" if !v.is_true() => {}
            "encrypted" => r.off = Some("encrypted: no rule makes OSDs on dm-crypt".into()),
            "db_devices" | "wal_devices" | "journal_devices" => {
                d.note(format!("{name}: {k} {}: an OSD has one device; these are not used", v.shown()));
            }
            "osds_per_device" => d.note(format!("{name}: osds_per_device {}: each device has one OSD", v.shown())),
            _ => d.note(format!("{name}: {k} {}: not mapped", v.shown())),
        }
    }
    match selected {
        Ok(keys) => r.keys = keys,
        Err(why) => r.off = Some(why),
    }
    if unmanaged && r.off.is_none() {
        r.off = Some("unmanaged: Ceph makes no OSDs by it".into());
    }
    class(d, &name, &mut r.keys, spec.text_of("crush_device_class"));
    add(d, r);
}

/// Adds a rule. One that is a comment is a note, too.
pub(super) fn add(d: &mut Draft, r: DraftRule) {
    if let Some(why) = &r.off {
        d.note(format!("{}: no rule for devices: {why}", r.name));
    }
    if r.keys.is_empty() {
        return;
    }
    match d.rules.iter_mut().find(|o| o.keys == r.keys && o.off == r.off && o.label == r.label) {
        Some(o) => o.hosts.extend(r.hosts),
        None => d.rules.push(r),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_drive_groups() {
        assert_eq!(sizes("10G:2TB"), Some((Some(10_000_000_000), Some(2_000_000_000_000))));
        assert_eq!(sizes(":5m"), Some((None, Some(5_000_000))));
        assert_eq!(sizes("1T:"), Some((Some(1_000_000_000_000), None)));
        assert_eq!(sizes("200G"), Some((Some(199_000_000_000), Some(201_000_000_000))));
        for bad in ["", ":", "10", "G", "99999999999999999999T", "1X:", "-1G"] {
            assert_eq!(sizes(bad), None, "{bad}");
        }
    }
}
