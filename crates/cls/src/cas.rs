//! Class `cas`: content-addressed chunks, reference-counted by the objects that use them.
//!
//! Stored: the chunk as the object's data; xattr `chunk_refs`: ENCODE(1,1){u8 kind, references}. Kind 1 lists the
//! referring objects (with repetitions), kind 5 has only their number. Ceph's tools can reduce a long list to sums by
//! hash or pool (kinds 2 and 4). The class itself never does, and those kinds are unsupported here (`EIO`).

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{enc, fail, input, stored};
use base::HObject;
use base::errno::{ENODATA, ENOENT, ENOLINK, ENOMSG};
use bytes::Bytes;
use wire::codec::Result as Decoded;
use wire::{DecodeError, Reader, Writer};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("chunk_create_or_get_ref", create_or_get),
    Method::rdwr("chunk_get_ref", get),
    Method::rdwr("chunk_put_ref", put),
    Method::rd("references_chunk", references_chunk),
];

const ATTR: &[u8] = b"chunk_refs";
/// Flag: compare the data if the chunk exists.
const VERIFY: u64 = 1;

const BY_OBJECT: u8 = 1;
const COUNT: u8 = 5;

/// `chunk_refs_t`.
enum Refs {
    /// Referring objects, sorted; an object occurs once for each of its references.
    Objects(Vec<HObject>),
    Count(u64),
}

impl Refs {
    fn load(c: &mut dyn ObjectCtx) -> ClsResult<Self> {
        match c.getxattr(ATTR) {
            Err(e) if e.is(ENODATA) => Ok(Self::Objects(Vec::new())),
            b => stored(&b?, Self::decode),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("chunk_refs_t", 1, |r, _| match r.u8()? {
            BY_OBJECT => r.versioned("chunk_refs_by_object_t", 1, |r, _| Ok(Self::Objects(r.get()?))),
            COUNT => r.versioned("chunk_refs_count_t", 1, |r, _| Ok(Self::Count(r.u64()?))),
            k => Err(DecodeError::BadValue { what: "chunk_refs_t kind", value: k.into() }),
        })
    }

    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| match self {
            Self::Objects(all) => {
                w.u8(BY_OBJECT);
                w.versioned(1, 1, |w| w.put(all));
            }
            Self::Count(n) => {
                w.u8(COUNT);
                w.versioned(1, 1, |w| w.u64(*n));
            }
        });
    }

    fn save(&self, c: &mut dyn ObjectCtx) -> ClsResult<Output> {
        c.setxattr(ATTR, &enc(|w| self.encode(w))).map(Output::from)
    }

    fn add(&mut self, o: HObject) {
        match self {
            Self::Objects(all) => all.insert(all.partition_point(|x| *x <= o), o),
            Self::Count(n) => *n = n.saturating_add(1),
        }
    }

    /// Removes a reference; false if there is none.
    fn remove(&mut self, o: &HObject) -> bool {
        match self {
            Self::Objects(all) => match all.iter().position(|x| x == o) {
                Some(at) => {
                    all.remove(at);
                    true
                }
                None => false,
            },
            Self::Count(0) => false,
            Self::Count(n) => {
                *n -= 1;
                true
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Objects(all) => all.is_empty(),
            Self::Count(n) => *n == 0,
        }
    }
}

fn source(i: &Bytes) -> ClsResult<HObject> {
    input(i, |r| r.versioned("cls_cas_chunk_op", 1, |r, _| r.get()))
}

fn create_or_get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (source, flags, data) = input(i, |r| {
        r.versioned("cls_cas_chunk_create_or_get_ref_op", 1, |r, _| Ok((r.get::<HObject>()?, r.u64()?, r.blob()?)))
    })?;
    let mut refs = match Refs::load(c) {
        Err(e) if e.is(ENOENT) => {
            c.write_full(&data)?;
            Refs::Objects(Vec::new())
        }
        r => {
            let refs = r?;
            if flags & VERIFY != 0 && c.read(0, 0)? != data {
                return fail(ENOMSG);
            }
            refs
        }
    };
    refs.add(source);
    refs.save(c)
}

fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let source = source(i)?;
    let mut refs = Refs::load(c)?;
    refs.add(source);
    refs.save(c)
}

fn put(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let source = source(i)?;
    let mut refs = Refs::load(c)?;
    if !refs.remove(&source) {
        return fail(ENOLINK);
    }
    if refs.is_empty() { c.remove().map(Output::from) } else { refs.save(c) }
}

/// Whether this object refers to the given chunk. Never true here: manifest objects (`SET_CHUNK`) are refused.
fn references_chunk(_: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    input(i, |r| r.blob())?;
    fail(ENOLINK)
}
