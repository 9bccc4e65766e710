//! Requests to the device: their purpose, and which are in flight.
//!
//! Invariant: a request id is used again only after 2³² other requests. A repeated or outdated completion matches no
//! request.
//!
//! Tests: below.

use crate::api::Tag;
use base::device::{IoId, IoKind, IoRequest};
use slab::Slab;
use std::collections::VecDeque;

/// Purpose of a request in flight.
#[derive(Clone, Debug)]
pub(super) enum Role {
    Read {
        tag: Tag,
        plan: u64,
        first: u64,
        n: u32,
    },
    /// Read of a part of a metadata page.
    Load {
        load: usize,
        part: usize,
    },
    /// Early data of a plan, blocks `[first, first + n)`.
    Early {
        tag: Tag,
        plan: u64,
        first: u64,
        n: u32,
    },
    /// Data of a commit, from block `first` on.
    Data {
        seq: u64,
        first: u64,
    },
    /// Frame or flush of a commit.
    Commit {
        seq: u64,
    },
    /// Write of checkpoint pages, with the number of the write.
    Page {
        bytes: usize,
        write: u64,
    },
    Root,
    CheckpointFlush,
    /// Root copy, superblock or flush of growing.
    Growth,
    /// Discard of freed blocks, which become free at its end.
    Discard {
        first: u64,
        n: u32,
    },
}

/// Requests of one store; see the module.
#[derive(Default)]
pub(super) struct Requests {
    /// Requests that are queued or with the device.
    under_way: Slab<(u32, Role)>,
    generation: u32,
    /// Requests that the device has not got yet.
    queue: VecDeque<IoRequest>,
}

impl Requests {
    /// True if no request is queued or with the device.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// True if the device has not got all requests.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Purposes of the requests that are queued or with the device.
    pub(super) fn roles(&self) -> impl Iterator<Item = &Role> {
        self.under_way.iter().map(|(_, (_, role))| role)
    }

    /// Queues a request.
    pub(super) fn ask(&mut self, role: Role, kind: IoKind) {
        self.generation = self.generation.wrapping_add(1);
        let key = self.under_way.insert((self.generation, role));
        self.queue.push_back(IoRequest { id: IoId(key as u64 | u64::from(self.generation) << 32), kind });
    }

    /// Takes the next request for the device.
    pub(super) fn next(&mut self) -> Option<IoRequest> {
        self.queue.pop_front()
    }

    /// Takes the completion of a request. Returns its purpose; `None` for an unknown id.
    pub(super) fn done(&mut self, id: IoId) -> Option<Role> {
        let key = (id.0 & 0xffff_ffff) as usize;
        self.under_way.get(key).filter(|(g, _)| u64::from(*g) == id.0 >> 32)?;
        Some(self.under_way.remove(key).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_that_comes_twice_matches_no_request() {
        let mut requests = Requests::default();
        let ask = |r: &mut Requests| {
            r.ask(Role::Root, IoKind::Flush);
            r.next().unwrap().id
        };
        let first = ask(&mut requests);
        assert!(matches!(requests.done(first), Some(Role::Root)));
        // The next request has the same place among those under way.
        let second = ask(&mut requests);
        assert!(requests.done(first).is_none());
        assert!(matches!(requests.done(second), Some(Role::Root)));
        assert!(requests.done(second).is_none());
    }
}
