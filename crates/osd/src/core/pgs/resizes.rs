//! Splits and merges in progress between the PGs of one reactor: results of splits, PGs that leave by a merge, and
//! messages between PGs.

use base::errno::Errno;
use base::{Epoch, SpgId};
use pg::{Child, MergeMsg};
use std::collections::{BTreeMap, VecDeque};

/// A message between PGs: sender, receiver, message.
type Message = (SpgId, SpgId, Box<MergeMsg>);

/// Splits and merges of a reactor's PGs; see the module.
#[derive(Default)]
pub(super) struct Resizes {
    /// Machines of PGs that are being merged into others, by the map that merges them.
    leaving: BTreeMap<(SpgId, Epoch), u32>,
    msgs: VecDeque<Message>,
    /// Results of finished splits, for the child machines that wait for them.
    born: Vec<(SpgId, Option<Box<Child>>)>,
    /// Child machines that wait for the split of a failed copy.
    failed: Vec<(SpgId, Errno)>,
}

impl Resizes {
    /// Notes that a PG's machine leaves by the map of that epoch.
    pub(super) fn note_leaver(&mut self, spg: SpgId, epoch: Epoch, i: u32) {
        self.leaving.insert((spg, epoch), i);
    }

    /// The machine of that name that leaves by the map of that epoch.
    pub(super) fn leaver_at(&self, spg: SpgId, epoch: Epoch) -> Option<u32> {
        self.leaving.get(&(spg, epoch)).copied()
    }

    /// Leaving machines of that name, oldest first.
    pub(super) fn leavers(&self, spg: SpgId) -> impl Iterator<Item = u32> + use<'_> {
        self.leaving.range((spg, Epoch(0))..=(spg, Epoch(u32::MAX))).map(|(_, i)| *i)
    }

    /// True if that machine of that name leaves.
    pub(super) fn is_leaver(&self, spg: SpgId, i: u32) -> bool {
        self.leavers(spg).any(|n| n == i)
    }

    /// Forgets a removed machine.
    pub(super) fn forget(&mut self, spg: SpgId, i: u32) {
        self.leaving.retain(|(p, _), n| *p != spg || *n != i);
    }

    /// Adds a message of a PG to another one.
    pub(super) fn push_message(&mut self, from: SpgId, to: SpgId, msg: Box<MergeMsg>) {
        self.msgs.push_back((from, to, msg));
    }

    /// Takes the next message.
    pub(super) fn pop_message(&mut self) -> Option<Message> {
        self.msgs.pop_front()
    }

    /// Adds the results of a split.
    pub(super) fn add_born(&mut self, children: impl IntoIterator<Item = (SpgId, Option<Box<Child>>)>) {
        self.born.extend(children);
    }

    /// Takes the result of a split.
    pub(super) fn pop_born(&mut self) -> Option<(SpgId, Option<Box<Child>>)> {
        self.born.pop()
    }

    /// Adds the children of a copy that failed before its split.
    pub(super) fn add_failed(&mut self, children: impl IntoIterator<Item = SpgId>, errno: Errno) {
        self.failed.extend(children.into_iter().map(|p| (p, errno)));
    }

    /// Takes a child of a failed copy.
    pub(super) fn pop_failed(&mut self) -> Option<(SpgId, Errno)> {
        self.failed.pop()
    }

    /// Releases memory of a past burst.
    pub(super) fn shrink_to(&mut self, room: usize) {
        self.msgs.shrink_to(room);
        self.born.shrink_to(room);
    }
}
