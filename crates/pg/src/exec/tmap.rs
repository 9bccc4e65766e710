//! Legacy text maps (TMAP): sorted keys with values in an object's data. Only librbd's format 1 directory uses them.
//!
//! Data: blob header, u32 count, then per key: string, blob; ascending.

use super::{OpCtx, Step};
use crate::limits::OBJECT_SIZE_MAX;
use base::errno::{EEXIST, EINVAL, ENODATA, ENOENT};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Result as Decoded;
use wire::msg::OsdOp;
use wire::{Decode, Features, Reader, Writer};

/// `CEPH_OSD_TMAP2OMAP_NULLOK`: an empty object is no error.
const NULL_OK: u8 = 1;

#[derive(Debug, Default, PartialEq)]
struct TextMap {
    header: Bytes,
    keys: BTreeMap<Bytes, Bytes>,
}

/// One command of an update.
#[derive(Debug, PartialEq)]
enum Change {
    Header(Bytes),
    Set(Bytes, Bytes),
    Create(Bytes, Bytes),
    Remove(Bytes),
    RemoveIfThere(Bytes),
}

impl Decode for TextMap {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        if r.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self { header: r.blob()?, keys: r.get()? })
    }
}

impl Decode for Change {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(match r.u8()? {
            b'h' => Self::Header(r.blob()?),
            b's' => Self::Set(r.blob()?, r.blob()?),
            b'c' => Self::Create(r.blob()?, r.blob()?),
            b'r' => Self::Remove(r.blob()?),
            b'R' => Self::RemoveIfThere(r.blob()?),
            c => return Err(wire::DecodeError::BadValue { what: "text map command", value: c.into() }),
        })
    }
}

impl TextMap {
    fn apply(&mut self, c: Change) -> Step<()> {
        match c {
            Change::Header(h) => self.header = h,
            Change::Set(k, v) => {
                self.keys.insert(k, v);
            }
            Change::Create(k, _) if self.keys.contains_key(&k) => return Err(EEXIST.into()),
            Change::Create(k, v) => {
                self.keys.insert(k, v);
            }
            Change::Remove(k) => {
                self.keys.remove(&k).ok_or(ENOENT)?;
            }
            Change::RemoveIfThere(k) => {
                self.keys.remove(&k);
            }
        }
        Ok(())
    }

    fn to_data(&self) -> Bytes {
        let mut w = Writer::new(Features::PACIFIC);
        w.blob(&self.header);
        w.put(&self.keys);
        w.into_bytes()
    }
}

impl OpCtx<'_> {
    fn text_map(&mut self) -> Step<TextMap> {
        let size = if self.exists { self.oi.size } else { 0 };
        let data = self.view.read(0, OBJECT_SIZE_MAX, size)?;
        Ok(TextMap::from_bytes(&data).map_err(|_| EINVAL)?)
    }

    pub(super) fn op_tmap_update(&mut self, op: &OsdOp) -> Step<i32> {
        if op.indata.is_empty() {
            return Ok(0);
        }
        let mut map = self.text_map()?;
        let mut r = Reader::shared(&op.indata);
        while !r.is_empty() {
            map.apply(r.get().map_err(|_| EINVAL)?)?;
        }
        self.write_full(map.to_data())?;
        Ok(0)
    }

    pub(super) fn op_tmap_put(&mut self, op: &OsdOp) -> Step<i32> {
        // Stored sorted, in whatever order it was sent.
        let map = TextMap::from_bytes(&op.indata).map_err(|_| EINVAL)?;
        self.write_full(map.to_data())?;
        Ok(0)
    }

    pub(super) fn op_tmap_to_omap(&mut self, op: &OsdOp) -> Step<i32> {
        if !self.exists || self.oi.size == 0 {
            return if op.raw.first() == Some(&NULL_OK) { Ok(0) } else { Err(ENODATA.into()) };
        }
        let map = self.text_map()?;
        self.write_full(Bytes::new())?;
        self.clear_omap()?;
        self.set_omap_header(map.header);
        self.set_omap(map.keys.into_iter().collect());
        Ok(0)
    }
}
