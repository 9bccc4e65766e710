//! Division of an OSD's memory between the store's metadata, data that is read again, and the rest.

/// Option with the memory that an OSD aims for.
pub const TARGET: &str = "osd_memory_target";
/// Default of [`TARGET`] in bytes, as in Ceph. A host with little memory has less.
pub const TARGET_DEFAULT: u64 = 4 << 30;
/// Bytes for everything beside the store: code, sessions, maps, PGs, operations in flight.
const REST: u64 = 192 << 20;
/// Part of a host's memory that its OSDs share by default.
const PART_OF_HOST: u64 = 2;

/// Memory settings of an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that the process aims for.
    pub target: u64,
    /// Bytes of them for the store's metadata, with a small part for data (`store_cache_size`).
    pub store: u64,
}

impl Memory {
    /// Bytes for data that is read again, beside those of [`Memory::store`].
    #[must_use]
    pub fn data(&self) -> u64 {
        self.target.saturating_sub(self.store.saturating_add(REST))
    }

    /// These settings with the target in force. An option that is no size counts as not set.
    #[must_use]
    pub fn with_target(self, option: Option<&str>) -> Self {
        Self { target: option.and_then(base::size::parse).unwrap_or(self.target), ..self }
    }
}

/// Target of an OSD for which none is set, one of `osds` on a host with `memory` bytes, if those are known.
#[must_use]
pub fn default_target(memory: Option<u64>, osds: u64) -> u64 {
    memory.map_or(TARGET_DEFAULT, |m| (m / PART_OF_HOST / osds.max(1)).min(TARGET_DEFAULT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_gets_what_the_target_leaves() {
        let m = Memory { target: 4 << 30, store: 512 << 20 };
        assert_eq!(m.data(), (4 << 30) - (512 << 20) - REST);
        assert_eq!(m.with_target(Some("1G")).data(), (1 << 30) - (512 << 20) - REST);
        assert_eq!(m.with_target(Some("5368709120")).target, 5 << 30);
        assert_eq!((m.with_target(None), m.with_target(Some("much"))), (m, m));
        assert_eq!((m.with_target(Some("512M")).data(), m.with_target(Some("0")).data()), (0, 0));
        assert_eq!(Memory { target: u64::MAX, store: u64::MAX }.data(), 0);
    }

    #[test]
    fn osds_of_a_host_share_half_of_its_memory() {
        assert_eq!(default_target(None, 3), TARGET_DEFAULT);
        assert_eq!(default_target(Some(256 << 30), 12), TARGET_DEFAULT);
        assert_eq!(default_target(Some(24 << 30), 6), 2 << 30);
        assert_eq!(default_target(Some(8 << 30), 0), 4 << 30);
    }
}
