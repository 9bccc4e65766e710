//! Comparison of a store with the model through the interface.

use crate::api::{Event, ObjectStore, ReadError, Tag};
use crate::key::{Cid, Oid};
use crate::mem::MemStore;
use base::crc::{SEED, crc32c};
use base::{Eversion, HObject};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Tag of the comparison's reads.
pub const TAG: Tag = Tag(u64::MAX);

/// Number of objects in one listing.
const LIST: usize = 3;

/// Calls `f` until it does not wait; `pump` drives the store's I/O. Error: that of `f`, never [`ReadError::Wait`].
pub fn wait<S: ObjectStore, T>(
    s: &mut S,
    pump: &mut dyn FnMut(&mut S),
    mut f: impl FnMut(&mut S) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let mut rounds = 0;
    let r = loop {
        match f(s) {
            Err(ReadError::Wait) => {
                rounds += 1;
                assert!(rounds < 100_000, "a plan never becomes ready");
                pump(s);
            }
            r => break r,
        }
    };
    s.release(TAG);
    r
}

/// Description of the compared item, computed only for a difference.
type What<'a> = &'a dyn Fn() -> String;

fn expect<T: PartialEq + std::fmt::Debug>(what: What<'_>, got: &T, want: &T) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    let (g, w) = (format!("{got:?}"), format!("{want:?}"));
    let cut = |s: &str| s.chars().take(400).collect::<String>();
    Err(format!("{}: store {} model {}", what(), cut(&g), cut(&w)))
}

/// Compares a store with the model. `Err` describes the first difference. With `errors_allowed`, a read that
/// fails with an I/O error is no difference: faults may hide data, never change it.
pub fn same<S: ObjectStore>(
    s: &mut S,
    model: &mut MemStore,
    pump: &mut dyn FnMut(&mut S),
    errors_allowed: bool,
) -> Result<(), String> {
    // Sums do not wait for a suspended transaction; any read does.
    wait(s, pump, |s| s.pg_info(TAG, Cid::Meta)).ok();
    expect(&|| "collections".into(), &s.collections(), &model.collections())?;
    for (cid, _) in model.collections() {
        same_collection(s, model, pump, cid, errors_allowed)?;
    }
    Ok(())
}

/// Compares a read of the store, which may wait, with the model's. Returns false if an error hid the data.
fn one<S: ObjectStore, T: PartialEq + std::fmt::Debug>(
    s: &mut S,
    pump: &mut dyn FnMut(&mut S),
    errors_allowed: bool,
    what: What<'_>,
    want: &Result<T, ReadError>,
    f: impl FnMut(&mut S) -> Result<T, ReadError>,
) -> Result<bool, String> {
    match wait(s, pump, f) {
        Err(ReadError::Io { .. }) if errors_allowed => Ok(false),
        got => expect(what, &got, want).map(|()| true),
    }
}

fn same_collection<S: ObjectStore>(
    s: &mut S,
    model: &mut MemStore,
    pump: &mut dyn FnMut(&mut S),
    cid: Cid,
    errors_allowed: bool,
) -> Result<(), String> {
    let zero = Eversion::default();
    let ea = errors_allowed;
    let what = |part: &'static str| move || format!("{cid:?} {part}");
    expect(&what("usage"), &s.collection_usage(cid), &model.collection_usage(cid))?;
    one(s, pump, ea, &what("info"), &model.pg_info(TAG, cid), |s| s.pg_info(TAG, cid))?;
    let log = model.log_entries(TAG, cid, zero);
    one(s, pump, ea, &what("log"), &log, |s| s.log_entries(TAG, cid, zero))?;
    for (oid, version, want) in model.all_kept(cid) {
        let what = || format!("{cid:?} {} kept under {version}", oid.hobj);
        one(s, pump, ea, &what, &Ok(want), |s| s.kept(TAG, cid, &oid, version))?;
    }
    let all: Vec<&Oid> = model.objects(cid).map(|o| o.0).collect();
    let start = Oid::new(HObject::min());
    for (i, part) in all.chunks(LIST).enumerate() {
        let from = if i == 0 { &start } else { part[0] };
        let want = Ok((part.iter().map(|o| (*o).clone()).collect(), all.get((i + 1) * LIST).map(|o| (*o).clone())));
        one(s, pump, ea, &what("list"), &want, |s| s.list(TAG, cid, from, None, LIST))?;
    }
    if all.is_empty() {
        one(s, pump, ea, &what("list"), &Ok((Vec::new(), None)), |s| s.list(TAG, cid, &start, None, LIST))?;
    }
    for (oid, o) in model.objects(cid) {
        let what = |part: &'static str| move || format!("{cid:?} {} {part}", oid.hobj);
        let max = usize::MAX;
        let pairs = |m: &BTreeMap<Bytes, Bytes>| m.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
        one(s, pump, ea, &what("stat"), &Ok(o.stat()), |s| s.stat(TAG, cid, oid))?;
        one(s, pump, ea, &what("attrs"), &Ok(pairs(&o.attrs)), |s| s.attrs(TAG, cid, oid))?;
        one(s, pump, ea, &what("header"), &Ok(o.omap_header.clone()), |s| s.omap_header(TAG, cid, oid))?;
        match wait(s, pump, |s| s.omap_range(TAG, cid, oid, b"", false, max, max)) {
            Ok(got) if !got.more && got.entries.iter().map(|(k, v)| (k, v)).eq(&o.omap) => {}
            Err(ReadError::Io { .. }) if errors_allowed => {}
            got => expect(&what("omap"), &got.map(|p| (p.entries, p.more)), &Ok((pairs(&o.omap), false)))?,
        }
        one(s, pump, ea, &what("extents"), &Ok(o.extents(0, u64::MAX)), |s| s.extents(TAG, cid, oid, 0, u64::MAX))?;
        match wait(s, pump, |s| s.read_summed(TAG, cid, oid, 0, u64::MAX)) {
            Ok((got, sum)) => {
                if sum.is_some_and(|sum| sum != crc32c(SEED, &got)) {
                    return Err(format!("{}: another checksum", what("data")()));
                }
                if let Some(at) = o.differs(&got) {
                    return Err(format!(
                        "{}: lengths {} {}, first difference {at}",
                        what("data")(),
                        got.len(),
                        o.stat().size
                    ));
                }
            }
            Err(ReadError::Io { .. }) if errors_allowed => {}
            Err(e) => return Err(format!("{}: {e:?}", what("data")())),
        }
    }
    Ok(())
}

/// Takes the store's events, and keeps those of transactions.
pub fn durable<S: ObjectStore>(s: &mut S, out: &mut Vec<(Tag, bool)>) {
    while let Some(e) = s.poll_event() {
        if let Event::Durable(t, r) = e {
            out.push((t, r.is_ok()));
        }
    }
}
