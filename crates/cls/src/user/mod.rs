//! Class `user`: a radosgw user's buckets with their statistics, and the resources of an account.
//!
//! Stored in a bucket list: omap `<bucket name>` → `cls_user_bucket_entry`, omap header `cls_user_header` (sums).
//! Stored in a resource list: see [`account`].
//!
//! `types` has the encodings (`cls_user_types.h`).

mod account;
mod types;

use crate::ctx::{ClsResult, ObjectCtx};
use crate::parts::{Fold, omap_fold};
use crate::registry::{Method, Output};
use crate::util::{LIST_BYTES, bytes_of, enc, fail, input, omap_first, omap_opt, omap_put, stored};
use base::Utime;
use base::errno::EINVAL;
use bytes::Bytes;
use types::{Bucket, BucketEntry, Header, Stats};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("account_resource_add", account::add),
    Method::rd("account_resource_get", account::get),
    Method::rd("account_resource_list", account::list),
    Method::rdwr("account_resource_rm", account::remove),
    Method::rdwr("complete_stats_sync", complete_stats_sync),
    Method::rd("get_header", get_header),
    Method::rd("list_buckets", list_buckets),
    Method::rdwr("remove_bucket", remove_bucket),
    Method::rdwr("reset_user_stats", reset_user_stats),
    Method::rdwr("reset_user_stats2", reset_user_stats2),
    Method::rdwr("set_buckets_info", set_buckets_info),
];

/// Most entries of one reply.
const LIST_MAX: usize = 1000;

fn save_header(c: &mut dyn ObjectCtx, h: &Header) -> ClsResult<()> {
    c.omap_set_header(&enc(|w| h.encode(w)))
}

fn load_entry(c: &mut dyn ObjectCtx, name: &Bytes) -> ClsResult<Option<BucketEntry>> {
    if name.is_empty() {
        return fail(EINVAL);
    }
    omap_opt(c, name)?.map(|b| stored(&b, BucketEntry::decode)).transpose()
}

fn set_buckets_info(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (entries, add, time) = input(i, |r| {
        r.versioned("cls_user_set_buckets_op", 1, |r, _| {
            Ok((r.vec_with("cls_user_bucket_entry", BucketEntry::decode)?, r.bool()?, r.get::<Utime>()?))
        })
    })?;
    let mut header = Header::load(c)?;
    for update in entries {
        let name = update.bucket.name.clone();
        let known = load_entry(c, &name)?;
        let mut entry = match &known {
            Some(e) => e.clone(),
            // Without `add`, an unlisted bucket was removed meanwhile.
            None if !add => continue,
            None => update.clone(),
        };
        if entry.counted {
            header.stats.sub(&entry);
        }
        if known.is_some() && add {
            // The bucket was resharded, or made anew; the call does not know its statistics.
            entry.bucket.id = update.bucket.id;
            entry.created = update.created;
        } else {
            entry.size = update.size;
            entry.size_rounded = update.size_rounded;
            entry.count = update.count;
        }
        entry.counted = true;
        omap_put(c, name, enc(|w| entry.encode(w)))?;
        header.stats.add(&entry);
    }
    header.last_update = header.last_update.max(time);
    save_header(c, &header).map(Output::from)
}

fn complete_stats_sync(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let time: Utime = input(i, |r| r.versioned("cls_user_complete_stats_sync_op", 1, |r, _| r.get()))?;
    let mut header = Header::load(c)?;
    header.last_sync = header.last_sync.max(time);
    save_header(c, &header).map(Output::from)
}

fn remove_bucket(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let bucket = input(i, |r| r.versioned("cls_user_remove_bucket_op", 1, |r, _| Bucket::decode(r)))?;
    let mut header = Header::load(c)?;
    let Some(entry) = load_entry(c, &bucket.name)? else { return Ok(Output::default()) };
    if entry.counted {
        header.stats.sub(&entry);
    }
    c.omap_rm(&bucket.name)?;
    save_header(c, &header).map(Output::from)
}

fn list_buckets(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (marker, max, end) = input(i, |r| {
        r.versioned("cls_user_list_buckets_op", 2, |r, v| {
            Ok((r.blob()?, r.i32()?, if v >= 2 { r.blob()? } else { Bytes::new() }))
        })
    })?;
    let mut left = usize::try_from(max).map_or(LIST_MAX, |m| m.min(LIST_MAX));
    let mut after = marker;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let truncated = loop {
        let (page, more) = c.omap_list(&after, b"", left)?;
        bytes += bytes_of(&page);
        left = left.saturating_sub(page.len());
        let mut ended = false;
        for (k, v) in page {
            after = k;
            if !end.is_empty() && end <= after {
                ended = true;
                break;
            }
            match stored(&v, BucketEntry::decode) {
                Ok(e) => entries.push(e),
                Err(_) => c.log("user.list_buckets: skipped an entry that cannot be decoded"),
            }
        }
        if ended || !more {
            break false;
        }
        if left == 0 || bytes >= LIST_BYTES {
            break true;
        }
    };
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.seq(entries.iter(), |w, e| e.encode(w));
            w.blob(if truncated { &after } else { b"" });
            w.bool(truncated);
        });
    })
    .into())
}

fn get_header(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    input(i, |r| r.versioned("cls_user_get_header_op", 1, |_, _| Ok(())))?;
    let h = Header::load(c)?;
    Ok(enc(|w| w.versioned(1, 1, |w| h.encode(w))).into())
}

impl Fold for Stats {}

/// Recomputes the statistics from all buckets in one call.
fn reset_user_stats(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let time = input(i, |r| r.versioned("cls_user_reset_stats_op", 1, |r, _| r.get()))?;
    let stats = omap_fold(c, b"", b"", Stats::default(), |_, stats, _, v| {
        stats.add(&stored(v, BucketEntry::decode)?);
        Ok(true)
    })?;
    save_header(c, &Header { stats, last_update: time, ..Header::default() }).map(Output::from)
}

/// Recomputes the statistics from a part of the buckets per call; the caller passes the sums on until the last call
/// stores them.
fn reset_user_stats2(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (time, mut marker, mut stats) =
        input(i, |r| r.versioned("cls_user_reset_stats2_op", 1, |r, _| Ok((r.get()?, r.blob()?, Stats::decode(r)?))))?;
    let (page, truncated) = omap_first(c, &marker, b"", LIST_MAX)?;
    for (k, v) in page {
        stats.add(&stored(&v, BucketEntry::decode)?);
        marker = k;
    }
    if !truncated {
        save_header(c, &Header { stats, last_update: time, ..Header::default() })?;
    }
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.blob(&marker);
            stats.encode(w);
            w.bool(truncated);
        });
    })
    .into())
}
