//! Undo data of a transaction on a shard: stored in the record of its newest entry, and applied when the entry is
//! divergent.
//!
//! The store keeps replaced blocks ([`Op::Keep`]). An object that is removed, or replaced as a whole, is set aside
//! with the version as its generation. Old values of changed attributes are in the record itself, since all shards
//! have the same.
//!
//! Invariant: undoing transactions, newest first, restores every object to its state before them.
//!
//! Tests: `tests/coded_deferred.rs` (`a_write_that_one_shard_lacks_is_undone_and_earlier_ones_stay`),
//! `tests/coded_attack.rs`.

use ::ec::Layout;
use base::{Eversion, HObject};
use bytes::Bytes;
use store::{Cid, Oid, Op};
use wire::{DecodeError, Features, Reader, Writer};

/// Undo data of one object or of the snapshot index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pg) enum Undo {
    /// The object did not exist.
    Made(HObject),
    /// The object was set aside under the entry's generation.
    Aside(HObject),
    /// The store keeps the object's blocks. `size`: bytes of the object; `attrs`: changed attributes with their old
    /// values.
    Kept { oid: HObject, size: u64, attrs: Vec<(Bytes, Option<Bytes>)> },
    /// Keys that were added to the snapshot index.
    KeysSet(Vec<Bytes>),
    /// Keys that were removed from the snapshot index.
    KeysRemoved(Vec<Bytes>),
}

/// Name of an object set aside.
pub(in crate::pg) fn aside(oid: &HObject, v: Eversion) -> Oid {
    Oid::new(oid.clone()).at_generation(v.version)
}

/// Encodes the stored form.
pub(in crate::pg) fn encode(all: &[Undo]) -> Bytes {
    let mut w = Writer::with_capacity(Features::PACIFIC, 256);
    w.seq(all.iter(), |w, u| match u {
        Undo::Made(o) => {
            w.u8(1);
            w.put(o);
        }
        Undo::Aside(o) => {
            w.u8(2);
            w.put(o);
        }
        Undo::Kept { oid, size, attrs } => {
            w.u8(3);
            w.put(oid);
            w.u64(*size);
            w.seq(attrs.iter(), |w, (k, v)| {
                w.blob(k);
                w.bool(v.is_some());
                if let Some(v) = v {
                    w.blob(v);
                }
            });
        }
        Undo::KeysSet(keys) | Undo::KeysRemoved(keys) => {
            w.u8(if matches!(u, Undo::KeysSet(_)) { 4 } else { 5 });
            w.seq(keys.iter(), |w, k| w.blob(k));
        }
    });
    w.into_bytes()
}

/// Decodes the stored form.
///
/// # Errors
///
/// If the bytes are malformed.
pub(in crate::pg) fn decode(b: &Bytes) -> Result<Vec<Undo>, DecodeError> {
    let mut r = Reader::shared(b);
    r.vec_with("undo", |r| {
        Ok(match r.u8()? {
            1 => Undo::Made(r.get()?),
            2 => Undo::Aside(r.get()?),
            3 => Undo::Kept {
                oid: r.get()?,
                size: r.u64()?,
                attrs: r.vec_with("attributes", |r| {
                    let name = r.blob()?;
                    Ok((name, if r.bool()? { Some(r.blob()?) } else { None }))
                })?,
            },
            4 => Undo::KeysSet(r.vec_with("keys", |r| r.blob())?),
            5 => Undo::KeysRemoved(r.vec_with("keys", |r| r.blob())?),
            v => return Err(DecodeError::BadValue { what: "kind of undo", value: v.into() }),
        })
    })
}

/// The changes that remove what the transaction of `version` set aside.
pub(in crate::pg) fn forget(all: &[Undo], version: Eversion, cid: Cid) -> impl Iterator<Item = Op> + '_ {
    all.iter().filter_map(move |u| match u {
        Undo::Aside(o) => Some(Op::Remove { cid, oid: aside(o, version) }),
        _ => None,
    })
}

/// The changes that undo the transaction of `version` on shard `shard`; `meta` is the object with the snapshot index.
pub(in crate::pg) fn ops(
    all: &[Undo],
    version: Eversion,
    cid: Cid,
    meta: &Oid,
    layout: &Layout,
    shard: usize,
) -> Vec<Op> {
    let mut out = Vec::new();
    for u in all.iter().rev() {
        match u {
            Undo::Made(o) => out.push(Op::Remove { cid, oid: Oid::new(o.clone()) }),
            Undo::Aside(o) => {
                out.push(Op::Remove { cid, oid: Oid::new(o.clone()) });
                out.push(Op::Rename { cid, src: aside(o, version), dst: Oid::new(o.clone()) });
            }
            Undo::Kept { oid, size, attrs } => {
                let oid = Oid::new(oid.clone());
                out.push(Op::Undo { cid, oid: oid.clone(), version });
                out.push(Op::Truncate { cid, oid: oid.clone(), size: layout.shard_len(*size, shard) });
                let old: Vec<_> = attrs.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?))).collect();
                out.extend(attrs.iter().filter(|(_, v)| v.is_none()).map(|(name, _)| Op::RmAttr {
                    cid,
                    oid: oid.clone(),
                    name: name.clone(),
                }));
                if !old.is_empty() {
                    out.push(Op::SetAttrs { cid, oid, attrs: old });
                }
            }
            Undo::KeysSet(keys) => out.push(Op::OmapRmKeys { cid, oid: meta.clone(), keys: keys.clone() }),
            Undo::KeysRemoved(keys) => {
                let entries = keys.iter().map(|k| (k.clone(), Bytes::new())).collect();
                out.push(Op::OmapSet { cid, oid: meta.clone(), entries });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_round_trips_and_is_refused_when_cut() {
        let o = HObject { oid: Bytes::from_static(b"a"), ..HObject::min() }.head();
        let key = Bytes::from_static(b"k");
        let all = vec![
            Undo::Made(o.clone()),
            Undo::Aside(o.clone()),
            Undo::Kept { oid: o, size: 7, attrs: vec![(key.clone(), None), (key.clone(), Some(key.clone()))] },
            Undo::KeysSet(vec![key.clone()]),
            Undo::KeysRemoved(vec![key]),
        ];
        let b = encode(&all);
        assert_eq!(decode(&b).unwrap(), all);
        for n in 0..b.len() {
            assert!(decode(&b.slice(..n)).is_err());
        }
    }
}
