//! Data of live migrations: the history of an object is copied from the source to the destination, or what was written
//! to the destination goes back to the source.
//!
//! Objects are compared by what images show, not by how they are stored, so source and destination may differ in
//! striping and in the size of objects. Invariants: a copy never replaces what a client wrote to the destination, and
//! repeated after a crash it goes on where it was: each step is made with the snapshots that came before it, and is
//! skipped once the object knows newer ones.

use super::image::{Image, Step, enc};
use super::migration::Spec;
use base::SnapId;
use base::errno::{EEXIST, EIO, ENOENT, ERANGE};
use bytes::Bytes;
use wire::Reader;
use wire::msg::op_code::op_flags;
use wire::msg::{OpCode, OsdOp};
use wire::types::ListSnapsReply;

/// Differences are written in pieces of this size.
const PIECE: usize = 64 << 10;
/// Pieces of an object: those of larger ones are longer.
const PIECES_MAX: usize = 64;
/// `assert_snapc_seq`: the object must not know a snapshot as new as this.
const NEWER_THAN_OBJECT: u8 = 0;

/// What an image shows of an object: `None` if there is none. Zeros at the end are left out.
type Shown = Option<Vec<u8>>;

/// The source at one time.
struct Point {
    from: Image,
    snap: Option<u64>,
    /// Bytes that are taken.
    limit: u64,
    /// Where source and destination have no object, the destination's parent shows what the source's does.
    shows_parent: bool,
    /// The snapshot of the destination that it becomes, unless it was removed; `None` for the head.
    becomes: Option<u64>,
}

/// A snapshot of the destination, or its head, and its data objects.
struct View {
    snap: Option<u64>,
    objects: u64,
}

/// The way from source to destination.
pub(super) struct Copy {
    to: Image,
    /// Oldest first, the head last.
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

    /// Objects of the destination that the source shows something of.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Copies what the destination has not of its object `n`.
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
        // Maps first: they may only err on the side of an object that is not there.
        self.note(n, &states, newest).await?;
        let o = self.to.data.object(&self.to.data_object(n));
        for (snaps, ops) in writes {
            match self.to.data.write(&o, ops, &snaps).await {
                // A client of the destination copied it at the same time.
                Err(EEXIST | ERANGE) => {}
                r => r?,
            }
        }
        Ok(())
    }

    /// Writes down in the object maps of snapshots and head in which of them the object exists and changed.
    async fn note(&self, n: u64, states: &[(Option<u64>, bool, bool)], newest: u64) -> Step<()> {
        let mut head_seen = false;
        for v in self.views.iter() {
            let of_source = v.snap.is_some_and(|s| s <= newest);
            let found = match of_source {
                true => states.iter().find(|(becomes, ..)| *becomes == v.snap),
                false => states.last(),
            };
            let Some((_, exists, changed)) = found else { continue };
            // The source's head becomes the first snapshot made since; nothing has changed in those after it.
            let clean = !changed || (!of_source && head_seen);
            head_seen |= !of_source;
            if *exists && n < v.objects {
                self.to.map_exists(n, v.snap, clean).await?;
            }
        }
        Ok(())
    }

    /// The newest snapshot that the destination's object knows of; `None` if there never was an object.
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

    /// Where object `n` of `to` lies in the image, and how much is taken of each piece.
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

    /// True if the source itself has an object where object `n` of `to` is.
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

/// The way back: what clients wrote to the destination.
pub(super) struct Back {
    from: Image,
    to: Image,
    /// The destination has all data: what it has not is zeros, or its parent's. Else it is the source's.
    whole: bool,
}

impl Back {
    pub(super) fn new(from: &Image, to: &Image, whole: bool) -> Self {
        let mut to = to.clone();
        if !whole {
            // Where the destination has no object, what was read before stays.
            to.parent = None;
        }
        Self { from: from.clone(), to, whole }
    }

    /// Objects of the source.
    pub(super) fn objects(&self) -> u64 {
        self.from.objects(self.from.size())
    }

    /// Makes object `n` of the source show what the destination does.
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

/// What lets a step be made only once.
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

/// The operations that make an object of up to `size` bytes show `new` instead of `old`.
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
        // Behind its end an object reads as zeros.
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

    /// What the operations do to an object.
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
