//! Object maps: the existing data objects of an image or snapshot. A map is stored as object data, see [`super::bits`].
//!
//! A client calls `update` before its first write to each data object, so `update` reads and writes only the 4 KiB
//! blocks of the range and their checksums.

use super::bits::{BLOCK, Bits, HEADER_LEN, PER_BYTE, bytes_for, decode_header, get, set};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{fail, input};
use base::crc::crc32c;
use base::errno::{EINVAL, ENOENT, ERANGE, ESTALE};
use bytes::Bytes;
use wire::{Decode, Reader};

/// Most objects in a map.
const OBJECTS_MAX: u64 = 256_000_000;

const EXISTS: u8 = 1;
const EXISTS_CLEAN: u8 = 3;

fn read(c: &mut dyn ObjectCtx) -> ClsResult<Bits> {
    let (size, _) = c.stat()?;
    if size == 0 {
        return fail(ENOENT);
    }
    let b = c.read(0, size)?;
    Bits::from_bytes(&b).map_err(|_| EINVAL.into())
}

fn write(c: &mut dyn ObjectCtx, map: &Bits) -> ClsResult<Output> {
    c.write_full(&map.to_bytes(true)).map(Output::from)
}

pub(super) fn load(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    Ok(read(c)?.to_bytes(false).into())
}

pub(super) fn save(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let map: Bits = input(i, |r| r.get())?;
    write(c, &map)
}

pub(super) fn resize(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (count, state) = input(i, |r| Ok((r.u64()?, r.u8()?)))?;
    if count > OBJECTS_MAX {
        return fail(EINVAL);
    }
    let mut map = match read(c) {
        Err(e) if e.is(ENOENT) => Bits::default(),
        m => m?,
    };
    if count < map.len() && !map.all_are(count..map.len(), state) {
        // An object beyond the new end still exists.
        return fail(ESTALE);
    }
    map.resize(count, state);
    write(c, &map)
}

pub(super) fn update(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (start, end, new, current) = input(i, |r| Ok((r.u64()?, r.u64()?, r.u8()?, r.get::<Option<u8>>()?)))?;
    c.stat()?;
    let header = c.read(0, HEADER_LEN)?;
    let Ok((len, crc)) = decode_header(&mut Reader::new(&header)) else { return fail(EINVAL) };
    let data_len = bytes_for(len);
    // After the data come u32 length of the footer, u32 checksum of the header, u32 count, and the checksums.
    let Some(footer) = HEADER_LEN.checked_add(data_len) else { return fail(EINVAL) };
    let stored_crc = c.read(footer + 4, 4)?;
    if stored_crc[..] != crc.to_le_bytes() {
        c.log("rbd.object_map_update: the header does not match its checksum");
    }
    if start >= end || end > len {
        return fail(ERANGE);
    }
    let (first, last) = (start / PER_BYTE / BLOCK, (end - 1) / PER_BYTE / BLOCK);
    let data_start = first * BLOCK;
    let data_end = data_len.min((last + 1) * BLOCK);
    let crcs_at = footer + 12 + first * 4;
    let crcs = c.read(crcs_at, (last - first + 1) * 4)?;
    let mut data = c.read(HEADER_LEN + data_start, data_end - data_start)?.to_vec();
    let blocks = data.chunks(BLOCK as usize);
    if data.len() as u64 != data_end - data_start || !blocks.map(|b| crc32c(0, b).to_le_bytes()).eq(crcs.chunks(4)) {
        return fail(EINVAL);
    }
    let base = data_start * PER_BYTE;
    let mut updated = false;
    for i in start - base..end - base {
        let old = get(&data, i);
        let matches = current.is_none_or(|want| old == want || (want == EXISTS && old == EXISTS_CLEAN));
        if matches && old != new {
            set(&mut data, i, new);
            updated = true;
        }
    }
    if updated {
        let crcs: Vec<u8> = data.chunks(BLOCK as usize).flat_map(|b| crc32c(0, b).to_le_bytes()).collect();
        c.write(HEADER_LEN + data_start, &data)?;
        c.write(crcs_at, &crcs)?;
    }
    Ok(Output::default())
}

/// After a snapshot was taken: marks existing objects as unchanged since.
pub(super) fn snap_add(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let mut map = read(c)?;
    if map.replace(EXISTS, EXISTS_CLEAN) { write(c, &map) } else { Ok(Output::default()) }
}

/// Before a snapshot's removal: objects changed in its map count as changed since the previous snapshot. Input: its
/// map.
pub(super) fn snap_remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let src: Bits = input(i, |r| r.get())?;
    let mut map = read(c)?;
    let mut updated = false;
    for n in 0..map.len() {
        if map.get(n) == EXISTS_CLEAN && (n >= src.len() || src.get(n) == EXISTS) {
            map.set(n, EXISTS);
            updated = true;
        }
    }
    if updated { write(c, &map) } else { Ok(Output::default()) }
}
