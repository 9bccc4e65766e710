//! Snapshots of format 1 images, whose header is stored as object data.
//!
//! Layout (`rbd_types.h`: `rbd_obj_header_ondisk`, 112 bytes, little-endian): u64 image size at 80, u64 snap seq at 88,
//! u32 snap count at 96, u64 length of the names at 104; then per snapshot {u64 id, u64 size}, then the names, each
//! ended by NUL. The newest snapshot is first.

use super::get;
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input};
use base::errno::{EDQUOT, EEXIST, EINVAL, EIO, ENOENT, ESTALE};
use bytes::Bytes;
use wire::Reader;

const HEADER_LEN: usize = 112;
const SNAP_LEN: usize = 16;
const IMAGE_SIZE_AT: usize = 80;
const SNAP_SEQ_AT: usize = 88;
const SNAP_COUNT_AT: usize = 96;
const NAMES_LEN_AT: usize = 104;

struct Snap {
    id: u64,
    size: u64,
    name: Vec<u8>,
}

struct Header {
    fixed: Vec<u8>,
    snaps: Vec<Snap>,
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    b.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// Number of snapshots in a format 1 header; `None` if the data is too short to be one.
pub(super) fn snap_count(header: &[u8]) -> Option<u32> {
    u64_at(header, NAMES_LEN_AT)?;
    u32_at(header, SNAP_COUNT_AT)
}

impl Header {
    fn load(c: &mut dyn ObjectCtx) -> ClsResult<Self> {
        let b = c.read(0, HEADER_LEN as u64)?;
        let (Some(count), Some(names_len)) = (u32_at(&b, SNAP_COUNT_AT), u64_at(&b, NAMES_LEN_AT)) else {
            return fail(EINVAL);
        };
        let fixed = b.to_vec();
        let ids_len = count as usize * SNAP_LEN;
        if count == 0 {
            return Ok(Self { fixed, snaps: Vec::new() });
        }
        let b = c.read(HEADER_LEN as u64, (ids_len as u64).saturating_add(names_len))?;
        let (Some(ids), Some(names)) = (b.get(..ids_len), b.get(ids_len..)) else { return fail(EIO) };
        let mut names = names.split(|b| *b == 0);
        let mut snaps = Vec::new();
        let mut r = Reader::new(ids);
        while let (Ok(id), Ok(size)) = (r.u64(), r.u64()) {
            let Some(name) = names.next() else { return fail(EIO) };
            snaps.push(Snap { id, size, name: name.to_vec() });
        }
        Ok(Self { fixed, snaps })
    }

    fn store(mut self, c: &mut dyn ObjectCtx) -> ClsResult<Output> {
        let names_len: usize = self.snaps.iter().map(|s| s.name.len() + 1).sum();
        self.fixed[SNAP_COUNT_AT..SNAP_COUNT_AT + 4].copy_from_slice(&(self.snaps.len() as u32).to_le_bytes());
        self.fixed[NAMES_LEN_AT..NAMES_LEN_AT + 8].copy_from_slice(&(names_len as u64).to_le_bytes());
        let mut b = self.fixed;
        for s in &self.snaps {
            b.extend_from_slice(&s.id.to_le_bytes());
            b.extend_from_slice(&s.size.to_le_bytes());
        }
        for s in &self.snaps {
            b.extend_from_slice(&s.name);
            b.push(0);
        }
        c.write_full(&b).map(Output::from)
    }

    fn named(&self, name: &[u8]) -> Option<usize> {
        self.snaps.iter().position(|s| s.name == name)
    }
}

/// A name truncated at its first NUL, as the format can store it.
fn c_string(name: &[u8]) -> Vec<u8> {
    name.split(|b| *b == 0).next().unwrap_or_default().to_vec()
}

pub(super) fn list(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let h = Header::load(c)?;
    Ok(enc(|w| {
        w.u64(u64_at(&h.fixed, SNAP_SEQ_AT).unwrap_or(0));
        w.seq(h.snaps.iter(), |w, s| {
            w.u64(s.id);
            w.u64(s.size);
            w.blob(&s.name);
        });
    })
    .into())
}

pub(super) fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let mut h = Header::load(c)?;
    let (name, id) = input(i, |r| Ok((c_string(&r.blob()?), r.u64()?)))?;
    if u64_at(&h.fixed, SNAP_SEQ_AT).is_some_and(|seq| seq > id) {
        return fail(ESTALE);
    }
    let limit = get::<u64>(c, b"snap_limit")?.unwrap_or(u64::MAX);
    if h.snaps.len() as u64 >= limit {
        return fail(EDQUOT);
    }
    if h.named(&name).is_some() {
        return fail(EEXIST);
    }
    let size = u64_at(&h.fixed, IMAGE_SIZE_AT).unwrap_or(0);
    h.fixed[SNAP_SEQ_AT..SNAP_SEQ_AT + 8].copy_from_slice(&id.to_le_bytes());
    h.snaps.insert(0, Snap { id, size, name });
    h.store(c)
}

pub(super) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let mut h = Header::load(c)?;
    let name = input(i, |r| Ok(c_string(&r.blob()?)))?;
    let Some(at) = h.named(&name) else { return fail(ENOENT) };
    h.snaps.remove(at);
    h.store(c)
}

pub(super) fn rename(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let mut h = Header::load(c)?;
    let (id, name) = input(i, |r| Ok((r.u64()?, c_string(&r.blob()?))))?;
    if h.named(&name).is_some() {
        return fail(EEXIST);
    }
    match h.snaps.iter_mut().find(|s| s.id == id) {
        Some(s) => s.name = name,
        None => return fail(ENOENT),
    }
    h.store(c)
}
