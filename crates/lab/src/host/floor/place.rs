//! Places of objects: each object has [`FLOOR_OBJECT_MAX`] bytes from the first write to it on.
//!
//! Servers share out the places by their number, so that a write has the same place on all of them. Where the pages of a
//! place lie on a device is the matter of each server ([`super::pages`]).

use crate::plan::keys::FLOOR_OBJECT_MAX;
use base::buf::PAGE;
use base::errno::{EINVAL, ENOENT, ENOSPC, Errno};
use bytes::Bytes;
use std::collections::HashMap;

/// Places of a server's objects.
#[derive(Debug)]
pub(super) struct Places {
    by_name: HashMap<Bytes, u64>,
    /// The server's number, and the number of servers.
    me: u64,
    servers: u64,
    /// Places of all servers.
    count: u64,
}

/// Checks that a range lies in an object, in whole pages.
fn check(offset: u64, length: u64) -> Result<(), Errno> {
    let pages = [offset, length].iter().all(|n| n.is_multiple_of(PAGE as u64));
    let end = offset.checked_add(length).is_some_and(|e| e <= FLOOR_OBJECT_MAX);
    if pages && end && length > 0 { Ok(()) } else { Err(EINVAL) }
}

impl Places {
    /// Places in `bytes`, of server `me` among `servers`.
    pub(super) fn new(bytes: u64, me: u64, servers: u64) -> Self {
        Self { by_name: HashMap::new(), me, servers: servers.max(1), count: bytes / FLOOR_OBJECT_MAX }
    }

    /// Place of a range of an object. Error: `ENOENT` for an object that was never written, `EINVAL` for a
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
        let at = number * FLOOR_OBJECT_MAX;
        self.by_name.insert(Bytes::copy_from_slice(name), at);
        Ok(at + offset)
    }

    /// Checks the place of a write that another server has placed.
    pub(super) fn is_place(&self, at: u64, length: u64) -> bool {
        at < self.count * FLOOR_OBJECT_MAX && check(at % FLOOR_OBJECT_MAX, length).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_all_servers_have_places_of_their_own() {
        let bytes = 7 * FLOOR_OBJECT_MAX + 5;
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
        assert!(seen.iter().all(|at| at + 4096 <= bytes));
    }

    #[test]
    fn ranges_outside_of_an_object_are_refused() {
        let mut p = Places::new(2 * FLOOR_OBJECT_MAX, 0, 1);
        let name = Bytes::from_static(b"a");
        assert_eq!(p.of_read(&name, 0, 4096), Err(ENOENT));
        for (offset, length) in [(0, 0), (1, 4096), (0, 4095), (FLOOR_OBJECT_MAX, 4096), (u64::MAX - 4095, 4096)] {
            assert_eq!(p.of_write(&name, offset, length), Err(EINVAL), "{offset} {length}");
        }
        for at in [1, 2 * FLOOR_OBJECT_MAX, u64::MAX - 4095] {
            assert!(!p.is_place(at, 4096), "{at}");
        }
        assert!(!p.is_place(4096, FLOOR_OBJECT_MAX));
        assert!(p.is_place(FLOOR_OBJECT_MAX, FLOOR_OBJECT_MAX));
    }
}
