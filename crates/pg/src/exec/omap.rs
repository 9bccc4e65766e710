//! Operations on omap.

use super::progress::{KEY_WORK, PART_WORK};
use super::{OpCtx, Step, Stop};
use crate::limits::{OMAP_BYTES_PER_REQUEST, OMAP_ENTRIES_PER_REQUEST};
use crate::object::ObjectInfo;
use base::errno::{ECANCELED, EFBIG, EINVAL, EMSGSIZE, ENOENT};
use base::sizes::{VALUE_MAX, VECTOR_ENTRIES_MAX};
use base::unreached;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Result as Decoded;
use wire::msg::OsdOp;
use wire::{Features, Reader, Writer};

/// Copies a key or value, since the store's index must not keep a message's buffer alive.
fn own(b: &[u8]) -> Bytes {
    Bytes::copy_from_slice(b)
}

/// Elements of at least `least` bytes each. More than a vector may have are an `EMSGSIZE`, before any is made.
fn elements<T>(r: &mut Reader<'_>, least: usize, one: impl Fn(&mut Reader<'_>) -> Decoded<T>) -> Step<Vec<T>> {
    let n = r.count(least, "omap entries").map_err(|_| EINVAL)?;
    if n > VECTOR_ENTRIES_MAX {
        return Err(EMSGSIZE.into());
    }
    let mut v = Vec::with_capacity(n);
    for _ in 0..n {
        v.push(one(r).map_err(|_| EINVAL)?);
    }
    Ok(v)
}

/// Look-ups of the keys of one operation: those of OMAPGETVALSBYKEYS, with the entries found, or of OMAP_CMP. Many of
/// them run in parts.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    keys: Vec<Bytes>,
    /// Wanted value and comparison for each key, for OMAP_CMP.
    wanted: Vec<(Bytes, i32)>,
    /// Index of the next key.
    next: usize,
    found: Vec<(Bytes, Bytes)>,
    bytes: usize,
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
        let (found, more) = self.view.omap_list(after, prefix, max, max_bytes)?;
        self.long.work += found.iter().map(|(k, v)| KEY_WORK + (k.len() + v.len()) as u64).sum::<u64>();
        Ok((found, more))
    }

    /// The value of one key.
    pub(super) fn get_omap(&mut self, key: &[u8]) -> Step<Option<Bytes>> {
        if !self.omap {
            return Ok(None);
        }
        let v = self.view.omap_get(key)?;
        self.long.work += KEY_WORK + v.as_ref().map_or(0, |v| v.len() as u64);
        Ok(v)
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
        self.change.any = true;
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

    /// Runs an operation's look-ups, or the next part of them. `each` gets the number of a key and its value.
    fn look_up(
        &mut self,
        mut l: Box<Lookups>,
        mut each: impl FnMut(&mut Lookups, usize, Option<Bytes>) -> Step<()>,
    ) -> Step<Box<Lookups>> {
        while let Some(key) = l.keys.get(l.next).cloned() {
            if self.long.work >= PART_WORK && l.next > 0 {
                self.long.paused = true;
                self.long.lookups = Some(l);
                return Err(Stop::Wait);
            }
            match self.get_omap(&key) {
                Ok(v) => {
                    let at = l.next;
                    each(&mut l, at, v)?;
                }
                Err(Stop::Wait) => {
                    self.long.lookups = Some(l);
                    return Err(Stop::Wait);
                }
                Err(e) => return Err(e),
            }
            l.next += 1;
        }
        Ok(l)
    }

    pub(super) fn op_omap_by_keys(&mut self, op: &mut OsdOp, room: usize) -> Step<i32> {
        let before = self.long.lookups.take();
        let start = match before {
            Some(l) => l,
            None => {
                let mut keys = elements(&mut Reader::shared(&op.indata), 4, |r| r.blob())?;
                keys.sort_unstable();
                keys.dedup();
                Box::new(Lookups { keys, ..Lookups::default() })
            }
        };
        let l = self.look_up(start, |l, n, v| {
            let (Some(v), Some(k)) = (v, l.keys.get(n)) else { return Ok(()) };
            l.bytes += k.len() + v.len() + 8;
            if l.bytes > room {
                return Err(EMSGSIZE.into());
            }
            l.found.push((k.clone(), v));
            Ok(())
        })?;
        let mut w = Writer::with_capacity(Features::PACIFIC, l.bytes + 8);
        w.seq(l.found.iter(), |w, (k, v)| {
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
        let before = self.long.lookups.take();
        let start = match before {
            Some(l) => l,
            None => {
                let r = &mut Reader::shared(&op.indata);
                let all = elements(r, 12, |r| Ok((r.blob()?, r.blob()?, r.i32()?)))?;
                // The last of equal keys counts.
                let all: BTreeMap<Bytes, (Bytes, i32)> = all.into_iter().map(|(k, v, c)| (k, (v, c))).collect();
                let (keys, wanted) = all.into_iter().unzip();
                self.delta.num_rd += 1;
                if self.omap && !self.view.has_base() {
                    return Err(ENOENT.into());
                }
                Box::new(Lookups { keys, wanted, ..Lookups::default() })
            }
        };
        self.look_up(start, |l, n, v| {
            let Some((want, cmp)) = l.wanted.get(n) else {
                unreached::<()>("each key has a wanted value");
                return Ok(());
            };
            let have = v.unwrap_or_default();
            let holds = match cmp {
                1 => have == *want,
                3 => have > *want,
                5 => have < *want,
                _ => return Err(EINVAL.into()),
            };
            if holds { Ok(()) } else { Err(ECANCELED.into()) }
        })?;
        Ok(0)
    }

    pub(super) fn op_omap_set(&mut self, op: &OsdOp) -> Step<i32> {
        // The last of equal keys wins.
        let found = elements(&mut Reader::shared(&op.indata), 8, |r| Ok((own(&r.blob()?), own(&r.blob()?))))?;
        if found.iter().any(|(_, v)| v.len() > VALUE_MAX) {
            return Err(EFBIG.into());
        }
        self.set_omap(found);
        Ok(0)
    }

    pub(super) fn op_omap_set_header(&mut self, op: &OsdOp) -> Step<i32> {
        if op.indata.len() > VALUE_MAX {
            return Err(EFBIG.into());
        }
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
        let keys = elements(&mut Reader::shared(&op.indata), 4, |r| Ok(own(&r.blob()?)))?;
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
