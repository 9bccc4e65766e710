//! Log entries of one leaf, in memory in their stored form.
//!
//! An append copies the entry behind the others. It needs no allocation of its own, and existing entries do not
//! move, since a leaf grows by pieces. Nearly all operations on a leaf are appends; the others walk over it.
//!
//! Invariants:
//!  1. The first piece from `from` on, followed by the other pieces, is the stored form of `n` entries
//!     (version, `var` length, bytes) with ascending versions. It has `stored` bytes. No entry spans two
//!     pieces.
//!  2. `last` is the newest version; `bytes` the sum of the entries' lengths.
//!
//! Tests: below.

use crate::codec::{Get, Malformed, Put};
use base::{Epoch, Eversion};
use bytes::Bytes;

/// Least bytes of a stored entry.
const ENTRY_BYTES_MIN: usize = 13;
/// Most bytes of an entry's version and length.
const HEAD_BYTES_MAX: usize = 12 + 10;
/// Bytes of the first allocation. Allocations double up to the size of a piece; then a new piece begins.
const ROOM_MIN: usize = 256;
const PIECE: usize = 4 << 10;

/// Entries of one leaf; see the module.
#[derive(Debug, Default)]
pub(crate) struct LogEntries {
    /// Full pieces.
    full: Vec<Vec<u8>>,
    /// Bytes of memory of the full pieces.
    full_mem: usize,
    /// The last piece.
    buf: Vec<u8>,
    /// Offset in the first piece; the entries before it were removed.
    from: usize,
    stored: usize,
    n: usize,
    bytes: usize,
    last: Eversion,
}

/// Position of an entry.
#[derive(Clone, Copy, Debug)]
struct At<'a> {
    /// Piece of the entry, and the offsets of its start and its end there.
    piece: usize,
    from: usize,
    end: usize,
    version: Eversion,
    data: &'a [u8],
}

impl LogEntries {
    /// A leaf with one entry.
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

    /// Bytes of all entries, without versions and lengths.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the stored form.
    pub(crate) fn stored(&self) -> usize {
        self.stored
    }

    /// Bytes of allocated memory.
    pub(crate) fn mem(&self) -> usize {
        self.full_mem + self.buf.capacity()
    }

    /// Recomputes the memory of the full pieces; appends don't change them.
    fn full_changed(&mut self) {
        let pieces = self.full.iter().map(Vec::capacity).sum::<usize>();
        self.full_mem = pieces + self.full.capacity() * size_of::<Vec<u8>>();
    }

    /// Newest version.
    pub(crate) fn last(&self) -> Option<Eversion> {
        (self.n > 0).then_some(self.last)
    }

    /// Oldest version.
    pub(crate) fn first(&self) -> Option<Eversion> {
        self.each().next().map(|e| e.version)
    }

    fn pieces(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.full.iter().chain([&self.buf])
    }

    fn each(&self) -> impl Iterator<Item = At<'_>> {
        self.pieces().enumerate().flat_map(|(piece, buf)| {
            let mut from = if piece == 0 { self.from } else { 0 };
            std::iter::from_fn(move || {
                let mut r = Get::new(buf.get(from..)?);
                let version = r.version().ok()?;
                let n = r.count(1).ok()?;
                let data = r.take(n).ok()?;
                let e = At { piece, from, end: buf.len() - r.rest(), version, data };
                from = e.end;
                Some(e)
            })
        })
    }

    /// Versions and entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Eversion, &[u8])> {
        self.each().map(|e| (e.version, e.data))
    }

    /// Entry of a version.
    pub(crate) fn get(&self, version: Eversion) -> Option<&[u8]> {
        self.each().find(|e| e.version == version).map(|e| e.data)
    }

    /// Adds an entry newer than all others.
    pub(crate) fn push(&mut self, version: Eversion, entry: &[u8]) {
        debug_assert!(self.last().is_none_or(|l| l < version));
        let more = HEAD_BYTES_MAX + entry.len();
        let room = self.buf.capacity();
        if room - self.buf.len() < more {
            if room < PIECE {
                self.buf.reserve_exact(more.max(room.max(ROOM_MIN)));
            } else {
                self.full.push(std::mem::replace(&mut self.buf, Vec::with_capacity(more.max(PIECE))));
                self.full_changed();
            }
        }
        let before = self.buf.len();
        self.buf.version(version);
        self.buf.bytes(entry);
        self.stored += self.buf.len() - before;
        self.n += 1;
        self.bytes += entry.len();
        self.last = version;
    }

    /// Inserts an entry in order; one of the same version is replaced.
    pub(crate) fn insert(&mut self, version: Eversion, entry: &[u8]) {
        if self.last().is_none_or(|l| l < version) {
            return self.push(version, entry);
        }
        let Some(e) = self.each().find(|e| e.version >= version) else { return };
        let (piece, at) = (e.piece, e.from);
        let (end, gone) = if e.version == version { (e.end, e.data.len()) } else { (at, 0) };
        let mut new = Vec::with_capacity(HEAD_BYTES_MAX + entry.len());
        new.version(version);
        new.bytes(entry);
        self.stored = self.stored + new.len() - (end - at);
        self.full.get_mut(piece).unwrap_or(&mut self.buf).splice(at..end, new);
        self.full_changed();
        self.n += usize::from(at == end);
        self.bytes = self.bytes + entry.len() - gone;
    }

    /// Removes the entry of a version, if present.
    pub(crate) fn remove(&mut self, version: Eversion) {
        let mut last = Eversion::default();
        let Some(e) = self.each().find(|e| {
            let found = e.version == version;
            last = if found { last } else { e.version };
            found
        }) else {
            return;
        };
        let (piece, at, end, gone) = (e.piece, e.from, e.end, e.data.len());
        self.full.get_mut(piece).unwrap_or(&mut self.buf).drain(at..end);
        self.n -= 1;
        self.bytes -= gone;
        self.stored -= end - at;
        if self.last == version {
            self.last = last;
        }
    }

    /// Removes the entries up to and with `to`.
    pub(crate) fn remove_upto(&mut self, to: Eversion) {
        let (mut n, mut bytes, mut stored, mut place) = (0, 0, 0, (0, self.from));
        for e in self.each().take_while(|e| e.version <= to) {
            n += 1;
            bytes += e.data.len();
            stored += e.end - e.from;
            place = (e.piece, e.end);
        }
        self.full.drain(..place.0);
        self.full_changed();
        self.from = place.1;
        self.n -= n;
        self.bytes -= bytes;
        self.stored -= stored;
    }

    /// Removes the entries newer than `to`.
    pub(crate) fn remove_after(&mut self, to: Eversion) {
        let (mut n, mut bytes, mut stored) = (0, 0, 0);
        let (mut place, mut last) = ((0, self.from), Eversion::default());
        for e in self.each().take_while(|e| e.version <= to) {
            n += 1;
            bytes += e.data.len();
            stored += e.end - e.from;
            (place, last) = ((e.piece, e.end), e.version);
        }
        if place.0 < self.full.len() {
            self.full.truncate(place.0 + 1);
            self.buf = self.full.pop().unwrap_or_default();
            self.full_changed();
        }
        self.buf.truncate(place.1);
        (self.n, self.bytes, self.stored, self.last) = (n, bytes, stored, last);
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.var(self.n as u64);
        let mut from = self.from;
        for p in self.pieces() {
            w.extend_from_slice(p.get(std::mem::take(&mut from)..).unwrap_or_default());
        }
    }

    /// Decodes the stored form.
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
        e.stored = e.buf.len();
        Ok(e)
    }

    /// Copies of the entries newer than `after`.
    pub(crate) fn after(&self, after: Eversion) -> impl Iterator<Item = (Eversion, Bytes)> {
        self.iter().filter(move |e| e.0 > after).map(|(v, b)| (v, Bytes::copy_from_slice(b)))
    }
}

/// A version newer than every entry.
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
    fn entries_equal_a_map_and_survive_encoding() {
        let (mut rng, mut pieces) = (Rng::new(5), 0);
        for _ in 0..200 {
            let mut e = LogEntries::default();
            let mut model: BTreeMap<Eversion, Vec<u8>> = BTreeMap::new();
            let mut next = 1;
            for _ in 0..90 {
                match rng.below(43) {
                    40..43 => {
                        let at = rng.below(next + 2);
                        e.remove(v(at));
                        model.remove(&v(at));
                    }
                    0..30 => {
                        next += 1 + rng.below(3);
                        let data = vec![next as u8; rng.below(300) as usize];
                        e.push(v(next), &data);
                        model.insert(v(next), data);
                    }
                    30..35 => {
                        let at = 1 + rng.below(next);
                        let data = vec![at as u8; rng.below(300) as usize];
                        e.insert(v(at), &data);
                        model.insert(v(at), data);
                    }
                    35 | 36 => {
                        let to = rng.below(next + 2);
                        e.remove_upto(v(to));
                        model.retain(|k, _| *k > v(to));
                    }
                    37 | 38 => {
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
                        assert!(
                            (0..w.len())
                                .step_by(1 + w.len() / 4096)
                                .all(|cut| LogEntries::decode(&mut Get::new(&w[..cut])).is_err())
                        );
                    }
                }
                let want: Vec<(Eversion, &[u8])> = model.iter().map(|(k, d)| (*k, d.as_slice())).collect();
                assert_eq!(e.iter().collect::<Vec<_>>(), want);
                assert_eq!((e.len(), e.is_empty()), (model.len(), model.is_empty()));
                assert_eq!(e.first(), model.keys().next().copied());
                assert_eq!(e.last(), model.keys().next_back().copied());
                assert_eq!(e.bytes(), model.values().map(Vec::len).sum::<usize>());
                assert!(e.stored() <= e.mem());
                assert_eq!(e.mem(), e.pieces().map(Vec::capacity).sum::<usize>() + e.full.capacity() * 24);
                let mut w = Vec::new();
                e.encode(&mut w);
                assert_eq!(w.len(), e.stored() + 1 + usize::from(e.len() > 127));
                pieces = pieces.max(e.full.len());
            }
        }
        assert!(pieces > 1, "{pieces}");
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
