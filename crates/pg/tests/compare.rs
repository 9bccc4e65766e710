//! Comparison of copies: any damage to a minority is found, and attributed to the damaged copies only.

use base::rng::Rng;
use base::{Eversion, HObject, OsdId, SnapId};
use bytes::Bytes;
use pg::object::{CloneEntry, Intervals, OI_ATTR, ObjectInfo, SS_ATTR, SnapSet};
use pg::scrub::compare::compare;
use pg::scrub::map::{Family, READ_ERROR, STAT_ERROR, ScrubAttr, ScrubObject};
use pg::scrub::report::{Findings, KEPT_MAX, LIST_MAX};
use wire::{Decode as _, Encode as _, Features, Reader, Writer};

fn copy(osd: i32) -> pg::PeerId {
    OsdId(osd).into()
}

fn head() -> HObject {
    HObject { oid: Bytes::from_static(b"object"), ..HObject::min() }.head()
}

fn object(r: &mut Rng, snap: SnapId, size: u64, ss: Option<&SnapSet>) -> ScrubObject {
    let oi = ObjectInfo { version: Eversion::new(3, 7), user_version: 5, size, ..ObjectInfo::default() };
    let mut attrs = vec![ScrubAttr::new(Bytes::from_static(OI_ATTR), oi.to_attr())];
    if r.below(2) == 0 {
        attrs.push(ScrubAttr::new(Bytes::from_static(b"_colour"), Bytes::from_static(b"blue")));
    }
    if let Some(ss) = ss {
        attrs.push(ScrubAttr::new(Bytes::from_static(SS_ATTR), ss.to_attr()));
    }
    attrs.sort_by(|a, b| a.name.cmp(&b.name));
    let digest = r.next_u64() as u32;
    ScrubObject { snap, size, attrs, data_digest: Some(digest), omap_digest: Some(!digest), ..ScrubObject::default() }
}

/// A head, and perhaps clones with their snapset.
fn family(r: &mut Rng) -> Family {
    let clones = r.below(3);
    let ss = SnapSet {
        seq: 9,
        clones: (1..=clones)
            .map(|id| CloneEntry { id, snaps: vec![id], size: id * 100, overlap: Intervals::default() })
            .collect(),
    };
    let mut objects: Vec<ScrubObject> = (1..=clones).map(|id| object(r, SnapId(id), id * 100, None)).collect();
    let size = r.below(5000);
    objects.push(object(r, SnapId::HEAD, size, (clones > 0).then_some(&ss)));
    Family { head: head(), objects }
}

/// Damages one copy; returns the kind of damage.
fn spoil(r: &mut Rng, f: &mut Family) -> &'static str {
    let at = r.below(f.objects.len() as u64) as usize;
    let o = &mut f.objects[at];
    match r.below(8) {
        0 => {
            o.errors = READ_ERROR;
            (o.data_digest, o.omap_digest) = (None, None);
            "does not read"
        }
        1 => {
            *o = ScrubObject { snap: o.snap, errors: STAT_ERROR | READ_ERROR, ..ScrubObject::default() };
            "does not stat"
        }
        2 => {
            o.data_digest = o.data_digest.map(|d| d ^ 1);
            "data"
        }
        3 => {
            o.omap_digest = o.omap_digest.map(|d| d ^ 1);
            "omap"
        }
        4 => {
            o.size += 1;
            "size"
        }
        5 => {
            o.attrs.retain(|a| a.name != OI_ATTR);
            "no object info"
        }
        6 => {
            o.attrs.push(ScrubAttr::new(Bytes::from_static(b"_odd"), Bytes::from_static(b"1")));
            "an attribute"
        }
        _ => {
            f.objects.remove(at);
            "missing"
        }
    }
}

#[test]
fn any_damage_to_a_minority_of_copies_is_found() {
    let seed = std::env::var("PG_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in seed..seed + 3000 {
        let mut r = Rng::new(seed);
        let good = family(&mut r);
        let n = 3 + r.below(3) as usize;
        let mut copies = vec![good.clone(); n];
        let mut wrong = std::collections::BTreeSet::new();
        let mut what = Vec::new();
        for _ in 0..r.below((n as u64 - 1) / 2 + 1) {
            let at = r.below(n as u64) as usize;
            if wrong.insert(copy(at as i32)) {
                what.push(spoil(&mut r, &mut copies[at]));
            }
        }
        let by: Vec<(pg::PeerId, &Family)> = copies.iter().enumerate().map(|(i, f)| (copy(i as i32), f)).collect();
        let c = compare(&head(), &by, (1000, 1 << 20), None);
        assert_eq!(c.bad, wrong, "PG_SEED={seed}: {what:?} {:?}", c.lines);
        assert!(c.good.is_some_and(|g| !wrong.contains(&g)), "PG_SEED={seed}: {what:?}");
        assert_eq!(wrong.is_empty(), c.shallow + c.deep == 0, "PG_SEED={seed}: {what:?}");
        assert_eq!(wrong.is_empty(), c.objects.is_empty(), "PG_SEED={seed}: {what:?}");
        assert_eq!(c.stats.num_objects as usize, good.objects.len(), "PG_SEED={seed}");
        assert!(c.snapset.is_none(), "PG_SEED={seed}: by the copies that count all clones are there");
        for f in &copies {
            let b = f.to_bytes(Features::PACIFIC);
            assert_eq!(Family::from_bytes(&b).unwrap(), *f);
        }
    }
}

#[test]
fn a_copy_without_errors_is_authoritative_and_else_the_primarys() {
    let mut r = Rng::new(5);
    let good = family(&mut r);
    let mut bad = good.clone();
    bad.objects[0].errors = READ_ERROR;
    let c = compare(&head(), &[(copy(4), &bad), (copy(7), &good)], (9, 9), None);
    assert_eq!((c.good, c.deep, c.shallow), (Some(copy(7)), 1, 0));
    let mut odd = good.clone();
    odd.objects[0].data_digest = Some(1);
    let c = compare(&head(), &[(copy(4), &odd), (copy(7), &good)], (9, 9), None);
    assert_eq!((c.good, c.fixable), (Some(copy(4)), 1), "nothing tells which is right");
    let c = compare(&head(), &[(copy(4), &bad), (copy(7), &bad)], (9, 9), None);
    assert_eq!((c.good, c.fixable, c.deep), (None, 0, 2));
}

#[test]
fn a_newer_version_counts_over_a_majority() {
    let mut r = Rng::new(6);
    let old = family(&mut r);
    let mut new = old.clone();
    let last = new.objects.len() - 1;
    let o = &mut new.objects[last];
    let oi = ObjectInfo { version: Eversion::new(3, 8), size: o.size, ..ObjectInfo::default() };
    for a in o.attrs.iter_mut().filter(|a| a.name == OI_ATTR) {
        *a = ScrubAttr::new(Bytes::from_static(OI_ATTR), oi.to_attr());
    }
    let c = compare(&head(), &[(copy(0), &old), (copy(1), &old), (copy(2), &new)], (9, 9), None);
    assert_eq!(c.good, Some(copy(2)));
}

/// An encoded `scrub_ls_arg_t`.
fn request(interval: u32, snapsets: bool, after: &str, max: u64) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    w.versioned(1, 1, |w| {
        w.u32(interval);
        w.u32(snapsets.into());
        w.blob(after.as_bytes());
        w.blob(b"");
        w.u64(SnapId::HEAD.0);
        w.u64(max);
    });
    w.into_bytes()
}

#[test]
fn findings_are_listed_in_pages_and_bounded() {
    let mut f = Findings::default();
    for i in 0..KEPT_MAX + 50 {
        let h = HObject { oid: Bytes::from(format!("o{i:06}")), ..HObject::min() }.head();
        f.add_object(h, pg::scrub::report::BadObject::default());
    }
    assert_eq!(f.objects().count(), KEPT_MAX);
    let names = |b: &Bytes| -> Vec<String> {
        let mut r = Reader::shared(b);
        r.versioned("scrub_ls_result_t", 1, |r, _| {
            assert_eq!(r.u32()?, 12);
            r.vec_with("values", |r| {
                let v = r.blob()?;
                Reader::shared(&v).versioned("inconsistent_obj_t", 2, |r, _| {
                    r.u64()?;
                    r.versioned("object_id_t", 1, |r, _| Ok(String::from_utf8(r.blob()?.to_vec()).unwrap()))
                })
            })
        })
        .unwrap()
    };
    let (b, again) = f.list(&request(12, false, "", 100), base::Epoch(12)).unwrap();
    assert!(!again);
    let page = names(&b);
    assert_eq!((page.len(), page[99].as_str()), (100, "o000099"));
    let (b, _) = f.list(&request(0, false, "o000099", u64::MAX), base::Epoch(12)).unwrap();
    assert_eq!(names(&b)[0], "o000100");
    assert_eq!(names(&b).len(), LIST_MAX);
    assert!(f.list(&request(11, false, "", 100), base::Epoch(12)).unwrap().1, "of another interval");
    assert!(names(&f.list(&request(12, true, "", 100), base::Epoch(12)).unwrap().0).is_empty());
    assert!(f.list(&request(12, true, "", 100).slice(..9), base::Epoch(12)).is_none());
}
