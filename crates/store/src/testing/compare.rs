//! Is a store the same as the model, as seen through the interface?

use crate::api::{Event, ObjectStore, ReadError, Tag};
use crate::key::{Cid, Oid};
use crate::mem::MemStore;
use base::{Eversion, HObject};

/// Tag of the comparison's own reads.
pub const TAG: Tag = Tag(u64::MAX);

/// Calls `f` until it does not wait; `pump` moves the store's I/O on.
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

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    let (g, w) = (format!("{got:?}"), format!("{want:?}"));
    let cut = |s: &str| s.chars().take(400).collect::<String>();
    Err(format!("{what}: store {} model {}", cut(&g), cut(&w)))
}

/// `Err` names the first difference. With `errors_allowed`, a read that fails with an I/O error is no difference: faults
/// may hide data, never change it.
pub fn same<S: ObjectStore>(
    s: &mut S,
    model: &mut MemStore,
    pump: &mut dyn FnMut(&mut S),
    errors_allowed: bool,
) -> Result<(), String> {
    expect("collections", &s.collections(), &model.collections())?;
    for (cid, _) in model.collections() {
        same_collection(s, model, pump, cid, errors_allowed)?;
    }
    Ok(())
}

/// A read of the store, which may wait, against the model's. False if an error hid it.
#[allow(clippy::too_many_arguments, reason = "both sides of a comparison")]
fn one<S: ObjectStore, T: PartialEq + std::fmt::Debug>(
    s: &mut S,
    pump: &mut dyn FnMut(&mut S),
    errors_allowed: bool,
    what: &str,
    want: Result<T, ReadError>,
    f: impl FnMut(&mut S) -> Result<T, ReadError>,
) -> Result<bool, String> {
    match wait(s, pump, f) {
        Err(ReadError::Io { .. }) if errors_allowed => Ok(false),
        got => expect(what, &got, &want).map(|()| true),
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
    expect(&format!("{cid:?} usage"), &s.collection_usage(cid), &model.collection_usage(cid))?;
    one(s, pump, ea, &format!("{cid:?} info"), model.pg_info(TAG, cid), |s| s.pg_info(TAG, cid))?;
    let log = model.log_entries(TAG, cid, zero);
    one(s, pump, ea, &format!("{cid:?} log"), log, |s| s.log_entries(TAG, cid, zero))?;
    let start = Oid::new(HObject::min());
    let all = model.list(TAG, cid, &start, None, usize::MAX).map_err(|e| format!("{e:?}"))?.0;
    let mut from = Some(start);
    while let Some(f) = from {
        let want = model.list(TAG, cid, &f, None, 3);
        from = want.as_ref().ok().and_then(|w| w.1.clone());
        one(s, pump, ea, &format!("{cid:?} list"), want, |s| s.list(TAG, cid, &f, None, 3))?;
    }
    for oid in &all {
        let n = format!("{cid:?} {}", oid.hobj);
        let max = usize::MAX;
        one(s, pump, ea, &format!("{n} stat"), model.stat(TAG, cid, oid), |s| s.stat(TAG, cid, oid))?;
        one(s, pump, ea, &format!("{n} attrs"), model.attrs(TAG, cid, oid), |s| s.attrs(TAG, cid, oid))?;
        let want = model.omap_header(TAG, cid, oid);
        one(s, pump, ea, &format!("{n} header"), want, |s| s.omap_header(TAG, cid, oid))?;
        let want = model.omap_range(TAG, cid, oid, b"", false, max, max);
        one(s, pump, ea, &format!("{n} omap"), want, |s| s.omap_range(TAG, cid, oid, b"", false, max, max))?;
        let want = model.extents(TAG, cid, oid, 0, u64::MAX);
        one(s, pump, ea, &format!("{n} extents"), want, |s| s.extents(TAG, cid, oid, 0, u64::MAX))?;
        let want = model.read(TAG, cid, oid, 0, u64::MAX).map_err(|e| format!("{e:?}"))?;
        match wait(s, pump, |s| s.read(TAG, cid, oid, 0, u64::MAX)) {
            Ok(got) if got == want => {}
            Err(ReadError::Io { .. }) if errors_allowed => {}
            Ok(got) => {
                let at = got.iter().zip(&want).position(|(a, b)| a != b);
                return Err(format!("{n} data: lengths {} {}, first difference {at:?}", got.len(), want.len()));
            }
            Err(e) => return Err(format!("{n} data: {e:?}")),
        }
    }
    Ok(())
}

/// Takes the store's events, keeping those of transactions.
pub fn durable<S: ObjectStore>(s: &mut S, out: &mut Vec<(Tag, bool)>) {
    while let Some(e) = s.poll_event() {
        if let Event::Durable(t, r) = e {
            out.push((t, r.is_ok()));
        }
    }
}
