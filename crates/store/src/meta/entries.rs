//! Entries of one leaf of a PG log, in memory as they are stored.
//!
//! An append is one copy behind what is there: no allocation of its own, no pointer to follow, and a leaf that is written or leaves
//! memory is one piece. Nearly all that happens to a leaf is that; what is rare walks over it.
//!
//! Invariants:
//!  1. `buf[from..]` is the stored form of `n` entries (version, `var` length, bytes), versions ascending.
//!  2. `last` is the newest version; `bytes` the sum of the entries' lengths.

use crate::codec::{Get, Malformed, Put};
use base::{Epoch, Eversion};
use bytes::Bytes;

/// Least bytes of an entry.
const ENTRY_BYTES_MIN: usize = 13;
/// Most bytes that an entry takes beside its own.
const HEAD_BYTES_MAX: usize = 12 + 10;
/// Bytes a leaf has room for at first, and beyond which room grows by that much instead of doubling.
const ROOM_MIN: usize = 256;
const ROOM_STEP: usize = 4 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LogEntries {
    buf: Vec<u8>,
    /// What is before was removed.
    from: usize,
    n: usize,
    bytes: usize,
    last: Eversion,
}

/// An entry where it stands.
#[derive(Clone, Copy, Debug)]
struct At<'a> {
    /// Offset of its first byte, and of the one behind it.
    from: usize,
    end: usize,
    version: Eversion,
    data: &'a [u8],
}

fn parse(buf: &[u8], from: usize) -> Option<At<'_>> {
    let mut r = Get::new(buf.get(from..)?);
    let version = r.version().ok()?;
    let n = r.count(1).ok()?;
    let data = r.take(n).ok()?;
    Some(At { from, end: buf.len() - r.rest(), version, data })
}

impl LogEntries {
    /// One entry.
    pub(crate) fn of(version: Eversion, entry: &[u8]) -> Self {
        let mut e = Self::default();
        e.push(version, entry);
        e
    }

    pub(crate) fn len(&self) -> usize {
        self.n
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Bytes of all entries, without their versions.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the stored form.
    pub(crate) fn stored(&self) -> usize {
        self.buf.len() - self.from
    }

    /// Bytes of memory.
    pub(crate) fn mem(&self) -> usize {
        self.buf.capacity()
    }

    /// The newest version.
    pub(crate) fn last(&self) -> Option<Eversion> {
        (self.n > 0).then_some(self.last)
    }

    /// The oldest version.
    pub(crate) fn first(&self) -> Option<Eversion> {
        self.each().next().map(|e| e.version)
    }

    fn each(&self) -> impl Iterator<Item = At<'_>> {
        let mut at = self.from;
        std::iter::from_fn(move || {
            let e = parse(&self.buf, at)?;
            at = e.end;
            Some(e)
        })
    }

    /// Versions and entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Eversion, &[u8])> {
        self.each().map(|e| (e.version, e.data))
    }

    /// Adds an entry newer than all others.
    pub(crate) fn push(&mut self, version: Eversion, entry: &[u8]) {
        debug_assert!(self.last().is_none_or(|l| l < version));
        let more = HEAD_BYTES_MAX + entry.len();
        let room = self.buf.capacity() - self.buf.len();
        if room < more {
            let step = self.buf.capacity().clamp(ROOM_MIN, ROOM_STEP);
            self.buf.reserve_exact(more.max(step));
        }
        self.buf.version(version);
        self.buf.bytes(entry);
        self.n += 1;
        self.bytes += entry.len();
        self.last = version;
    }

    /// Adds an entry in its place; one of the same version is replaced.
    pub(crate) fn insert(&mut self, version: Eversion, entry: &[u8]) {
        if self.last().is_none_or(|l| l < version) {
            return self.push(version, entry);
        }
        let Some(e) = self.each().find(|e| e.version >= version) else { return };
        let at = e.from;
        let (end, gone) = if e.version == version { (e.end, e.data.len()) } else { (at, 0) };
        let mut new = Vec::with_capacity(HEAD_BYTES_MAX + entry.len());
        new.version(version);
        new.bytes(entry);
        self.buf.splice(at..end, new);
        self.n += usize::from(at == end);
        self.bytes = self.bytes + entry.len() - gone;
    }

    /// Removes what is not newer than `to`.
    pub(crate) fn remove_upto(&mut self, to: Eversion) {
        let (mut n, mut bytes, mut from) = (0, 0, self.from);
        for e in self.each().take_while(|e| e.version <= to) {
            n += 1;
            bytes += e.data.len();
            from = e.end;
        }
        self.n -= n;
        self.bytes -= bytes;
        self.from = from;
    }

    /// Removes what is newer than `to`.
    pub(crate) fn remove_after(&mut self, to: Eversion) {
        let (mut n, mut bytes, mut end, mut last) = (0, 0, self.from, Eversion::default());
        for e in self.each().take_while(|e| e.version <= to) {
            n += 1;
            bytes += e.data.len();
            (end, last) = (e.end, e.version);
        }
        self.buf.truncate(end);
        (self.n, self.bytes, self.last) = (n, bytes, last);
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.var(self.n as u64);
        w.extend_from_slice(self.buf.get(self.from..).unwrap_or_default());
    }

    /// Decodes what `encode` wrote.
    pub(crate) fn decode(r: &mut Get<'_>) -> Result<Self, Malformed> {
        let n = r.count(ENTRY_BYTES_MIN)?;
        let mut start = r.clone();
        let mut e = Self { n, ..Self::default() };
        for i in 0..n {
            let version = r.version()?;
            let len = r.count(1)?;
            r.take(len)?;
            if i > 0 && version <= e.last {
                return r.bad();
            }
            e.bytes += len;
            e.last = version;
        }
        e.buf = start.take(start.rest() - r.rest())?.to_vec();
        Ok(e)
    }

    /// Copies of the entries newer than `after`.
    pub(crate) fn after(&self, after: Eversion) -> impl Iterator<Item = (Eversion, Bytes)> {
        self.iter().filter(move |e| e.0 > after).map(|(v, b)| (v, Bytes::copy_from_slice(b)))
    }
}

/// Newer than every version.
pub(crate) const FAR: Eversion = Eversion { epoch: Epoch(u32::MAX), version: u64::MAX };

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::BTreeMap;

    fn v(n: u64) -> Eversion {
        Eversion::new((n / 7) as u32, n)
    }

    #[test]
    fn equals_a_map_and_survives_encoding() {
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            let mut e = LogEntries::default();
            let mut model: BTreeMap<Eversion, Vec<u8>> = BTreeMap::new();
            let mut next = 1;
            for _ in 0..60 {
                match rng.below(10) {
                    0..6 => {
                        next += 1 + rng.below(3);
                        let data = vec![next as u8; rng.below(200) as usize];
                        e.push(v(next), &data);
                        model.insert(v(next), data);
                    }
                    6 => {
                        let at = 1 + rng.below(next);
                        let data = vec![at as u8; rng.below(300) as usize];
                        e.insert(v(at), &data);
                        model.insert(v(at), data);
                    }
                    7 => {
                        let to = rng.below(next + 2);
                        e.remove_upto(v(to));
                        model.retain(|k, _| *k > v(to));
                    }
                    8 => {
                        let to = next.saturating_sub(rng.below(6));
                        e.remove_after(v(to));
                        model.retain(|k, _| *k <= v(to));
                        next = to.max(1);
                    }
                    _ => {
                        let mut w = Vec::new();
                        e.encode(&mut w);
                        let mut r = Get::new(&w);
                        e = LogEntries::decode(&mut r).unwrap();
                        assert_eq!(r.rest(), 0);
                        assert!((0..w.len()).all(|cut| LogEntries::decode(&mut Get::new(&w[..cut])).is_err()));
                    }
                }
                let want: Vec<(Eversion, &[u8])> = model.iter().map(|(k, d)| (*k, d.as_slice())).collect();
                assert_eq!(e.iter().collect::<Vec<_>>(), want);
                assert_eq!((e.len(), e.is_empty()), (model.len(), model.is_empty()));
                assert_eq!(e.first(), model.keys().next().copied());
                assert_eq!(e.last(), model.keys().next_back().copied());
                assert_eq!(e.bytes(), model.values().map(Vec::len).sum::<usize>());
                assert!(e.stored() <= e.mem());
            }
        }
    }

    #[test]
    fn versions_must_ascend() {
        let mut w = Vec::new();
        w.var(2);
        for version in [v(3), v(3)] {
            w.version(version);
            w.bytes(b"x");
        }
        assert!(LogEntries::decode(&mut Get::new(&w)).is_err());
    }
}
