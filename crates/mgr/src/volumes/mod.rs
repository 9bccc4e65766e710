//! Subvolumes of CephFS, as the volumes module of Ceph's manager keeps them: names, files and texts. No I/O; the host
//! has the commands.
//!
//! A subvolume is `/volumes/GROUP/NAME`: its data in a directory that is named by a UUID, its state in `.meta`.
//!
//! | module | contents |
//! | --- | --- |
//! | `meta` | the file `.meta` of a subvolume: sections of keys and values, in the form of Python's `configparser` |
//! | `schedule` | scheduled snapshots of directories: what is due, and which snapshots stay |

pub mod meta;
pub mod schedule;

use base::Utime;
use base::errno::{EINVAL, EPERM, Errno};

/// Errno and status text of a command that failed.
pub type Fail = (Errno, String);

/// Directory of all groups.
pub const BASE: &str = "/volumes";
/// Group of subvolumes without a group.
pub const NO_GROUP: &str = "_nogroup";
/// Directory of what is to be removed.
pub const TRASH: &str = "/volumes/_deleting";
/// Directory with a link for every unfinished clone.
pub const CLONES: &str = "/volumes/_index/clone";
/// Names in [`BASE`] that are no groups.
pub const INTERNAL: [&str; 4] = [NO_GROUP, "_index", "_deleting", "_legacy"];
/// Prefix of the namespace of an isolated subvolume.
pub const NAMESPACE: &str = "fsvolumens_";
/// Mode of directories that are made on the way.
pub const DIR_MODE: u32 = 0o755;

/// True for a name of one path component.
#[must_use]
pub fn is_name(s: &str) -> bool {
    !s.is_empty() && s != "." && s != ".." && s.len() <= 255 && !s.bytes().any(|b| b == b'/' || b == 0)
}

/// Directory of a group; an empty name is that of subvolumes without a group.
///
/// # Errors
/// `EPERM` or `EINVAL` for an internal directory, `EINVAL` for what is no name.
pub fn group_path(name: &str) -> Result<String, Fail> {
    if name == NO_GROUP {
        return Err((EPERM, format!("Operation not permitted for group '{name}' as it is an internal group.")));
    }
    if INTERNAL.contains(&name) {
        return Err((EINVAL, format!("'{name}' is an internal directory and not a valid group name.")));
    }
    if name.is_empty() {
        return Ok(format!("{BASE}/{NO_GROUP}"));
    }
    if !is_name(name) {
        return Err((EINVAL, format!("'{name}' is not a valid group name.")));
    }
    Ok(format!("{BASE}/{name}"))
}

/// Group, empty if none, and name of the subvolume at a path.
#[must_use]
pub fn resolve(path: &str) -> Option<(String, String)> {
    let (group, name) = path.strip_prefix(BASE)?.strip_prefix('/')?.split_once('/')?;
    let known = is_name(group) && is_name(name);
    known.then(|| (if group == NO_GROUP { String::new() } else { group.to_owned() }, name.to_owned()))
}

/// True for the text form of a UUID.
#[must_use]
pub fn is_uuid(s: &[u8]) -> bool {
    s.len() == 36
        && s.iter()
            .enumerate()
            .all(|(i, b)| if [8, 13, 18, 23].contains(&i) { *b == b'-' } else { b.is_ascii_hexdigit() })
}

/// Permission bits from octal digits.
///
/// # Errors
/// `EINVAL` if there are others.
pub fn octal(mode: &str) -> Result<u32, Fail> {
    let bare = mode.strip_prefix("0o").unwrap_or(mode);
    u32::from_str_radix(bare, 8).map(|m| m & 0o7777).map_err(|_| (EINVAL, format!("Invalid mode '{mode}'")))
}

/// A time as Python prints it: to the second, or to the microsecond if it has any.
#[must_use]
pub fn time(t: Utime, fraction: bool) -> String {
    let iso = t.iso();
    let (day, rest) = iso.split_once('T').unwrap_or((&iso, ""));
    let clock = rest.trim_end_matches("+0000");
    let whole = clock.split('.').next().unwrap_or_default();
    if fraction && t.nsec >= 1000 { format!("{day} {clock}") } else { format!("{day} {whole}") }
}

/// A quota and how much of it is used, as JSON values.
#[must_use]
pub fn percent(used: u64, quota: u64) -> String {
    if quota == 0 {
        return "undefined".to_owned();
    }
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let of = used as f64 / quota as f64 * 100.0;
    format!("{of:.2}")
}

/// New quota of a resize; 0 for none. `what`: "subvolume" or "subvolume group".
///
/// # Errors
/// `EINVAL` for what is neither a positive number nor `inf`.
pub fn new_size(text: &str, what: &str) -> Result<u64, Fail> {
    match text.trim().parse::<i64>() {
        Ok(n) if n > 0 => Ok(n.unsigned_abs()),
        Ok(_) => Err((EINVAL, format!("Invalid {what} size"))),
        Err(_) => match text.to_lowercase().as_str() {
            "inf" | "infinite" => Ok(0),
            other => Err((EINVAL, format!("invalid size option '{other}'"))),
        },
    }
}

/// Attribute and value of a pin.
///
/// # Errors
/// `EINVAL` for a value that the kind of pin does not take.
pub fn pin(kind: &str, setting: &str) -> Result<(&'static str, String), Fail> {
    let wrong = || (EINVAL, format!("pin value wrong type: {setting}"));
    match kind {
        "export" => Ok(("ceph.dir.pin", setting.trim().parse::<i64>().map_err(|_| wrong())?.to_string())),
        "distributed" => {
            let on = match setting.to_lowercase().as_str() {
                "y" | "yes" | "t" | "true" | "on" | "1" => "1",
                "n" | "no" | "f" | "false" | "off" | "0" => "0",
                _ => return Err(wrong()),
            };
            Ok(("ceph.dir.pin.distributed", on.to_owned()))
        }
        "random" => {
            let f: f64 = setting.trim().parse().map_err(|_| wrong())?;
            Ok(("ceph.dir.pin.random", format!("{f:?}")))
        }
        _ => Err((EINVAL, format!("invalid pin type '{kind}'"))),
    }
}

/// A size as the progress of a clone shows it.
#[must_use]
pub fn short_size(n: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut whole = n;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        whole /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 || whole >= 100 {
        return format!("{whole}{name}");
    }
    #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
    let exact = n as f64 / 1024_f64.powi(i32::try_from(unit).unwrap_or(0));
    format!("{exact:.1}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_names_are_no_groups() {
        assert_eq!(group_path("").unwrap(), "/volumes/_nogroup");
        assert_eq!(group_path("csi").unwrap(), "/volumes/csi");
        assert_eq!(group_path("_nogroup").unwrap_err().0, EPERM);
        for bad in ["_deleting", "_index", "_legacy", "..", "a/b"] {
            assert_eq!(group_path(bad).unwrap_err().0, EINVAL, "{bad}");
        }
        assert_eq!(resolve("/volumes/_nogroup/s"), Some((String::new(), "s".into())));
        assert_eq!(resolve("/volumes/g/s"), Some(("g".into(), "s".into())));
        for bad in ["/volumes/g", "/volumes/g/s/t", "/other/g/s", "/volumes/../s"] {
            assert_eq!(resolve(bad), None, "{bad}");
        }
    }

    #[test]
    fn texts_are_those_of_ceph() {
        let t = Utime { sec: 1_700_000_000, nsec: 123_456_789 };
        assert_eq!(
            (time(t, false), time(t, true)),
            ("2023-11-14 22:13:20".into(), "2023-11-14 22:13:20.123456".into())
        );
        assert_eq!((percent(1, 0), percent(1, 3), percent(0, 9)), ("undefined".into(), "33.33".into(), "0.00".into()));
        assert_eq!(new_size("10", "subvolume").unwrap(), 10);
        assert_eq!(new_size("INF", "subvolume").unwrap(), 0);
        assert_eq!(new_size("0", "subvolume").unwrap_err().1, "Invalid subvolume size");
        assert_eq!(new_size("x", "subvolume").unwrap_err().1, "invalid size option 'x'");
        assert_eq!(pin("random", "0.5").unwrap().1, "0.5");
        assert_eq!(pin("distributed", "yes").unwrap().1, "1");
        assert_eq!(pin("export", "x").unwrap_err().1, "pin value wrong type: x");
        assert_eq!((octal("755").unwrap(), octal("9").unwrap_err().1), (0o755, "Invalid mode '9'".into()));
        assert_eq!(
            (short_size(376 << 20), short_size(3 << 30), short_size(5)),
            ("376M".into(), "3.0G".into(), "5".into())
        );
        assert!(is_uuid(b"6bf1a5a8-2b4b-4b1a-9d53-0f2a1f0c9d0e") && !is_uuid(b"6bf1a5a8"));
    }
}
