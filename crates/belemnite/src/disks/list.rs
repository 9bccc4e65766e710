//! `belemnite osd list`: the OSDs and devices of this host.

use super::Error;
use super::crypt;
use super::host::{Host, is_in_use, labels_at};
use super::store;
use crate::cli::Target;
use crate::cli::operate::{must_json, print};
use base::size;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `belemnite osd list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Form of the output
    #[arg(long, short = 'f', value_name = "FORM", value_parser = ["plain", "json"], default_value = "plain")]
    format: String,
}

/// Sectors in sysfs have this size, whatever the device's own is.
const SECTOR: u64 = 512;

/// A device as the kernel describes it.
struct Device {
    path: PathBuf,
    bytes: u64,
    rotational: bool,
    /// Names of partitions and of devices above it.
    users: Vec<String>,
}

/// Block devices that can hold an OSD, below a `/sys`.
fn devices(sys: &Path) -> Vec<Device> {
    let read = |p: PathBuf| fs::read_to_string(p).unwrap_or_default().trim().to_owned();
    let names = |p: PathBuf| {
        let all = fs::read_dir(p).into_iter().flatten().flatten();
        all.map(|e| e.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for name in names(sys.join("block")) {
        let dir = sys.join("block").join(&name);
        // The mapping of an OSD is shown with the device below it.
        if crypt::uuid_of(Path::new(&read(dir.join("dm/name")))).is_some() {
            continue;
        }
        let bytes = read(dir.join("size")).parse::<u64>().unwrap_or_default().saturating_mul(SECTOR);
        if bytes == 0 || ["ram", "zram", "sr", "fd"].iter().any(|k| name.strip_prefix(k).is_some_and(is_number)) {
            continue;
        }
        let parts = names(dir.clone()).into_iter().filter(|n| dir.join(n).join("partition").exists());
        let mut users: Vec<String> = parts.chain(names(dir.join("holders"))).collect();
        users.sort_unstable();
        // A name in sysfs has `!` where the path has `/`.
        let path = Path::new("/dev").join(name.replace('!', "/"));
        found.push(Device { path, bytes, rotational: read(dir.join("queue/rotational")) == "1", users });
    }
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    found
}

fn is_number(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())
}

/// State of an OSD in the map, in words.
fn state(map: Option<&Value>, id: u32, uuid: &str) -> String {
    let Some(dump) = map else { return "unknown".into() };
    let o = dump["osds"].as_array().and_then(|a| a.iter().find(|o| o["osd"] == id));
    match o {
        None => "not in the map".into(),
        Some(o) if crate::cli::osds::is_destroyed(o) => "destroyed".into(),
        Some(o) if o["uuid"] != uuid => "not of this store".into(),
        Some(o) => format!("{}, {}", if o["up"] == 1 { "up" } else { "down" }, if o["in"] == 1 { "in" } else { "out" }),
    }
}

/// The OSDs with a data directory here, by the path of their store.
fn osds(h: &Host, map: Option<&Value>) -> BTreeMap<PathBuf, Value> {
    let mut found = BTreeMap::new();
    for id in h.ids() {
        let (data, block) = h.places(id);
        let device = h.device(id);
        let path = fs::canonicalize(&device).unwrap_or_else(|_| fs::read_link(&device).unwrap_or(device));
        let labels = h.labels(id);
        let mut about = json!({ "osd": id, "data": data, "running": is_in_use(&block) });
        if h.container(id).is_some() {
            about["encrypted"] = true.into();
        }
        match labels {
            Ok(l) => {
                about["state"] = state(map, id, &l.uuid).into();
                about["uuid"] = l.uuid.into();
            }
            Err(e) => about["error"] = e.to_string().into(),
        }
        found.insert(path, about);
    }
    found
}

/// Contents of a path that no data directory names.
fn holds(path: &Path, h: &Host, users: &[String], map: Option<&Value>) -> Value {
    if let Ok(l) = labels_at(path) {
        let of = if l.fsid == h.fsid { state(map, l.whoami, &l.uuid) } else { format!("of cluster {}", l.fsid) };
        let mut about = json!({ "store_of": l.whoami, "uuid": l.uuid, "state": of });
        if crypt::is_container(path) {
            about["encrypted"] = true.into();
        }
        return about;
    }
    match store::contents(path) {
        Err(e) => json!({ "error": e.to_string() }),
        Ok(Some(c)) => json!({ "contents": c.text, "used_by": users }),
        Ok(None) if !users.is_empty() => json!({ "used_by": users }),
        Ok(None) => json!({}),
    }
}

/// A row's last column.
fn words(v: &Value) -> String {
    let text = |k: &str| v[k].as_str().unwrap_or_default().to_owned();
    let users: Vec<&str> = v["used_by"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut parts = Vec::new();
    if let Some(id) = v["osd"].as_u64() {
        parts.push(format!("osd.{id}"));
        parts.push(if v["running"] == true { "running".into() } else { "not running".into() });
    } else if let Some(id) = v["store_of"].as_u64() {
        parts.push(format!("store of osd.{id}, without a data directory here"));
    }
    if v["encrypted"] == true {
        parts.push("encrypted".into());
    }
    parts.extend(["state", "contents", "error"].map(text).into_iter().filter(|t| !t.is_empty()));
    if !users.is_empty() {
        parts.push(format!("used by {}", users.join(" ")));
    }
    if parts.is_empty() { "free".into() } else { parts.join(", ") }
}

/// `belemnite osd list`
pub(crate) async fn list(t: &Target, a: &ListArgs) -> Result<(), Error> {
    let host = Host::new(t.conf_file()?)?;
    let asked = async { must_json(&t.connect_to_create().await?, json!({"prefix": "osd dump"})).await };
    let (map, silent) = match asked.await {
        Ok(m) => (Some(m), None),
        Err(e) => (None, Some(e.to_string())),
    };
    let mut all = osds(&host, map.as_ref());
    for d in devices(Path::new("/sys")) {
        let mut about = all.remove(&d.path).unwrap_or_else(|| holds(&d.path, &host, &d.users, map.as_ref()));
        about["bytes"] = d.bytes.into();
        about["rotational"] = d.rotational.into();
        all.insert(d.path, about);
    }
    for (path, about) in &mut all {
        if about["bytes"].is_null() {
            about["bytes"] = fs::metadata(path).map(|m| m.len()).unwrap_or_default().into();
        }
        about["path"] = json!(path);
    }
    if a.format == "json" {
        print(&json!({ "monitors": silent, "devices": all.values().collect::<Vec<_>>() }).to_string());
        return Ok(());
    }
    let width = all.keys().map(|p| p.as_os_str().len()).max().unwrap_or_default();
    for (path, about) in &all {
        let bytes = size::show(about["bytes"].as_u64().unwrap_or_default());
        print(&format!("{:<width$}  {bytes:>8}  {}", path.display().to_string(), words(about)));
    }
    match silent {
        Some(e) => Err(format!("states are unknown: {e}").into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_those_that_can_hold_an_osd() {
        let sys = std::env::temp_dir().join(format!("belemnite-sys-{}", std::process::id()));
        for (name, size, rotational) in
            [("sda", "2048", "1"), ("nvme0n1", "4096", "0"), ("ram0", "8", "0"), ("loop0", "0", "0")]
        {
            let dir = sys.join("block").join(name);
            fs::create_dir_all(dir.join("queue")).unwrap();
            fs::create_dir_all(dir.join("holders")).unwrap();
            fs::write(dir.join("size"), format!("{size}\n")).unwrap();
            fs::write(dir.join("queue/rotational"), rotational).unwrap();
        }
        fs::create_dir_all(sys.join("block/dm-1/dm")).unwrap();
        fs::write(sys.join("block/dm-1/size"), "2048").unwrap();
        let uuid = "8d2a4c1e-0000-4000-8000-00000000000f";
        fs::write(sys.join("block/dm-1/dm/name"), format!("ceph-{uuid}-block-dmcrypt\n")).unwrap();
        fs::create_dir_all(sys.join("block/sda/sda1")).unwrap();
        fs::write(sys.join("block/sda/sda1/partition"), "1").unwrap();
        fs::create_dir_all(sys.join("block/sda/holders/dm-0")).unwrap();
        let all = devices(&sys);
        fs::remove_dir_all(&sys).unwrap();
        let shown: Vec<_> =
            all.iter().map(|d| (d.path.to_str().unwrap(), d.bytes, d.rotational, d.users.join(" "))).collect();
        assert_eq!(
            shown,
            [("/dev/nvme0n1", 2 << 20, false, String::new()), ("/dev/sda", 1 << 20, true, "dm-0 sda1".into())]
        );
    }

    #[test]
    fn rows_are_words() {
        assert_eq!(words(&json!({})), "free");
        assert_eq!(words(&json!({"osd": 3, "running": true, "state": "up, in"})), "osd.3, running, up, in");
        let locked = json!({"osd": 3, "running": false, "state": "down, in", "encrypted": true});
        assert_eq!(words(&locked), "osd.3, not running, encrypted, down, in");
        assert_eq!(
            words(&json!({"contents": "a partition table", "used_by": ["sda1"]})),
            "a partition table, used by sda1"
        );
    }
}
