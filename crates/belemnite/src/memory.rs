//! Memory of the machine, and an OSD's part of it.

use osd::core::memory::{Memory, TARGET, default_target};
use std::fs;

/// Default of `store_cache_size` in bytes: memory of an OSD's store.
const STORE_CACHE: u64 = 512 << 20;
/// Files with the limit of the control group, as a container sees its own: version 2, and version 1.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Bytes of memory that this process may use, if the system tells.
fn of_machine() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| base::size::of_meminfo(&text, "MemTotal:"));
    let limits = LIMITS.iter().filter_map(|p| fs::read_to_string(p).ok()?.trim().parse::<u64>().ok());
    machine.into_iter().chain(limits).min()
}

/// Memory of one of `osds` OSDs on this host, from the configuration. Error: an option that is no size.
pub(crate) fn of_osd(get: impl Fn(&str) -> Option<String>, osds: usize) -> Result<Memory, String> {
    let size = |name: &str| match get(name) {
        Some(v) => base::size::parse(&v).map(Some).ok_or_else(|| format!("{name} = {v}: not a size")),
        None => Ok(None),
    };
    let target = size(TARGET)?;
    let store = size("store_cache_size")?;
    // A small target that was chosen is for everything; an explicit size of the store stands.
    let store_default = target.map_or(STORE_CACHE, |t| STORE_CACHE.min(t / 2));
    Ok(Memory {
        target: target.unwrap_or_else(|| default_target(of_machine(), osds as u64)),
        store: store.unwrap_or(store_default),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_from_the_configuration() {
        let of = |all: &'static [(&str, &str)]| {
            of_osd(|k| all.iter().find(|(n, _)| *n == k).map(|(_, v)| (*v).to_owned()), 3)
        };
        assert_eq!(of(&[]).unwrap().store, STORE_CACHE);
        let both = of(&[("osd_memory_target", "8G"), ("store_cache_size", "2G")]).unwrap();
        assert_eq!(both, Memory { target: 8 << 30, store: 2 << 30 });
        assert_eq!(
            of(&[("osd_memory_target", "939524096")]).unwrap(),
            Memory { target: 939_524_096, store: 469_762_048 }
        );
        assert_eq!(of(&[("osd_memory_target", "lots")]).unwrap_err(), "osd_memory_target = lots: not a size");
    }
}
