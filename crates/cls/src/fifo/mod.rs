//! Class `fifo`: a queue of a meta object and part objects, used for radosgw's data log.
//!
//! Stored as object data: the meta object has an `info`; a part has a `part_header` (in the first 512 bytes) and
//! entries. Gateways up to Reef identify parts by tags. Like Tentacle's OSDs, this class ignores tags and writes none.
//!
//! | module | contents |
//! | --- | --- |
//! | `part` | parts of a fifo: a header followed by entries |
//! | `types` | encodings of class `fifo`: `cls_fifo_types.h` |

mod part;
mod types;

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{enc, fail, input, optional, stored_as};
use crate::version::random_base64;
use base::errno::{ECANCELED, EEXIST, EINVAL, ENODATA};
use bytes::Bytes;
use types::{Info, JournalEntry, Params, Version};
use wire::Decode;

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("create_meta", create_meta),
    Method::rd("get_meta", get_meta),
    Method::rd("get_part_info", part::get_info),
    Method::rdwr("init_part", part::init),
    Method::rd("part_list", part::list),
    Method::rdwr("push_part", part::push),
    Method::rdwr("trim_part", part::trim),
    Method::rdwr("update_meta", update_meta),
];

/// Length of the random instance of a new version.
const INSTANCE_LEN: usize = 16;
/// Length of the random suffix of a new prefix of part names.
const PREFIX_LEN: usize = 11;

fn load(c: &mut dyn ObjectCtx, version: Option<&Version>) -> ClsResult<Info> {
    let (size, _) = c.stat()?;
    if size == 0 {
        return fail(ENODATA);
    }
    let info: Info = stored_as(&c.read(0, size)?)?;
    if version.is_some_and(|v| *v != info.version) { fail(ECANCELED) } else { Ok(info) }
}

fn create_meta(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, version, prefix, part_max, entry_max, exclusive) = input(i, |r| {
        r.versioned("fifo::op::create_meta", 1, |r, _| {
            let (id, version) = (r.blob()?, r.get::<Option<Version>>()?);
            // Pool and namespace are not checked.
            r.blob()?;
            r.blob()?;
            Ok((id, version, r.get::<Option<Bytes>>()?, r.u64()?, r.u64()?, r.bool()?))
        })
    })?;
    if id.is_empty() || part_max == 0 || entry_max == 0 || entry_max > part_max {
        return fail(EINVAL);
    }
    if let Some((size, _)) = optional(c.stat())? {
        if exclusive {
            return fail(EEXIST);
        }
        let old: Info = stored_as(&c.read(0, size)?)?;
        let same =
            old.id == id && prefix.is_none_or(|p| p == old.oid_prefix) && version.is_none_or(|v| v == old.version);
        return if same { Ok(Output::default()) } else { fail(EEXIST) };
    }
    let version = match version {
        Some(v) if !v.instance.is_empty() => v,
        Some(v) => Version { instance: random_base64(c, INSTANCE_LEN), ..v },
        None => Version { instance: random_base64(c, INSTANCE_LEN), ver: 1 },
    };
    let oid_prefix = match prefix {
        Some(p) => p,
        None => [&id, &b"."[..], &random_base64(c, PREFIX_LEN)].concat().into(),
    };
    let params = Params { part_max, entry_max, full_at: part_max.wrapping_sub(entry_max).wrapping_sub(part::OVERHEAD) };
    let info = Info::new(id, version, oid_prefix, params);
    c.write_full(&enc(|w| w.put(&info))).map(Output::from)
}

fn update_meta(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let entries = |r: &mut wire::Reader<'_>| r.vec_with("fifo::journal_entry", JournalEntry::decode);
    let (version, tail, head, min_push, max_push, add, rm) = input(i, |r| {
        r.versioned("fifo::op::update_meta", 1, |r, _| {
            Ok((
                r.get::<Version>()?,
                r.get::<Option<i64>>()?,
                r.get::<Option<i64>>()?,
                r.get::<Option<i64>>()?,
                r.get::<Option<i64>>()?,
                entries(r)?,
                entries(r)?,
            ))
        })
    })?;
    if version.instance.is_empty() || !add.iter().chain(&rm).all(JournalEntry::is_valid) {
        return fail(EINVAL);
    }
    let mut info = load(c, Some(&version))?;
    let before = info.clone();
    info.tail = tail.unwrap_or(info.tail);
    info.min_push = min_push.unwrap_or(info.min_push);
    info.max_push = max_push.unwrap_or(info.max_push);
    for e in add {
        info.journal_add(e);
    }
    for e in &rm {
        info.journal_remove(e);
    }
    if let Some(head) = head {
        info.set_head(head);
    }
    if info == before {
        return Ok(Output::default());
    }
    info.version.ver = info.version.ver.wrapping_add(1);
    c.write_full(&enc(|w| w.put(&info))).map(Output::from)
}

fn get_meta(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let version: Option<Version> = input(i, |r| r.versioned("fifo::op::get_meta", 1, |r, _| r.get()))?;
    let info = load(c, version.as_ref())?;
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.put(&info);
            w.u32(part::HEADER_MAX as u32);
            w.u32(part::OVERHEAD as u32);
        });
    })
    .into())
}
