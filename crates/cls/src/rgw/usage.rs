//! The usage log: bytes sent and received by user and bucket for each hour.
//!
//! Stored: each record twice, under `<epoch>_<user>_<bucket>` and `<user>_<epoch>_<bucket>`, epochs in eleven digits.

use super::list::page;
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, omap_opt, optional};
use base::errno::{ENODATA, ENOENT};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Result as Decoded;
use wire::{Decode, Encode, Reader, Writer};

/// Most records read by one call.
const READ_MAX: usize = 1000;

/// `rgw_usage_data`.
#[derive(Clone, Copy, Debug, Default)]
struct Data([u64; 4]);

impl Data {
    fn add(&mut self, o: &Self) {
        for (a, b) in self.0.iter_mut().zip(o.0) {
            *a = a.wrapping_add(b);
        }
    }

    fn read(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self([r.u64()?, r.u64()?, r.u64()?, r.u64()?]))
    }
}

impl Encode for Data {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| self.0.iter().for_each(|n| w.u64(*n)));
    }
}
impl Decode for Data {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_usage_data", 1, |r, _| Self::read(r))
    }
}

/// `rgw_user` as text: `tenant$ns$id`, without empty parts where the result is unambiguous.
fn user_text(text: &Bytes) -> Bytes {
    let Some(at) = text.iter().position(|c| *c == b'$') else { return text.clone() };
    let (tenant, rest) = (&text[..at], &text[at + 1..]);
    match rest.iter().position(|c| *c == b'$') {
        Some(0) | None => {
            let id = if rest.first() == Some(&b'$') { &rest[1..] } else { rest };
            if tenant.is_empty() { Bytes::copy_from_slice(id) } else { [tenant, b"$", id].concat().into() }
        }
        Some(_) => text.clone(),
    }
}

/// `rgw_usage_log_entry`.
#[derive(Clone, Debug, Default)]
struct Entry {
    owner: Bytes,
    /// Paying user, if not the owner.
    payer: Bytes,
    bucket: Bytes,
    epoch: u64,
    total: Data,
    by_kind: BTreeMap<Bytes, Data>,
    /// Bytes processed and returned by S3 Select.
    select: [u64; 2],
}

impl Entry {
    fn user(&self) -> &Bytes {
        if self.payer.is_empty() || self.payer.ends_with(b"$") { &self.owner } else { &self.payer }
    }

    fn by_time(&self) -> Bytes {
        let epoch = format!("{:011}", self.epoch);
        [epoch.as_bytes(), b"_", self.user(), b"_", &self.bucket].concat().into()
    }

    fn by_user(&self) -> Bytes {
        let epoch = format!("{:011}", self.epoch);
        [&self.user()[..], b"_", epoch.as_bytes(), b"_", &self.bucket].concat().into()
    }

    /// Adds the counters of another entry.
    fn add(&mut self, o: &Self) {
        if self.owner.is_empty() {
            (self.owner, self.bucket, self.epoch, self.payer) =
                (o.owner.clone(), o.bucket.clone(), o.epoch, o.payer.clone());
        }
        for (kind, d) in &o.by_kind {
            self.by_kind.entry(kind.clone()).or_default().add(d);
            self.total.add(d);
        }
        for (a, b) in self.select.iter_mut().zip(o.select) {
            *a = a.wrapping_add(b);
        }
    }
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(4, 1, |w| {
            w.blob(&self.owner);
            w.blob(&self.bucket);
            w.u64(self.epoch);
            self.total.0.iter().for_each(|n| w.u64(*n));
            w.put(&self.by_kind);
            w.blob(&self.payer);
            w.versioned(1, 1, |w| self.select.iter().for_each(|n| w.u64(*n)));
        });
    }
}
impl Decode for Entry {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_usage_log_entry", 4, |r, v| {
            let mut e = Self { owner: user_text(&r.blob()?), bucket: r.blob()?, epoch: r.u64()?, ..Self::default() };
            e.total = Data::read(r)?;
            if v >= 2 {
                e.by_kind = r.get()?;
            } else {
                e.by_kind.insert(Bytes::new(), e.total);
            }
            if v >= 3 {
                e.payer = user_text(&r.blob()?);
            }
            if v >= 4 {
                e.select = r.versioned("rgw_s3select_usage_data", 1, |r, _| Ok([r.u64()?, r.u64()?]))?;
            }
            Ok(e)
        })
    }
}

pub(super) fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let entries: Vec<Entry> = input(i, |r| {
        r.versioned("rgw_cls_usage_log_add_op", 2, |r, _| r.versioned("rgw_usage_log_info", 1, |r, _| r.get()))
    })?;
    let mut now: BTreeMap<Bytes, Entry> = BTreeMap::new();
    for mut e in entries {
        let key = e.by_time();
        let old = match now.remove(&key) {
            Some(e) => Some(e),
            None => omap_opt(c, &key)?.map(|b| input(&b, Entry::decode)).transpose()?,
        };
        if let Some(old) = old {
            e.add(&old);
        }
        let data = enc(|w| w.put(&e));
        c.omap_set(&[(key.clone(), data.clone()), (e.by_user(), data)])?;
        now.insert(key, e);
    }
    Ok(Output::default())
}

/// Range of records, and the position to continue from.
struct Range {
    start: u64,
    end: u64,
    user: Bytes,
    bucket: Bytes,
    iter: Bytes,
}

impl Range {
    /// Calls `f` for each record of a page; returns whether more follow.
    fn walk(
        &mut self,
        c: &mut dyn ObjectCtx,
        max: usize,
        mut f: impl FnMut(&mut dyn ObjectCtx, Entry) -> ClsResult<()>,
    ) -> ClsResult<bool> {
        let of_user = (!self.user.is_empty()).then(|| [&self.user[..], b"_"].concat());
        let end = format!("{:011}", self.end);
        let from: Bytes = match &of_user {
            _ if !self.iter.is_empty() => self.iter.clone(),
            Some(user) => [&user[..], format!("{:011}_", self.start).as_bytes()].concat().into(),
            None => format!("{:011}", self.start).into(),
        };
        let (rows, more) = page(c, &from, b"", max)?;
        for (key, data) in rows {
            self.iter = key.clone();
            let inside = match &of_user {
                Some(user) => key.starts_with(user),
                None => &key[..] < end.as_bytes(),
            };
            if !inside {
                return Ok(false);
            }
            let e = input(&data, Entry::decode)?;
            if (!self.bucket.is_empty() && self.bucket != e.bucket) || e.epoch < self.start {
                continue;
            }
            if e.epoch >= self.end {
                return Ok(false);
            }
            f(c, e)?;
        }
        Ok(more)
    }
}

/// `rgw_user_bucket`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UserBucket(Bytes, Bytes);

impl Encode for UserBucket {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.0);
            w.blob(&self.1);
        });
    }
}

pub(super) fn read(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (mut range, max) = input(i, |r| {
        r.versioned("rgw_cls_usage_log_read_op", 2, |r, v| {
            let (start, end, user, iter, max) = (r.u64()?, r.u64()?, r.blob()?, r.blob()?, r.u32()? as usize);
            let bucket = if v >= 2 { r.blob()? } else { Bytes::new() };
            Ok((Range { start, end, user, bucket, iter }, max))
        })
    })?;
    let mut usage: BTreeMap<UserBucket, Entry> = BTreeMap::new();
    let more = range.walk(c, if max == 0 { READ_MAX } else { max }, |_, e| {
        usage.entry(UserBucket(e.user().clone(), e.bucket.clone())).or_default().add(&e);
        Ok(())
    })?;
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.put(&usage);
            w.bool(more);
            w.blob(if more { &range.iter } else { b"" });
        });
    })
    .into())
}

pub(super) fn trim(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    if !c.exists()? {
        return fail(ENOENT);
    }
    let mut range = input(i, |r| {
        r.versioned("rgw_cls_usage_log_trim_op", 3, |r, v| {
            if v < 2 {
                return Err(wire::DecodeError::BadValue { what: "rgw_cls_usage_log_trim_op", value: u64::from(v) });
            }
            let (start, end, user) = (r.u64()?, r.u64()?, r.blob()?);
            let bucket = if v >= 3 { r.blob()? } else { Bytes::new() };
            Ok(Range { start, end, user, bucket, iter: Bytes::new() })
        })
    })?;
    let mut found = false;
    let more = range.walk(c, READ_MAX, |c, e| {
        found = true;
        c.omap_rm(&e.by_time())?;
        c.omap_rm(&e.by_user())
    })?;
    if more || found { Ok(Output::default()) } else { fail(ENODATA) }
}

pub(super) fn clear(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    optional(c.omap_clear()).map(|_| Output::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_as_text() {
        for (text, want) in
            [("u", "u"), ("t$u", "t$u"), ("$u", "u"), ("t$$u", "t$u"), ("t$n$u", "t$n$u"), ("$n$u", "$n$u"), ("", "")]
        {
            assert_eq!(user_text(&Bytes::from_static(text.as_bytes())), want, "{text}");
        }
    }
}
