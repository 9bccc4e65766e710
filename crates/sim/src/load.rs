//! The operations of all clients, and their outcomes.

use crate::coded::Code;
use crate::model::{self, KEYS, Seen, SnapContext, Step};
use crate::options::Options;
use crate::queue::Time;
use crate::rough::{self, Rough};
use crate::sums::{BUCKETS, Change};
use base::rng::Rng;
use base::{PoolId, SnapId, Utime};
use bytes::Bytes;
use client::core::objecter::{Request, What as Target};
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::msg::{MOsdOpReply, OpCode, OpVec, OsdOp, msg_flags};
use wire::types::ObjectLocator;

/// Largest offset of a write, in bytes.
const OFFSET_MAX: u64 = 40_000;
/// Longest write, in bytes.
const WRITE_MAX: u64 = 12_000;
/// Most snapshots alive at once.
const SNAPS_MAX: usize = 6;

/// True if clients of such a run use bucket lists.
#[must_use]
pub fn has_bucket_lists(o: &Options) -> bool {
    bucket_lists(o) > 0
}

/// Number of objects that are bucket lists: two in half of the runs with class calls. Erasure-coded pools have no omap.
fn bucket_lists(o: &Options) -> usize {
    if o.work.calls && o.pool.code.is_none() && Rng::new(o.seed ^ 0x6c69_7374_7375_6d73).chance(1, 2) { 2 } else { 0 }
}

/// The object number of operations on all objects.
pub const ALL: usize = usize::MAX;
/// The object number of operations on objects that have no model.
pub const NO_MODEL: usize = usize::MAX - 1;
/// The object number of a write to one of many objects, which have no model.
pub const OF_MANY: usize = usize::MAX - 2;

/// The action of an operation.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named after what they are")]
pub enum What {
    Write {
        steps: Vec<Step>,
        snapc: SnapContext,
    },
    /// A read. `anywhere`: any member of the acting set may serve it. `notify`: watchers of the object are notified
    /// too.
    Read {
        snap: u64,
        anywhere: bool,
        notify: bool,
    },
    /// A listing of the pool, with at most `most` objects in an answer.
    List {
        most: u64,
    },
    /// A call of a class on an object without a model.
    Call(Box<OsdOp>),
}

/// The outcome of an operation.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The write succeeded, with the object's version.
    Wrote(u64),
    /// The object's state did not allow the write.
    Errno(i32),
    /// The cluster refused the operation, and nothing happened.
    Refused(i32),
    /// The read's result and its version; `None` if the object does not exist.
    Read(Option<Rc<Seen>>, u64),
    /// The objects that a listing named.
    Listed(BTreeSet<usize>),
}

/// An operation of a client, with its outcome.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number of the operation, from 1.
    pub id: u64,
    /// Number of the client.
    pub client: usize,
    /// Number of the object; [`ALL`] for a listing.
    pub object: usize,
    /// Time of the call.
    pub call: Time,
    /// Time of the answer.
    pub done: Option<Time>,
    /// The action.
    pub what: What,
    /// The outcome; `None` if it is unknown.
    pub outcome: Option<Outcome>,
}

/// The work of all clients, and the record of its outcomes.
pub struct Load {
    rng: Rng,
    /// Random numbers for the operations of [`Load::rarer`], apart from those of other operations.
    more: Rng,
    calls: bool,
    lists: bool,
    sources: usize,
    /// Number of objects that are bucket lists.
    bucket_lists: usize,
    /// Random numbers for the operations on them.
    sums: Rng,
    /// All operations so far.
    pub records: Vec<Record>,
    objects: usize,
    readers: usize,
    left: usize,
    /// Number of objects without a model that are still to be made.
    many: usize,
    snapshots: bool,
    watches: bool,
    anywhere: bool,
    code: Option<Code>,
    rough: Rough,
    /// Random numbers for what `rough` asks for.
    roughly: Rng,
    snapc: SnapContext,
    removing: BTreeSet<u64>,
    /// The pool's id, once it exists.
    pub pool: Option<PoolId>,
    /// True while clients begin no operation.
    pub held: bool,
    /// Number of answers that were errors of the cluster.
    pub refused: u64,
}

impl Load {
    /// The work of a run with these options.
    #[must_use]
    pub fn new(o: &Options) -> Self {
        Self {
            rng: Rng::new(o.seed ^ 0x6c6f_6164),
            more: Rng::new(o.seed ^ 0x6d6f_7265),
            calls: o.work.calls,
            lists: o.work.lists,
            sources: o.work.sources,
            bucket_lists: bucket_lists(o),
            sums: Rng::new(o.seed ^ 0x7375_6d73),
            records: Vec::new(),
            objects: o.work.objects,
            readers: o.work.readers,
            left: o.size.ops + if o.rough.many { rough::MANY } else { 0 },
            many: if o.rough.many { rough::MANY } else { 0 },
            snapshots: o.work.snapshots,
            watches: o.work.watches,
            anywhere: o.work.anywhere,
            code: o.pool.code,
            rough: o.rough,
            roughly: Rng::new(o.seed ^ 0x726f_7567_6800),
            snapc: SnapContext::default(),
            removing: BTreeSet::new(),
            pool: None,
            held: true,
            refused: 0,
        }
    }

    /// Number of successful recounts of bucket lists, each a long call.
    #[must_use]
    pub fn recounts(&self) -> usize {
        let recounts = |r: &&Record| match (&r.what, &r.outcome) {
            (What::Write { steps, .. }, Some(Outcome::Wrote(_))) => steps.contains(&Step::Sums(Change::Recount)),
            _ => false,
        };
        self.records.iter().filter(recounts).count()
    }

    /// Number of operations not begun yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Lets no further operation begin.
    pub fn no_more(&mut self) {
        self.left = 0;
    }

    /// Name of an object.
    #[must_use]
    pub fn name(object: usize) -> Bytes {
        format!("object-{object}").into_bytes().into()
    }

    /// Name of the object of operation `id`.
    #[must_use]
    pub fn name_of(&self, id: u64) -> Bytes {
        Self::name_in(id, self.records[id as usize - 1].object)
    }

    fn name_in(id: u64, object: usize) -> Bytes {
        match object {
            NO_MODEL => rough::called(id as usize % rough::CALLED),
            OF_MANY => rough::one_of_many(id as usize),
            _ => Self::name(object),
        }
    }

    /// Number of objects. Sources of copies, and behind them bucket lists, have the highest numbers.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.objects + self.sources + self.bucket_lists
    }

    /// Number of the object with this name.
    #[must_use]
    pub fn object_named(name: &[u8]) -> Option<usize> {
        std::str::from_utf8(name).ok()?.strip_prefix("object-")?.parse().ok()
    }

    /// An operation on a bucket list.
    fn on_list(&mut self, client: usize) -> Option<(usize, What)> {
        let r = &mut self.sums;
        if self.bucket_lists == 0 || !r.chance(1, 4) {
            return None;
        }
        let object = self.objects + self.sources + r.below(self.bucket_lists as u64) as usize;
        if client < self.readers || r.chance(1, 4) {
            return Some((object, What::Read { snap: 0, anywhere: false, notify: false }));
        }
        let bucket = r.below(BUCKETS as u64) as u8;
        let mut steps = vec![Step::Sums(match r.below(10) {
            0..4 => Change::Add(bucket),
            4 => Change::Update(bucket),
            5 => Change::Remove(bucket),
            6 => Change::Spoil,
            _ => Change::Recount,
        })];
        if r.chance(1, 4) {
            let key = r.below(KEYS as u64) as u8;
            steps.insert(r.below(2) as usize, Step::SetAttr { key });
        }
        if r.chance(1, 60) {
            steps = vec![Step::Remove];
        }
        Some((object, What::Write { steps, snapc: self.snapc.clone() }))
    }

    /// An operation on the large object, or a call of a class.
    fn on_large(&mut self, client: usize) -> Option<(usize, What)> {
        let r = &mut self.roughly;
        if client < self.readers {
            return None;
        }
        if self.many > 0 {
            self.many -= 1;
            let data = Bytes::copy_from_slice(self.many.to_string().as_bytes());
            let op = OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data);
            return Some((OF_MANY, What::Call(Box::new(op))));
        }
        if self.rough.classes && r.chance(1, 5) {
            let id = self.records.len() as u64 + 1;
            return Some((NO_MODEL, What::Call(Box::new(rough::call(r, id)))));
        }
        if !self.rough.large || !r.chance(1, 40) {
            return None;
        }
        let len = 1 + r.below(rough::LARGE_WRITE) as usize;
        let step = match r.below(4) {
            0 | 1 if self.code.is_none() => Step::Bulk,
            0..3 => Step::WriteFull { len },
            _ => Step::Append { len: len / 4 + 1 },
        };
        let step = match self.code {
            Some(c) => c.fit(step, r),
            None => step,
        };
        Some((0, What::Write { steps: vec![step], snapc: self.snapc.clone() }))
    }

    /// An operation of the kinds that only some runs have: class calls, listings, copies.
    fn rarer(&mut self, client: usize) -> Option<(usize, What)> {
        if let Some(o) = self.on_list(client) {
            return Some(o);
        }
        if let Some(o) = self.on_large(client) {
            return Some(o);
        }
        let r = &mut self.more;
        if self.lists && r.chance(1, 60) {
            let most = [1, 3, 100][r.below(3) as usize];
            // A thousand objects in pages of one would take longer than anything waits for.
            let most = if self.rough.many { 100 } else { most };
            return Some((ALL, What::List { most }));
        }
        if client < self.readers {
            return None;
        }
        let snapc = self.snapc.clone();
        if self.sources > 0 && r.chance(1, 8) {
            let source = self.objects + r.below(self.sources as u64) as usize;
            if r.chance(2, 3) {
                let mut steps = vec![Step::CopyFrom { source }];
                if r.chance(1, 4) {
                    steps.push(Step::SetAttr { key: r.below(KEYS as u64) as u8 });
                }
                return Some((r.below(self.objects as u64) as usize, What::Write { steps, snapc }));
            }
            // A source is written as a whole or removed, so that a copy shows which write it has.
            let steps = if r.chance(1, 8) {
                vec![Step::Remove]
            } else {
                let mut steps = vec![Step::WriteFull { len: 1 + r.below(WRITE_MAX) as usize }];
                steps.extend((0..KEYS as u8).map(|key| Step::SetAttr { key }));
                if self.code.is_none() {
                    steps.push(Step::SetOmap { keys: (0..KEYS as u8).collect() });
                }
                steps
            };
            return Some((source, What::Write { steps, snapc }));
        }
        if self.calls && r.chance(1, 8) {
            let at_most = if r.chance(1, 4) { Some(1 + r.below(20)) } else { None };
            let steps = vec![Step::Count { at_most }];
            return Some((r.below(self.objects as u64) as usize, What::Write { steps, snapc }));
        }
        None
    }

    /// Snapshots alive, the newest first.
    #[must_use]
    pub fn snaps(&self) -> &[u64] {
        &self.snapc.snaps
    }

    /// The next operation of a client, with the request to send.
    pub fn next(&mut self, client: usize, now: Time, wall: Utime) -> Option<(u64, Request)> {
        if self.left == 0 || self.held {
            return None;
        }
        self.left -= 1;
        if let Some((object, what)) = self.rarer(client) {
            return Some(self.begin(client, object, what, now, wall));
        }
        let object = self.rng.below(self.objects as u64) as usize;
        let what = if client < self.readers || self.rng.chance(2, 5) {
            let snap = if !self.snapc.snaps.is_empty() && self.rng.chance(1, 3) {
                let i = self.rng.below(self.snapc.snaps.len() as u64) as usize;
                self.snapc.snaps[i]
            } else {
                0
            };
            // New draws are made last, so that the other draws of a seed do not change.
            let anywhere = self.anywhere && self.rng.chance(1, 2);
            What::Read { snap, anywhere, notify: self.watches && snap == 0 && self.rng.chance(1, 4) }
        } else if self.watches && self.rng.chance(1, 8) {
            // A watch has no snapshot context, so it makes no clone.
            let timeout = 2 + self.rng.below(20) as u32;
            let steps = vec![Step::Watch { timeout: if self.rng.chance(2, 3) { timeout } else { 0 } }];
            What::Write { steps, snapc: SnapContext::default() }
        } else {
            let n = if self.rng.chance(1, 4) { 1 + self.rng.below(4) } else { 1 };
            let steps = (0..n).map(|i| self.step(object, i == 0)).collect();
            What::Write { steps, snapc: self.snapc.clone() }
        };
        Some(self.begin(client, object, what, now, wall))
    }

    /// A read of an object, for the end of a run.
    pub fn read(&mut self, client: usize, object: usize, snap: u64, now: Time, wall: Utime) -> (u64, Request) {
        self.begin(client, object, What::Read { snap, anywhere: false, notify: false }, now, wall)
    }

    fn begin(&mut self, client: usize, object: usize, what: What, now: Time, wall: Utime) -> (u64, Request) {
        let id = self.records.len() as u64 + 1;
        let (ops, snapid, snapc) = match &what {
            What::Read { snap, notify, .. } => {
                let snapid = if *snap == 0 { SnapId::HEAD } else { SnapId(*snap) };
                (
                    model::read_ops(self.calls, self.bucket_lists > 0, self.rough.large && object == 0, *notify),
                    snapid,
                    None,
                )
            }
            What::Write { steps, snapc } => {
                let pool = self.pool.unwrap_or(PoolId(-1));
                (steps.iter().map(|s| s.op(id, pool)).collect(), SnapId::HEAD, Some(snapc))
            }
            // The client makes the requests of a listing itself ([`crate::listing`]).
            What::List { .. } => (Vec::new(), SnapId::HEAD, None),
            What::Call(op) => (vec![(**op).clone()], SnapId::HEAD, Some(&self.snapc)),
        };
        let snapc = snapc.map_or_else(Default::default, |s| wire::types::SnapContext {
            seq: SnapId(s.seq),
            snaps: s.snaps.iter().map(|x| SnapId(*x)).collect(),
        });
        let request = Request {
            what: Target::Object {
                locator: ObjectLocator::new(self.pool.unwrap_or(PoolId(-1))),
                oid: Self::name_in(id, object),
            },
            ops: OpVec::from_vec(ops),
            flags: match &what {
                What::Read { anywhere: true, .. } => msg_flags::BALANCE_READS,
                _ => 0,
            },
            snapid,
            snapc,
            mtime: wall,
        };
        self.records.push(Record { id, client, object, call: now, done: None, what, outcome: None });
        (id, request)
    }

    fn step(&mut self, object: usize, first: bool) -> Step {
        let r = &mut self.rng;
        let key = r.below(KEYS as u64) as u8;
        let off = if r.chance(1, 2) { r.below(OFFSET_MAX) } else { r.below(OFFSET_MAX) / 4096 * 4096 } as usize;
        let most = if r.chance(1, 3) { WRITE_MAX } else { 600 };
        let len = 1 + r.below(most) as usize;
        let step = match r.below(if first { 21 } else { 18 }) {
            0..=4 => Step::Write { off, len },
            5 => Step::WriteFull { len },
            6 | 7 => Step::Append { len },
            8 => Step::Zero { off, len },
            9 => Step::Truncate { size: off },
            10 => Step::Create { exclusive: r.chance(1, 2) },
            11 | 12 => Step::SetAttr { key },
            13 => Step::RemoveAttr { key },
            14 | 15 => Step::SetOmap { keys: (0..KEYS as u8).filter(|_| r.chance(1, 2)).collect() },
            16 => Step::RemoveOmap { key },
            17 => Step::ClearOmap,
            18 => Step::Remove,
            19 => {
                let of = self
                    .records
                    .iter()
                    .rev()
                    .filter(|w| w.object == object)
                    .find(|w| matches!(&w.what, What::Write { steps, .. } if steps.contains(&Step::SetAttr { key })))
                    .map_or(0, |w| w.id);
                Step::CompareAttr { key, of }
            }
            _ => Step::AssertExists,
        };
        match self.code {
            Some(c) => c.fit(step, &mut self.rng),
            None => step,
        }
    }

    /// Records the end of a listing: the objects it named, or an errno.
    pub fn listed(&mut self, id: u64, now: Time, names: Result<BTreeSet<usize>, i32>) {
        let Some(r) = self.records.get_mut(id as usize - 1) else { return };
        r.done = Some(now);
        r.outcome = Some(match names {
            Ok(names) => Outcome::Listed(names),
            Err(e) => Outcome::Refused(e),
        });
    }

    /// Records the answer to an operation.
    pub fn finish(&mut self, id: u64, now: Time, answer: Result<&MOsdOpReply, i32>) {
        let Some(r) = self.records.get_mut(id as usize - 1) else { return };
        r.done = Some(now);
        let errno = match answer {
            Ok(a) => a.result,
            Err(e) => e,
        };
        use base::errno::{ECANCELED, EEXIST, EIO, ENOENT, EOPNOTSUPP};
        r.outcome = match (&r.what, answer) {
            (What::Read { .. }, Ok(a)) if errno >= 0 => match model::from_reply(&a.ops) {
                Some(o) => Some(Outcome::Read(Some(Rc::new(o)), a.user_version)),
                // This content equals no object, so the checker reports it.
                None => Some(Outcome::Read(
                    Some(Rc::new(Seen { data: Bytes::from_static(b"unreadable answer"), ..Seen::default() })),
                    0,
                )),
            },
            (What::Read { .. }, _) if errno == ENOENT => Some(Outcome::Read(None, 0)),
            (What::Write { .. } | What::Call(_), Ok(a)) if errno >= 0 => Some(Outcome::Wrote(a.user_version)),
            // The classes' own refusals.
            (What::Call(_), Ok(_)) if errno != EIO => Some(Outcome::Errno(errno)),
            (What::Write { .. }, Ok(_)) if [ENOENT, EEXIST, ECANCELED, EOPNOTSUPP].contains(&errno) => {
                Some(Outcome::Errno(errno))
            }
            // The store failed under the write, which may have happened.
            (What::Write { .. }, _) if errno == EIO => None,
            _ => Some(Outcome::Refused(errno)),
        };
        if matches!(r.outcome, Some(Outcome::Refused(_)) | None) {
            self.refused += 1;
        }
    }

    /// The snapshot operation that a client has to do now: create one (`Some(None)`) or remove one (`Some(Some(_))`).
    pub fn snapshot_wish(&mut self) -> Option<Option<u64>> {
        if !self.snapshots || self.held || self.left == 0 || !self.rng.chance(1, 60) {
            return None;
        }
        if self.snapc.snaps.len() >= SNAPS_MAX || (self.snapc.snaps.len() > 1 && self.rng.chance(1, 3)) {
            let i = self.rng.below(self.snapc.snaps.len() as u64) as usize;
            let s = self.snapc.snaps[i];
            let reading =
                self.records.iter().any(|r| r.done.is_none() && matches!(r.what, What::Read { snap, .. } if snap == s));
            if reading {
                return None;
            }
            self.snapc.snaps.remove(i);
            self.removing.insert(s);
            return Some(Some(s));
        }
        Some(None)
    }

    /// Records a new snapshot.
    pub fn snapshot_made(&mut self, s: u64) {
        if s > self.snapc.seq {
            self.snapc.seq = s;
            self.snapc.snaps.insert(0, s);
        }
    }
}
