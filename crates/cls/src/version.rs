//! Class `version`: a version (number and tag) of an object, with conditions on it.
//!
//! Stored: xattr `ceph.objclass.version` with an `obj_version`.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{enc, fail, input, optional, stored};
use base::errno::ECANCELED;
use bytes::Bytes;
use wire::codec::Result as Decoded;
use wire::{Reader, Writer};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rd("check_conds", check_conds),
    Method::rdwr("inc", inc),
    Method::rdwr("inc_conds", inc),
    Method::rd("read", read),
    Method::rdwr("set", set),
];

const ATTR: &[u8] = b"ceph.objclass.version";
/// Length of a new random tag.
const TAG_LEN: usize = 24;

/// `obj_version`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ObjVersion {
    ver: u64,
    tag: Bytes,
}

impl ObjVersion {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u64(self.ver);
            w.blob(&self.tag);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("obj_version", 1, |r, _| Ok(Self { ver: r.u64()?, tag: r.blob()? }))
    }
}

/// `obj_version_cond`: a version, and the comparison with the object's that must hold.
struct Cond {
    than: ObjVersion,
    how: u32,
}

impl Cond {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("obj_version_cond", 1, |r, _| Ok(Self { than: ObjVersion::decode(r)?, how: r.u32()? }))
    }

    fn holds(&self, v: &ObjVersion) -> bool {
        let o = &self.than;
        match self.how {
            1 => v == o,
            2 => v.ver > o.ver,
            3 => v.ver >= o.ver,
            4 => v.ver < o.ver,
            5 => v.ver <= o.ver,
            6 => v.tag == o.tag,
            7 => v.tag != o.tag,
            _ => true,
        }
    }
}

fn decode_conds(i: &Bytes) -> ClsResult<Vec<Cond>> {
    input(i, |r| {
        r.versioned("cls_version_check_op", 1, |r, _| {
            ObjVersion::decode(r)?;
            r.vec_with("obj_version_cond", Cond::decode)
        })
    })
}

fn check(conds: &[Cond], v: &ObjVersion) -> ClsResult<()> {
    if conds.iter().all(|k| k.holds(v)) { Ok(()) } else { fail(ECANCELED) }
}

fn read_version(c: &mut dyn ObjectCtx) -> ClsResult<Option<ObjVersion>> {
    optional(c.getxattr(ATTR))?.map(|b| stored(&b, ObjVersion::decode)).transpose()
}

fn write_version(c: &mut dyn ObjectCtx, v: &ObjVersion) -> ClsResult<()> {
    c.setxattr(ATTR, &enc(|w| v.encode(w)))
}

/// Random letters of the base64 alphabet.
pub(crate) fn random_base64(c: &mut dyn ObjectCtx, len: usize) -> Bytes {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(len + 8);
    while text.len() < len {
        let mut bits = c.random();
        for _ in 0..8 {
            text.push(LETTERS[(bits & 63) as usize]);
            bits >>= 6;
        }
    }
    text.truncate(len);
    text.into()
}

fn set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let v = input(i, |r| r.versioned("cls_version_set_op", 1, |r, _| ObjVersion::decode(r)))?;
    write_version(c, &v).map(Output::from)
}

fn inc(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let conds = decode_conds(i)?;
    let mut v = match read_version(c)? {
        Some(v) => v,
        None => ObjVersion { ver: 1, tag: random_base64(c, TAG_LEN) },
    };
    check(&conds, &v)?;
    v.ver = v.ver.wrapping_add(1);
    write_version(c, &v).map(Output::from)
}

fn check_conds(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let conds = decode_conds(i)?;
    let v = read_version(c)?.unwrap_or_default();
    check(&conds, &v).map(Output::from)
}

fn read(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let v = read_version(c)?.unwrap_or_default();
    Ok(enc(|w| w.versioned(1, 1, |w| v.encode(w))).into())
}
