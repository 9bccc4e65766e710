//! Facts about this machine, as `mon metadata` and `mgr metadata` show them.

use std::collections::BTreeMap;

use crate::command::mon::versions;
use crate::state::options::OPEN_FILES;
use crate::state::primaries::STATE_FEATURES;
use crate::state::records::FEATURES;

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|s| s.trim().to_owned()).unwrap_or_default()
}

/// The value of a `key : value` or `key=value` line.
fn field(text: &str, sep: char, key: &str) -> Option<String> {
    text.lines()
        .filter_map(|l| l.split_once(sep))
        .find(|(k, _)| k.trim() == key)
        .map(|(_, v)| v.trim().trim_matches('"').to_owned())
}

/// Metadata of the host: its name, system and processor. Values that cannot be read are left out.
pub(super) fn host_metadata() -> BTreeMap<String, String> {
    let os = read("/etc/os-release");
    let (cpu, mem) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let kb = |key| field(&mem, ':', key).map(|v| v.trim_end_matches(" kB").to_owned());
    let facts = [
        ("hostname", Some(read("/proc/sys/kernel/hostname"))),
        ("arch", Some(std::env::consts::ARCH.to_owned())),
        ("os", Some("Linux".to_owned())),
        ("kernel_version", Some(read("/proc/sys/kernel/osrelease"))),
        ("kernel_description", Some(read("/proc/sys/kernel/version"))),
        ("distro", field(&os, '=', "ID")),
        ("distro_version", field(&os, '=', "VERSION_ID")),
        ("distro_description", field(&os, '=', "PRETTY_NAME")),
        ("cpu", field(&cpu, ':', "model name")),
        ("mem_total_kb", kb("MemTotal")),
        ("mem_swap_kb", kb("SwapTotal")),
        (OPEN_FILES, net::descriptors::limit().map(|n| n.to_string())),
    ];
    facts.into_iter().filter_map(|(k, v)| v.filter(|v| !v.is_empty()).map(|v| (k.to_owned(), v))).collect()
}

/// Metadata of this monitor, for other monitors.
pub(super) fn metadata() -> BTreeMap<String, String> {
    let mut all = host_metadata();
    versions::put_own(&mut all);
    all.insert(STATE_FEATURES.to_owned(), format!("{:x}", FEATURES.incompat));
    all
}
