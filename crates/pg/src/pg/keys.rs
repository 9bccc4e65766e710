//! Keys in the omaps of the PG's own objects: the missing set, and the snapshot index.

use crate::exec::index_key;
use crate::object::SnapSet;
use base::{Eversion, HObject, SnapId};
use bytes::Bytes;
use store::{Cid, Oid, Op};
use wire::{Encode as _, Features};

/// Key of an object in the stored missing set.
pub(in crate::pg) fn missing_key(head: &HObject) -> Bytes {
    head.to_bytes(Features::PACIFIC)
}

/// Stores that objects are missing as of these versions; `oid`: [`Pg::meta_missing`].
pub(in crate::pg) fn set_missing<'a>(
    cid: Cid,
    oid: Oid,
    what: impl IntoIterator<Item = (&'a HObject, &'a Eversion)>,
) -> Op {
    let entries = what.into_iter().map(|(h, v)| (missing_key(h), v.to_bytes(Features::PACIFIC))).collect();
    Op::OmapSet { cid, oid, entries }
}

/// Keys of an object's clones in the snapshot index, derived from its snapset.
pub(in crate::pg) fn index_keys<'a>(head: &'a HObject, ss: &'a SnapSet) -> impl Iterator<Item = Bytes> + 'a {
    ss.clones.iter().flat_map(move |c| {
        let clone = head.at_snap(SnapId(c.id));
        c.snaps.iter().map(move |s| index_key(*s, &clone))
    })
}
