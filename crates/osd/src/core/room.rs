//! Judgement of the space that an OSD sees itself: the file system of a sparse file, and the store.
//!
//! The cluster's FULL flag comes with a map, seconds after the reports that cause it. Until then, and if it never comes,
//! an OSD lets growing writes of clients wait on its own, so that it stays able to free space, to stop and to start.
//! Several OSDs on one file system see the same free bytes, so all of them do it at the same moment.

use store::Statfs;

/// Bytes written after which a reactor looks again, beside its ticks.
pub const LOOK_EVERY: usize = 4 << 20;
/// Bytes above the bound that must be free before writes are accepted again; of a store at most one in 200.
const AGAIN: u64 = 32 << 20;

/// Bounds of an OSD's space.
#[derive(Clone, Copy, Debug)]
pub struct RoomLimits {
    /// Bytes of the file system below which no growing write is accepted (`osd_file_min_free`).
    pub min_free: u64,
    /// Used part of the store above which none is (`osd_failsafe_full_ratio`).
    pub failsafe: f64,
}

impl RoomLimits {
    /// Free bytes of the file system that an OSD with these `holes` needs to start: half of [`RoomLimits::min_free`],
    /// since it stops with about all of it.
    #[must_use]
    pub fn to_start(&self, holes: u64) -> u64 {
        (self.min_free / 2).min(holes)
    }

    /// True if growing writes have to wait. `file`: bytes of the file's holes, and free bytes of its file system; `None`
    /// for a device. `was`: the last result.
    #[must_use]
    pub fn is_short(&self, file: Option<(u64, u64)>, s: &Statfs, was: bool) -> bool {
        let more = if was { AGAIN } else { 0 };
        // A file without holes needs nothing of its file system.
        let of_file = file.is_some_and(|(holes, free)| free < (self.min_free + more).min(holes));
        let available = s.available.saturating_sub(more.min(s.total / 200));
        let used = 1.0 - available as f64 / s.total.max(1) as f64;
        of_file || used > self.failsafe
    }

    /// True if freed blocks should go back to the file system, for which it waits.
    #[must_use]
    pub fn returns_blocks(&self, file: Option<(u64, u64)>) -> bool {
        file.is_some_and(|(holes, free)| free < self.min_free.saturating_mul(4).min(holes))
    }

    /// Bytes that the store counts as available and the file system does not have, but for what must stay free.
    #[must_use]
    pub fn lacks(&self, file: Option<(u64, u64)>) -> u64 {
        file.map_or(0, |(holes, free)| holes.saturating_sub(free.saturating_sub(self.min_free.min(holes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const L: RoomLimits = RoomLimits { min_free: 256 * MIB, failsafe: 0.97 };

    fn store(available: u64) -> Statfs {
        Statfs { total: 1000 * MIB, available: available * MIB, ..Statfs::default() }
    }

    #[test]
    fn a_file_system_without_room_stops_writes_before_it_is_full() {
        let file = |holes, free| Some((holes * MIB, free * MIB));
        let s = store(500);
        assert!(!L.is_short(file(500, 300), &s, false));
        assert!(L.is_short(file(500, 255), &s, false));
        assert!(L.is_short(file(500, 270), &s, true) && !L.is_short(file(500, 290), &s, true), "no flapping");
        assert!(!L.is_short(file(0, 0), &s, false) && !L.is_short(None, &s, false), "all blocks are there");
        assert!(L.is_short(file(10, 5), &s, false) && !L.is_short(file(10, 11), &s, false), "less than what is kept");
        assert!(L.to_start(500 * MIB) <= 128 * MIB && L.to_start(5 * MIB) == 5 * MIB);
        assert!(L.returns_blocks(file(2000, 900)) && !L.returns_blocks(file(2000, 1100)));
        assert_eq!(L.lacks(file(500, 300)), 456 * MIB);
        assert_eq!((L.lacks(file(500, 10_000)), L.lacks(None)), (0, 0));
    }

    #[test]
    fn a_store_above_the_failsafe_ratio_stops_writes_without_a_map() {
        assert!(!L.is_short(None, &store(31), false));
        assert!(L.is_short(None, &store(29), false));
        assert!(L.is_short(None, &store(34), true) && !L.is_short(None, &store(36), true), "no flapping");
    }
}
