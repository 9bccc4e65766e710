//! Operations on omap.

use super::{OpCtx, Step};
use crate::limits::{OMAP_BYTES_PER_REQUEST, OMAP_ENTRIES_PER_REQUEST};
use crate::object::ObjectInfo;
use base::errno::{ECANCELED, EINVAL, ENOENT};
use bytes::Bytes;
use wire::codec::Result as Decoded;
use wire::msg::OsdOp;
use wire::{Features, Reader, Writer};

/// Copies a key or value, since the store's index must not keep a message's buffer alive.
fn own(b: &[u8]) -> Bytes {
    Bytes::copy_from_slice(b)
}

/// The entries of `map<string, bufferlist>`, the last of equal keys winning.
fn entries(r: &mut Reader<'_>) -> Decoded<Vec<(Bytes, Bytes)>> {
    let n = r.count(8, "omap entries")?;
    let mut v = Vec::with_capacity(n);
    for _ in 0..n {
        v.push((own(&r.blob()?), own(&r.blob()?)));
    }
    Ok(v)
}

impl OpCtx<'_> {
    /// Entries after `after` with `prefix`, and whether more follow; none without omap.
    pub(super) fn list_omap(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: usize,
        max_bytes: usize,
    ) -> Step<(Vec<(Bytes, Bytes)>, bool)> {
        if !self.omap {
            return Ok((Vec::new(), false));
        }
        self.view.omap_list(after, prefix, max, max_bytes)
    }

    /// The value of one key.
    pub(super) fn get_omap(&mut self, key: &[u8]) -> Step<Option<Bytes>> {
        if !self.omap {
            return Ok(None);
        }
        self.view.omap_get(key)
    }

    /// The header, empty without omap.
    pub(super) fn get_omap_header(&mut self) -> Step<Bytes> {
        if !self.omap {
            return Ok(Bytes::new());
        }
        self.view.omap_header()
    }

    fn mark_omap(&mut self) {
        self.create();
        self.oi.flags |= ObjectInfo::OMAP;
        self.omap = true;
        self.delta.num_wr += 1;
    }

    /// Sets entries, creating the object.
    pub(super) fn set_omap(&mut self, entries: Vec<(Bytes, Bytes)>) {
        self.mark_omap();
        let bytes: usize = entries.iter().map(|(k, v)| k.len() + v.len()).sum();
        self.delta.num_wr_kb += super::kib(bytes as u64);
        self.bytes_written += bytes as u64;
        self.view.omap_set(entries);
    }

    /// Sets the header, creating the object.
    pub(super) fn set_omap_header(&mut self, header: Bytes) {
        self.mark_omap();
        self.view.omap_set_header(header);
    }

    /// Removes keys of an existing object.
    pub(super) fn rm_omap(&mut self, keys: Vec<Bytes>) -> Step<()> {
        if !self.exists {
            return Err(ENOENT.into());
        }
        self.view.omap_rm(keys);
        self.delta.num_wr += 1;
        Ok(())
    }

    /// Removes a range of keys of an existing object.
    pub(super) fn rm_omap_range(&mut self, first: Bytes, last: Bytes) -> Step<()> {
        if !self.exists {
            return Err(ENOENT.into());
        }
        self.view.omap_rm_range(first, last);
        self.modify = true;
        self.delta.num_wr += 1;
        Ok(())
    }

    /// Removes all omap entries and the header.
    pub(super) fn clear_omap(&mut self) -> Step<()> {
        if !self.exists {
            return Err(ENOENT.into());
        }
        self.omap = false;
        if self.oi.has_omap() {
            self.view.omap_clear();
            self.oi.flags &= !ObjectInfo::OMAP;
            self.delta.num_wr += 1;
        }
        Ok(())
    }

    pub(super) fn op_omap_keys(&mut self, op: &mut OsdOp) -> Step<i32> {
        let mut r = Reader::new(&op.indata);
        let decoded = (|| -> Decoded<_> { Ok((r.blob()?, r.u64()?)) })();
        let (after, max) = decoded.map_err(|_| EINVAL)?;
        let (found, more) =
            self.list_omap(&after, b"", max.min(OMAP_ENTRIES_PER_REQUEST as u64) as usize, OMAP_BYTES_PER_REQUEST)?;
        let mut w = Writer::with_capacity(Features::PACIFIC, 64 + found.len() * 32);
        w.seq(found.iter(), |w, (k, _)| w.blob(k));
        w.bool(more);
        self.count_read(w.len());
        op.outdata = w.into_bytes();
        Ok(0)
    }

    pub(super) fn op_omap_vals(&mut self, op: &mut OsdOp) -> Step<i32> {
        let mut r = Reader::new(&op.indata);
        let decoded = (|| -> Decoded<_> { Ok((r.blob()?, r.u64()?, r.blob()?)) })();
        let (after, max, prefix) = decoded.map_err(|_| EINVAL)?;
        let (found, more) =
            self.list_omap(&after, &prefix, max.min(OMAP_ENTRIES_PER_REQUEST as u64) as usize, OMAP_BYTES_PER_REQUEST)?;
        let bytes: usize = found.iter().map(|(k, v)| k.len() + v.len() + 8).sum();
        let mut w = Writer::with_capacity(Features::PACIFIC, bytes + 8);
        w.seq(found.iter(), |w, (k, v)| {
            w.blob(k);
            w.blob(v);
        });
        w.bool(more);
        self.count_read(w.len());
        op.outdata = w.into_bytes();
        Ok(0)
    }

    pub(super) fn op_omap_header(&mut self, op: &mut OsdOp) -> Step<i32> {
        op.outdata = self.get_omap_header()?;
        self.count_read(op.outdata.len());
        Ok(0)
    }

    pub(super) fn op_omap_by_keys(&mut self, op: &mut OsdOp) -> Step<i32> {
        let keys = Reader::shared(&op.indata).get::<std::collections::BTreeSet<Bytes>>().map_err(|_| EINVAL)?;
        let mut found = Vec::new();
        let mut bytes = 0;
        for k in keys {
            if let Some(v) = self.get_omap(&k)? {
                bytes += k.len() + v.len() + 8;
                found.push((k, v));
            }
        }
        let mut w = Writer::with_capacity(Features::PACIFIC, bytes + 8);
        w.seq(found.iter(), |w, (k, v)| {
            w.blob(k);
            w.blob(v);
        });
        self.count_read(w.len());
        op.outdata = w.into_bytes();
        Ok(0)
    }

    pub(super) fn op_omap_cmp(&mut self, op: &OsdOp) -> Step<i32> {
        if !self.exists {
            return Err(ENOENT.into());
        }
        let mut r = Reader::shared(&op.indata);
        let wanted = r.get::<std::collections::BTreeMap<Bytes, (Bytes, i32)>>().map_err(|_| EINVAL)?;
        self.delta.num_rd += 1;
        if self.omap && !self.view.has_base() {
            return Err(ENOENT.into());
        }
        for (k, (want, cmp)) in wanted {
            let have = self.get_omap(&k)?.unwrap_or_default();
            let holds = match cmp {
                1 => have == want,
                3 => have > want,
                5 => have < want,
                _ => return Err(EINVAL.into()),
            };
            if !holds {
                return Err(ECANCELED.into());
            }
        }
        Ok(0)
    }

    pub(super) fn op_omap_set(&mut self, op: &OsdOp) -> Step<i32> {
        let found = entries(&mut Reader::shared(&op.indata)).map_err(|_| EINVAL)?;
        self.set_omap(found);
        Ok(0)
    }

    pub(super) fn op_omap_set_header(&mut self, op: &OsdOp) -> Step<i32> {
        self.set_omap_header(own(&op.indata));
        Ok(0)
    }

    pub(super) fn op_omap_clear(&mut self) -> Step<i32> {
        self.clear_omap()?;
        Ok(0)
    }

    pub(super) fn op_omap_rm_keys(&mut self, op: &OsdOp) -> Step<i32> {
        if !self.exists {
            return Err(ENOENT.into());
        }
        let keys = Reader::shared(&op.indata).get::<Vec<Bytes>>().map_err(|_| EINVAL)?;
        self.rm_omap(keys)?;
        Ok(0)
    }

    pub(super) fn op_omap_rm_range(&mut self, op: &OsdOp) -> Step<i32> {
        if !self.exists {
            return Err(ENOENT.into());
        }
        let (first, last) = Reader::shared(&op.indata).get::<(Bytes, Bytes)>().map_err(|_| EINVAL)?;
        self.rm_omap_range(first, last)?;
        Ok(0)
    }
}
