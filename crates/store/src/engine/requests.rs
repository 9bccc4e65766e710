//! Requests for the device: what is asked for, what each is for, and which are under way.
//!
//! Invariant: a request is named once. A completion that comes twice, or of a request of before, names none.

use crate::api::Tag;
use base::device::{IoId, IoKind, IoRequest};
use slab::Slab;
use std::collections::VecDeque;

/// What a request in flight is for.
#[derive(Clone, Debug)]
pub(super) enum Role {
    Read {
        tag: Tag,
        plan: u64,
        first: u64,
        n: u32,
    },
    /// Part of a page of metadata.
    Load {
        load: usize,
        part: usize,
    },
    /// Data of a plan, blocks `[first, first + n)`.
    Early {
        tag: Tag,
        plan: u64,
        first: u64,
        n: u32,
    },
    /// Data of a commit: blocks `[first, first + n)`.
    Data {
        seq: u64,
        first: u64,
        n: u64,
    },
    /// Frame or flush of a commit.
    Commit {
        seq: u64,
    },
    /// Pages of a checkpoint: the write's number.
    Page {
        bytes: usize,
        write: u64,
    },
    Root,
    CheckpointFlush,
    /// Root copy, superblock or flush of growing.
    Growth,
    /// Of freed blocks, which become free with its end.
    Discard {
        first: u64,
        n: u32,
    },
}

/// See the module.
#[derive(Default)]
pub(super) struct Requests {
    /// What is asked for, or with the device.
    pub(super) under_way: Slab<(u32, Role)>,
    generation: u32,
    /// What the device has not been given yet.
    pub(super) queue: VecDeque<IoRequest>,
}

impl Requests {
    /// Asks for something.
    pub(super) fn ask(&mut self, role: Role, kind: IoKind) {
        self.generation = self.generation.wrapping_add(1);
        let key = self.under_way.insert((self.generation, role));
        self.queue.push_back(IoRequest { id: IoId(key as u64 | u64::from(self.generation) << 32), kind });
    }

    /// The next one for the device.
    pub(super) fn next(&mut self) -> Option<IoRequest> {
        self.queue.pop_front()
    }

    /// The device is done with one; what it was for.
    pub(super) fn done(&mut self, id: IoId) -> Option<Role> {
        let key = (id.0 & 0xffff_ffff) as usize;
        self.under_way.get(key).filter(|(g, _)| u64::from(*g) == id.0 >> 32)?;
        Some(self.under_way.remove(key).1)
    }
}
