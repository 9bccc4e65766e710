//! Encoding of object changes between OSDs: metadata in the body, payloads of writes by reference beside it.
//!
//! Both sides address their own collection of the PG, so the collection is not encoded. Consecutive changes of one
//! object encode its name once. A generation (an object set aside) may only be the target of a clone or a rename;
//! other changes with a generation can't be sent.

use super::payload::{Payload, Segment};
use base::HObject;
use bytes::Bytes;
use store::{Cid, Oid, Op};
use wire::{DecodeError, Reader, Writer};

mod code {
    pub(super) const TOUCH: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const ZERO: u8 = 3;
    pub(super) const TRUNCATE: u8 = 4;
    pub(super) const REMOVE: u8 = 5;
    pub(super) const SET_ATTRS: u8 = 6;
    pub(super) const RM_ATTR: u8 = 7;
    pub(super) const RM_ATTRS: u8 = 8;
    pub(super) const CLONE: u8 = 9;
    pub(super) const CLONE_RANGE: u8 = 10;
    pub(super) const RENAME: u8 = 11;
    pub(super) const OMAP_SET: u8 = 12;
    pub(super) const OMAP_RM_KEYS: u8 = 13;
    pub(super) const OMAP_RM_RANGE: u8 = 14;
    pub(super) const OMAP_CLEAR: u8 = 15;
    pub(super) const OMAP_SET_HEADER: u8 = 16;
    pub(super) const ALLOC_HINT: u8 = 17;
    /// The same two, with a generation as the target.
    pub(super) const CLONE_ASIDE: u8 = 18;
    pub(super) const RENAME_ASIDE: u8 = 19;
    /// Flag: long blobs are in the data segment.
    pub(super) const BULK: u8 = 0x40;
    /// Flag: the object is that of the preceding change.
    pub(super) const SAME: u8 = 0x80;
}

/// Bytes of metadata in a change that may be bulk.
fn bulk_size(op: &Op) -> usize {
    let pairs = |v: &[(Bytes, Bytes)]| v.iter().map(|(k, v)| k.len() + v.len()).sum();
    match op {
        Op::SetAttrs { attrs, .. } => pairs(attrs),
        Op::OmapSet { entries, .. } => pairs(entries),
        Op::OmapRmKeys { keys, .. } => keys.iter().map(Bytes::len).sum(),
        Op::OmapRmRange { first, last, .. } => first.len() + last.len(),
        Op::OmapSetHeader { header, .. } => header.len(),
        _ => 0,
    }
}

/// Encodes changes; payloads of writes and bulk metadata are added to `data`. `None` if a change concerns the collection itself or
/// can't be sent otherwise.
#[must_use]
pub fn encode_ops(ops: &[Op], w: &mut Writer, data: &mut Payload) -> Option<()> {
    w.u32(ops.len() as u32);
    let mut last: Option<&HObject> = None;
    for op in ops {
        let size = bulk_size(op);
        let bulk = size > 0 && data.takes(size, w);
        let blob = |w: &mut Writer, data: &mut Payload, b: &Bytes| if bulk { data.blob(b, w) } else { w.blob(b) };
        let pairs = |w: &mut Writer, data: &mut Payload, v: &[(Bytes, Bytes)]| {
            w.seq(v.iter(), |w, (k, v)| {
                blob(w, data, k);
                blob(w, data, v);
            });
        };
        let (code, oid) = match op {
            Op::Touch { oid, .. } => (code::TOUCH, oid),
            Op::Write { oid, .. } => (code::WRITE, oid),
            Op::Zero { oid, .. } => (code::ZERO, oid),
            Op::Truncate { oid, .. } => (code::TRUNCATE, oid),
            Op::Remove { oid, .. } => (code::REMOVE, oid),
            Op::SetAttrs { oid, .. } => (code::SET_ATTRS, oid),
            Op::RmAttr { oid, .. } => (code::RM_ATTR, oid),
            Op::RmAttrs { oid, .. } => (code::RM_ATTRS, oid),
            Op::Clone { src, dst, .. } => (if is_plain(dst) { code::CLONE } else { code::CLONE_ASIDE }, src),
            Op::CloneRange { src, .. } => (code::CLONE_RANGE, src),
            Op::Rename { src, dst, .. } => (if is_plain(dst) { code::RENAME } else { code::RENAME_ASIDE }, src),
            Op::OmapSet { oid, .. } => (code::OMAP_SET, oid),
            Op::OmapRmKeys { oid, .. } => (code::OMAP_RM_KEYS, oid),
            Op::OmapRmRange { oid, .. } => (code::OMAP_RM_RANGE, oid),
            Op::OmapClear { oid, .. } => (code::OMAP_CLEAR, oid),
            Op::OmapSetHeader { oid, .. } => (code::OMAP_SET_HEADER, oid),
            Op::SetAllocHint { oid, .. } => (code::ALLOC_HINT, oid),
            Op::MakeCollection { .. }
            | Op::MakeBeside { .. }
            | Op::Split { .. }
            | Op::Merge { .. }
            | Op::RemoveCollection { .. }
            | Op::LogAppend { .. }
            | Op::LogTrim { .. }
            | Op::LogRewind { .. }
            | Op::Keep { .. }
            | Op::DropKept { .. }
            | Op::Undo { .. }
            | Op::PgInfo { .. } => return None,
        };
        if !is_plain(oid) || matches!(op, Op::CloneRange { dst, .. } if !is_plain(dst)) {
            return None;
        }
        let code = if bulk { code | code::BULK } else { code };
        if last == Some(&oid.hobj) {
            w.u8(code | code::SAME);
        } else {
            w.u8(code);
            w.put(&oid.hobj);
            last = Some(&oid.hobj);
        }
        match op {
            Op::Write { off, data: d, .. } => {
                w.u64(*off);
                w.u32(d.len() as u32);
                data.push(d);
            }
            Op::Zero { off, len, .. } => {
                w.u64(*off);
                w.u64(*len);
            }
            Op::Truncate { size, .. } => w.u64(*size),
            Op::SetAttrs { attrs, .. } => pairs(w, data, attrs),
            Op::RmAttr { name, .. } => w.blob(name),
            Op::Clone { dst, .. } | Op::Rename { dst, .. } => {
                w.put(&dst.hobj);
                if !is_plain(dst) {
                    w.u64(dst.generation);
                }
            }
            Op::CloneRange { dst, src_off, len, dst_off, .. } => {
                w.put(&dst.hobj);
                w.u64(*src_off);
                w.u64(*len);
                w.u64(*dst_off);
            }
            Op::OmapSet { entries, .. } => pairs(w, data, entries),
            Op::OmapRmKeys { keys, .. } => w.seq(keys.iter(), |w, k| blob(w, data, k)),
            Op::OmapRmRange { first, last, .. } => {
                blob(w, data, first);
                blob(w, data, last);
            }
            Op::OmapSetHeader { header, .. } => blob(w, data, header),
            Op::SetAllocHint { object_size, write_size, flags, .. } => {
                w.u64(*object_size);
                w.u64(*write_size);
                w.u32(*flags);
            }
            _ => {}
        }
    }
    Some(())
}

/// True for the code of a write in an encoded change.
pub(super) fn is_write(code: u8) -> bool {
    code & !code::SAME == code::WRITE
}

/// True if the object is not a generation.
fn is_plain(oid: &Oid) -> bool {
    oid.generation == Oid::NO_GEN
}

fn aside(r: &mut Reader<'_>) -> Result<Oid, DecodeError> {
    let oid = Oid::new(r.get()?);
    Ok(oid.at_generation(r.u64()?))
}

/// Decodes changes, addressed to collection `cid`; payloads are slices of `data`.
///
/// # Errors
///
/// If the bytes are malformed or a payload is beyond `data`.
pub fn decode_ops(r: &mut Reader<'_>, cid: Cid, data: &Bytes) -> Result<Vec<Op>, DecodeError> {
    let mut last: Option<Oid> = None;
    let mut data = Segment::new(data);
    let named = Oid::new;
    r.vec_with("changes", |r| {
        let c = r.u8()?;
        let oid = if c & code::SAME != 0 {
            last.clone().ok_or(DecodeError::BadValue { what: "change without object", value: c.into() })?
        } else {
            let oid = named(r.get()?);
            last = Some(oid.clone());
            oid
        };
        let bulk = c & code::BULK != 0;
        let mut blob = |r: &mut Reader<'_>| if bulk { data.blob(r) } else { r.blob() };
        let mut pairs = |r: &mut Reader<'_>| r.vec_with("pairs", |r| Ok((blob(r)?, blob(r)?)));
        let plain = c & !(code::SAME | code::BULK);
        // Only metadata may be bulk.
        let may = matches!(plain, code::SET_ATTRS | code::OMAP_SET..=code::OMAP_RM_RANGE | code::OMAP_SET_HEADER);
        if bulk && !may {
            return Err(DecodeError::BadValue { what: "kind of change", value: c.into() });
        }
        Ok(match plain {
            code::TOUCH => Op::Touch { cid, oid },
            code::WRITE => {
                let (off, len) = (r.u64()?, r.u32()? as usize);
                let d = data.take(len, "payload of a write")?;
                Op::Write { cid, oid, off, data: d, sums: None }
            }
            code::ZERO => Op::Zero { cid, oid, off: r.u64()?, len: r.u64()? },
            code::TRUNCATE => Op::Truncate { cid, oid, size: r.u64()? },
            code::REMOVE => Op::Remove { cid, oid },
            code::SET_ATTRS => Op::SetAttrs { cid, oid, attrs: pairs(r)? },
            code::RM_ATTR => Op::RmAttr { cid, oid, name: r.blob()? },
            code::RM_ATTRS => Op::RmAttrs { cid, oid },
            code::CLONE => Op::Clone { cid, src: oid, dst: named(r.get()?) },
            code::CLONE_ASIDE => Op::Clone { cid, src: oid, dst: aside(r)? },
            code::CLONE_RANGE => Op::CloneRange {
                cid,
                src: oid,
                dst: named(r.get()?),
                src_off: r.u64()?,
                len: r.u64()?,
                dst_off: r.u64()?,
            },
            code::RENAME => Op::Rename { cid, src: oid, dst: named(r.get()?) },
            code::RENAME_ASIDE => Op::Rename { cid, src: oid, dst: aside(r)? },
            code::OMAP_SET => Op::OmapSet { cid, oid, entries: pairs(r)? },
            code::OMAP_RM_KEYS => Op::OmapRmKeys { cid, oid, keys: r.vec_with("keys", |r| blob(r))? },
            code::OMAP_RM_RANGE => Op::OmapRmRange { cid, oid, first: blob(r)?, last: blob(r)? },
            code::OMAP_CLEAR => Op::OmapClear { cid, oid },
            code::OMAP_SET_HEADER => Op::OmapSetHeader { cid, oid, header: blob(r)? },
            code::ALLOC_HINT => {
                Op::SetAllocHint { cid, oid, object_size: r.u64()?, write_size: r.u64()?, flags: r.u32()? }
            }
            _ => return Err(DecodeError::BadValue { what: "kind of change", value: c.into() }),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::may_be_sent;
    use super::*;
    use base::{PgId, SnapId};
    use wire::Features;
    use wire::msg::PeerFeatures;

    #[test]
    fn changes_round_trip_and_payloads_are_not_in_the_body() {
        let cid = Cid::Pg(PgId::new(3, 1).into());
        let a = Oid::new(HObject { oid: Bytes::from_static(b"a"), ..HObject::min() }.head());
        let b = Oid::new(a.hobj.at_snap(SnapId(4)));
        let kv = vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))];
        let ops = vec![
            Op::Clone { cid, src: a.clone(), dst: b.clone() },
            Op::Write { cid, oid: a.clone(), off: 9, data: Bytes::from_static(b"first"), sums: None },
            Op::Write { cid, oid: b.clone(), off: 1, data: Bytes::from_static(b"second"), sums: None },
            Op::Write { cid, oid: b.clone(), off: 1, data: Bytes::new(), sums: None },
            Op::CloneRange { cid, src: a.clone(), dst: b.clone(), src_off: 1, len: 2, dst_off: 3 },
            Op::SetAttrs { cid, oid: b.clone(), attrs: kv.clone() },
            Op::OmapSet { cid, oid: b.clone(), entries: kv },
            Op::OmapRmKeys { cid, oid: b.clone(), keys: vec![Bytes::from_static(b"k")] },
            Op::SetAllocHint { cid, oid: a.clone(), object_size: 1, write_size: 2, flags: 3 },
            Op::Clone { cid, src: a.clone(), dst: a.at_generation(6) },
            Op::Rename { cid, src: a.clone(), dst: a.at_generation(7) },
            Op::Rename { cid, src: a.clone(), dst: b.clone() },
            Op::Remove { cid, oid: a.clone() },
        ];
        let (mut w, mut data) = (Writer::new(Features::PACIFIC), Payload::new(PeerFeatures::NONE));
        encode_ops(&ops, &mut w, &mut data).unwrap();
        let (body, data) = (w.into_bytes(), data.join());
        assert_eq!(&data[..], b"firstsecond");
        assert_eq!(decode_ops(&mut Reader::shared(&body), cid, &data).unwrap(), ops);
        for n in 0..body.len() {
            assert!(decode_ops(&mut Reader::shared(&body.slice(..n)), cid, &data).is_err());
        }
        assert!(decode_ops(&mut Reader::shared(&body), cid, &data.slice(..7)).is_err());
        // Changes that would lose their generation in the encoding are refused.
        let aside = a.at_generation(6);
        for op in [Op::Remove { cid, oid: aside.clone() }, Op::Rename { cid, src: aside, dst: a }] {
            assert!(
                encode_ops(&[op], &mut Writer::new(Features::PACIFIC), &mut Payload::new(PeerFeatures::OURS)).is_none()
            );
        }
    }

    fn coded(ops: &[Op], to: PeerFeatures) -> (Bytes, Bytes) {
        let (mut w, mut data) = (Writer::new(Features::PACIFIC), Payload::new(to));
        encode_ops(ops, &mut w, &mut data).unwrap();
        (w.into_bytes(), data.join())
    }

    #[test]
    fn bulk_metadata_is_beside_the_body_and_small_metadata_as_ever() {
        let cid = Cid::Pg(PgId::new(3, 1).into());
        let oid = Oid::new(HObject { oid: Bytes::from_static(b"a"), ..HObject::min() }.head());
        let many = |n: usize, len: usize| (0..n).map(|i| Bytes::from(vec![i as u8; len])).collect::<Vec<Bytes>>();
        let pairs = |n: usize, len: usize| many(n, 5).into_iter().zip(many(n, len)).collect::<Vec<_>>();
        let write =
            |len: usize| Op::Write { cid, oid: oid.clone(), off: 0, data: Bytes::from(vec![7; len]), sums: None };
        let large = vec![
            write(9),
            Op::SetAttrs { cid, oid: oid.clone(), attrs: pairs(1, 3 << 20) },
            Op::OmapSet { cid, oid: oid.clone(), entries: pairs(70, 1 << 20) },
            write(3),
            Op::OmapRmKeys { cid, oid: oid.clone(), keys: many(3, 1 << 20) },
            Op::OmapRmRange { cid, oid: oid.clone(), first: Bytes::new(), last: Bytes::from(vec![9; 1 << 20]) },
            Op::OmapSetHeader { cid, oid: oid.clone(), header: Bytes::from(vec![9; 1 << 20]) },
            Op::OmapSet { cid, oid: oid.clone(), entries: pairs(60_000, 40) },
        ];
        let (body, data) = coded(&large, PeerFeatures::OURS);
        assert!(body.len() < 4 << 20 && data.len() > 76 << 20, "{} {}", body.len(), data.len());
        assert!(may_be_sent(&(body.clone(), data.clone())));
        assert_eq!(decode_ops(&mut Reader::shared(&body), cid, &data).unwrap(), large);
        assert!(decode_ops(&mut Reader::shared(&body), cid, &data.slice(1..)).is_err());
        // A receiver of the version before gets all metadata in the body.
        let (body, data) = coded(&large, PeerFeatures::NONE);
        assert_eq!((data.len(), may_be_sent(&(body.clone(), data.clone()))), (12, false));
        assert_eq!(decode_ops(&mut Reader::shared(&body), cid, &data).unwrap(), large);
        let small = [write(5), Op::SetAttrs { cid, oid, attrs: pairs(3, 1000) }];
        assert_eq!(coded(&small, PeerFeatures::OURS), coded(&small, PeerFeatures::NONE));
    }
}
