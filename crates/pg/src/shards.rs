//! The copies of a PG: whole ones on some OSDs, or shards, each at its index.
//!
//! A map lists the OSDs of a PG. In an erasure-coded pool the index in that list is the shard, and an entry may be a
//! hole ([`OsdId::NONE`]). One OSD may hold several shards of a PG for a time: its present one, and those of earlier
//! intervals.

use base::{OsdId, PgId, ShardId, SpgId};
use std::fmt;

/// One copy of a PG: an OSD and its shard (`pg_shard_t`); [`ShardId::NONE`] for a whole copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    /// The OSD.
    pub osd: OsdId,
    /// Shard of the copy.
    pub shard: ShardId,
}

impl PeerId {
    /// A placeholder for no copy.
    pub const NONE: Self = Self { osd: OsdId::NONE, shard: ShardId::NONE };

    /// The PG's name with the shard of this copy.
    #[must_use]
    pub fn spg(self, pg: PgId) -> SpgId {
        SpgId { pg, shard: self.shard }
    }
}

impl From<OsdId> for PeerId {
    fn from(osd: OsdId) -> Self {
        Self { osd, shard: ShardId::NONE }
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.osd.fmt(f)?;
        if self.shard != ShardId::NONE {
            write!(f, "({})", self.shard.0)?;
        }
        Ok(())
    }
}

/// An up or acting set: the copies in it, without the holes.
#[derive(Clone, Copy, Debug)]
pub struct ShardSet<'a> {
    osds: &'a [OsdId],
    coded: bool,
}

impl<'a> ShardSet<'a> {
    /// The set of a map's list of OSDs; `coded`: the index is the shard.
    #[must_use]
    pub fn new(osds: &'a [OsdId], coded: bool) -> Self {
        Self { osds, coded }
    }

    fn id(self, at: usize, osd: OsdId) -> PeerId {
        let shard = if self.coded { ShardId(i8::try_from(at).unwrap_or(i8::MAX)) } else { ShardId::NONE };
        PeerId { osd, shard }
    }

    /// All copies, in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = PeerId> + 'a {
        let there = |(_, o): &(usize, OsdId)| *o != OsdId::NONE;
        self.osds.iter().copied().enumerate().filter(there).map(move |(at, o)| self.id(at, o))
    }

    /// Number of copies.
    #[must_use]
    pub fn len(self) -> usize {
        self.osds.iter().filter(|o| **o != OsdId::NONE).count()
    }

    /// Number of entries, holes included.
    #[must_use]
    pub fn places(self) -> usize {
        self.osds.len()
    }

    /// True if there is no copy.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// True if that copy is in the set.
    #[must_use]
    pub fn contains(self, p: PeerId) -> bool {
        self.iter().any(|x| x == p)
    }

    /// The first copy on an OSD.
    #[must_use]
    pub fn on(self, osd: OsdId) -> Option<PeerId> {
        self.iter().find(|p| p.osd == osd)
    }

    /// The OSDs without holes, each once.
    #[must_use]
    pub fn osds(self) -> Vec<OsdId> {
        let mut all: Vec<OsdId> = Vec::with_capacity(self.osds.len());
        for p in self.iter() {
            if !all.contains(&p.osd) {
                all.push(p.osd);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_a_shard_and_a_hole_is_no_copy() {
        let list = [OsdId(4), OsdId::NONE, OsdId(2)];
        let s = ShardSet::new(&list, true);
        let at = |osd, shard| PeerId { osd: OsdId(osd), shard: ShardId(shard) };
        assert_eq!(s.iter().collect::<Vec<_>>(), [at(4, 0), at(2, 2)]);
        assert!(s.len() == 2 && s.contains(at(2, 2)) && !s.contains(at(2, 1)));
        assert_eq!((s.on(OsdId(2)), s.on(OsdId::NONE)), (Some(at(2, 2)), None));
        let s = ShardSet::new(&list[2..], false);
        assert_eq!(s.iter().collect::<Vec<_>>(), [PeerId::from(OsdId(2))]);
        assert_eq!((at(2, 1).to_string(), PeerId::from(OsdId(2)).to_string()), ("osd.2(1)".into(), "osd.2".into()));
    }
}
