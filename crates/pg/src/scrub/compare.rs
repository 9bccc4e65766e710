//! Comparison of copies: which are wrong, how errors are counted, and which copy is authoritative.
//!
//! As in Ceph, except for copies with equal versions and no error of their own: the majority counts, not the first
//! copy asked. The primary wins a tie.
//!
//! Shards of an erasure-coded pool have equal attributes, and lengths that follow from the object's size. Digests of
//! their bytes show whether the shards fit each other ([`super::parity`]).

use super::map::{Family, READ_ERROR, STAT_ERROR, ScrubObject};
use super::parity::{Shape, Verdict};
use super::report::{BadObject, BadSnapset, Shard, object_err, shard_err, snapset_err};
use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR, SnapSet, USER_ATTR_PREFIX};
use crate::shards::PeerId;
use crate::stats::StatSum;
use base::ShardId;
use base::{Eversion, HObject, SnapId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Result of comparing one object with its clones.
#[derive(Debug, Default)]
pub struct Compared {
    /// Objects that differ.
    pub objects: Vec<(HObject, BadObject)>,
    /// Errors of the snapset.
    pub snapset: Option<BadSnapset>,
    /// Number of errors that a shallow scrub finds.
    pub shallow: i64,
    /// Number of errors that only a deep scrub finds.
    pub deep: i64,
    /// Lines for the cluster log, without the PG.
    pub lines: Vec<String>,
    /// A copy that is right in the object and all clones; `None` if there is none.
    pub good: Option<PeerId>,
    /// Copies that are wrong in the object or a clone.
    pub bad: BTreeSet<PeerId>,
    /// Copies of objects that a repair would replace; a repair counts them as fixed.
    pub fixable: i64,
    /// Sums of the objects, according to the authoritative copies.
    pub stats: StatSum,
    /// Objects with a large omap: entries, and bytes of their values.
    pub omap: Vec<(HObject, u64, u64)>,
}

/// Bytes that copy `p` of an object of `size` bytes must have.
fn length(shape: Option<Shape<'_>>, p: PeerId, size: u64) -> u64 {
    shape.map_or(size, |s| s.shard_len(size, p.shard))
}

/// Errors of a copy by itself, the version it claims, and lines for the cluster log.
fn faults(oid: &HObject, p: PeerId, o: &ScrubObject, shape: Option<Shape<'_>>) -> (u64, Eversion, Vec<String>) {
    let mut lines = Vec::new();
    let mut errors = 0;
    let mut add = |e: u64, text: String| {
        errors |= e;
        lines.push(text);
    };
    if o.errors & READ_ERROR != 0 {
        add(shard_err::READ_ERROR, "candidate had a read error".to_owned());
    }
    if o.errors & STAT_ERROR != 0 {
        add(shard_err::STAT_ERROR, "candidate had a stat error".to_owned());
    }
    let mut version = Eversion::default();
    if !o.attrs.is_empty() || o.errors == 0 {
        match (oid.snap == SnapId::SNAPDIR, o.info()) {
            (true, _) => {}
            (_, None) => add(shard_err::INFO_MISSING, "candidate had a missing info key".to_owned()),
            (_, Some(Err(_))) => add(shard_err::INFO_CORRUPTED, "candidate had a corrupt info".to_owned()),
            (_, Some(Ok(oi))) => {
                version = oi.version;
                let wants = length(shape, p, oi.size);
                if wants != o.size && o.errors & STAT_ERROR == 0 {
                    let text = format!("candidate size {} info size {wants} mismatch", o.size);
                    add(shard_err::OBJ_SIZE_INFO_MISMATCH, text);
                }
            }
        }
        match (oid.snap, o.snapset()) {
            (SnapId::SNAPDIR, None) => {
                add(shard_err::SNAPSET_MISSING, "candidate had a missing snapset key".to_owned());
            }
            (SnapId::SNAPDIR | SnapId::HEAD, Some(Err(_))) => {
                add(shard_err::SNAPSET_CORRUPTED, "candidate had a corrupt snapset".to_owned());
            }
            _ => {}
        }
    }
    (errors, version, lines)
}

/// True if two copies are equal in everything that a scrub checks; of shards, only in what all shards share.
fn same(a: &ScrubObject, b: &ScrubObject, shards: bool) -> bool {
    let data = shards || a.size == b.size && a.data_digest == b.data_digest;
    data && a.omap_digest == b.omap_digest && a.attrs == b.attrs
}

/// Name of a copy in lines of the cluster log.
fn name(p: PeerId) -> String {
    if p.shard == ShardId::NONE { p.osd.0.to_string() } else { format!("{}({})", p.osd.0, p.shard.0) }
}

/// Compares a copy with the authoritative one. Returns the object's errors, the copy's own, and lines for the cluster
/// log. `wants`: the expected length, if the copy is a shard.
fn differences(
    o: &ScrubObject,
    auth: &ScrubObject,
    by: PeerId,
    oi: Option<&ObjectInfo>,
    wants: Option<u64>,
) -> (u64, u64, Vec<String>) {
    let (mut errors, mut own, mut lines) = (0, 0, Vec::new());
    let shard = wants.is_some();
    for (mine, theirs, e, what) in [
        (o.data_digest, auth.data_digest, object_err::DATA_DIGEST_MISMATCH, "data_digest"),
        (o.omap_digest, auth.omap_digest, object_err::OMAP_DIGEST_MISMATCH, "omap_digest"),
    ] {
        if let (Some(m), Some(t)) = (mine, theirs)
            && m != t
            && !(shard && e == object_err::DATA_DIGEST_MISMATCH)
        {
            errors |= e;
            lines.push(format!("{what} {m:#010x} != {what} {t:#010x} from shard {}", name(by)));
        }
    }
    if o.errors & STAT_ERROR == 0 {
        if let Some(wants) = wants.or(oi.map(|oi| oi.size)).filter(|w| *w != o.size) {
            own |= shard_err::SIZE_MISMATCH_INFO;
            lines.push(format!("size {} != size {wants} from auth oi", o.size));
        }
        if o.size != auth.size && !shard {
            errors |= object_err::SIZE_MISMATCH;
            lines.push(format!("size {} != size {} from shard {}", o.size, auth.size, name(by)));
        }
    }
    if o.attrs.is_empty() && o.errors != 0 {
        return (errors, own, lines);
    }
    let of = |x: &ScrubObject, name: &[u8]| x.attr(name).cloned();
    for (name, e, what) in [
        (OI_ATTR, object_err::OBJECT_INFO_INCONSISTENCY, "object info inconsistent"),
        (SS_ATTR, object_err::SNAPSET_INCONSISTENCY, "snapset inconsistent"),
    ] {
        if of(o, name) != of(auth, name) && (of(o, name).is_some() || name == SS_ATTR) {
            errors |= e;
            lines.push(what.to_owned());
        }
    }
    let user = |name: &[u8]| name.len() > 1 && name.first() == Some(&USER_ATTR_PREFIX);
    let text = |n: &[u8]| String::from_utf8_lossy(n.get(1..).unwrap_or_default()).into_owned();
    for a in auth.attrs.iter().filter(|a| user(&a.name)) {
        match o.attr(&a.name) {
            None => {
                errors |= object_err::ATTR_NAME_MISMATCH;
                lines.push(format!("attr name mismatch '{}'", text(&a.name)));
            }
            Some(b) if b != a => {
                errors |= object_err::ATTR_VALUE_MISMATCH;
                lines.push(format!("attr value mismatch '{}'", text(&a.name)));
            }
            Some(_) => {}
        }
    }
    for a in o.attrs.iter().filter(|a| user(&a.name) && auth.attr(&a.name).is_none()) {
        errors |= object_err::ATTR_NAME_MISMATCH;
        lines.push(format!("attr name mismatch '{}'", text(&a.name)));
    }
    (errors, own, lines)
}

/// Result of comparing one object or clone.
struct One<'a> {
    bad: Option<BadObject>,
    shallow: i64,
    deep: i64,
    lines: Vec<String>,
    /// The authoritative copy.
    auth: Option<(PeerId, &'a ScrubObject)>,
    wrong: BTreeSet<PeerId>,
}

/// Judges the bytes of shards without errors of their own: all fit, one is wrong, or undecidable.
fn judge(shape: Shape<'_>, fit: &[Fit<'_>]) -> Verdict {
    let digests: Vec<_> = fit.iter().filter_map(|f| Some((f.1.shard, f.2.parity.as_ref()?))).collect();
    shape.judge(&digests)
}

/// A copy without errors of its own, with its version.
type Fit<'a> = (Eversion, PeerId, &'a ScrubObject);

impl<'a> One<'a> {
    /// Counts errors, as deep ones if one of the bits `deep` is set.
    fn count(&mut self, errors: u64, deep: u64) {
        if errors & deep != 0 {
            self.deep += 1;
        } else if errors != 0 {
            self.shallow += 1;
        }
    }

    /// Notes the errors that each copy has by itself. Returns the copies without any.
    fn own_faults(
        &mut self,
        oid: &HObject,
        primary: PeerId,
        copies: &[(PeerId, Option<&'a ScrubObject>)],
        shape: Option<Shape<'_>>,
        bad: &mut BadObject,
    ) -> Vec<Fit<'a>> {
        let mut fit = Vec::new();
        for (osd, o) in copies {
            let mut shard = Shard { primary: *osd == primary, ..Shard::default() };
            if let Some(o) = o {
                let (errors, version, lines) = faults(oid, *osd, o, shape);
                for l in lines {
                    self.lines.push(format!("shard {} soid {oid} : {l}", name(*osd)));
                }
                shard.errors = errors;
                shard.object = Some((*o).clone());
                if errors == 0 {
                    fit.push((version, *osd, *o));
                }
            } else {
                shard.errors = shard_err::MISSING;
            }
            bad.shards.insert(*osd, shard);
        }
        fit
    }

    /// Notes shards whose bytes do not fit the others, and leaves them out.
    fn judge_bytes(&mut self, oid: &HObject, shape: Shape<'_>, fit: &mut Vec<Fit<'a>>, bad: &mut BadObject) {
        match judge(shape, fit) {
            Verdict::Fits => {}
            Verdict::Wrong(shard) => {
                for (p, s) in bad.shards.iter_mut().filter(|(p, _)| p.shard == shard) {
                    s.errors |= shard_err::EC_HASH_MISMATCH;
                    self.lines.push(format!("shard {} soid {oid} : candidate does not fit the other shards", name(*p)));
                }
                fit.retain(|f| f.1.shard != shard);
            }
            Verdict::Unclear => {
                bad.errors |= object_err::DATA_DIGEST_MISMATCH;
                self.lines.push(format!("soid {oid} : shards do not fit each other"));
            }
        }
    }
}

/// Compares the copies of an object or clone.
fn one<'a>(
    oid: &HObject,
    primary: PeerId,
    copies: &[(PeerId, Option<&'a ScrubObject>)],
    shape: Option<Shape<'_>>,
) -> One<'a> {
    let mut out = One { bad: None, shallow: 0, deep: 0, lines: Vec::new(), auth: None, wrong: BTreeSet::new() };
    let mut bad = BadObject::default();
    let mut fit = out.own_faults(oid, primary, copies, shape, &mut bad);
    let newest = fit.iter().map(|f| f.0).max().unwrap_or_default();
    fit.retain(|f| f.0 == newest);
    if let Some(s) = shape {
        out.judge_bytes(oid, s, &mut fit, &mut bad);
    }
    let votes = |o: &ScrubObject| fit.iter().filter(|f| same(f.2, o, shape.is_some())).count();
    let most = fit.iter().map(|f| votes(f.2)).max().unwrap_or(0);
    out.auth = fit.iter().find(|f| votes(f.2) == most).map(|f| (f.1, f.2));
    let Some((by, auth)) = out.auth else {
        for (osd, s) in &bad.shards {
            out.count(s.errors, shard_err::DEEP);
            out.wrong.insert(*osd);
        }
        out.lines.push(format!("soid {oid} : failed to pick suitable object info"));
        out.bad = Some(bad);
        return out;
    };
    let oi = auth.info().and_then(Result::ok);
    bad.version = oi.as_ref().map_or(0, |oi| oi.user_version);
    for (osd, o) in copies {
        let Some(shard) = bad.shards.get_mut(osd) else { continue };
        shard.selected = *osd == by && oi.is_some();
        let Some(o) = o else {
            out.shallow += 1;
            out.wrong.insert(*osd);
            out.lines.push(format!("shard {} soid {oid} : missing", name(*osd)));
            continue;
        };
        let wants = shape.map(|s| s.shard_len(oi.as_ref().map_or(0, |oi| oi.size), osd.shard));
        let (errors, own, lines) =
            if *osd == by { Default::default() } else { differences(o, auth, by, oi.as_ref(), wants) };
        bad.errors |= errors;
        shard.errors |= own;
        out.count(shard.errors, shard_err::DEEP);
        if shard.errors | errors != 0 {
            out.wrong.insert(*osd);
        }
        if !lines.is_empty() {
            let whose = if shard.errors != 0 { format!("shard {} ", name(*osd)) } else { String::new() };
            out.lines.push(format!("{whose}soid {oid} : {}", lines.join(", ")));
        }
    }
    out.count(bad.errors, object_err::DEEP);
    if !out.wrong.is_empty() || bad.errors != 0 {
        out.bad = Some(bad);
    }
    out
}

/// Compares the copies of an object with its clones; with a `shape`, the copies are shards. The primary's copy comes
/// first. `large`: omap entries and bytes above which an omap is reported as large.
#[must_use]
pub fn compare(head: &HObject, copies: &[(PeerId, &Family)], large: (u64, u64), shape: Option<Shape<'_>>) -> Compared {
    let mut out = Compared::default();
    let primary = copies.first().map_or(PeerId::NONE, |c| c.0);
    let snaps: BTreeSet<SnapId> = copies.iter().flat_map(|(_, f)| f.objects.iter().map(|o| o.snap)).collect();
    let mut counted: BTreeMap<SnapId, Cow<'_, ScrubObject>> = BTreeMap::new();
    let mut unsettled = false;
    for snap in snaps {
        let oid = head.at_snap(snap);
        let of: Vec<(PeerId, Option<&ScrubObject>)> = copies.iter().map(|(o, f)| (*o, f.object(snap))).collect();
        // An object that most copies lack is a leftover of a removal, not a loss.
        let x = one(&oid, primary, &of, shape);
        out.shallow += x.shallow;
        out.deep += x.deep;
        out.lines.extend(x.lines);
        out.fixable += x.wrong.len() as i64;
        out.bad.extend(x.wrong);
        match x.auth {
            Some((_, o)) => {
                let mut whole = Cow::Borrowed(o);
                if let Some(oi) = o.info().and_then(Result::ok).filter(|_| shape.is_some()) {
                    whole.to_mut().size = oi.size;
                }
                counted.insert(snap, whole);
                if o.omap_keys > large.0 || o.omap_bytes > large.1 {
                    out.omap.push((oid.clone(), o.omap_keys, o.omap_bytes));
                }
            }
            None => unsettled = true,
        }
        if let Some(b) = x.bad {
            out.objects.push((oid, b));
        }
    }
    let right = copies.iter().filter(|c| !out.bad.contains(&c.0)).count();
    if !unsettled && shape.is_none_or(|s| right >= s.needed()) {
        out.good = copies.iter().map(|c| c.0).find(|o| !out.bad.contains(o));
    }
    if out.good.is_none() {
        out.fixable = 0;
    }
    check_clones(head, &counted, &mut out);
    count(&counted, &mut out.stats);
    out
}

/// Compares the existing clones with those of the snapset.
fn check_clones(head: &HObject, objects: &BTreeMap<SnapId, Cow<'_, ScrubObject>>, out: &mut Compared) {
    let holder = objects.get(&SnapId::HEAD).or_else(|| objects.get(&SnapId::SNAPDIR));
    let clones: Vec<u64> = objects.keys().filter(|s| **s < SnapId::HEAD).map(|s| s.0).collect();
    let mut b = BadSnapset::default();
    let mut text = String::new();
    let ss = match holder.and_then(|h| h.snapset()) {
        _ if holder.is_none() && clones.is_empty() => return,
        Some(Ok(ss)) => ss,
        None if clones.is_empty() => return,
        found => {
            b.errors |= match (holder, found) {
                (None, _) => snapset_err::HEADLESS_CLONE,
                (_, None) => snapset_err::SNAPSET_MISSING,
                _ => snapset_err::SNAPSET_CORRUPTED,
            };
            b.clones.clone_from(&clones);
            out.shallow += 1;
            out.lines.push(format!("soid {head} : clones without a snapset that names them"));
            out.snapset = Some(b);
            return;
        }
    };
    for c in &ss.clones {
        match objects.get(&SnapId(c.id)) {
            None => {
                b.errors |= snapset_err::CLONE_MISSING;
                b.missing.push(c.id);
                let _ = write!(text, " missing clone {}", c.id);
                out.shallow += 1;
            }
            Some(o) if o.size != c.size => {
                b.errors |= snapset_err::SIZE_MISMATCH;
                let _ = write!(text, " clone {} size {} != clone_size {}", c.id, o.size, c.size);
                out.shallow += 1;
            }
            Some(_) => {}
        }
    }
    for c in clones.into_iter().filter(|c| ss.position(*c).is_none()) {
        b.errors |= snapset_err::EXTRA_CLONES;
        b.clones.push(c);
        let _ = write!(text, " unexpected clone {c}");
        out.shallow += 1;
    }
    if b.errors != 0 {
        out.lines.push(format!("soid {head} :{text}"));
        b.snapset = Some(ss);
        out.snapset = Some(b);
    }
}

fn count(objects: &BTreeMap<SnapId, Cow<'_, ScrubObject>>, s: &mut StatSum) {
    let holder = objects.get(&SnapId::HEAD).or_else(|| objects.get(&SnapId::SNAPDIR));
    let ss: SnapSet = holder.and_then(|h| h.snapset()).and_then(Result::ok).unwrap_or_default();
    for (snap, o) in objects {
        if *snap == SnapId::SNAPDIR {
            continue;
        }
        s.num_objects += 1;
        s.num_omap_bytes += o.omap_bytes as i64;
        s.num_omap_keys += o.omap_keys as i64;
        if *snap == SnapId::HEAD {
            s.num_bytes += o.size as i64;
        } else {
            s.num_object_clones += 1;
            s.num_bytes += ss.position(snap.0).map_or(o.size, |at| ss.clone_bytes(at)) as i64;
        }
    }
}
