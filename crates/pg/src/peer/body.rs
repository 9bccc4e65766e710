//! The bodies of messages between the copies of a PG.

use super::payload::{Payload, Segment};
use super::piece::Place;
use super::reserve::ReserveMsg;
use super::txn::{decode_ops, encode_ops};
use crate::info::PgInfo;
use crate::scrub::message::ScrubMsg;
use base::errno::Errno;
use base::{Epoch, Eversion, HObject, OsdId};
use bytes::Bytes;
use store::{Cid, Op};
use wire::msg::PeerFeatures;
use wire::types::PgHistory;
use wire::{DecodeError, Features, Reader, Writer};

/// Code of [`Body::Push`]; its parts are encoded by the recovery code that makes them.
pub(crate) const PUSH: u8 = 12;
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
const ACTIVATED_UNSIZED: u8 = 6;
/// Codes of [`Body::ShardRead`] for a later page of a description, and of a page that is not the last one.
const SHARD_READ_FROM: u8 = 56;
const SHARD_DATA_PAGE: u8 = 57;
/// Code of [`Body::Reserve`].
const RESERVE: u8 = 42;

/// OSDs that may still serve reads by a lease of the sender, each with the remaining milliseconds.
pub type Grants = Vec<(OsdId, u32)>;

/// An object's attributes.
pub type Attrs = Vec<(Bytes, Bytes)>;

/// A byte range of a shard that the primary reads from another copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadItem {
    /// The object or clone.
    pub oid: HObject,
    /// The newest version of the object. The copy may also have an older one, down to `since`.
    pub version: Eversion,
    /// The oldest version with the same bytes: the entries after it, up to `version`, spare the shard.
    pub since: Eversion,
    /// Offset in the shard, in bytes.
    pub off: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The body of a message; see the module. "Primary" is the primary of the message's interval.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Primary to any copy: what is your state?
    Query,
    /// Answer to `Query`. A copy also sends it unasked to the primary when an interval begins.
    Notify {
        /// Info of the sender's copy.
        info: Box<PgInfo>,
        /// The sender has no copy.
        absent: bool,
        /// Leases that the sender granted.
        grants: Grants,
    },
    /// Primary to the holder of the authoritative log: send the records that I lack.
    GetLog {
        /// The asker's newest version.
        last_update: Eversion,
        /// `last_epoch_started` of the primary's own copy.
        les: Epoch,
        /// Send no records newer than this version.
        upto: Eversion,
    },
    /// Answer to `GetLog`: all records after `since`, up to the requested version.
    Log {
        /// Both logs are the same at least up to here; they may also share later records.
        since: Eversion,
        /// The sender's info as of the newest of these records.
        info: Box<PgInfo>,
        /// The records.
        records: Vec<Bytes>,
    },
    /// Primary to members: the interval starts, with this log.
    Activate {
        /// The new `last_epoch_started`; 0 if there are too few copies to serve.
        les: Epoch,
        /// Version before the first of the records.
        since: Eversion,
        /// The member drops its own log; backfill compares its objects with the primary's.
        reset: bool,
        /// The primary's info.
        info: Box<PgInfo>,
        /// The records.
        records: Vec<Bytes>,
    },
    /// Answer to `Activate`, once durable.
    Activated {
        /// Objects that the member lacks, with the versions it needs.
        missing: Vec<(HObject, Eversion)>,
        /// Most metadata of a transaction that the member's log takes, in bytes; `u64::MAX` if it does not tell.
        frame: u64,
    },
    /// Primary to members: the interval has started, or the PG is clean.
    Started {
        /// The PG's history, with the start of the interval.
        history: Box<PgHistory>,
        /// All copies are complete, so the members forget past intervals.
        clean: bool,
    },
    /// Primary to members: the next write, together with the deferred writes before it. Writes are numbered from 1 in
    /// an interval, without gaps.
    Write {
        /// Number of the first write in the message.
        first: u64,
        /// Number of the last write in the message.
        seq: u64,
        /// Writes up to this number are durable on all members.
        stable: u64,
        /// Members trim their logs up to this version.
        trim: Option<Eversion>,
        /// Log records of the writes.
        records: Vec<Bytes>,
        /// Changes; empty if the receiver gets the object later, by recovery.
        ops: Vec<Op>,
    },
    /// Member to primary: writes up to this number are durable here.
    WriteAck {
        /// Number of the write.
        seq: u64,
    },
    /// Member to primary: the member has the log record of a write but not its object, since its stored data does not
    /// read. Sent ahead of the acknowledgement.
    Lacks {
        /// The objects, with the versions that the member needs.
        objects: Vec<(HObject, Eversion)>,
    },
    /// Primary to a copy: push this object to me.
    Pull {
        /// Head of the object; its clones are meant too.
        head: HObject,
        /// The object is needed as of this log version.
        need: Eversion,
        /// A client waits for the object.
        urgent: bool,
    },
    /// Answer to `Pull` if the copy does not have the object in that version.
    NoPull {
        /// The object.
        head: HObject,
    },
    /// A part of an object. The first part replaces all there is of it.
    Push {
        /// Number of the transfer.
        id: u64,
        /// Number of the part.
        n: u32,
        /// This is the last part.
        last: bool,
        /// No client waits for the object, so both ends let client operations go first.
        background: bool,
        /// Head of the object.
        head: HObject,
        /// Changes that write this part.
        ops: Vec<Op>,
    },
    /// Answer to `Push`: that part is durable.
    PushAck {
        /// Number of the transfer.
        id: u64,
        /// Number of the part.
        n: u32,
    },
    /// Answer to `Push`: the part can't be used. Only to an OSD with [`wire::msg::PeerFeatures::PARTS`].
    PushStop {
        /// Number of the transfer.
        id: u64,
        /// Number of the part.
        n: u32,
        /// Begin anew, since earlier parts are not there; otherwise the object is not wanted.
        again: bool,
    },
    /// A piece of another message, which is repeated until it is heard. Only to an OSD with
    /// [`wire::msg::PeerFeatures::PARTS`].
    Piece {
        /// Where it belongs.
        place: Place,
        /// The piece.
        bytes: Bytes,
    },
    /// Answer to `Piece`: the pieces before this one are there; after the last one, the message is taken.
    Heard {
        /// Number of the message.
        id: u64,
        /// Number of the first piece that is not there.
        next: u32,
    },
    /// Primary to a backfill target: list your objects after `begin`, up to and including `end`.
    Scan {
        /// Exclusive lower bound.
        begin: HObject,
        /// Inclusive upper bound.
        end: HObject,
    },
    /// Answer to `Scan`.
    Digest {
        /// Lower bound, as asked.
        begin: HObject,
        /// The answer covers objects up to and including this one; it may end before the bound that was asked for.
        end: HObject,
        /// Objects with digests of their metadata, in order.
        objects: Vec<(HObject, u64)>,
    },
    /// Primary to a backfill target: all objects up to and including this one are equal to the primary's.
    Backfilled {
        /// The last such object; the end marker when backfill is done.
        upto: HObject,
    },
    /// Primary to members: writes up to this number are durable on all members. Sent when no new write carries this
    /// soon.
    Stable {
        /// Number of the write.
        seq: u64,
    },
    /// Primary to a stray: the PG is clean without you, so remove your copy.
    Remove,
    /// Between primary and members: a scrub message.
    Scrub(Box<ScrubMsg>),
    /// Primary to any copy: which versions do you have of these objects? Asked when an operator gives up unfound
    /// objects.
    Have {
        /// Heads of the objects; their clones are meant too.
        heads: Vec<HObject>,
    },
    /// Answer to `Have`.
    Versions {
        /// The newest version of each object; zero if the copy has nothing of it.
        versions: Vec<(HObject, Eversion)>,
    },
    /// Copy to primary: this copy failed and counts as down.
    Failed {
        /// Error of the failure.
        errno: Errno,
    },
    /// Primary to a shard: read these ranges.
    ShardRead {
        /// Number of the read.
        id: u64,
        /// Number of the attempt; each attempt asks for other ranges.
        n: u32,
        /// The shard answers after it has applied writes up to this number.
        seq: u64,
        /// Also return the attributes of this object and its clones.
        family: Option<HObject>,
        /// Begin the description with this clone, where the page before ended.
        from: Option<HObject>,
        /// The ranges.
        items: Vec<ReadItem>,
    },
    /// Answer to `ShardRead`.
    ShardData {
        /// Number of the read.
        id: u64,
        /// Number of the attempt.
        n: u32,
        /// The object and its clones with their attributes, if the primary asked.
        family: Option<Vec<(HObject, Attrs)>>,
        /// The description goes on with this clone.
        more: Option<HObject>,
        /// The bytes of each range, or the error.
        found: Vec<Result<Bytes, Errno>>,
    },
    /// Primary to a shard that is not a member: undo your entries beyond these records. Such a shard may have entries
    /// that members lack.
    Rewind {
        /// Both logs are the same up to this version.
        since: Eversion,
        /// The records of the primary's log after `since`.
        records: Vec<Bytes>,
    },
    /// Primary, while peering, to the shard with the longest log: which shards do the entries after `since` touch?
    GetTouched {
        /// The version before the first of these entries.
        since: Eversion,
    },
    /// The answer.
    Touched {
        /// As asked.
        since: Eversion,
        /// Newest version of the sender's log.
        upto: Eversion,
        /// Versions of the entries, each with one bit for each touched shard.
        entries: Vec<(Eversion, u32)>,
    },
    /// Between the primary and members: may it recover now?
    Reserve(ReserveMsg),
}

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
        let Self::ShardRead { id, n, seq, family, from, items } = self else { return };
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
    pub(super) fn is_activate(begin: &Bytes) -> bool {
        begin.first() == Some(&ACTIVATE)
    }

    /// The info at the beginning of an encoded [`Body::Activate`].
    pub(super) fn info_of_activate(begin: &Bytes) -> Option<Box<PgInfo>> {
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
            8 => {
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
    w.u8(8);
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::PgId;
    use std::collections::BTreeSet;
    use store::Oid;

    fn scrub_bodies(head: &HObject, v: Eversion) -> Vec<Body> {
        use crate::scrub::map::{Family, ScrubAttr, ScrubObject};
        use crate::scrub::message::{Answer, Ask};
        let o = ScrubObject {
            attrs: vec![ScrubAttr::new(Bytes::from_static(b"_x"), Bytes::from_static(b"value"))],
            data_digest: Some(7),
            ..ScrubObject::default()
        };
        let ask = |ask| ScrubMsg::Ask { n: 3, seq: 9, ask };
        let answer = |answer| ScrubMsg::Answer { n: 3, answer };
        [
            ask(Ask::Reserve),
            ask(Ask::List { begin: HObject::min(), end: HObject::max() }),
            ask(Ask::Scan { heads: vec![head.clone()], deep: true }),
            ask(Ask::Lack(vec![(head.clone(), v)])),
            answer(Answer::Reserved(true)),
            answer(Answer::Listed { upto: head.clone(), heads: vec![head.clone()] }),
            answer(Answer::Scanned(vec![Family { head: head.clone(), objects: vec![o] }])),
            answer(Answer::Lacks),
            answer(Answer::Failed),
            ScrubMsg::Release { n: 5 },
            ScrubMsg::Done { history: Box::default(), counts: [1, -2, 3, 4], delta: Default::default() },
        ]
        .into_iter()
        .map(|m| Body::Scrub(Box::new(m)))
        .collect()
    }

    /// Checks that the table of docs/design/osd-peers.md has the names and codes of these bodies, and no others.
    fn the_document_names_all(bodies: &[Body]) {
        let doc = include_str!("../../../../docs/design/osd-peers.md");
        let rows = doc.lines().skip_while(|l| !l.starts_with("| body | code |")).skip(2);
        let row = |l: &str| {
            let mut cells = l.split('|').map(str::trim).skip(1);
            Some((cells.next()?.trim_matches('`').to_owned(), cells.next()?.parse::<u8>().ok()?))
        };
        let documented: BTreeSet<(String, u8)> = rows.map_while(row).collect();
        let name = |b: &Body| format!("{b:?}").chars().take_while(|c| c.is_alphanumeric()).collect::<String>();
        let coded: BTreeSet<(String, u8)> = bodies.iter().map(|b| (name(b), b.encode().0[0])).collect();
        assert_eq!(documented, coded);
    }

    #[test]
    fn an_osd_without_pages_gets_and_sends_no_size() {
        let b = Body::Activated { missing: Vec::new(), frame: 7 };
        let (body, data) = b.encode_for(PeerFeatures::PARTS);
        let cid = Cid::Pg(PgId::new(3, 1).into());
        assert_eq!(body[0], ACTIVATED_UNSIZED);
        let back = Body::decode(&body, &data, cid).unwrap();
        assert_eq!(back, Body::Activated { missing: Vec::new(), frame: u64::MAX });
        // A page of something else.
        assert!(Body::decode(&[&[SHARD_READ_FROM][..], &[0; 80]].concat().into(), &Bytes::new(), cid).is_err());
    }

    #[test]
    fn bodies_round_trip_and_are_refused_when_cut() {
        let cid = Cid::Pg(PgId::new(3, 1).into());
        let head = HObject { oid: Bytes::from_static(b"a"), ..HObject::min() }.head();
        let ops = vec![Op::Write { cid, oid: Oid::new(head.clone()), off: 0, data: Bytes::from_static(b"xyz") }];
        let info = Box::new(PgInfo { last_update: Eversion::new(3, 4), ..PgInfo::default() });
        let (v, records) = (Eversion::new(2, 2), vec![Bytes::from_static(b"record")]);
        let all = vec![
            Body::Query,
            Body::Notify { info: info.clone(), absent: true, grants: vec![(OsdId(3), 7)] },
            Body::GetLog { last_update: v, les: Epoch(4), upto: Eversion::new(2, 3) },
            Body::Log { since: v, info: info.clone(), records: records.clone() },
            Body::Activate { les: Epoch(3), since: v, reset: true, info, records: records.clone() },
            Body::Activated { missing: vec![(head.clone(), v)], frame: 1 << 20 },
            Body::Started { history: Box::default(), clean: true },
            Body::Rewind { since: v, records: records.clone() },
            Body::Write { first: 5, seq: 7, stable: 6, trim: Some(v), records, ops: ops.clone() },
            Body::GetTouched { since: v },
            Body::Touched {
                since: v,
                upto: Eversion::new(2, 9),
                entries: vec![(v, 5), (Eversion::new(2, 9), u32::MAX)],
            },
            Body::WriteAck { seq: 3 },
            Body::Pull { head: head.clone(), need: v, urgent: true },
            Body::NoPull { head: head.clone() },
            Body::Push { id: 4, n: 1, last: true, background: true, head: head.clone(), ops },
            Body::PushAck { id: 4, n: 1 },
            Body::PushStop { id: 4, n: 1, again: true },
            Body::Piece { place: Place { id: 4, n: 1, body: 2, data: 5 }, bytes: Bytes::from_static(b"piece") },
            Body::Heard { id: 4, next: 2 },
            Body::Scan { begin: HObject::min(), end: HObject::max() },
            Body::Digest { begin: HObject::min(), end: head.clone(), objects: vec![(head.clone(), 5)] },
            Body::Backfilled { upto: head.clone() },
            Body::Remove,
            Body::Stable { seq: 9 },
            Body::Lacks { objects: vec![(head.clone(), v)] },
            Body::Reserve(ReserveMsg::Ask { n: 1, fill: Some(7), priority: 180 }),
            Body::Reserve(ReserveMsg::Ask { n: 1, fill: None, priority: 100 }),
            Body::Have { heads: vec![head.clone()] },
            Body::Versions { versions: vec![(head.clone(), v)] },
            Body::ShardRead {
                id: 4,
                n: 2,
                seq: 9,
                family: Some(head.clone()),
                from: None,
                items: vec![ReadItem {
                    oid: head.clone(),
                    version: v,
                    since: Eversion::new(2, 1),
                    off: 4096,
                    len: 8192,
                }],
            },
            Body::ShardData {
                id: 4,
                n: 2,
                family: Some(vec![(head.clone(), vec![(Bytes::from_static(b"_"), Bytes::from_static(b"oi"))])]),
                more: None,
                found: vec![Ok(Bytes::from_static(b"bytes")), Err(-5), Ok(Bytes::new())],
            },
            Body::Reserve(ReserveMsg::Granted { n: 2 }),
            Body::Reserve(ReserveMsg::TooFull { n: 3 }),
            Body::Reserve(ReserveMsg::Revoked { n: 4 }),
            Body::Reserve(ReserveMsg::Release { n: 5 }),
            Body::Reserve(ReserveMsg::Released { n: 6 }),
        ];
        let all: Vec<Body> = all.into_iter().chain(scrub_bodies(&head, v)).chain([Body::Failed { errno: 5 }]).collect();
        the_document_names_all(&all);
        let pages = [
            Body::ShardRead {
                id: 4,
                n: 2,
                seq: 9,
                family: Some(head.clone()),
                from: Some(head.clone()),
                items: Vec::new(),
            },
            Body::ShardData { id: 4, n: 2, family: Some(Vec::new()), more: Some(head.clone()), found: Vec::new() },
        ];
        for b in all.into_iter().chain(pages) {
            let (body, data) = b.encode();
            assert_eq!(Body::decode(&body, &data, cid).unwrap(), b);
            for n in 0..body.len() {
                assert!(Body::decode(&body.slice(..n), &data, cid).is_err(), "{b:?} cut at {n}");
            }
        }
    }
}
