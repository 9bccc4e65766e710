//! Messages that many sessions get, encoded once.
//!
//! Invariants:
//!  1. The key of a message names all that its bytes depend on, so an entry is never wrong; it only becomes useless.
//!  2. The cache holds at most [`ENTRIES`] messages of [`BYTES`] together, or a single larger one.
//!
//! Tests: assertions.

use std::collections::{BTreeMap, VecDeque};

use base::Epoch;
use bytes::Bytes;
use wire::{Features, Message, WireMessage};

use crate::core::MonCore;
use crate::state::ConnKey;

/// Most messages held.
const ENTRIES: usize = 16;
/// Most bytes of messages held.
const BYTES: usize = 32 << 20;

/// Kind and versions of a message: all that its bytes depend on beside the peer's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Key {
    /// The monitors' map of an epoch.
    MonMap(Epoch),
    /// The manager's map of an epoch.
    MgrMap(Epoch),
    /// The service map of an epoch.
    ServiceMap(Epoch),
    /// OSD maps: the range of incrementals, the range of full maps, the oldest epoch named and the newest one there is.
    OsdMaps([Epoch; 6]),
}

impl Key {
    /// The key of a message with these maps, `(oldest, newest)` being the range that it names. An epoch's bytes never
    /// change, so a range without gaps names its maps; `None` for others.
    pub(in crate::core) fn osd_maps(
        incs: &BTreeMap<Epoch, Bytes>,
        fulls: &BTreeMap<Epoch, Bytes>,
        (oldest, newest): (Epoch, Epoch),
    ) -> Option<Self> {
        let range = |all: &BTreeMap<Epoch, Bytes>| {
            let Some(((first, _), (last, _))) = all.first_key_value().zip(all.last_key_value()) else {
                return Some((Epoch(0), Epoch(0)));
            };
            ((last.0 - first.0) as usize == all.len() - 1).then_some((*first, *last))
        };
        let ((a, b), (c, d)) = (range(incs)?, range(fulls)?);
        Some(Self::OsdMaps([a, b, c, d, oldest, newest]))
    }
}

/// The messages held, the last used one at the back.
#[derive(Debug, Default)]
pub(in crate::core) struct Made {
    messages: VecDeque<(Key, Features, Message)>,
    bytes: usize,
    /// The newest OSD map in the form of old kernels.
    old_full: Option<(Epoch, Features, Bytes)>,
    /// Number of messages encoded.
    encoded: u64,
}

impl Made {
    fn get(&mut self, key: Key, features: Features, make: impl FnOnce() -> Message) -> Message {
        if let Some(at) = self.messages.iter().position(|(k, f, _)| *k == key && *f == features)
            && let Some(found) = self.messages.remove(at)
        {
            let m = found.2.clone();
            debug_assert_eq!(m.data, make().data, "the key names all that the bytes depend on");
            self.messages.push_back(found);
            return m;
        }
        let m = make();
        self.encoded += 1;
        self.bytes += m.cost();
        self.messages.push_back((key, features, m.clone()));
        while self.messages.len() > ENTRIES || self.bytes > BYTES && self.messages.len() > 1 {
            let Some((.., old)) = self.messages.pop_front() else { break };
            self.bytes -= old.cost();
        }
        let n = self.messages.len();
        debug_assert!(n <= ENTRIES && (self.bytes <= BYTES || n == 1), "{n} messages with {} bytes", self.bytes);
        m
    }
}

impl MonCore {
    /// Sends a message that others get as well; `message` makes it if it is not held.
    pub(in crate::core) fn send_shared<M: WireMessage>(
        &mut self,
        c: ConnKey,
        key: Key,
        message: impl FnOnce(&Self) -> M,
    ) {
        let Some(features) = self.sessions.get(&c).map(|s| s.features()) else { return };
        let mut made = std::mem::take(&mut self.answers.made);
        let m = made.get(key, features, || message(self).to_message(features));
        self.answers.made = made;
        self.send(c, m);
    }

    /// The newest OSD map in the form for a peer with these features.
    pub(in crate::core) fn full_for(&mut self, features: Features) -> Bytes {
        let newest = self.state.osdmap.epoch;
        if features.nautilus()
            && let Some(b) = self.state.history.full(newest)
        {
            return b.clone();
        }
        match &self.answers.made.old_full {
            Some((e, f, b)) if (*e, *f) == (newest, features) => b.clone(),
            _ => {
                let b = self.state.osdmap.encode_blob(features).0;
                self.answers.made.old_full = Some((newest, features, b.clone()));
                b
            }
        }
    }

    /// Number of maps encoded for sessions so far; those that several sessions got count once.
    #[must_use]
    pub fn encoded_maps(&self) -> u64 {
        self.answers.made.encoded
    }
}
