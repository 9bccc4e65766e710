//! Splitting a logical transaction into one for each shard.
//!
//! Changes of attributes, existence and the snapshot index are the same on all shards. Changes of bytes are gathered
//! per object and come last, as whole blocks for the shards that they touch. The undo data of the transaction is part
//! of it ([`super::undo`]).

use super::Coder;
use super::image::Image;
use super::read::ShardReads;
use super::undo::{Undo, aside, encode};
use crate::exec::{Step, Stop};
use crate::log::{LogEntry, Touch};
use crate::object::{OI_ATTR, ObjectInfo};
use crate::pg::Pg;
use base::errno::EIO;
use base::planted::{Bug, acts};
use base::{Eversion, HObject};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag};

/// Most bytes of old attributes in the undo data; beyond it the object is set aside as a whole.
const ATTRS_MAX: usize = 4096;

/// Bytes of attributes that an entry carries for shards it does not touch, at most; with more it touches all.
const TOUCH_ATTRS_MAX: usize = 1024;

/// One object of the transaction.
struct Target {
    /// Size before the transaction; `None` if the object did not exist.
    before: Option<u64>,
    /// Content after the operations handled so far.
    image: Image,
    /// Object that holds the old bytes of the image.
    base: Oid,
    /// The object exists after the operations handled so far.
    exists: bool,
    /// The transaction changes bytes.
    dirty: bool,
    /// The transaction removes the object, or replaces it as a whole.
    whole: bool,
    attrs: BTreeMap<Bytes, Option<Bytes>>,
    hint: bool,
}

/// State of splitting a transaction.
struct Apart<'a> {
    cid: Cid,
    tag: Tag,
    store: &'a mut dyn ObjectStore,
    meta: Oid,
    targets: Vec<(HObject, Target)>,
    /// Changes that are the same on all shards.
    common: Vec<Op>,
    keys: Vec<Undo>,
}

impl Apart<'_> {
    /// Size of an object in the store; `None` if it does not exist.
    fn size(&mut self, oid: &Oid) -> Step<Option<u64>> {
        match self.store.attr(self.tag, self.cid, oid, OI_ATTR) {
            Ok(Some(a)) => match ObjectInfo::from_attr(&a) {
                Ok(oi) => Ok(Some(oi.size)),
                Err(error) => {
                    tracing::error!(object = %oid.hobj, %error, "object info does not decode");
                    Err(EIO.into())
                }
            },
            // The snapdir of a deleted head.
            Ok(None) => Ok(Some(0)),
            Err(ReadError::NoObject) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn target(&mut self, oid: &Oid) -> Step<&mut Target> {
        let at = match self.targets.iter().position(|(h, _)| *h == oid.hobj) {
            Some(at) => at,
            None => {
                let before = self.size(oid)?;
                let t = Target {
                    before,
                    image: Image::of(before.unwrap_or(0)),
                    base: oid.clone(),
                    exists: before.is_some(),
                    dirty: false,
                    whole: false,
                    attrs: BTreeMap::new(),
                    hint: false,
                };
                self.targets.push((oid.hobj.clone(), t));
                self.targets.len() - 1
            }
        };
        Ok(&mut self.targets[at].1)
    }

    /// Notes the old value of an attribute.
    fn attr(&mut self, oid: &Oid, name: &Bytes) -> Step<()> {
        let (cid, tag) = (self.cid, self.tag);
        let t = self.target(oid)?;
        if t.before.is_none() || t.whole || t.attrs.contains_key(name) {
            return Ok(());
        }
        let old = match self.store.attr(tag, cid, oid, name) {
            Err(ReadError::NoObject) => None,
            r => r?,
        };
        self.target(oid)?.attrs.insert(name.clone(), old);
        Ok(())
    }

    fn take(&mut self, op: Op) -> Step<()> {
        match &op {
            Op::Write { oid, off, data, .. } => {
                let t = self.target(oid)?;
                (t.exists, t.dirty) = (true, true);
                t.image.write(*off, data.clone());
                return Ok(());
            }
            Op::Zero { oid, off, len, .. } => {
                let t = self.target(oid)?;
                (t.exists, t.dirty) = (true, true);
                t.image.zero(*off, *len);
                return Ok(());
            }
            Op::Truncate { oid, size, .. } => {
                let t = self.target(oid)?;
                (t.exists, t.dirty) = (true, true);
                t.image.truncate(*size);
                return Ok(());
            }
            Op::Touch { oid, .. } => self.target(oid)?.exists = true,
            Op::SetAllocHint { oid, .. } => {
                let t = self.target(oid)?;
                (t.exists, t.hint) = (true, true);
            }
            Op::Remove { oid, .. } => {
                let t = self.target(oid)?;
                (t.exists, t.dirty, t.whole) = (false, false, true);
                t.image = Image::of(0);
            }
            Op::Clone { src, dst, .. } => {
                let size = self.size(src)?.ok_or(EIO)?;
                let src = src.clone();
                let t = self.target(dst)?;
                (t.exists, t.dirty, t.whole) = (true, false, true);
                t.image = Image::of(size);
                t.base = src;
            }
            Op::SetAttrs { oid, attrs, .. } => {
                for (name, _) in attrs {
                    self.attr(oid, name)?;
                }
                self.target(oid)?.exists = true;
            }
            Op::RmAttr { oid, name, .. } => self.attr(oid, name)?,
            Op::OmapSet { oid, entries, .. } if *oid == self.meta => {
                self.keys.push(Undo::KeysSet(entries.iter().map(|(k, _)| k.clone()).collect()));
            }
            Op::OmapRmKeys { oid, keys, .. } if *oid == self.meta => self.keys.push(Undo::KeysRemoved(keys.clone())),
            op => {
                tracing::error!(?op, "unexpected operation on an erasure-coded object; the write fails");
                return Err(EIO.into());
            }
        }
        self.common.push(op);
        Ok(())
    }
}

impl Pg {
    /// Splits a transaction for the shards; see [`Pg::spread`].
    pub(in crate::pg) fn spread_shards(
        &mut self,
        tag: Tag,
        ops: Vec<Op>,
        entries: &mut [LogEntry],
        store: &mut dyn ObjectStore,
    ) -> Step<Vec<Vec<Op>>> {
        let (Some(coder), Some(last)) = (self.ec.coder.clone(), entries.last_mut()) else { return Err(EIO.into()) };
        let n = coder.layout.shards();
        let version = last.version;
        let me = usize::try_from(self.env.spg().shard.0).ok();
        if ops.is_empty() {
            return Ok(vec![Vec::new(); n]);
        }
        let (cid, meta) = (self.env.cid(), self.meta());
        let mut a =
            Apart { cid, tag, store: &mut *store, meta, targets: Vec::new(), common: Vec::new(), keys: Vec::new() };
        for op in ops {
            a.take(op)?;
        }
        let Apart { mut targets, common, keys, .. } = a;
        let mut undo = Vec::new();
        let mut first = Vec::new();
        for (oid, t) in &targets {
            undo.extend(undo_of(cid, oid, t, version, &mut first));
        }
        undo.extend(keys);
        // A clone of an object that is set aside is made before that; the other changes come after it.
        let at = common.iter().take_while(|o| is_clone_of_head(o, &targets)).count();
        let mut shards: Vec<Vec<Op>> = (0..n)
            .map(|_| {
                let (before, after) = common.split_at(at);
                before.iter().chain(&first).chain(after).cloned().collect()
            })
            .collect();
        let mut reads = self.ec.shard.reads.take();
        for (oid, t) in &mut targets {
            if t.dirty && t.exists {
                let r = bytes_of(cid, oid, t, &coder, &mut reads, tag, store, &mut shards);
                if r.is_err() {
                    self.ec.shard.reads = reads;
                    return Err(r.err().unwrap_or(Stop::Wait));
                }
            }
        }
        self.ec.shard.reads = reads;
        if let ([(oid, t)], [_], true) = (&targets[..], &undo[..], first.is_empty()) {
            last.touch = touch_of(oid, t, &common, &shards, me, coder.layout.k());
        }
        last.undo = encode(&undo);
        if entries.len() > 1 {
            // A transaction with several entries is no plain overwrite; the last entry undoes all of them.
            entries.iter_mut().for_each(|e| e.touch = None);
        }
        if acts(Bug::StaleUntouchedShard) && shards.iter().any(|ops| changes_bytes(ops)) {
            for (_, ops) in shards.iter_mut().enumerate().filter(|(s, ops)| Some(*s) != me && !changes_bytes(ops)) {
                ops.retain(|o| !matches!(o, Op::SetAttrs { .. }));
            }
        }
        Ok(shards)
    }
}

/// True if a shard's part of the transaction changes bytes.
fn changes_bytes(ops: &[Op]) -> bool {
    ops.iter().any(|o| matches!(o, Op::Write { .. } | Op::Truncate { .. }))
}

/// The shards that a transaction touches. The primary and the coding shards count as touched by every entry, so their
/// logs are never behind. `None` if the transaction touches all shards, or does more than change bytes within one
/// object's size and set attributes.
fn touch_of(
    oid: &HObject,
    t: &Target,
    common: &[Op],
    shards: &[Vec<Op>],
    me: Option<usize>,
    k: usize,
) -> Option<Box<Touch>> {
    if t.before.is_none() || t.whole || t.hint || !t.exists || t.image.is_resized() {
        return None;
    }
    let mut set: Vec<(Bytes, Bytes)> = Vec::new();
    for op in common {
        match op {
            Op::SetAttrs { oid: o, attrs, .. } if o.hobj == *oid => {
                for (name, value) in attrs {
                    set.retain(|(n, _)| n != name);
                    set.push((name.clone(), value.clone()));
                }
            }
            _ => return None,
        }
    }
    let bit = |s: usize| u32::try_from(s).ok().and_then(|s| 1u32.checked_shl(s));
    let mut touched = 0;
    for (s, ops) in shards.iter().enumerate() {
        if s >= k || Some(s) == me || changes_bytes(ops) {
            touched |= bit(s)?;
        }
    }
    let (n, coding) = (shards.len(), shards.len() - k);
    let small = set.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() <= TOUCH_ATTRS_MAX;
    // With more than `m` touched shards, any `k` shards include one of them, so peering always finds the entry.
    let heard = touched.count_ones() as usize > coding;
    let spares = (touched.count_ones() as usize) < n;
    (small && heard && spares).then(|| Box::new(Touch { shards: touched, attrs: set }))
}

/// A clone that is made of an object before it changes.
fn is_clone_of_head(op: &Op, targets: &[(HObject, Target)]) -> bool {
    let fresh = |o: &Oid| targets.iter().any(|(h, t)| *h == o.hobj && t.before.is_none());
    match op {
        Op::Clone { dst, .. } => fresh(dst),
        Op::RmAttr { oid, .. } | Op::SetAttrs { oid, .. } => fresh(oid),
        _ => false,
    }
}

/// Undo data of one object. Operations that must precede its changes are added to `first`.
fn undo_of(cid: Cid, oid: &HObject, t: &Target, version: Eversion, first: &mut Vec<Op>) -> Option<Undo> {
    let Some(size) = t.before else {
        return t.exists.then(|| Undo::Made(oid.clone()));
    };
    let much = |a: &BTreeMap<Bytes, Option<Bytes>>| {
        a.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, Bytes::len)).sum::<usize>() > ATTRS_MAX
    };
    if t.whole {
        first.push(Op::Rename { cid, src: Oid::new(oid.clone()), dst: aside(oid, version) });
        return Some(Undo::Aside(oid.clone()));
    }
    if much(&t.attrs) {
        first.push(Op::Clone { cid, src: Oid::new(oid.clone()), dst: aside(oid, version) });
        return Some(Undo::Aside(oid.clone()));
    }
    let attrs = t.attrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    Some(Undo::Kept { oid: oid.clone(), size, attrs })
}

/// Adds the changes of an object's bytes to the operations of each shard.
#[allow(clippy::too_many_arguments, reason = "one step of spread_shards")]
fn bytes_of(
    cid: Cid,
    hobj: &HObject,
    t: &mut Target,
    coder: &Rc<Coder>,
    reads: &mut Option<Box<ShardReads>>,
    tag: Tag,
    store: &mut dyn ObjectStore,
    shards: &mut [Vec<Op>],
) -> Step<()> {
    let layout = &coder.layout;
    let oid = Oid::new(hobj.clone());
    let reads = reads.as_deref_mut().ok_or(EIO)?;
    let plan = t.image.plan(layout, reads.has_all());
    let mut waits = false;
    let mut got = Vec::with_capacity(plan.len());
    for rows in &plan {
        match reads.parts(tag, cid, &t.base, t.image.old(), rows.reads(), store) {
            Ok(b) => got.push(b),
            Err(Stop::Wait) => waits = true,
            Err(e) => return Err(e),
        }
    }
    if waits {
        return Err(Stop::Wait);
    }
    let coded = |error: ::ec::CodecError| {
        tracing::error!(object = %hobj, %error, "can't encode stripes");
        Stop::Errno(EIO)
    };
    for (rows, read) in plan.iter().zip(&got) {
        for w in t.image.encode(layout, &coder.codec, rows, read).map_err(coded)? {
            if let Some(ops) = shards.get_mut(w.shard) {
                ops.push(Op::Write { cid, oid: oid.clone(), off: w.off, data: w.data, sums: None });
            }
        }
    }
    if t.image.is_resized() || t.before.is_none() {
        for (s, ops) in shards.iter_mut().enumerate() {
            ops.push(Op::Truncate { cid, oid: oid.clone(), size: layout.shard_len(t.image.size(), s) });
        }
    }
    Ok(())
}
