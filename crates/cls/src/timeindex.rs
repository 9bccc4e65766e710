//! Class `timeindex`: values by time, used by radosgw's object expirer.
//!
//! Stored: omap key `1_<sec>.<usec>_<extension>` with the value as given.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::timekey::{PREFIX, head_cmp, marker_or, prefix};
use crate::util::{LIST_BYTES, bytes_of, enc, fail, input, omap_put};
use base::Utime;
use base::errno::ENODATA;
use bytes::Bytes;
use std::cmp::Ordering;

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[Method::rdwr("add", add), Method::rd("list", list), Method::rdwr("trim", trim)];

/// Most entries of one reply.
const LIST_MAX: usize = 1000;
/// Most entries removed by one call.
const TRIM_MAX: usize = 1000;
/// Longest extension in bytes that is returned.
const EXTENSION_MAX: usize = 255;

fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let entries = input(i, |r| {
        r.versioned("cls_timeindex_add_op", 1, |r, _| {
            r.vec_with("cls_timeindex_entry", |r| {
                r.versioned("cls_timeindex_entry", 1, |r, _| Ok((r.get::<Utime>()?, r.blob()?, r.blob()?)))
            })
        })
    })?;
    for (time, extension, value) in entries {
        let mut key = prefix(time);
        key.extend_from_slice(&extension);
        omap_put(c, key, value)?;
    }
    Ok(Output::default())
}

/// Time and extension of a key. Ceph stores microseconds in the nanosecond field, and clients depend on the value.
fn parse(key: &[u8]) -> Option<(Utime, &[u8])> {
    let rest = key.strip_prefix(PREFIX)?;
    let dot = rest.iter().position(|b| *b == b'.')?;
    let after = rest.get(dot + 1..)?;
    let bar = after.iter().position(|b| *b == b'_')?;
    let number = |b: &[u8]| std::str::from_utf8(b).ok()?.parse::<u32>().ok();
    let time = Utime { sec: number(&rest[..dot])?, nsec: number(&after[..bar])? };
    let ext = after.get(bar + 1..)?;
    let end = ext.iter().position(|b| b.is_ascii_whitespace() || *b == 0).unwrap_or(ext.len()).min(EXTENSION_MAX);
    Some((time, &ext[..end]))
}

fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (from, marker, to, max) = input(i, |r| {
        r.versioned("cls_timeindex_list_op", 1, |r, _| Ok((r.get::<Utime>()?, r.blob()?, r.get::<Utime>()?, r.i32()?)))
    })?;
    let end = (to >= from).then(|| prefix(to));
    let max = usize::try_from(max).map_or(LIST_MAX, |m| m.min(LIST_MAX));
    let mut after = marker_or(marker, from);
    let mut marker = Bytes::new();
    let mut entries: Vec<(Bytes, Bytes)> = Vec::new();
    let (mut left, mut bytes) = (max, 0);
    let truncated = loop {
        let (page, more) = c.omap_list(&after, PREFIX, left)?;
        bytes += bytes_of(&page);
        left = left.saturating_sub(page.len());
        let mut ended = false;
        for (k, v) in page {
            if end.as_ref().is_some_and(|end| head_cmp(&k, end) != Ordering::Less) {
                ended = true;
                break;
            }
            marker = k.clone();
            if parse(&k).is_some() {
                entries.push((k, v));
            } else {
                c.log("timeindex.list: skipped a key of unknown form");
            }
        }
        if ended || !more {
            break false;
        }
        if left == 0 || bytes >= LIST_BYTES {
            break true;
        }
        after = marker.clone();
    };
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.seq(entries.iter(), |w, (k, v)| {
                let (time, ext) = parse(k).unwrap_or_default();
                w.versioned(1, 1, |w| {
                    w.put(&time);
                    w.blob(ext);
                    w.blob(v);
                });
            });
            w.blob(&marker);
            w.bool(truncated);
        });
    })
    .into())
}

fn trim(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (from, to, from_marker, to_marker) = input(i, |r| {
        r.versioned("cls_timeindex_trim_op", 1, |r, _| Ok((r.get::<Utime>()?, r.get::<Utime>()?, r.blob()?, r.blob()?)))
    })?;
    let mut after = marker_or(from_marker, from);
    let end = marker_or(to_marker, to);
    let (mut doomed, mut bytes) = (Vec::new(), 0);
    while doomed.len() < TRIM_MAX && bytes < LIST_BYTES {
        let (page, more) = c.omap_list(&after, PREFIX, TRIM_MAX - doomed.len())?;
        bytes += bytes_of(&page);
        let count = page.len();
        doomed.extend(page.into_iter().map(|(k, _)| k).take_while(|k| head_cmp(k, &end) != Ordering::Greater));
        match doomed.last() {
            Some(k) if more && count > 0 && *k > after => after = k.clone(),
            _ => break,
        }
    }
    if doomed.is_empty() {
        return fail(ENODATA);
    }
    for k in &doomed {
        c.omap_rm(k)?;
    }
    Ok(Output::default())
}
