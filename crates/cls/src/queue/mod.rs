//! Class `queue`: a ring of entries in the object's data, see [`ring`]. Class `2pc_queue`: [`two_phase`].

pub(crate) mod ring;
pub(crate) mod two_phase;

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{enc, input};
use bytes::Bytes;
use ring::{Head, Marker};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("queue_enqueue", enqueue),
    Method::rd("queue_get_capacity", get_capacity),
    Method::rdwr("queue_init", init),
    Method::rd("queue_list_entries", list),
    Method::rdwr("queue_remove_entries", remove),
];

/// Decodes a `cls_queue_init_op`: size, most bytes of urgent data, urgent data.
fn init_input(i: &Bytes) -> ClsResult<(u64, u64, Bytes)> {
    input(i, |r| r.versioned("cls_queue_init_op", 1, |r, _| Ok((r.u64()?, r.u64()?, r.blob()?))))
}

fn init(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (size, urgent_max, urgent) = init_input(i)?;
    Head::init(c, size, urgent_max, urgent).map(Output::from)
}

fn get_capacity(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let capacity = Head::load(c)?.capacity();
    Ok(enc(|w| w.versioned(1, 1, |w| w.u64(capacity))).into())
}

fn enqueue(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let entries: Vec<Bytes> = input(i, |r| r.versioned("cls_queue_enqueue_op", 1, |r, _| r.get()))?;
    let mut head = Head::load(c)?;
    head.enqueue(c, &entries)?;
    head.store(c).map(Output::from)
}

fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (max, start, end) = input(i, |r| {
        r.versioned("cls_queue_list_op", 2, |r, v| {
            Ok((r.u64()?, r.blob()?, if v >= 2 { r.blob()? } else { Bytes::new() }))
        })
    })?;
    let found = Head::load(c)?.list(c, Marker::parse(&start), Marker::parse(&end), max)?;
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.bool(found.truncated);
            w.string(&found.next.to_string());
            w.seq(found.entries.iter(), |w, (data, at)| {
                w.versioned(1, 1, |w| {
                    w.blob(data);
                    w.string(&at.to_string());
                });
            });
        });
    })
    .into())
}

fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let end = input(i, |r| r.versioned("cls_queue_remove_op", 1, |r, _| r.blob()))?;
    let mut head = Head::load(c)?;
    head.remove(c, Marker::parse(&end))?;
    head.store(c).map(Output::from)
}
