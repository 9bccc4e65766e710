//! `SnapSet`: the clones of an object, kept in the attribute `snapset` of its head, or of its snapdir object while the
//! head is absent.

use super::intervals::Intervals;
use base::SnapId;
use bytes::Bytes;
use wire::{DecodeError, Features, Reader, Writer};

/// One clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneEntry {
    /// Snap id of the clone: the newest snapshot it was made for.
    pub id: u64,
    /// Snapshots that the clone represents, newest first.
    pub snaps: Vec<u64>,
    /// Size in bytes.
    pub size: u64,
    /// Ranges that the clone shares with the next newer clone or the head.
    pub overlap: Intervals,
}

/// The clones of an object; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapSet {
    /// Newest snapshot in the context of any write to the object.
    pub seq: u64,
    /// The clones, oldest first.
    pub clones: Vec<CloneEntry>,
}

/// The version of an object that a snapshot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtSnap {
    /// The head.
    Head,
    /// The clone with that id.
    Clone(u64),
    /// The object did not exist at that snapshot.
    Absent,
}

const FORMAT: u8 = 1;

impl SnapSet {
    /// True if nothing needs to be stored.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.seq == 0 && self.clones.is_empty()
    }

    /// Position of a clone in `clones`.
    #[must_use]
    pub fn position(&self, id: u64) -> Option<usize> {
        self.clones.binary_search_by_key(&id, |c| c.id).ok()
    }

    /// The version of the object that `snap` shows.
    #[must_use]
    pub fn resolve(&self, snap: SnapId) -> AtSnap {
        if snap == SnapId::HEAD || snap.0 > self.seq {
            return AtSnap::Head;
        }
        let k = self.clones.partition_point(|c| c.id < snap.0);
        match self.clones.get(k) {
            Some(c) if c.snaps.last().is_some_and(|oldest| *oldest <= snap.0) => AtSnap::Clone(c.id),
            _ => AtSnap::Absent,
        }
    }

    /// Bytes of a clone that no newer version shares (`get_clone_bytes`).
    #[must_use]
    pub fn clone_bytes(&self, at: usize) -> u64 {
        self.clones.get(at).map_or(0, |c| c.size.saturating_sub(c.overlap.bytes()))
    }

    /// Encodes the stored form.
    #[must_use]
    pub fn to_attr(&self) -> Bytes {
        let mut w = Writer::with_capacity(Features::PACIFIC, 16 + self.clones.len() * 48);
        w.u8(FORMAT);
        w.u64(self.seq);
        w.seq(self.clones.iter(), |w, c| {
            w.u64(c.id);
            w.put(&c.snaps);
            w.u64(c.size);
            w.put(&c.overlap);
        });
        w.into_bytes()
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    ///
    /// If the format is unknown, the bytes are too short, or the clones are not ascending.
    pub fn from_attr(b: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(b);
        let format = r.u8()?;
        if format != FORMAT {
            return Err(DecodeError::BadValue { what: "snapset format", value: format.into() });
        }
        let seq = r.u64()?;
        let mut clones = Vec::new();
        for _ in 0..r.count(24, "clones")? {
            clones.push(CloneEntry { id: r.u64()?, snaps: r.get()?, size: r.u64()?, overlap: r.get()? });
        }
        if !clones.is_sorted_by(|a, b| a.id < b.id) {
            return Err(DecodeError::BadValue { what: "snapset order", value: seq });
        }
        Ok(Self { seq, clones })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_resolves_to_head_clone_or_nothing() {
        let clone =
            |id, snaps: &[u64]| CloneEntry { id, snaps: snaps.to_vec(), size: 8, overlap: Intervals::one(0, 4) };
        let ss = SnapSet { seq: 9, clones: vec![clone(4, &[4, 3]), clone(8, &[8])] };
        let at = |s| ss.resolve(SnapId(s));
        assert_eq!(at(2), AtSnap::Absent, "older than the object");
        assert_eq!(at(3), AtSnap::Clone(4));
        assert_eq!(at(4), AtSnap::Clone(4));
        assert_eq!(at(5), AtSnap::Absent, "snapshot was removed");
        assert_eq!(at(8), AtSnap::Clone(8));
        assert_eq!(at(9), AtSnap::Absent, "object was made after it");
        assert_eq!(at(10), AtSnap::Head);
        assert_eq!(ss.resolve(SnapId::HEAD), AtSnap::Head);
        assert_eq!(SnapSet::from_attr(&ss.to_attr()).unwrap(), ss);
        assert_eq!(ss.clone_bytes(0), 4);
    }
}
