//! Listing of a bucket index shard, and omap pages with an OSD's limits.
//!
//! Omitted entries (objects below a common prefix, old versions, special entries) are skipped by an omap seek instead
//! of being read. A call makes a bounded number of seeks and reads a bounded number of entries, so a page may end
//! early; its marker then tells where to continue.

use super::index::Index;
use super::keys::{self, AFTER_SPECIAL, SPECIAL, cat};
use super::types::{DirEntry, Key, flags};
use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{LIST_BYTES, bytes_of, enc, fail, input, omap_first, omap_opt, stored_as};
use base::errno::{EFBIG, EINVAL};
use bytes::Bytes;
use wire::Reader;
use wire::codec::Result as Decoded;

/// Most entries that an OSD returns at once (`osd_max_omap_entries_per_request`).
pub(super) const PAGE_MAX: usize = 1024;
/// Most seeks past omitted entries in one call. Equal to the most pages that Ceph reads, so that listings end where
/// Ceph's tests expect.
const SEEKS: usize = 8;
/// Omitted entries that are read before a seek is cheaper.
const WALK: usize = 160;
/// Most entries read in one call.
const LOOKS: usize = 8 * PAGE_MAX;
/// Entries read after a seek: small, so that many small prefixes do not cost a page each.
const FIRST_READ: usize = 8;

/// Entries in key order.
pub(super) type Rows = Vec<(Bytes, Bytes)>;

/// The first entries after a key with a prefix, and whether more follow: at most `max` and [`PAGE_MAX`] entries, and
/// none after [`LIST_BYTES`].
pub(super) fn page(c: &mut dyn ObjectCtx, after: &[u8], prefix: &[u8], max: usize) -> ClsResult<(Rows, bool)> {
    let max = max.min(PAGE_MAX);
    if max == 0 {
        let (rows, _) = c.omap_list(after, prefix, 1)?;
        return Ok((Vec::new(), !rows.is_empty()));
    }
    omap_first(c, after, prefix, max)
}

/// As [`page`], but without special entries.
fn page_of_names(c: &mut dyn ObjectCtx, after: &[u8], prefix: &[u8], max: usize) -> ClsResult<(Rows, bool)> {
    let (mut rows, mut more) = page(c, after, prefix, max)?;
    let full = rows.len();
    rows.retain(|(k, _)| k.first() != Some(&SPECIAL));
    if rows.len() == full || !more {
        return Ok((rows, more));
    }
    let from = rows.last().map_or(AFTER_SPECIAL, |(k, _)| k).max(AFTER_SPECIAL).to_vec();
    let (rest, rest_more) = page(c, &from, prefix, max - rows.len())?;
    rows.extend(rest);
    more = rest_more;
    Ok((rows, more))
}

/// `rgw_cls_list_op`.
struct List {
    start: Key,
    max: usize,
    prefix: Bytes,
    versions: bool,
    delimiter: Bytes,
}

impl List {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_cls_list_op", 6, |r, v| {
            let mut start = Key::default();
            if v < 4 {
                start.name = r.blob()?;
            }
            let max = r.u32()? as usize;
            let prefix = if v >= 3 { r.blob()? } else { Bytes::new() };
            if v >= 4 {
                start = r.get()?;
            }
            let versions = v >= 5 && r.bool()?;
            let delimiter = if v >= 6 { r.blob()? } else { Bytes::new() };
            Ok(Self { start, max, prefix, versions, delimiter })
        })
    }

    /// The common prefix of a name: up to the first delimiter after the requested prefix.
    fn common(&self, name: &Bytes) -> Option<Bytes> {
        if self.delimiter.is_empty() {
            return None;
        }
        let from = self.prefix.len();
        let at = name.get(from..)?.windows(self.delimiter.len()).position(|w| w == &self.delimiter[..])?;
        Some(name.slice(..from + at + self.delimiter.len()))
    }

    /// The key after which the listing starts.
    fn start_after(&self, index: &mut Index<'_>) -> ClsResult<Bytes> {
        let k = &self.start;
        let start = if k.instance.is_empty() {
            k.name.clone()
        } else {
            let mut version = k.clone();
            if &version.instance[..] == b"null" {
                version.instance = Bytes::new();
            }
            match index.get::<DirEntry>(&keys::instance(&version)) {
                Ok(Some(e)) => keys::listed(&e),
                Ok(None) => cat(&[&k.name, b"\x01"]),
                Err(ClsError::Wait) => return Err(ClsError::Wait),
                Err(_) => Bytes::new(),
            }
        };
        let below = !self.delimiter.is_empty() && start > self.prefix && start.ends_with(&self.delimiter);
        Ok(if below { after_prefix(&start) } else { start })
    }
}

/// A key after all names that begin with a common prefix: UTF-8 has no 0xff.
fn after_prefix(p: &[u8]) -> Bytes {
    cat(&[p, b"\xff"])
}

pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let q = input(i, List::decode)?;
    let mut index = Index::load(c)?;
    let mut found: Vec<(Bytes, DirEntry)> = Vec::new();
    let (mut truncated, mut marker) = (false, Key::default());
    if q.max > 0 {
        let mut after = q.start_after(&mut index)?;
        (truncated, marker) = walk(&mut *index.c, &q, &mut after, &mut found)?;
    }
    let out = enc(|w| {
        w.versioned(4, 2, |w| {
            w.versioned(2, 2, |w| {
                w.put(&index.header);
                w.put(&found);
            });
            w.bool(truncated);
            w.put(&marker);
        });
    });
    if truncated && found.is_empty() { Err(ClsError::Fail { errno: EFBIG, out }) } else { Ok(out.into()) }
}

/// Collects entries after `after`; returns whether there may be more, and the marker to continue from.
fn walk(
    c: &mut dyn ObjectCtx,
    q: &List,
    after: &mut Bytes,
    found: &mut Vec<(Bytes, DirEntry)>,
) -> ClsResult<(bool, Key)> {
    let mut marker = Key::default();
    let (mut seeks, mut looks, mut bytes, mut read) = (0, 0, 0, PAGE_MAX);
    // End of the omitted range, and number of its entries read so far.
    let (mut skip_to, mut walked): (Option<Bytes>, usize) = (None, 0);
    let mut last_common = Bytes::new();
    loop {
        let left = q.max - found.len();
        let (rows, more) = page_of_names(c, after, &q.prefix, left.min(read))?;
        read = read.saturating_mul(4).min(PAGE_MAX);
        if rows.is_empty() {
            return Ok((false, Key::default()));
        }
        looks += rows.len();
        bytes += bytes_of(&rows);
        for (key, value) in rows {
            *after = key.clone();
            if skip_to.as_ref().is_some_and(|to| key < *to) {
                walked += 1;
                continue;
            }
            skip_to = None;
            let Ok(entry) = stored_as::<DirEntry>(&value) else { return fail(EINVAL) };
            marker = entry.key.clone();
            let Some(name) = keys::listed_name(&key) else {
                c.log("rgw.bucket_list: skipped a key that is no object name");
                continue;
            };
            if entry.flags & flags::VER_MARKER != 0 {
                continue;
            }
            let to = if !q.versions && (!entry.is_visible() || q.start.name == name) {
                // A key after all versions of this name.
                cat(&[&name, b"\x01"])
            } else if let Some(common) = q.common(&name) {
                if common == last_common {
                    continue;
                }
                let key = Key::named(common.clone());
                found.push((common.clone(), DirEntry { key, flags: flags::COMMON_PREFIX, ..DirEntry::default() }));
                last_common = common;
                after_prefix(&last_common)
            } else {
                found.push((key, entry));
                continue;
            };
            marker = Key::named(to.clone());
            (skip_to, walked) = (Some(to), 0);
        }
        if !more || found.len() >= q.max {
            return Ok((more, if more { marker } else { Key::default() }));
        }
        if walked >= WALK
            && let Some(to) = skip_to.take()
        {
            *after = to;
            (seeks, read) = (seeks + 1, FIRST_READ);
        }
        if seeks >= SEEKS || looks >= LOOKS || bytes >= LIST_BYTES {
            return Ok((true, marker));
        }
    }
}

/// The entry with a key, followed by the first `max` entries after `after`.
pub(super) fn page_from(
    c: &mut dyn ObjectCtx,
    first: Option<&Bytes>,
    after: &[u8],
    prefix: &[u8],
    max: usize,
) -> ClsResult<(Rows, bool)> {
    let exact = match first {
        Some(k) => omap_opt(c, k)?.map(|v| (k.clone(), v)),
        None => None,
    };
    let Some(exact) = exact else { return page(c, after, prefix, max) };
    if max == 0 {
        return Ok((Vec::new(), true));
    }
    let (rows, more) = page(c, after, prefix, max - 1)?;
    Ok((std::iter::once(exact).chain(rows).collect(), more))
}
