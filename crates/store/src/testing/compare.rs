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

fn same_collection<S: ObjectStore>(
    s: &mut S,
    model: &mut MemStore,
    pump: &mut dyn FnMut(&mut S),
    cid: Cid,
    errors_allowed: bool,
) -> Result<(), String> {
    let zero = Eversion::default();
    expect(&format!("{cid:?} usage"), &s.collection_usage(cid), &model.collection_usage(cid))?;
    expect(&format!("{cid:?} info"), &s.pg_info(TAG, cid), &model.pg_info(TAG, cid))?;
    expect(&format!("{cid:?} log"), &s.log_entries(TAG, cid, zero), &model.log_entries(TAG, cid, zero))?;
    let start = Oid::new(HObject::min());
    let mut all = Vec::new();
    let mut from = Some(start.clone());
    while let Some(f) = from {
        let (part, next) = s.list(TAG, cid, &f, None, 3).map_err(|e| format!("list: {e:?}"))?;
        all.extend(part);
        from = next;
    }
    let want = model.list(TAG, cid, &start, None, usize::MAX).map_err(|e| format!("{e:?}"))?.0;
    expect(&format!("{cid:?} list"), &all, &want)?;
    for oid in &all {
        let n = format!("{cid:?} {}", oid.hobj);
        expect(&format!("{n} stat"), &s.stat(TAG, cid, oid), &model.stat(TAG, cid, oid))?;
        expect(&format!("{n} attrs"), &s.attrs(TAG, cid, oid), &model.attrs(TAG, cid, oid))?;
        expect(&format!("{n} header"), &s.omap_header(TAG, cid, oid), &model.omap_header(TAG, cid, oid))?;
        let max = usize::MAX;
        let got = s.omap_range(TAG, cid, oid, b"", false, max, max);
        expect(&format!("{n} omap"), &got, &model.omap_range(TAG, cid, oid, b"", false, max, max))?;
        let got = s.extents(TAG, cid, oid, 0, u64::MAX);
        expect(&format!("{n} extents"), &got, &model.extents(TAG, cid, oid, 0, u64::MAX))?;
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
