//! Places of objects on the device: each object has [`FLOOR_OBJECT_MAX`] bytes from the first write to it on.
//!
//! A device begins with the area of the lists that each commit writes. Servers share out the places behind it by their
//! number, so that a write has the same place on all of them.

use crate::plan::keys::FLOOR_OBJECT_MAX;
use base::buf::PAGE;
use base::errno::{EINVAL, ENOENT, ENOSPC, Errno};
use bytes::Bytes;
use std::collections::HashMap;

/// Bytes of the area for lists of commits.
pub(super) const LIST_BYTES: u64 = 64 << 20;

/// Places of a server's objects.
#[derive(Debug)]
pub(super) struct Places {
    by_name: HashMap<Bytes, u64>,
    /// The server's number, and the number of servers.
    me: u64,
    servers: u64,
    /// Places on the device.
    count: u64,
    end: u64,
    /// Blocks of lists written so far.
    listed: u64,
}

/// Checks that a range lies in an object, in whole pages.
fn check(offset: u64, length: u64) -> Result<(), Errno> {
    let pages = [offset, length].iter().all(|n| n.is_multiple_of(PAGE as u64));
    let end = offset.checked_add(length).is_some_and(|e| e <= FLOOR_OBJECT_MAX);
    if pages && end && length > 0 { Ok(()) } else { Err(EINVAL) }
}

impl Places {
    /// Places on a device of `bytes`, of server `me` among `servers`.
    pub(super) fn new(bytes: u64, me: u64, servers: u64) -> Self {
        let count = bytes.saturating_sub(LIST_BYTES) / FLOOR_OBJECT_MAX;
        let end = LIST_BYTES + count * FLOOR_OBJECT_MAX;
        Self { by_name: HashMap::new(), me, servers: servers.max(1), count, end, listed: 0 }
    }

    /// Place on the device of a range of an object. Error: `ENOENT` for an object that was never written, `EINVAL` for a
    /// range that is not in whole pages of the object.
    pub(super) fn of_read(&self, name: &Bytes, offset: u64, length: u64) -> Result<u64, Errno> {
        check(offset, length)?;
        self.by_name.get(name).map(|at| at + offset).ok_or(ENOENT)
    }

    /// The same for a write, which gives a new object its place. Error: `EINVAL`, or `ENOSPC` if this server's places are
    /// all in use.
    pub(super) fn of_write(&mut self, name: &Bytes, offset: u64, length: u64) -> Result<u64, Errno> {
        check(offset, length)?;
        if let Some(at) = self.by_name.get(name) {
            return Ok(at + offset);
        }
        let number = self.by_name.len() as u64 * self.servers + self.me;
        if number >= self.count {
            return Err(ENOSPC);
        }
        let at = LIST_BYTES + number * FLOOR_OBJECT_MAX;
        self.by_name.insert(Bytes::copy_from_slice(name), at);
        Ok(at + offset)
    }

    /// Checks the place of a write that another server has placed.
    pub(super) fn is_place(&self, at: u64, length: u64) -> bool {
        (LIST_BYTES..self.end).contains(&at) && check((at - LIST_BYTES) % FLOOR_OBJECT_MAX, length).is_ok()
    }

    /// Place of the next list of `blocks` pages.
    pub(super) fn next_list(&mut self, blocks: u64) -> u64 {
        let all = LIST_BYTES / PAGE as u64;
        if self.listed + blocks > all {
            self.listed = 0;
        }
        let at = self.listed;
        self.listed += blocks;
        at * PAGE as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_all_servers_have_places_of_their_own() {
        let bytes = LIST_BYTES + 7 * FLOOR_OBJECT_MAX + 5;
        let mut seen = std::collections::BTreeSet::new();
        for me in 0..3 {
            let mut p = Places::new(bytes, me, 3);
            let room = if me == 0 { 3 } else { 2 };
            for i in 0..room {
                let at = p.of_write(&format!("o{i}").into(), 4096, 4096).unwrap();
                assert!(seen.insert(at) && p.is_place(at, 4096), "{at}");
            }
            assert_eq!(p.of_write(&"one more".into(), 0, 4096), Err(ENOSPC));
            assert_eq!(p.of_write(&"o0".into(), 0, FLOOR_OBJECT_MAX), p.of_read(&"o0".into(), 0, 4096));
        }
        assert_eq!(seen.len(), 7);
        assert!(seen.iter().all(|at| *at >= LIST_BYTES && at + 4096 <= bytes));
    }

    #[test]
    fn ranges_outside_of_an_object_are_refused() {
        let mut p = Places::new(LIST_BYTES + 2 * FLOOR_OBJECT_MAX, 0, 1);
        let name = Bytes::from_static(b"a");
        assert_eq!(p.of_read(&name, 0, 4096), Err(ENOENT));
        for (offset, length) in [(0, 0), (1, 4096), (0, 4095), (FLOOR_OBJECT_MAX, 4096), (u64::MAX - 4095, 4096)] {
            assert_eq!(p.of_write(&name, offset, length), Err(EINVAL), "{offset} {length}");
        }
        for at in [0, LIST_BYTES - 4096, LIST_BYTES + 1, LIST_BYTES + 2 * FLOOR_OBJECT_MAX, u64::MAX - 4095] {
            assert!(!p.is_place(at, 4096), "{at}");
        }
        assert!(!p.is_place(LIST_BYTES + 4096, FLOOR_OBJECT_MAX));
        assert!(p.is_place(LIST_BYTES + FLOOR_OBJECT_MAX, FLOOR_OBJECT_MAX));
    }

    #[test]
    fn lists_stay_in_their_area() {
        let mut p = Places::new(1 << 30, 0, 1);
        let mut wrapped = 0;
        for i in 0..40_000 {
            let blocks = 1 + i % 3;
            let at = p.next_list(blocks);
            assert!(at + blocks * PAGE as u64 <= LIST_BYTES);
            wrapped += u64::from(at == 0);
        }
        assert!(wrapped > 1);
    }
}
