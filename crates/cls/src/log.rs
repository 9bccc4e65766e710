//! Class `log`: entries ordered by time, used for radosgw's metadata and data logs.
//!
//! Stored: omap key `1_<sec>.<usec>_<version>.<subop>` with a `cls_log_entry`; omap header with the highest marker and
//! time. With `monotonic_inc` no entry's key is earlier than the highest time.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::timekey::{PREFIX, head_cmp, marker_or, prefix};
use crate::util::{LIST_BYTES, bytes_of, enc, fail, input, omap_put, stored};
use base::Utime;
use base::errno::ENODATA;
use bytes::Bytes;
use std::cmp::Ordering;
use std::time::Duration;
use wire::codec::Result as Decoded;
use wire::{Reader, Writer};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] =
    &[Method::rdwr("add", add), Method::rd("info", info), Method::rd("list", list), Method::rdwr("trim", trim)];

/// Most entries of one reply.
const LIST_MAX: usize = 1000;

/// `cls_log_entry`.
#[derive(Clone, Debug, Default)]
struct Entry {
    section: Bytes,
    name: Bytes,
    time: Utime,
    data: Bytes,
    id: Bytes,
}

impl Entry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            w.blob(&self.section);
            w.blob(&self.name);
            w.put(&self.time);
            w.blob(&self.data);
            w.blob(&self.id);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_log_entry", 2, |r, v| {
            Ok(Self {
                section: r.blob()?,
                name: r.blob()?,
                time: r.get()?,
                data: r.blob()?,
                id: if v >= 2 { r.blob()? } else { Bytes::new() },
            })
        })
    }
}

/// `cls_log_header`.
#[derive(Debug, Default)]
struct Header {
    max_marker: Bytes,
    max_time: Utime,
}

impl Header {
    fn load(c: &mut dyn ObjectCtx) -> ClsResult<Self> {
        let b = c.omap_header()?;
        if b.is_empty() {
            return Ok(Self::default());
        }
        stored(&b, |r| r.versioned("cls_log_header", 1, |r, _| Ok(Self { max_marker: r.blob()?, max_time: r.get()? })))
    }

    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.max_marker);
            w.put(&self.max_time);
        });
    }
}

fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (entries, monotonic) = input(i, |r| {
        r.versioned("cls_log_add_op", 2, |r, v| {
            Ok((r.vec_with("cls_log_entry", Entry::decode)?, if v >= 2 { r.bool()? } else { true }))
        })
    })?;
    let mut header = Header::load(c)?;
    let unique = format!("{}.{}", c.current_version(), c.subop_index());
    for (n, mut e) in entries.into_iter().enumerate() {
        let mut time = e.time;
        if time > header.max_time {
            header.max_time = time;
        } else if monotonic {
            time = header.max_time;
        }
        if e.id.is_empty() {
            let mut key = prefix(time);
            key.extend_from_slice(unique.as_bytes());
            if n > 0 {
                key.extend_from_slice(format!("_{n:06}").as_bytes());
            }
            e.id = key.into();
        }
        if e.id > header.max_marker {
            header.max_marker = e.id.clone();
        }
        omap_put(c, e.id.clone(), enc(|w| e.encode(w)))?;
    }
    c.omap_set_header(&enc(|w| header.encode(w))).map(Output::from)
}

fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (from, marker, to, max) = input(i, |r| {
        r.versioned("cls_log_list_op", 1, |r, _| Ok((r.get::<Utime>()?, r.blob()?, r.get::<Utime>()?, r.i32()?)))
    })?;
    let end = (from != Utime::ZERO && to >= from).then(|| prefix(to));
    let max = usize::try_from(max).ok().filter(|m| (1..=LIST_MAX).contains(m)).unwrap_or(LIST_MAX);
    let mut marker = marker_or(marker, from);
    let mut entries = Vec::new();
    let mut last = Bytes::new();
    let mut bytes = 0;
    let truncated = loop {
        let (page, more) = c.omap_list(&marker, PREFIX, max - entries.len())?;
        bytes += bytes_of(&page);
        let mut ended = false;
        for (k, v) in page {
            last = k;
            if end.as_ref().is_some_and(|end| head_cmp(&last, end) != Ordering::Less) {
                ended = true;
                break;
            }
            match stored(&v, Entry::decode) {
                Ok(e) => entries.push(e),
                Err(_) => c.log("log.list: skipped an entry that cannot be decoded"),
            }
        }
        if ended || !more {
            break false;
        }
        if entries.len() >= max || bytes >= LIST_BYTES {
            break true;
        }
        marker = last.clone();
    };
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.seq(entries.iter(), |w, e| e.encode(w));
            w.blob(&last);
            w.bool(truncated);
        });
    })
    .into())
}

fn trim(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (from, to, from_marker, to_marker) = input(i, |r| {
        r.versioned("cls_log_trim_op", 2, |r, v| {
            let (from, to) = (r.get::<Utime>()?, r.get::<Utime>()?);
            if v >= 2 { Ok((from, to, r.blob()?, r.blob()?)) } else { Ok((from, to, Bytes::new(), Bytes::new())) }
        })
    })?;
    let from = marker_or(from_marker, from);
    // The marker at the end is removed too, but omap ranges exclude their end.
    let to =
        if to_marker.is_empty() { prefix(to.plus(Duration::from_micros(1))) } else { [&to_marker[..], b"\0"].concat() };
    let (page, _) = c.omap_list(&from, b"", 1)?;
    match page.first() {
        Some((first, _)) if to >= *first => c.omap_rm_range(first, &to).map(Output::from),
        _ => fail(ENODATA),
    }
}

fn info(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    input(i, |r| r.versioned("cls_log_info_op", 1, |_, _| Ok(())))?;
    let h = Header::load(c)?;
    Ok(enc(|w| w.versioned(1, 1, |w| h.encode(w))).into())
}
