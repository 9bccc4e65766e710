//! Class `refcount`: reference-counted objects; the last `put` removes the object.
//!
//! Stored: xattr `refcount`: `ENCODE(2,1){map<tag, bool>, set<retired tag>}`. A retired tag is put only once, so that a
//! repeated `put` is harmless. With `implicit_ref` an object without the xattr has one reference, by the empty tag.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{enc, fail, input, stored};
use base::errno::{EINVAL, ENODATA};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] =
    &[Method::rdwr("get", get), Method::rdwr("put", put), Method::rd("read", read), Method::rdwr("set", set)];

const ATTR: &[u8] = b"refcount";
/// Tag of the implicit reference.
const WILDCARD: Bytes = Bytes::new();

#[derive(Debug, Default)]
struct Refs {
    refs: BTreeMap<Bytes, bool>,
    retired: BTreeSet<Bytes>,
}

fn load(c: &mut dyn ObjectCtx, implicit: bool) -> ClsResult<Refs> {
    match c.getxattr(ATTR) {
        Err(e) if e.is(ENODATA) => {
            let mut r = Refs::default();
            if implicit {
                r.refs.insert(WILDCARD, true);
            }
            Ok(r)
        }
        b => stored(&b?, |r| {
            r.versioned("obj_refcount", 2, |r, v| {
                Ok(Refs { refs: r.get()?, retired: if v >= 2 { r.get()? } else { BTreeSet::new() } })
            })
        }),
    }
}

fn save(c: &mut dyn ObjectCtx, r: &Refs) -> ClsResult<()> {
    let b = enc(|w| {
        w.versioned(2, 1, |w| {
            w.put(&r.refs);
            w.put(&r.retired);
        });
    });
    c.setxattr(ATTR, &b)
}

fn tag_and_implicit(i: &Bytes) -> ClsResult<(Bytes, bool)> {
    input(i, |r| r.versioned("cls_refcount_op", 1, |r, _| Ok((r.blob()?, r.bool()?))))
}

fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (tag, implicit) = tag_and_implicit(i)?;
    let mut r = load(c, implicit)?;
    r.refs.insert(tag, true);
    save(c, &r).map(Output::from)
}

fn put(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (tag, implicit) = tag_and_implicit(i)?;
    let mut r = load(c, implicit)?;
    if r.refs.is_empty() {
        return fail(EINVAL);
    }
    let known = if r.refs.contains_key(&tag) {
        tag.clone()
    } else if implicit && r.refs.contains_key(&WILDCARD) {
        WILDCARD
    } else {
        return Ok(Output::default());
    };
    if !r.retired.insert(tag) {
        return Ok(Output::default());
    }
    r.refs.remove(&known);
    if r.refs.is_empty() { c.remove() } else { save(c, &r) }.map(Output::from)
}

fn set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let tags: Vec<Bytes> = input(i, |r| r.versioned("cls_refcount_set_op", 1, |r, _| r.get()))?;
    if tags.is_empty() {
        return c.remove().map(Output::from);
    }
    let refs = tags.into_iter().map(|t| (t, true)).collect();
    save(c, &Refs { refs, retired: BTreeSet::new() }).map(Output::from)
}

fn read(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let implicit = input(i, |r| r.versioned("cls_refcount_read_op", 1, |r, _| r.bool()))?;
    let tags: Vec<Bytes> = load(c, implicit)?.refs.into_keys().collect();
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&tags))).into())
}
