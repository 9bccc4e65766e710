//! Reading bytes of shards for a plan.
//!
//! A plan that needs bytes of other shards returns `Wait`. The primary asks for them ([`super::fetch`]), and the plan
//! runs again from its start. The received ranges stay with the plan until it ends. Bytes of a missing or unreadable
//! shard are rebuilt from `k` others.

use super::Coder;
use super::account::{Account, Page};
use crate::exec::{Step, Stop};
use crate::object::{OI_ATTR, ObjectInfo};
use crate::shards::PeerId;
use ::ec::stripe::Part;
use base::buf::AlignedBuf;
use base::errno::EIO;
use base::{Eversion, HObject};
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use store::{Cid, ObjectStore, Oid, ReadError, Tag};

/// A range of a shard that another OSD is to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub shard: usize,
    pub oid: HObject,
    /// The version that the object must have.
    pub version: Eversion,
    pub range: Range<u64>,
}

/// Possible holders of each shard of an object, in the order in which they are asked.
pub(in crate::pg) type Holders = BTreeMap<usize, SmallVec<[PeerId; 2]>>;

/// The shard reads of a plan; see the module.
#[derive(Debug)]
pub(crate) struct ShardReads {
    coder: Rc<Coder>,
    me: PeerId,
    /// Holders of the object's shards.
    pub holders: Holders,
    /// Copies that may have shards of the object from before, asked if too few of the holders can give theirs.
    pub last_resorts: Holders,
    /// Too few of the holders could.
    resorts: bool,
    /// Copies that could not give an object.
    bad: BTreeSet<(HObject, PeerId)>,
    /// This OSD's own shard is unreadable.
    pub own_bad: bool,
    have: BTreeMap<(HObject, usize), Vec<(u64, Bytes)>>,
    versions: BTreeMap<HObject, Eversion>,
    /// Versions of the bytes in `have`, until it is known whether the objects still have them.
    before: BTreeMap<HObject, Eversion>,
    pub wanted: Vec<Wanted>,
    /// A page of the object and its clones as another shard reported them, if this OSD lacks the object.
    pub family: Option<Page>,
    pub wants_family: bool,
    /// The clone with which the wanted page begins; `None`: the first one.
    pub family_from: Option<HObject>,
    /// Copies that were asked for the object and its clones, and lack the object, too.
    pub cannot_tell: BTreeSet<PeerId>,
    /// The account of a copy of last resort, until all of it is here and judged.
    pub(super) account: Option<Box<Account>>,
    /// The copy of last resort whose account is right.
    pub(super) vouched: Option<PeerId>,
}

impl ShardReads {
    pub(in crate::pg) fn new(coder: Rc<Coder>, me: PeerId) -> Self {
        Self {
            coder,
            me,
            holders: Holders::new(),
            last_resorts: Holders::new(),
            resorts: false,
            bad: BTreeSet::new(),
            own_bad: false,
            have: BTreeMap::new(),
            versions: BTreeMap::new(),
            before: BTreeMap::new(),
            wanted: Vec::new(),
            family: None,
            wants_family: false,
            family_from: None,
            cannot_tell: BTreeSet::new(),
            account: None,
            vouched: None,
        }
    }

    pub(in crate::pg) fn coder(&self) -> &Rc<Coder> {
        &self.coder
    }

    /// True if all shards of the object are readable.
    pub(in crate::pg) fn has_all(&self) -> bool {
        self.holders.len() == self.coder.layout.shards() && self.bad.is_empty()
    }

    /// True if other OSDs could not give their shards.
    pub(in crate::pg) fn others_failed(&self) -> bool {
        self.bad.iter().any(|(_, p)| *p != self.me)
    }

    /// True if there are holders of enough shards, if need be with the copies of last resort.
    pub(in crate::pg) fn has_enough_holders(&mut self) -> bool {
        let k = self.coder.layout.k();
        self.holders.len() >= k || self.resort() && self.holders.len() >= k
    }

    /// Makes the copies of last resort holders, if that was necessary before.
    pub(in crate::pg) fn resort_again(&mut self) {
        if self.resorts {
            self.resort();
        }
    }

    /// Makes the copies of last resort holders. False if there are none, or they are holders.
    pub(in crate::pg) fn resort(&mut self) -> bool {
        let more = std::mem::take(&mut self.last_resorts);
        if more.is_empty() {
            return false;
        }
        self.resorts = true;
        for (shard, of) in more {
            self.holders.entry(shard).or_default().extend(of);
        }
        true
    }

    /// Sets the version that an object must have, if this OSD does not have it.
    pub(in crate::pg) fn expect(&mut self, oid: &HObject, version: Eversion) {
        self.versions.insert(oid.clone(), version);
    }

    /// Rechecks versions before bytes are used again: the plan holds no lock, so objects may have changed between its
    /// runs.
    pub(in crate::pg) fn look_again(&mut self) {
        self.before.append(&mut self.versions);
    }

    /// True if questions must be sent to other shards.
    pub(in crate::pg) fn wants(&self) -> bool {
        !self.wanted.is_empty() || self.wants_family
    }

    /// Drops received bytes.
    pub(in crate::pg) fn clear(&mut self) {
        self.have.clear();
    }

    /// Adds a range that another shard sent.
    pub(in crate::pg) fn came(&mut self, w: &Wanted, data: Bytes) {
        self.have.entry((w.oid.clone(), w.shard)).or_default().push((w.range.start, data));
    }

    /// Notes that another shard could not send a range.
    pub(in crate::pg) fn failed(&mut self, w: &Wanted, from: PeerId) {
        tracing::warn!(object = %w.oid, shard = %from, "shard is unreadable; its bytes are rebuilt from others");
        self.bad.insert((w.oid.clone(), from));
    }

    /// The copy to ask for a shard of an object.
    pub(in crate::pg) fn source(&self, oid: &HObject, shard: usize) -> Option<PeerId> {
        let of = self.holders.get(&shard)?;
        if self.bad.is_empty() {
            return of.first().copied();
        }
        of.iter().find(|p| !self.bad.contains(&(oid.clone(), **p))).copied()
    }

    fn is_there(&self, oid: &HObject, shard: usize) -> bool {
        self.source(oid, shard).is_some()
    }

    /// The bytes of each part, at full length, of an object of `size` bytes.
    pub(in crate::pg) fn parts(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        size: u64,
        parts: &[Part],
        store: &mut dyn ObjectStore,
    ) -> Step<Vec<Bytes>> {
        let mut out = Vec::with_capacity(parts.len());
        let mut waits = false;
        for p in parts {
            match self.part(tag, cid, oid, size, p, store) {
                Ok(b) => out.push(b),
                Err(Stop::Wait) => waits = true,
                Err(e) => return Err(e),
            }
        }
        if waits { Err(Stop::Wait) } else { Ok(out) }
    }

    /// The bytes `run` of an object of `size` bytes, cut at its end.
    pub(crate) fn object(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        size: u64,
        run: Range<u64>,
        store: &mut dyn ObjectStore,
    ) -> Step<Bytes> {
        let run = run.start..run.end.min(size);
        if run.is_empty() {
            return Ok(Bytes::new());
        }
        let layout = self.coder.layout;
        let parts = layout.parts(&run);
        let mut got = self.parts(tag, cid, oid, size, &parts, store)?;
        if got.len() == 1 {
            return Ok(got.remove(0));
        }
        let want = (run.end - run.start) as usize;
        // A used buffer: fresh memory of this size costs more than the copies.
        let (mut out, mut filled) = (AlignedBuf::dirty(want), 0);
        for (shard, at, within, len) in layout.pieces(&run) {
            let Some((p, b)) = parts.iter().zip(&got).find(|(p, _)| p.shard == shard) else { continue };
            let from = (at - p.range.start) as usize;
            out[within as usize..(within + len) as usize].copy_from_slice(&b[from..from + len as usize]);
            filled += len as usize;
        }
        // Nothing of the buffer's former contents may be shown.
        if filled != want {
            return Err(Stop::Errno(EIO));
        }
        Ok(out.freeze().slice(..want))
    }

    fn part(&mut self, tag: Tag, cid: Cid, oid: &Oid, size: u64, p: &Part, store: &mut dyn ObjectStore) -> Step<Bytes> {
        while self.is_there(&oid.hobj, p.shard) {
            if let Some(b) = self.direct(tag, cid, oid, size, p, store)? {
                return Ok(b);
            }
        }
        self.rebuild(tag, cid, oid, size, p, store)
    }

    /// A shard's bytes as stored, zero behind its end; `None` if the source is unreadable.
    fn direct(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        size: u64,
        p: &Part,
        store: &mut dyn ObjectStore,
    ) -> Step<Option<Bytes>> {
        let end = p.range.end.min(self.coder.layout.shard_len(size, p.shard));
        let want = (p.range.end - p.range.start) as usize;
        if end <= p.range.start {
            return Ok(Some(vec![0; want].into()));
        }
        let range = p.range.start..end;
        // Another OSD may hold this OSD's shard, too, and may be the one with the object.
        let own = self.source(&oid.hobj, p.shard) == Some(self.me);
        let got = if own {
            match store.read(tag, cid, oid, range.start, range.end - range.start) {
                Ok(b) => Some(b),
                Err(ReadError::Wait) => return Err(Stop::Wait),
                Err(_) => None,
            }
        } else {
            let version = self.version(tag, cid, oid, store)?;
            let found = self.have.get(&(oid.hobj.clone(), p.shard)).into_iter().flatten().find_map(|(off, b)| {
                let from = range.start.checked_sub(*off)?;
                let to = range.end - off;
                (to <= b.len() as u64).then(|| b.slice(from as usize..to as usize))
            });
            match found {
                Some(b) => Some(b),
                None => {
                    let w = Wanted { shard: p.shard, oid: oid.hobj.clone(), version, range };
                    if !self.wanted.contains(&w) {
                        self.wanted.push(w);
                    }
                    return Err(Stop::Wait);
                }
            }
        };
        match got {
            Some(b) if b.len() as u64 == range.end - range.start => {
                if b.len() == want {
                    return Ok(Some(b));
                }
                let mut padded = BytesMut::zeroed(want);
                padded[..b.len()].copy_from_slice(&b);
                Ok(Some(padded.freeze()))
            }
            _ => {
                // Unreadable, or shorter than the object's size implies.
                self.own_bad |= own;
                self.bad.insert((oid.hobj.clone(), self.me));
                Ok(None)
            }
        }
    }

    fn version(&mut self, tag: Tag, cid: Cid, oid: &Oid, store: &mut dyn ObjectStore) -> Step<Eversion> {
        if let Some(v) = self.versions.get(&oid.hobj) {
            return Ok(*v);
        }
        let a = store.attr(tag, cid, oid, OI_ATTR)?.ok_or(EIO)?;
        let v = ObjectInfo::from_attr(&a).map_err(|_| EIO)?.version;
        if self.before.remove(&oid.hobj).is_some_and(|b| b != v) {
            self.have.retain(|(o, _), _| *o != oid.hobj);
            self.bad.retain(|(o, _)| *o != oid.hobj);
        }
        self.versions.insert(oid.hobj.clone(), v);
        Ok(v)
    }

    /// Rebuilds a shard's bytes from those of `k` others.
    fn rebuild(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        size: u64,
        p: &Part,
        store: &mut dyn ObjectStore,
    ) -> Step<Bytes> {
        let coder = self.coder.clone();
        'again: loop {
            let there = (0..coder.layout.shards()).filter(|s| *s != p.shard && self.is_there(&oid.hobj, *s));
            let present = there.fold(0u32, |set, s| set | 1 << s);
            let plan = match coder.codec.rebuild(present, 1 << p.shard) {
                Ok(plan) => plan,
                Err(_) if self.resort() => continue,
                Err(error) => {
                    tracing::error!(object = %oid.hobj, shard = p.shard, %error, "too few shards are readable to rebuild another");
                    return Err(Stop::Errno(EIO));
                }
            };
            let mut sources = Vec::with_capacity(plan.sources().len());
            let mut waits = false;
            for s in plan.sources() {
                let from = Part { shard: *s, range: p.range.clone() };
                match self.direct(tag, cid, oid, size, &from, store) {
                    Ok(Some(b)) => sources.push(b),
                    Ok(None) => continue 'again,
                    Err(Stop::Wait) => waits = true,
                    Err(e) => return Err(e),
                }
            }
            if waits {
                return Err(Stop::Wait);
            }
            let sources: Vec<&[u8]> = sources.iter().map(|b| &b[..]).collect();
            let mut out = BytesMut::zeroed((p.range.end - p.range.start) as usize);
            plan.run(&sources, &mut [&mut out[..]]).map_err(|_| EIO)?;
            return Ok(out.freeze());
        }
    }
}
