//! Change log of an index shard, from which other zones replicate.

use super::index::{COMPLETE, Index, op};
use super::keys::{self, INSTANCES, LOG};
use super::list::page;
use super::types::LogEntry;
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, stored_as};
use base::errno::ENODATA;
use bytes::Bytes;

pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (marker, max) =
        input(i, |r| r.versioned("cls_rgw_bi_log_list_op", 1, |r, _| Ok((r.blob()?, r.u32()? as usize))))?;
    let (rows, mut more) = page(c, &keys::cat(&[LOG, &marker]), b"", max)?;
    let mut found: Vec<LogEntry> = Vec::new();
    for (key, data) in rows {
        if &key[..] > INSTANCES {
            more = false;
            break;
        }
        found.push(stored_as(&data)?);
    }
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.put(&found);
            w.bool(more);
        });
    })
    .into())
}

/// Removes entries after one marker up to and including another.
pub(super) fn trim(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (start, end) = input(i, |r| r.versioned("cls_rgw_bi_log_trim_op", 1, |r, _| Ok((r.blob()?, r.blob()?))))?;
    let end = if end.is_empty() { Bytes::from_static(INSTANCES) } else { keys::cat(&[LOG, &end, b"\0"]) };
    let (rows, _) = page(c, &keys::cat(&[LOG, &start]), b"", 1)?;
    match rows.first() {
        Some((first, _)) if *first <= end => c.omap_rm_range(first, &end).map(Output::from),
        _ => fail(ENODATA),
    }
}

fn mark(c: &mut dyn ObjectCtx, op: u8, stopped: bool) -> ClsResult<Output> {
    let mut x = Index::load(c)?;
    let time = x.c.now();
    // These entries carry no index version.
    x.log_marker(LogEntry { time, op, state: COMPLETE, ..LogEntry::default() })?;
    x.header.sync_stopped = stopped;
    x.store().map(Output::from)
}

pub(super) fn resync(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    mark(c, op::RESYNC, false)
}

pub(super) fn stop(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    mark(c, op::SYNC_STOP, true)
}
