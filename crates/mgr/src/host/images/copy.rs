//! Data copy of live migrations: execute copies each object's snapshot history from the source to the destination;
//! abort copies the destination's changes back to the source.
//!
//! Objects are compared by their contents as seen through the image, so source and destination may differ in striping
//! and object size. Invariants: a copy never overwrites what a client wrote to the destination. A copy is idempotent:
//! every write carries the snapshots that precede it, and is skipped once the object knows newer ones.
//!
//! Tests: `interop/tests/rbd.sh`, which writes to the destination before the copy.

use super::image::{Image, Step, enc};
use super::migration::Spec;
use base::SnapId;
use base::errno::{EEXIST, EIO, ENOENT, ERANGE};
use bytes::Bytes;
use wire::Reader;
use wire::msg::op_code::op_flags;
use wire::msg::{OpCode, OsdOp};
use wire::types::ListSnapsReply;

/// Unit in bytes in which contents are compared and differences are written.
const PIECE: usize = 64 << 10;
/// Most pieces of an object; larger objects have longer pieces.
const PIECES_MAX: usize = 64;
/// Mode of the method `assert_snapc_seq`: fail if the object knows this snapshot or a newer one.
const NEWER_THAN_OBJECT: u8 = 0;

/// Contents of an object as seen through the image, without trailing zeros; `None` if there is no object.
type Shown = Option<Vec<u8>>;

/// One state of the source: a snapshot or the head.
struct Point {
    from: Image,
    snap: Option<u64>,
    /// Bytes of the source that are copied.
    limit: u64,
    /// Whether the destination's parent provides the data where neither source nor destination has an object.
    shows_parent: bool,
    /// The destination's snapshot for this state; `None` for the head, or if that snapshot was removed.
    becomes: Option<u64>,
}

/// A snapshot of the destination (`None` for the head), with its number of data objects.
struct View {
    snap: Option<u64>,
    objects: u64,
}

/// A copy from source to destination.
pub(super) struct Copy {
    to: Image,
    /// States of the source, oldest first, the head last.
    points: Vec<Point>,
    /// Snapshots of the destination, oldest first, the head last.
    views: Vec<View>,
    objects: u64,
}

impl Copy {
    pub(super) async fn new(spec: &Spec, from: &Image, to: &Image) -> Step<Self> {
        let mut points = Vec::new();
        for (snap, becomes) in &spec.snaps {
            if !to.snaps.contains(becomes) {
                continue;
            }
            let from = Image::open(&from.place, &from.id, Some(*snap)).await?;
            points.push(Point::new(from, Some(*snap), u64::MAX, spec.flatten, Some(*becomes)));
        }
        points.push(Point::new(from.clone(), None, spec.overlap.min(to.size()), spec.flatten, None));
        let mut views = Vec::new();
        for snap in to.snaps.iter().rev() {
            let size = Image::open(&to.place, &to.id, Some(*snap)).await?.size();
            views.push(View { snap: Some(*snap), objects: to.objects(size) });
        }
        views.push(View { snap: None, objects: to.objects(to.size()) });
        let objects = points.iter().map(|p| to.objects(p.limit)).max().unwrap_or(0);
        Ok(Self { to: to.clone(), points, views, objects })
    }

    /// Number of destination objects for which the source may have data.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Copies the missing states of the destination's object `n`.
    pub(super) async fn object(&self, n: u64) -> Step<()> {
        let knows = self.knows(n).await?;
        let newest = self.points.iter().filter_map(|p| p.becomes).next_back().unwrap_or(0);
        if knows.is_some_and(|k| k >= newest) {
            return Ok(());
        }
        let mut writes: Vec<(Vec<u64>, Vec<OsdOp>)> = Vec::new();
        let mut states = Vec::new();
        let (mut before, mut snaps): (Shown, Vec<u64>) = (None, Vec::new());
        for p in &self.points {
            let now = p.content(&self.to, n).await?;
            let changed = now != before;
            states.push((p.becomes, now.is_some(), changed));
            let seq = snaps.first().copied().unwrap_or(0);
            if changed && knows.is_none_or(|k| k < seq) {
                let mut ops = vec![guard(seq)];
                ops.extend(change(before.as_deref(), now.as_deref(), self.to.stripes.object));
                writes.push((snaps.clone(), ops));
            }
            before = now;
            if let Some(s) = p.becomes {
                snaps.insert(0, s);
            }
        }
        // Object maps first: a map may list an object that does not exist, but never the reverse.
        self.note(n, &states, newest).await?;
        let o = self.to.data.object(&self.to.data_object(n));
        for (snaps, ops) in writes {
            match self.to.data.write(&o, ops, &snaps).await {
                // A client of the destination copied the object concurrently.
                Err(EEXIST | ERANGE) => {}
                r => r?,
            }
        }
        Ok(())
    }

    /// Records in the object maps of snapshots and head where the object exists and where it changed.
    async fn note(&self, n: u64, states: &[(Option<u64>, bool, bool)], newest: u64) -> Step<()> {
        let mut head_seen = false;
        for v in self.views.iter() {
            let of_source = v.snap.is_some_and(|s| s <= newest);
            let found = match of_source {
                true => states.iter().find(|(becomes, ..)| *becomes == v.snap),
                false => states.last(),
            };
            let Some((_, exists, changed)) = found else { continue };
            // The first snapshot made after the migration began has the source's head; later ones are unchanged.
            let clean = !changed || (!of_source && head_seen);
            head_seen |= !of_source;
            if *exists && n < v.objects {
                self.to.map_exists(n, v.snap, clean).await?;
            }
        }
        Ok(())
    }

    /// The newest snapshot that the destination's object knows; `None` if the object never existed.
    async fn knows(&self, n: u64) -> Step<Option<u64>> {
        let o = self.to.data.object(&self.to.data_object(n));
        match self.to.data.op(&o, OsdOp::new(OpCode::LIST_SNAPS), SnapId::SNAPDIR).await {
            Err(ENOENT) => Ok(None),
            r => Ok(Some(Reader::shared(&r?).get::<ListSnapsReply>().map_err(|_| EIO)?.seq)),
        }
    }
}

impl Point {
    fn new(from: Image, snap: Option<u64>, limit: u64, flatten: bool, becomes: Option<u64>) -> Self {
        let (limit, shows_parent) = (limit.min(from.size()), from.parent.is_some() && !flatten);
        Self { from, snap, limit, shows_parent, becomes }
    }

    /// Positions in the image of the pieces of object `n` of `to`, each with the number of bytes to copy.
    fn pieces(&self, to: &Image, n: u64) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (limit, unit) = (self.limit, to.stripes.unit);
        to.stripes.pieces(n).map(move |at| (at, limit.saturating_sub(at).min(unit) as usize))
    }

    async fn content(&self, to: &Image, n: u64) -> Step<Shown> {
        if self.shows_parent && !self.has_own(to, n).await? {
            return Ok(None);
        }
        let mut data = vec![0; to.stripes.object as usize];
        for ((at, len), part) in self.pieces(to, n).zip(data.chunks_mut(to.stripes.unit as usize)) {
            self.from.read(at, &mut part[..len], self.snap, 0).await?;
        }
        trim(&mut data);
        Ok((self.shows_parent || !data.is_empty()).then_some(data))
    }

    /// True if the source itself (not its parent) has data objects in the range of object `n` of `to`.
    async fn has_own(&self, to: &Image, n: u64) -> Step<bool> {
        let mut seen = None;
        for (at, len) in self.pieces(to, n) {
            let mut done = 0;
            while done < len as u64 {
                let (object, _, run) = self.from.stripes.find(at + done);
                if seen != Some(object) && self.from.has_object(object, self.snap).await? {
                    return Ok(true);
                }
                seen = Some(object);
                done += run;
            }
        }
        Ok(false)
    }
}

/// A copy back, for an abort: changes that clients made to the destination.
pub(super) struct Back {
    from: Image,
    to: Image,
    /// Whether the destination has all data, so that its absent objects read as zeros or from its parent. Otherwise
    /// absent objects read from the source.
    whole: bool,
}

impl Back {
    pub(super) fn new(from: &Image, to: &Image, whole: bool) -> Self {
        let mut to = to.clone();
        if !whole {
            // Without the parent, reading an absent object leaves the buffer with the source's data.
            to.parent = None;
        }
        Self { from: from.clone(), to, whole }
    }

    /// Number of data objects of the source.
    pub(super) fn objects(&self) -> u64 {
        self.from.objects(self.from.size())
    }

    /// Copies the destination's contents into object `n` of the source.
    pub(super) async fn object(&self, n: u64) -> Step<()> {
        let (from, to) = (&self.from, &self.to);
        let unit = from.stripes.unit as usize;
        let mut old = vec![0; from.stripes.object as usize];
        let common = from.size().min(to.size());
        for (at, part) in from.stripes.pieces(n).zip(old.chunks_mut(unit)) {
            let len = from.size().saturating_sub(at).min(part.len() as u64) as usize;
            from.read(at, &mut part[..len], None, 0).await?;
        }
        let mut new = old.clone();
        for (at, part) in from.stripes.pieces(n).zip(new.chunks_mut(unit)) {
            let len = common.saturating_sub(at).min(part.len() as u64) as usize;
            if self.whole {
                part[..len].fill(0);
            }
            to.read(at, &mut part[..len], None, 0).await?;
        }
        if new == old {
            return Ok(());
        }
        trim(&mut old);
        trim(&mut new);
        let old = from.has_object(n, None).await?.then_some(&old[..]);
        from.map_exists(n, None, false).await?;
        let ops = change(old, Some(&new), from.stripes.object);
        from.data.write(&from.data.object(&from.data_object(n)), ops, &from.snaps).await
    }
}

/// An operation that fails if a copy of this state was written before.
fn guard(seq: u64) -> OsdOp {
    if seq == 0 {
        return OsdOp { flags: op_flags::EXCL, ..OsdOp::new(OpCode::CREATE) };
    }
    let input = enc(|w| {
        w.u64(seq);
        w.u8(NEWER_THAN_OBJECT);
    });
    OsdOp::call("rbd", "assert_snapc_seq", &input)
}

fn trim(data: &mut Vec<u8>) {
    data.truncate(data.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
}

/// Operations that change an object of up to `size` bytes from contents `old` to `new`.
fn change(old: Option<&[u8]>, new: Option<&[u8]>, size: u64) -> Vec<OsdOp> {
    let Some(new) = new else { return vec![OsdOp::new(OpCode::DELETE)] };
    let mut ops = Vec::new();
    if old.is_none() {
        ops.push(OsdOp::new(OpCode::CREATE));
    }
    let old = old.unwrap_or_default();
    let piece = PIECE.max(size as usize / PIECES_MAX);
    let mut at = 0;
    while at < new.len() {
        let end = new.len().min(at + piece);
        let was = &old[at.min(old.len())..end.min(old.len())];
        let now = &new[at..end];
        // Reads beyond an object's end return zeros.
        let same = now.starts_with(was) && now[was.len()..].iter().all(|b| *b == 0);
        if !same {
            let data = Bytes::copy_from_slice(now);
            ops.push(OsdOp::with_extent(OpCode::WRITE, at as u64, data.len() as u64, data));
        }
        at = end;
    }
    if new.len() < old.len() {
        ops.push(OsdOp::with_extent(OpCode::TRUNCATE, new.len() as u64, 0, Bytes::new()));
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contents of an object after the operations.
    fn apply(old: Option<&[u8]>, ops: &[OsdOp]) -> Option<Vec<u8>> {
        let mut o = old.map(<[u8]>::to_vec);
        for op in ops {
            match op.op {
                OpCode::DELETE => o = None,
                OpCode::CREATE => o = Some(o.unwrap_or_default()),
                OpCode::WRITE => {
                    let (o, at) = (o.as_mut().unwrap(), op.extent().offset as usize);
                    o.resize(o.len().max(at + op.indata.len()), 0);
                    o[at..at + op.indata.len()].copy_from_slice(&op.indata);
                }
                OpCode::TRUNCATE => o.as_mut().unwrap().truncate(op.extent().offset as usize),
                _ => panic!("{:?}", op.op),
            }
        }
        o
    }

    #[test]
    fn changes_lead_from_one_content_to_the_other() {
        let mut rng = base::rng::Rng::new(5);
        let size = 1 << 20;
        for round in 0..200 {
            let mut some = |like: Option<&Vec<u8>>| {
                let mut data = like.cloned().unwrap_or_default();
                data.resize(rng.below(size) as usize, 0);
                for _ in 0..rng.below(4) {
                    let at = rng.below(data.len() as u64 + 1) as usize;
                    let end = data.len().min(at + rng.below(100_000) as usize);
                    data[at..end].fill(rng.below(3) as u8);
                }
                trim(&mut data);
                data
            };
            let old = some(None);
            let new = some(Some(&old));
            for (old, new) in [(Some(&old), Some(&new)), (None, Some(&new)), (Some(&old), None)] {
                let (old, new) = (old.map(|d| &d[..]), new.map(|d| &d[..]));
                let mut got = apply(old, &change(old, new, size));
                if let Some(d) = &mut got {
                    trim(d);
                }
                assert_eq!(got.as_deref(), new, "round {round}");
            }
            assert!(change(Some(&old), Some(&old), size).is_empty());
        }
    }
}
