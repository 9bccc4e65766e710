//! The PG log: one record per write, stored in the write's own transaction, and the index of reqids built from it.
//!
//! - `newest`: the newest operation of each client, so that only older ones are looked up
//!
//! Invariants:
//!  1. Versions increase; the newest equals `info.last_update` once durable.
//!  2. While a record is kept, the reply to its write can be repeated from it.
//!  3. The stored info may lag behind the log: replaying newer records on it gives the current info.
//!
//! Tests: below (1, 2), `tests/order.rs` (1, 3, `the_log_is_trimmed_and_still_loads`), `tests/model.rs` (3).

mod newest;

use crate::keep::Keep;
use crate::stats::StatSum;
use base::{EntityKind, EntityName, Epoch, Eversion, HObject, ReqId, ShardId, Utime};
use bytes::Bytes;
use hashbrown::{HashTable, hash_table};
use newest::Newest;
use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher as _;
use wire::{DecodeError, Features, Reader, Writer};

/// Kind of change that a record stands for (`pg_log_entry_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogKind {
    /// The object was changed or created.
    Modify = 1,
    /// A clone was created.
    Clone = 2,
    /// The object was deleted.
    Delete = 3,
    /// An operation failed without change; a resend must fail with the same result.
    Error = 4,
}

impl LogKind {
    fn from_u8(v: u8) -> Result<Self, DecodeError> {
        Ok(match v {
            1 => Self::Modify,
            2 => Self::Clone,
            3 => Self::Delete,
            4 => Self::Error,
            v => return Err(DecodeError::BadValue { what: "log record kind", value: v.into() }),
        })
    }
}

/// Result and output of one operation in a vector, kept for resends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpReturn {
    /// Result of the operation.
    pub rval: i32,
    /// Output of the operation.
    pub out: Bytes,
}

/// One log record.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Kind of change.
    pub kind: LogKind,
    /// The object or clone that was changed.
    pub soid: HObject,
    /// Version of this write.
    pub version: Eversion,
    /// Version of the object before this write.
    pub prior_version: Eversion,
    /// User version that the reply has.
    pub user_version: u64,
    /// Identity of the client's operation; blank for internal writes.
    pub reqid: ReqId,
    /// Modification time that the client gave.
    pub mtime: Utime,
    /// Result of the vector.
    pub result: i32,
    /// Results of the vector's operations, if the client asked for them.
    pub returns: Vec<OpReturn>,
    /// Snapshots that a clone represents.
    pub snaps: Vec<u64>,
    /// Change of the PG's statistics.
    pub delta: StatSum,
    /// Only on a shard: undo data of the transaction; empty if another entry has it.
    pub undo: Bytes,
    /// Only on a shard: the shards that the entry touches. `None`: it may touch all.
    pub touch: Option<Box<Touch>>,
}

/// The shards that an entry of an erasure-coded PG *touches*: those whose bytes it changes, the primary's, and the
/// coding shards. It *spares* the others: there the entry only sets attributes. Only an overwrite of part of one object
/// can spare shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// One bit for each touched shard.
    pub shards: u32,
    /// Attributes of the object that the entry sets on every shard.
    pub attrs: Vec<(Bytes, Bytes)>,
}

impl Touch {
    /// True if the entry touches the shard.
    #[must_use]
    pub fn touches(&self, shard: ShardId) -> bool {
        u32::try_from(shard.0).ok().and_then(|s| 1u32.checked_shl(s)).is_none_or(|bit| self.shards & bit != 0)
    }
}

const FORMAT: u8 = 1;
const HAS_RETURNS: u8 = 1;
const HAS_SNAPS: u8 = 2;
const HAS_UNDO: u8 = 4;
const HAS_TOUCH: u8 = 8;

impl LogEntry {
    /// Encodes the stored form.
    #[must_use]
    pub fn to_record(&self) -> Bytes {
        let mut w = Writer::with_capacity(Features::PACIFIC, 160 + self.soid.oid.len());
        w.u8(FORMAT);
        w.u8(self.kind as u8);
        w.u8((u8::from(!self.returns.is_empty()) * HAS_RETURNS)
            | (u8::from(!self.snaps.is_empty()) * HAS_SNAPS)
            | (u8::from(!self.undo.is_empty()) * HAS_UNDO)
            | (u8::from(self.touch.is_some()) * HAS_TOUCH));
        w.put(&self.version);
        w.put(&self.prior_version);
        w.u64(self.user_version);
        w.put(&self.reqid.name);
        w.u64(self.reqid.tid);
        w.i32(self.reqid.inc);
        w.put(&self.mtime);
        w.i32(self.result);
        w.put(&self.soid);
        w.put(&self.delta);
        if !self.returns.is_empty() {
            w.seq(self.returns.iter(), |w, x| {
                w.i32(x.rval);
                w.blob(&x.out);
            });
        }
        if !self.snaps.is_empty() {
            w.put(&self.snaps);
        }
        if !self.undo.is_empty() {
            w.blob(&self.undo);
        }
        if let Some(t) = &self.touch {
            w.u32(t.shards);
            w.seq(t.attrs.iter(), |w, (k, v)| {
                w.blob(k);
                w.blob(v);
            });
        }
        w.into_bytes()
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    ///
    /// If the format or kind is unknown, or the bytes are malformed.
    pub fn from_record(b: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(b);
        let format = r.u8()?;
        if format != FORMAT {
            return Err(DecodeError::BadValue { what: "log record format", value: format.into() });
        }
        let kind = LogKind::from_u8(r.u8()?)?;
        let bits = r.u8()?;
        let mut e = Self {
            kind,
            version: r.get()?,
            prior_version: r.get()?,
            user_version: r.u64()?,
            reqid: ReqId { name: r.get()?, tid: r.u64()?, inc: r.i32()? },
            mtime: r.get()?,
            result: r.i32()?,
            soid: r.get()?,
            delta: r.get()?,
            returns: Vec::new(),
            snaps: Vec::new(),
            undo: Bytes::new(),
            touch: None,
        };
        if bits & HAS_RETURNS != 0 {
            e.returns = r.vec_with("op returns", |r| Ok(OpReturn { rval: r.i32()?, out: r.blob()? }))?;
        }
        if bits & HAS_SNAPS != 0 {
            e.snaps = r.get()?;
        }
        if bits & HAS_UNDO != 0 {
            e.undo = r.blob()?;
        }
        if bits & HAS_TOUCH != 0 {
            let shards = r.u32()?;
            let attrs = r.vec_with("attributes", |r| Ok((r.blob()?, r.blob()?)))?;
            e.touch = Some(Box::new(Touch { shards, attrs }));
        }
        Ok(e)
    }

    /// The touched shards and the attributes to set, if the entry spares `shard`; `None` if it may touch it.
    #[must_use]
    pub fn spares(&self, shard: ShardId) -> Option<&Touch> {
        self.touch.as_deref().filter(|t| !t.touches(shard))
    }

    /// The part of the entry that a resend needs.
    #[must_use]
    pub fn dup(&self) -> Dup {
        Dup {
            reqid: self.reqid,
            version: self.version,
            user_version: self.user_version,
            result: self.result,
            returns: (!self.returns.is_empty()).then(|| self.returns.clone().into_boxed_slice()),
        }
    }
}

/// The part of a log record that is kept in memory, for the answer to a resend.
#[derive(Clone, Debug, PartialEq)]
pub struct Dup {
    /// Identity of the client's operation.
    pub reqid: ReqId,
    /// Version of the write.
    pub version: Eversion,
    /// User version that the reply has.
    pub user_version: u64,
    /// Result of the vector.
    pub result: i32,
    /// Results of the vector's operations, if the client asked for them.
    pub returns: Option<Box<[OpReturn]>>,
}

/// The compact form of a record in memory, as an OSD has some hundred thousand. Records that do not fit are in
/// [`PgLog::rare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slim {
    tid: u64,
    /// Kind and number of the client; [`Slim::RARE`] if the record is in [`PgLog::rare`].
    who: u64,
    version: u64,
    epoch: u32,
    /// The version's number minus the user version.
    behind: u32,
}

impl Slim {
    const NUM_BITS: u32 = 56;
    /// A bit that no kind of client has.
    const RARE: u64 = 1 << 63;

    /// Kind and number of a client, if it fits.
    fn who(name: EntityName) -> Option<u64> {
        let num = u64::try_from(name.num).ok().filter(|n| *n < 1 << Self::NUM_BITS);
        num.map(|n| u64::from(name.kind.0) << Self::NUM_BITS | n).filter(|w| *w < Self::RARE)
    }

    /// The compact form, and whether the whole record fits into it.
    fn of(d: &Dup) -> (Self, bool) {
        let who = Self::who(d.reqid.name);
        let behind = d.version.version.checked_sub(d.user_version).and_then(|n| u32::try_from(n).ok());
        let fits = who.is_some() && behind.is_some() && d.reqid.inc == 0 && d.result == 0 && d.returns.is_none();
        let who = if fits { who.unwrap_or(Self::RARE) } else { Self::RARE };
        let (version, epoch) = (d.version.version, d.version.epoch.0);
        (Self { tid: d.reqid.tid, who, version, epoch, behind: behind.unwrap_or(0) }, fits)
    }

    const fn version(&self) -> Eversion {
        Eversion { epoch: Epoch(self.epoch), version: self.version }
    }

    fn dup(&self) -> Dup {
        let num = i64::try_from(self.who & ((1 << Self::NUM_BITS) - 1)).unwrap_or(0);
        let name = EntityName { kind: EntityKind((self.who >> Self::NUM_BITS) as u8), num };
        Dup {
            reqid: ReqId { name, tid: self.tid, inc: 0 },
            version: self.version(),
            user_version: self.version - u64::from(self.behind),
            result: 0,
            returns: None,
        }
    }
}

/// Full records by running number; boxed, as few PGs have one.
#[allow(clippy::box_collection, reason = "a machine is small")]
type Rare = Box<BTreeMap<u64, Box<Dup>>>;

/// The log in memory: its records and the index of their reqids.
#[derive(Clone, Debug, Default)]
pub struct PgLog {
    /// Records, oldest first, as in the stored log. Version numbers may have gaps.
    entries: VecDeque<Slim>,
    /// Low bits of running numbers, by reqid, of the records before `indexed`. The question for a reqid that the log may
    /// have brings the index up to date. Only a primary is asked, and a client's new operations are above `newest`, so
    /// a log has an index if a client has sent an older one.
    index: HashTable<u32>,
    indexed: u64,
    /// Running number of `entries[0]`.
    first: u64,
    /// Records that don't fit the compact form, by running number.
    rare: Rare,
    /// Bounds of each client's tids.
    newest: Option<Box<Newest>>,
    /// Number of records above the limit when the log was first found too long, as after a merge of PGs. Each new
    /// record lowers it by one. So a reqid is forgotten only after as many later ones as usual.
    surplus: Option<u32>,
    /// Version before the oldest record.
    pub tail: Eversion,
    /// Version of the newest record.
    pub head: Eversion,
}

impl PartialEq for PgLog {
    fn eq(&self, o: &Self) -> bool {
        (self.tail, self.head, self.len()) == (o.tail, o.head, o.len()) && self.dups().eq(o.dups())
    }
}

/// Hash of a reqid in the index.
fn hash(reqid: &ReqId) -> u64 {
    let mut h = rustc_hash::FxHasher::default();
    h.write_u64(reqid.tid);
    h.write_u64(reqid.name.num as u64);
    h.write_u64(u64::from(reqid.inc as u32) << 8 | u64::from(reqid.name.kind.0));
    h.finish()
}

impl PgLog {
    /// An empty log that begins after `tail`.
    #[must_use]
    pub fn behind(tail: Eversion) -> Self {
        Self { tail, head: tail, ..Self::default() }
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the log has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All records, oldest first.
    fn dups(&self) -> impl Iterator<Item = Dup> + '_ {
        self.entries.iter().zip(self.first..).map(|(s, n)| self.whole(s, n))
    }

    /// The record with running number `n`.
    fn whole(&self, s: &Slim, n: u64) -> Dup {
        if s.who == Slim::RARE { self.rare.get(&n).map_or_else(|| s.dup(), |d| (**d).clone()) } else { s.dup() }
    }

    /// Reqid of the record with running number `n`.
    fn reqid(s: &Slim, n: u64, rare: &BTreeMap<u64, Box<Dup>>) -> ReqId {
        match rare.get(&n) {
            Some(d) if s.who == Slim::RARE => d.reqid,
            _ => s.dup().reqid,
        }
    }

    /// The record whose running number ends in the bits `low`, and that number.
    fn at(entries: &VecDeque<Slim>, first: u64, low: u32) -> Option<(&Slim, u64)> {
        let at = low.wrapping_sub(first as u32);
        Some((entries.get(usize::try_from(at).ok()?)?, first + u64::from(at)))
    }

    /// Reqid of the record whose running number ends in the bits `low`.
    fn reqid_at(entries: &VecDeque<Slim>, rare: &BTreeMap<u64, Box<Dup>>, first: u64, low: u32) -> ReqId {
        Self::at(entries, first, low).map_or_else(ReqId::default, |(s, n)| Self::reqid(s, n, rare))
    }

    /// Appends a record.
    pub fn push(&mut self, d: Dup) {
        self.head = d.version;
        self.surplus = self.surplus.map(|n| n.saturating_sub(1));
        let (slim, fits) = Slim::of(&d);
        let n = self.end();
        if d.reqid.tid != 0 {
            self.newest.get_or_insert_default().push(&d.reqid);
        }
        self.entries.push_back(slim);
        if !fits {
            self.rare.insert(n, Box::new(d));
        }
    }

    /// Running number of the next record.
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Adds the records to the index that are not in it.
    fn index_rest(&mut self) {
        let (entries, rare, first) = (&self.entries, &self.rare, self.first);
        let of = |low: u32| Self::reqid_at(entries, rare, first, low);
        for n in self.indexed.max(first)..first + entries.len() as u64 {
            let low = n as u32;
            let reqid = of(low);
            if reqid.tid == 0 {
                continue;
            }
            match self.index.entry(hash(&reqid), |x| of(*x) == reqid, |x| hash(&of(*x))) {
                hash_table::Entry::Occupied(mut o) => *o.get_mut() = low,
                hash_table::Entry::Vacant(v) => drop(v.insert(low)),
            }
        }
        self.indexed = self.end();
    }

    /// True if the operation is newer than all that the log has of its client.
    #[inline]
    fn is_new(&self, reqid: &ReqId) -> bool {
        self.newest.as_ref().is_none_or(|n| reqid.tid > n.bound(reqid.name))
    }

    /// The write with that reqid, if its record is kept. A client's newest operation is not looked up. The first question
    /// for an older one costs a pass over the records.
    #[must_use]
    pub fn find(&mut self, reqid: &ReqId) -> Option<Dup> {
        if reqid.tid == 0 || base::planted::acts(base::planted::Bug::ForgetReqids) {
            return None;
        }
        if self.is_new(reqid) {
            return None;
        }
        self.index_rest();
        let get = |low: u32| Self::at(&self.entries, self.first, low);
        let is =
            |low: &u32| get(*low).is_some_and(|(s, n)| s.tid == reqid.tid && Self::reqid(s, n, &self.rare) == *reqid);
        let (s, n) = get(*self.index.find(hash(reqid), is)?)?;
        Some(self.whole(s, n))
    }

    /// Version up to which records should be trimmed now, if a batch is due.
    #[must_use]
    pub fn trim_target(&mut self, keep: Keep) -> Option<Eversion> {
        let over = self.entries.len().checked_sub(keep.records).filter(|n| *n > 0)?;
        let over = over.checked_sub(*self.surplus.get_or_insert(over as u32) as usize)?;
        if over < keep.batch.max(1) {
            return None;
        }
        self.entries.get(over.min(keep.batch_max.max(keep.batch)) - 1).map(Slim::version)
    }

    /// Drops the count of surplus records: the log is about to become as long as another member's.
    pub fn count_anew(&mut self) {
        self.surplus = None;
    }

    /// Removes a record's reqid from the index.
    fn forget(&mut self, s: &Slim, n: u64) {
        if n >= self.indexed {
            self.rare.remove(&n);
            return;
        }
        let reqid = Self::reqid(s, n, &self.rare);
        self.rare.remove(&n);
        if let Ok(e) = self.index.find_entry(hash(&reqid), |low| *low == n as u32) {
            e.remove();
        }
    }

    /// Drops records newer than `to`.
    pub fn rewind(&mut self, to: Eversion) {
        while let Some(s) = self.entries.pop_back_if(|s| s.version() > to) {
            self.forget(&s, self.end());
        }
        self.indexed = self.indexed.min(self.end());
        self.head = self.entries.back().map_or(self.tail, Slim::version);
    }

    /// True if `v` is a record's version or the tail: a log that ends there is a prefix of this one.
    #[must_use]
    pub fn has(&self, v: Eversion) -> bool {
        v == self.tail || self.entries.binary_search_by(|d| d.version().cmp(&v)).is_ok()
    }

    /// The newest version from an epoch before `e`, or the tail.
    #[must_use]
    pub fn last_before(&self, e: Epoch) -> Eversion {
        let n = self.entries.partition_point(|d| d.epoch < e.0);
        n.checked_sub(1).and_then(|n| self.entries.get(n)).map_or(self.tail, Slim::version)
    }

    /// Drops records up to and including `to`.
    pub fn trim(&mut self, to: Eversion) {
        while let Some(s) = self.entries.pop_front_if(|s| s.version() <= to) {
            self.forget(&s, self.first);
            self.first += 1;
        }
        self.tail = self.tail.max(to);
    }

    /// Releases unused memory.
    pub fn release_memory(&mut self) {
        let (n, most) = (self.entries.len(), self.entries.capacity());
        if most > 64 && most > n + n / 4 {
            self.entries.shrink_to(n + n / 8);
        }
        if self.index.capacity() > 64 && self.index.capacity() / 4 > self.index.len() {
            let (entries, rare, first) = (&self.entries, &self.rare, self.first);
            self.index.shrink_to(self.index.len(), |low| hash(&Self::reqid_at(entries, rare, first, *low)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    fn dup(n: u64) -> Dup {
        let reqid = ReqId { name: EntityName::new(EntityKind::CLIENT, 9), tid: n, inc: 0 };
        Dup { reqid, version: Eversion::new(1, n), user_version: n, result: 0, returns: None }
    }

    #[test]
    fn requests_are_found_until_trimmed_in_batches() {
        let mut log = PgLog::default();
        let keep = Keep { records: 3000, batch: 100, batch_max: 250 };
        for n in 1..3100 {
            log.push(dup(n));
            assert_eq!(log.trim_target(keep), None);
        }
        log.push(dup(3100));
        let to = log.trim_target(keep).unwrap();
        assert_eq!(to.version, 100);
        log.trim(to);
        assert_eq!(log.len(), 3000);
        assert!(log.find(&dup(100).reqid).is_none());
        assert_eq!(log.find(&dup(101).reqid), Some(dup(101)));
        assert_eq!(log.find(&dup(3100).reqid).unwrap().user_version, 3100);
        assert_eq!(log.tail.version, 100);
        // The limit may drop; the log then shrinks in steps.
        assert_eq!(log.trim_target(Keep { records: 50, ..keep }).unwrap().version, 350);
    }

    /// A log of two merged PGs begins with 400 records, although `keep` allows 100. It drops two records for each new
    /// one.
    #[test]
    fn a_log_that_starts_too_long_drops_two_records_per_new_one() {
        let mut log = PgLog::default();
        let keep = Keep { records: 100, batch: 10, batch_max: 1000 };
        (1..=400).for_each(|n| log.push(dup(n)));
        for n in 401..1500 {
            if let Some(to) = log.trim_target(keep) {
                log.trim(to);
            }
            let wanted = 400usize.saturating_sub(n as usize - 401).max(100);
            assert!((wanted..wanted + 20).contains(&log.len()), "{} at {n}", log.len());
            log.push(dup(n));
        }
    }

    #[test]
    fn a_record_is_small() {
        assert_eq!(size_of::<Slim>(), 32);
    }

    /// A copy that becomes the primary late knows the same requests as one that was asked for each.
    #[test]
    fn a_log_that_is_asked_late_finds_the_same_requests() {
        for seed in 0..30u64 {
            let mut rng = Rng::new(seed);
            let (mut late, mut asked) = (PgLog::default(), PgLog::default());
            let mut n = 0;
            for step in 0..600 {
                n += 1;
                let (mut to, oldest) = (n, asked.tail.version.min(n - 1));
                match rng.below(30) {
                    0 => to = n - 1 - rng.below(n - oldest),
                    1 => drop([&mut late, &mut asked].map(|l| l.trim(Eversion::new(1, oldest + (n - 1 - oldest) / 2)))),
                    _ => {}
                }
                if to < n {
                    [&mut late, &mut asked].into_iter().for_each(|l| l.rewind(Eversion::new(1, to)));
                    n = to;
                    continue;
                }
                [&mut late, &mut asked].into_iter().for_each(|l| l.push(dup(n)));
                assert_eq!(asked.find(&dup(n).reqid), Some(dup(n)));
                if step == 300 + seed as usize {
                    assert!(late.index.is_empty(), "it was not asked");
                    (0..n + 2).for_each(|x| assert_eq!(late.find(&dup(x).reqid), asked.find(&dup(x).reqid), "{seed}"));
                }
            }
            (0..n + 2).for_each(|x| assert_eq!(late.find(&dup(x).reqid), asked.find(&dup(x).reqid), "seed {seed}"));
            assert_eq!((late.index.len(), late.len()), (asked.index.len(), asked.len()));
        }
    }

    /// Records of all kinds are added, trimmed, rewound and found as in a plain list.
    #[test]
    fn the_log_equals_a_list_of_records() {
        for seed in 0..30u64 {
            let mut rng = Rng::new(seed);
            let mut next = |n: u64| rng.below(n);
            // The low bits of running numbers wrap on the way.
            let mut log = PgLog { first: u64::from(u32::MAX) - 300, ..PgLog::default() };
            let mut list: VecDeque<(u64, Dup)> = VecDeque::new();
            let mut known: BTreeMap<ReqId, u64> = BTreeMap::new();
            let forget = |known: &mut BTreeMap<ReqId, u64>, (n, d): (u64, Dup)| {
                if known.get(&d.reqid) == Some(&n) {
                    known.remove(&d.reqid);
                }
            };
            let mut version = Eversion::new(1, 0);
            for step in 0..2000 {
                match next(40) {
                    0 if !list.is_empty() => {
                        let at = next(list.len() as u64) as usize;
                        log.trim(list[at].1.version);
                        list.drain(..=at).for_each(|x| forget(&mut known, x));
                        log.release_memory();
                    }
                    1 if list.len() > 1 => {
                        let at = list.len() - 1 - next(list.len().min(9) as u64) as usize;
                        log.rewind(list[at].1.version);
                        list.drain(at + 1..).rev().for_each(|x| forget(&mut known, x));
                        version.epoch.0 += 1;
                    }
                    _ => {
                        version.version += 1 + next(2);
                        let kind = if next(9) == 0 { EntityKind(0xff) } else { EntityKind::CLIENT };
                        let num = [7, 8, -1, i64::MAX, 1 << 56][next(5) as usize];
                        // A number that comes twice stands for a clone's record and that of its write.
                        let reqid =
                            ReqId { name: EntityName::new(kind, num), tid: next(900), inc: -i32::from(next(8) == 0) };
                        let user = [version.version, version.version - 1, version.version + 1][next(3) as usize];
                        let returns = (next(9) == 0).then(|| vec![OpReturn::default()].into_boxed_slice());
                        let result = -i32::from(next(9) == 0);
                        let d = Dup { reqid, version, user_version: user, result, returns };
                        log.push(d.clone());
                        if reqid.tid != 0 {
                            known.insert(reqid, step);
                        }
                        list.push_back((step, d));
                    }
                }
                let some = list.get(next(list.len().max(1) as u64) as usize).map(|x| x.1.reqid);
                for reqid in some.into_iter().chain(some.map(|r| ReqId { tid: next(900), ..r })) {
                    let n = known.get(&reqid);
                    let d = n.and_then(|n| list.iter().find(|x| x.0 == *n)).map(|x| x.1.clone());
                    assert_eq!(log.find(&reqid), d, "seed {seed}");
                }
                assert!(log.dups().eq(list.iter().map(|x| x.1.clone())), "seed {seed}");
                log.index_rest();
                assert!(log.index.len() == known.len() && log.rare.len() <= log.len(), "seed {seed}");
            }
        }
    }

    #[test]
    fn records_round_trip() {
        let e = LogEntry {
            kind: LogKind::Modify,
            soid: HObject { oid: Bytes::from_static(b"obj"), ..HObject::min() }.head(),
            version: Eversion::new(7, 12),
            prior_version: Eversion::new(6, 3),
            user_version: 12,
            reqid: dup(4).reqid,
            mtime: Utime { sec: 1, nsec: 2 },
            result: 3,
            returns: vec![OpReturn { rval: 3, out: Bytes::from_static(b"x") }],
            snaps: vec![3, 2],
            delta: StatSum { num_objects: -1, num_bytes: 1 << 33, ..StatSum::default() },
            undo: Bytes::from_static(b"undo"),
            touch: Some(Box::new(Touch {
                shards: 0b11_0010,
                attrs: vec![(Bytes::from_static(b"_"), Bytes::from_static(b"oi"))],
            })),
        };
        let b = e.to_record();
        assert_eq!(LogEntry::from_record(&b).unwrap(), e);
        for n in 0..b.len() {
            assert!(LogEntry::from_record(&b.slice(..n)).is_err());
        }
        let spared: Vec<i8> = (-1..40).filter(|s| e.spares(ShardId(*s)).is_some()).collect();
        assert!(
            spared[..5] == [0, 2, 3, 6, 7] && spared.last() == Some(&31),
            "no shard, and what no bit stands for, is touched"
        );
        assert!(LogEntry { touch: None, ..e }.spares(ShardId(0)).is_none());
    }
}
