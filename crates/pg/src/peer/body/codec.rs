//! Encodings of the messages, written and read side by side.

use crate::info::PgInfo;
use crate::peer::payload::{Payload, Segment};
use crate::peer::piece::Place;
use crate::peer::reserve::ReserveMsg;
use crate::peer::txn::{decode_ops, encode_ops};
use crate::scrub::message::ScrubMsg;
use base::errno::Errno;
use base::unreached;
use base::{Epoch, Eversion, HObject};
use bytes::Bytes;
use std::sync::Arc;
use store::{Cid, Op};
use wire::msg::{MPgPeer, PeerFeatures};
use wire::{DecodeError, Features, Reader, Writer};

use super::{Attrs, Body, ReadItem};
/// Code of [`Body::Push`]; its parts are encoded by the recovery code that makes them.
pub(crate) const PUSH: u8 = 12;
/// Code of [`Body::Write`].
const WRITE: u8 = 8;
/// Code of [`Body::Activate`].
const ACTIVATE: u8 = 5;
/// Code of [`Body::Scrub`].
const SCRUB: u8 = 40;
/// Code of [`Body::Lacks`].
const LACKS: u8 = 41;
/// Code of [`Body::Failed`].
const FAILED: u8 = 45;
/// Codes of [`Body::Have`] and its answer.
const HAVE: u8 = 43;
const VERSIONS: u8 = 44;
/// Codes of [`Body::ShardRead`] and its answer.
const SHARD_READ: u8 = 46;
const SHARD_DATA: u8 = 47;
/// The answer with attributes in the data segment.
const SHARD_DATA_BULK: u8 = 52;
/// Code of [`Body::Rewind`].
const REWIND: u8 = 48;
/// Codes of [`Body::GetTouched`] and its answer.
const GET_TOUCHED: u8 = 49;
const TOUCHED: u8 = 50;
/// Code of [`Body::PushStop`].
const PUSH_STOP: u8 = 51;
/// Codes of [`Body::Piece`] and its answer.
const PIECE: u8 = 53;
const HEARD: u8 = 54;
/// Code of [`Body::Activated`], and of the one without the size of a frame.
const ACTIVATED: u8 = 55;
pub(super) const ACTIVATED_UNSIZED: u8 = 6;
/// Codes of [`Body::ShardRead`] for a later page of a description, and of a page that is not the last one.
pub(super) const SHARD_READ_FROM: u8 = 56;
const SHARD_DATA_PAGE: u8 = 57;
/// Code of [`Body::Reserve`].
const RESERVE: u8 = 42;

fn info(r: &mut Reader<'_>) -> Result<Box<PgInfo>, DecodeError> {
    Ok(Box::new(PgInfo::from_blob(&r.blob()?)?))
}

impl Body {
    /// Encodes the message: body and payloads. Both are empty if the changes contain an operation on the collection
    /// itself, which can't be sent.
    #[must_use]
    pub fn encode(&self) -> (Bytes, Bytes) {
        self.encode_for(PeerFeatures::OURS)
    }

    /// Encodes the message for a receiver with these features; see [`Body::encode`].
    #[must_use]
    pub fn encode_for(&self, to: PeerFeatures) -> (Bytes, Bytes) {
        // Acknowledgements are the most frequent messages.
        let small = matches!(self, Self::WriteAck { .. } | Self::PushAck { .. } | Self::Stable { .. });
        let mut w = Writer::with_capacity(Features::PACIFIC, if small { 16 } else { 256 });
        let mut data = Payload::new(to);
        let records = |w: &mut Writer, v: &[Bytes]| w.seq(v.iter(), |w, b| w.blob(b));
        let versions = |w: &mut Writer, v: &[(HObject, Eversion)]| {
            w.seq(v.iter(), |w, (h, v)| {
                w.put(h);
                w.put(v);
            });
        };
        match self {
            Self::Query => w.u8(1),
            Self::Notify { info, absent, grants } => {
                w.u8(2);
                w.blob(&info.to_blob());
                w.bool(*absent);
                w.seq(grants.iter(), |w, (o, ms)| {
                    w.put(o);
                    w.u32(*ms);
                });
            }
            Self::GetLog { last_update, les, upto } => {
                w.u8(3);
                w.put(last_update);
                w.put(les);
                w.put(upto);
            }
            Self::Log { since, info, records: v } => {
                w.u8(4);
                w.put(since);
                w.blob(&info.to_blob());
                records(&mut w, v);
            }
            Self::Activate { les, since, reset, info, records: v } => {
                w.u8(ACTIVATE);
                w.put(les);
                w.put(since);
                w.bool(*reset);
                w.blob(&info.to_blob());
                records(&mut w, v);
            }
            Self::Activated { missing, frame } => {
                if to.has(PeerFeatures::PAGES) {
                    w.u8(ACTIVATED);
                    w.u64(*frame);
                } else {
                    w.u8(ACTIVATED_UNSIZED);
                }
                versions(&mut w, missing);
            }
            Self::Started { history, clean } => {
                w.u8(7);
                w.put(&**history);
                w.bool(*clean);
            }
            Self::Write { first, seq, stable, trim, records: v, ops } => {
                return encode_write(*first, *seq, *stable, *trim, v, ops, to).unwrap_or_else(not_for_others);
            }
            Self::WriteAck { seq } => {
                w.u8(9);
                w.u64(*seq);
            }
            Self::Pull { head, need, urgent } => {
                w.u8(10);
                w.put(head);
                w.put(need);
                w.bool(*urgent);
            }
            Self::NoPull { head } => {
                w.u8(11);
                w.put(head);
            }
            Self::Push { id, n, last, background, head, ops } => {
                w.u8(PUSH);
                w.u64(*id);
                w.u32(*n);
                w.bool(*last);
                w.bool(*background);
                w.put(head);
                if encode_ops(ops, &mut w, &mut data).is_none() {
                    return not_for_others();
                }
            }
            Self::PushAck { id, n } => {
                w.u8(13);
                w.u64(*id);
                w.u32(*n);
            }
            Self::PushStop { id, n, again } => {
                w.u8(PUSH_STOP);
                w.u64(*id);
                w.u32(*n);
                w.bool(*again);
            }
            Self::Piece { place, bytes } => {
                w.u8(PIECE);
                w.u64(place.id);
                w.u32(place.n);
                w.u64(place.body);
                w.u64(place.data);
                data.push(bytes);
            }
            Self::Heard { id, next } => {
                w.u8(HEARD);
                w.u64(*id);
                w.u32(*next);
            }
            Self::Scan { begin, end } => {
                w.u8(14);
                w.put(begin);
                w.put(end);
            }
            Self::Digest { begin, end, objects } => {
                w.u8(15);
                w.put(begin);
                w.put(end);
                w.seq(objects.iter(), |w, (h, d)| {
                    w.put(h);
                    w.u64(*d);
                });
            }
            Self::Backfilled { upto } => {
                w.u8(16);
                w.put(upto);
            }
            Self::Remove => w.u8(17),
            Self::Stable { seq } => {
                w.u8(18);
                w.u64(*seq);
            }
            Self::Lacks { objects } => {
                w.u8(LACKS);
                versions(&mut w, objects);
            }
            Self::Scrub(m) => {
                w.u8(SCRUB);
                m.encode(&mut w);
            }
            Self::Have { heads } => {
                w.u8(HAVE);
                w.seq(heads.iter(), |w, h| w.put(h));
            }
            Self::Versions { versions: found } => {
                w.u8(VERSIONS);
                versions(&mut w, found);
            }
            Self::Failed { errno } => {
                w.u8(FAILED);
                w.i32(*errno);
            }
            Self::ShardRead { .. } => self.encode_shard_read(&mut w),
            Self::ShardData { id, n, family, more, found } => {
                if let Some(more) = more {
                    w.u8(SHARD_DATA_PAGE);
                    w.put(more);
                }
                encode_shard_data(&mut w, &mut data, *id, *n, family.as_deref(), found);
            }
            Self::Rewind { since, records: v } => {
                w.u8(REWIND);
                w.put(since);
                records(&mut w, v);
            }
            Self::GetTouched { since } => {
                w.u8(GET_TOUCHED);
                w.put(since);
            }
            Self::Touched { since, upto, entries } => {
                w.u8(TOUCHED);
                w.put(since);
                w.put(upto);
                w.seq(entries.iter(), |w, (v, shards)| {
                    w.put(v);
                    w.u32(*shards);
                });
            }
            Self::Reserve(m) => {
                w.u8(RESERVE);
                m.encode(&mut w);
            }
        }
        (w.into_bytes(), data.join())
    }

    fn encode_shard_read(&self, w: &mut Writer) {
        let Self::ShardRead { id, n, seq, family, from, items } = self else {
            return unreached("only a ShardRead is encoded as one");
        };
        if let Some(from) = from {
            w.u8(SHARD_READ_FROM);
            w.put(from);
        }
        w.u8(SHARD_READ);
        w.u64(*id);
        w.u32(*n);
        w.u64(*seq);
        w.bool(family.is_some());
        if let Some(head) = family {
            w.put(head);
        }
        w.seq(items.iter(), |w, i| {
            w.put(&i.oid);
            w.put(&i.version);
            w.put(&i.since);
            w.u64(i.off);
            w.u64(i.len);
        });
    }

    /// True for an encoded part of an object or of its description.
    pub(crate) fn is_part(body: &Bytes) -> bool {
        matches!(body.first(), Some(&(PUSH | SHARD_DATA | SHARD_DATA_BULK | SHARD_DATA_PAGE)))
    }

    /// True for the beginning of an encoded [`Body::Activate`].
    pub(in crate::peer) fn is_activate(begin: &Bytes) -> bool {
        begin.first() == Some(&ACTIVATE)
    }

    /// The info at the beginning of an encoded [`Body::Activate`].
    pub(in crate::peer) fn info_of_activate(begin: &Bytes) -> Option<Box<PgInfo>> {
        let mut r = Reader::shared(begin);
        let _: (u8, Epoch, Eversion, bool) = (r.u8().ok()?, r.get().ok()?, r.get().ok()?, r.bool().ok()?);
        info(&mut r).ok()
    }

    /// Decodes body and payloads, with changes addressed to collection `cid`.
    ///
    /// # Errors
    ///
    /// If the kind is unknown or the bytes are malformed.
    pub fn decode(body: &Bytes, data: &Bytes, cid: Cid) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(body);
        let r = &mut r;
        let records = |r: &mut Reader<'_>| r.vec_with("log records", |r| r.blob());
        let (mut code, mut from, mut more) = (r.u8()?, None, None);
        if code == SHARD_READ_FROM || code == SHARD_DATA_PAGE {
            let inner = if code == SHARD_READ_FROM { &mut from } else { &mut more };
            *inner = Some(r.get()?);
            code = r.u8()?;
        }
        if from.is_some() && code != SHARD_READ || more.is_some() && !matches!(code, SHARD_DATA | SHARD_DATA_BULK) {
            return Err(DecodeError::BadValue { what: "kind of a page", value: code.into() });
        }
        Ok(match code {
            1 => Self::Query,
            2 => Self::Notify {
                info: info(r)?,
                absent: r.bool()?,
                grants: r.vec_with("grants", |r| Ok((r.get()?, r.u32()?)))?,
            },
            3 => Self::GetLog { last_update: r.get()?, les: r.get()?, upto: r.get()? },
            4 => Self::Log { since: r.get()?, info: info(r)?, records: records(r)? },
            ACTIVATE => Self::Activate {
                les: r.get()?,
                since: r.get()?,
                reset: r.bool()?,
                info: info(r)?,
                records: records(r)?,
            },
            code @ (ACTIVATED | ACTIVATED_UNSIZED) => {
                let frame = if code == ACTIVATED { r.u64()? } else { u64::MAX };
                Self::Activated { missing: r.vec_with("missing objects", |r| Ok((r.get()?, r.get()?)))?, frame }
            }
            7 => Self::Started { history: Box::new(r.get()?), clean: r.bool()? },
            WRITE => {
                let (first, seq, stable) = (r.u64()?, r.u64()?, r.u64()?);
                let trim = if r.bool()? { Some(r.get()?) } else { None };
                Self::Write { first, seq, stable, trim, records: records(r)?, ops: decode_ops(r, cid, data)? }
            }
            9 => Self::WriteAck { seq: r.u64()? },
            10 => Self::Pull { head: r.get()?, need: r.get()?, urgent: r.bool()? },
            11 => Self::NoPull { head: r.get()? },
            PUSH => Self::Push {
                id: r.u64()?,
                n: r.u32()?,
                last: r.bool()?,
                background: r.bool()?,
                head: r.get()?,
                ops: decode_ops(r, cid, data)?,
            },
            13 => Self::PushAck { id: r.u64()?, n: r.u32()? },
            PUSH_STOP => Self::PushStop { id: r.u64()?, n: r.u32()?, again: r.bool()? },
            PIECE => Self::Piece {
                place: Place { id: r.u64()?, n: r.u32()?, body: r.u64()?, data: r.u64()? },
                bytes: data.clone(),
            },
            HEARD => Self::Heard { id: r.u64()?, next: r.u32()? },
            14 => Self::Scan { begin: r.get()?, end: r.get()? },
            15 => Self::Digest {
                begin: r.get()?,
                end: r.get()?,
                objects: r.vec_with("digests", |r| Ok((r.get()?, r.u64()?)))?,
            },
            16 => Self::Backfilled { upto: r.get()? },
            17 => Self::Remove,
            18 => Self::Stable { seq: r.u64()? },
            LACKS => Self::Lacks { objects: r.vec_with("missing objects", |r| Ok((r.get()?, r.get()?)))? },
            SCRUB => Self::Scrub(Box::new(ScrubMsg::decode(r)?)),
            HAVE => Self::Have { heads: r.vec_with("objects", |r| r.get())? },
            VERSIONS => Self::Versions { versions: r.vec_with("versions", |r| Ok((r.get()?, r.get()?)))? },
            FAILED => Self::Failed { errno: r.i32()? },
            SHARD_READ => Self::ShardRead {
                id: r.u64()?,
                n: r.u32()?,
                seq: r.u64()?,
                family: if r.bool()? { Some(r.get()?) } else { None },
                from,
                items: r.vec_with("runs of a shard", |r| {
                    let (oid, version, since) = (r.get()?, r.get()?, r.get()?);
                    Ok(ReadItem { oid, version, since, off: r.u64()?, len: r.u64()? })
                })?,
            },
            code @ (SHARD_DATA | SHARD_DATA_BULK) => {
                let (id, n) = (r.u64()?, r.u32()?);
                let mut data = Segment::new(data);
                let mut value = |r: &mut Reader<'_>| if code == SHARD_DATA { r.blob() } else { data.blob(r) };
                let mut pairs = |r: &mut Reader<'_>| r.vec_with("attributes", |r| Ok((r.blob()?, value(r)?)));
                let family = match r.bool()? {
                    true => Some(r.vec_with("objects", |r| Ok((r.get()?, pairs(r)?)))?),
                    false => None,
                };
                let found = r.vec_with("runs of a shard", |r| match r.i32()? {
                    0 => {
                        let len = r.u32()? as usize;
                        data.take(len, "bytes of a shard").map(Ok)
                    }
                    errno => Ok(Err(errno)),
                })?;
                Self::ShardData { id, n, family, more, found }
            }
            REWIND => Self::Rewind { since: r.get()?, records: records(r)? },
            GET_TOUCHED => Self::GetTouched { since: r.get()? },
            TOUCHED => Self::Touched {
                since: r.get()?,
                upto: r.get()?,
                entries: r.vec_with("entries of a log", |r| Ok((r.get()?, r.u32()?)))?,
            },
            RESERVE => Self::Reserve(ReserveMsg::decode(r)?),
            v => return Err(DecodeError::BadValue { what: "kind of peer message", value: v.into() }),
        })
    }
}

/// Hash of the object that an encoded [`Body::Write`] changes first, and the byte from which it writes it (0 for other
/// changes), or of the object that a [`Body::ShardRead`] reads first, and the byte from which it does, without decoding
/// the rest. `None` for other messages, and for bytes that end too soon.
#[must_use]
pub fn peek_object(body: &[u8]) -> Option<(u32, u64)> {
    let mut r = Reader::new(body);
    match r.u8().ok()? {
        WRITE => peek_write(&mut r),
        SHARD_READ => peek_read(&mut r),
        _ => Ok(None),
    }
    .ok()
    .flatten()
}

/// Length of an encoded version.
const VERSION: usize = 12;

fn peek_write(r: &mut Reader<'_>) -> Result<Option<(u32, u64)>, DecodeError> {
    r.skip(3 * size_of::<u64>(), "numbers of a write")?;
    if r.bool()? {
        r.skip(VERSION, "version")?;
    }
    for _ in 0..r.count(size_of::<u32>(), "log records")? {
        let len = r.u32()? as usize;
        r.skip(len, "log record")?;
    }
    if r.u32()? == 0 {
        return Ok(None);
    }
    let writes = super::super::txn::is_write(r.u8()?);
    let hash = peek_hash(r)?;
    Ok(Some((hash, if writes { r.u64()? } else { 0 })))
}

fn peek_read(r: &mut Reader<'_>) -> Result<Option<(u32, u64)>, DecodeError> {
    r.skip(size_of::<u64>() + size_of::<u32>() + size_of::<u64>(), "numbers of a read")?;
    if r.bool()? {
        peek_hash(r)?;
    }
    if r.u32()? == 0 {
        return Ok(None);
    }
    let hash = peek_hash(r)?;
    r.skip(2 * VERSION, "versions")?;
    Ok(Some((hash, r.u64()?)))
}

/// Hash of the object whose name is next.
fn peek_hash(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    r.versioned("hobject_t", 4, |r, _| {
        for _ in ["key", "name"] {
            let len = r.u32()? as usize;
            r.skip(len, "name")?;
        }
        r.u64()?;
        r.u32()
    })
}

impl Body {
    /// Decodes the body of `m`, addressed to collection `cid`; see [`Body::decode`]. Writes get the checksums of the
    /// message's data.
    ///
    /// # Errors
    ///
    /// As for [`Body::decode`].
    pub fn of(m: &MPgPeer, cid: Cid) -> Result<Self, DecodeError> {
        let mut body = Self::decode(&m.body, &m.data, cid)?;
        if let (Some(of_message), Self::Write { ops, .. } | Self::Push { ops, .. }) = (&m.sums, &mut body) {
            for op in ops {
                if let Op::Write { data, sums, .. } = op
                    && of_message.has(data)
                {
                    *sums = Some(Arc::clone(of_message));
                }
            }
        }
        Ok(body)
    }
}

/// Encodes a [`Body::Write`] from borrowed parts, since it is on the write path. `None` if the changes contain an
/// operation on the collection itself. All receivers understand `to`.
pub(crate) fn encode_write(
    first: u64,
    seq: u64,
    stable: u64,
    trim: Option<Eversion>,
    records: &[Bytes],
    ops: &[Op],
    to: PeerFeatures,
) -> Option<(Bytes, Bytes)> {
    let mut data = Payload::new(to);
    let mut w = Writer::with_capacity(Features::PACIFIC, 640);
    w.u8(WRITE);
    w.u64(first);
    w.u64(seq);
    w.u64(stable);
    w.bool(trim.is_some());
    if let Some(t) = trim {
        w.put(&t);
    }
    w.seq(records.iter(), |w, b| w.blob(b));
    encode_ops(ops, &mut w, &mut data)?;
    Some((w.into_bytes(), data.join()))
}

/// Encodes a [`Body::ShardData`].
fn encode_shard_data(
    w: &mut Writer,
    data: &mut Payload,
    id: u64,
    n: u32,
    family: Option<&[(HObject, Attrs)]>,
    found: &[Result<Bytes, Errno>],
) {
    let all = family.into_iter().flatten().flat_map(|(_, attrs)| attrs);
    let bulk = data.takes(all.map(|(k, v)| k.len() + v.len()).sum(), w);
    w.u8(if bulk { SHARD_DATA_BULK } else { SHARD_DATA });
    w.u64(id);
    w.u32(n);
    w.bool(family.is_some());
    if let Some(f) = family {
        w.seq(f.iter(), |w, (h, attrs)| {
            w.put(h);
            w.seq(attrs.iter(), |w, (k, v)| {
                w.blob(k);
                if bulk { data.blob(v, w) } else { w.blob(v) }
            });
        });
    }
    w.seq(found.iter(), |w, f| match f {
        Ok(b) => {
            w.i32(0);
            w.u32(b.len() as u32);
        }
        Err(errno) => w.i32(*errno),
    });
    found.iter().filter_map(|f| f.as_ref().ok()).for_each(|b| data.push(b));
}

/// An empty message, which no receiver accepts.
fn not_for_others() -> (Bytes, Bytes) {
    tracing::error!("an operation on a collection can't be sent to another OSD");
    (Bytes::new(), Bytes::new())
}
