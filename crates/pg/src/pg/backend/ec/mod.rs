//! The backend of an erasure-coded PG: copies are shards.
//!
//! Each shard has the log and info of the PG and all attributes of every object, as a whole copy does. Of an object's
//! bytes it has its part, whose length follows from the object's size ([`::ec::Layout::shard_len`]).
//!
//! - `image`: the bytes of an object after a transaction, and the part that each shard writes (pure)
//! - `write`: derives the transaction of each shard from a logical one
//! - `undo`: the data that a log entry replaced, and its restoration
//! - `defer`: writes that are sent later to members whose shards they spare
//! - `undo_data`: dropping of undo data that is not needed any more
//! - `read`: bytes of shards for a running plan, and the rebuilding of missing ones
//! - `fetch`: reads between shards
//! - `account`: descriptions of objects by other shards
//! - `spare`: entries that spare shards
//!
//! Invariants:
//!  1. An entry is acknowledged when every shard of the acting set that it touches has it. Until a shard knows that, it
//!     keeps the data that the entry replaced.
//!  2. An object is written only while no member lacks it, so all present shards have the same version.
//!
//! Tests: `tests/coded.rs`, `tests/coded_attack.rs`.

pub(in crate::pg) mod account;
pub(in crate::pg) mod defer;
pub(in crate::pg) mod fetch;
pub(in crate::pg) mod image;
pub(in crate::pg) mod read;
pub(in crate::pg) mod spare;
pub(in crate::pg) mod undo;
pub(in crate::pg) mod undo_data;
pub(in crate::pg) mod write;

use self::fetch::{Asked, ShardAsk};
use self::read::{Holders, ShardReads};
use self::spare::Touched;
use self::undo_data::UndoData;
use crate::info::PgInfo;
use crate::map::Code;
use crate::pg::seldom::{Part, Seldom};
use crate::pg::{Pg, Turn};
use crate::shards::PeerId;
use ::ec::{Codec, Layout};
use base::{Eversion, HObject};
use smallvec::smallvec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use wire::msg::MPgPeer;

/// State of a machine whose copy is a shard.
#[derive(Debug, Default)]
struct ShardState {
    /// Reader of shards for the running plan.
    reads: Option<Box<ShardReads>>,
    /// Undo data that this shard keeps.
    undo: UndoData,
    /// Messages of this machine to itself.
    to_self: VecDeque<Box<MPgPeer>>,
    /// Open questions of plans to other shards.
    asked: BTreeMap<u64, Asked>,
    /// Number of the last question.
    questions: u32,
    /// Questions of the primary that wait for writes.
    reading: VecDeque<ShardAsk>,
    /// As primary, while peering: which shards the newest entries touch; `asks_touched` is the open question about it.
    touched: Option<Touched>,
    asks_touched: Option<(PeerId, Eversion, Eversion)>,
    /// Number of answers to that question in this interval that were about another log than the reported one.
    contradictions: u8,
    /// The version that peering has chosen as the newest one.
    version: Eversion,
    /// Writes up to this number are acknowledged by all members that they wait for.
    acked: u64,
    /// Plans of pushes that wait until the writes of their object can't be undone any more.
    settling: BTreeSet<u64>,
}

impl Part for ShardState {
    const EMPTY: &'static Self = &Self {
        reads: None,
        undo: UndoData::EMPTY,
        to_self: VecDeque::new(),
        asked: BTreeMap::new(),
        questions: 0,
        reading: VecDeque::new(),
        touched: None,
        asks_touched: None,
        contradictions: 0,
        version: undo_data::NOTHING,
        acked: 0,
        settling: BTreeSet::new(),
    };

    fn is_empty(&self) -> bool {
        // The state holds up to where undo data is dropped, so it stays.
        false
    }
}

/// State of the erasure code; only a machine with a shard uses it.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::pg) struct EcState {
    /// Codec and layout, if the copies are shards.
    coder: Option<Rc<Coder>>,
    shard: Seldom<ShardState>,
}

/// The holder of the longest log, the version after which it is asked, and where its log ends.
pub(in crate::pg) type TouchedQuestion = (PeerId, Eversion, Eversion);

impl EcState {
    /// Prefetches what every operation reads.
    #[inline]
    pub(in crate::pg) fn prefetch(&self) {
        base::prefetch(&self.coder);
    }

    /// Codec and layout, if the copies are shards.
    pub(in crate::pg) fn coder(&self) -> Option<&Rc<Coder>> {
        self.coder.as_ref()
    }

    /// Forgets the state of the shard: it is loaded anew.
    pub(in crate::pg) fn clear(&mut self) {
        self.shard = Seldom::default();
    }

    /// Sets the reader of shards for the running plan.
    pub(in crate::pg) fn set_reads(&mut self, reads: Option<Box<ShardReads>>) {
        self.shard.reads = reads;
    }

    /// True if shards of other OSDs could not be read for the running plan.
    pub(in crate::pg) fn others_failed(&self) -> bool {
        self.shard.reads.as_ref().is_some_and(|r| r.others_failed())
    }

    /// Takes the reader of shards of the running plan.
    pub(in crate::pg) fn take_reads(&mut self) -> Option<Box<ShardReads>> {
        self.shard.used().and_then(|s| s.reads.take())
    }

    /// Forgets the undo data: all of it is dropped.
    pub(in crate::pg) fn forget_undo(&mut self) {
        if let Some(s) = self.shard.used() {
            s.undo = UndoData::default();
        }
    }

    /// Sets the objects that were set aside before this machine existed.
    pub(in crate::pg) fn set_aside(&mut self, all: Vec<(Eversion, HObject)>) {
        self.shard.undo.set_aside(all);
    }

    /// Takes out the entries about objects set aside that `which` selects.
    pub(in crate::pg) fn give_aside(&mut self, which: impl Fn(&HObject) -> bool) -> Vec<(Eversion, HObject)> {
        self.shard.used().map(|s| s.undo.give(which)).unwrap_or_default()
    }

    /// Queues a message of this machine to itself.
    pub(in crate::pg) fn send_to_self(&mut self, msg: Box<MPgPeer>) {
        self.shard.to_self.push_back(msg);
    }

    /// True if messages of this machine to itself wait.
    pub(in crate::pg) fn has_messages(&self) -> bool {
        !self.shard.to_self.is_empty()
    }

    /// True if plans wait for answers of other shards.
    pub(in crate::pg) fn has_questions(&self) -> bool {
        !self.shard.asked.is_empty()
    }

    /// Drops the open questions of a plan.
    pub(in crate::pg) fn forget_questions(&mut self, plan: u64) {
        if let Some(s) = self.shard.used() {
            s.asked.remove(&plan);
        }
    }

    /// As primary, while peering: which shards the newest entries touch, if that is known.
    pub(in crate::pg) fn touched(&self) -> Option<&Touched> {
        self.shard.touched.as_ref()
    }

    /// Notes which shards the newest entries touch.
    pub(in crate::pg) fn set_touched(&mut self, touched: Touched) {
        self.shard.touched = Some(touched);
    }

    /// The open question about touched shards.
    pub(in crate::pg) fn open_question(&self) -> Option<TouchedQuestion> {
        self.shard.asks_touched
    }

    /// Opens a question about touched shards; true if it is a new one.
    pub(in crate::pg) fn ask_touched(&mut self, question: TouchedQuestion) -> bool {
        self.shard.asks_touched.replace(question) != Some(question)
    }

    /// Closes the question about touched shards. `other`: the answer is about another log than the reported one.
    /// Returns the number of such answers in this interval.
    pub(in crate::pg) fn answered(&mut self, other: bool) -> u8 {
        self.shard.asks_touched = None;
        self.shard.contradictions += u8::from(other);
        self.shard.contradictions
    }

    /// The version that peering has chosen as the newest one.
    pub(in crate::pg) fn version(&self) -> Eversion {
        self.shard.version
    }

    /// Notes the version that peering has chosen as the newest one.
    pub(in crate::pg) fn choose(&mut self, version: Eversion) {
        self.shard.version = version;
    }

    /// Writes up to this number are acknowledged by all members that they wait for.
    pub(in crate::pg) fn acked(&self) -> u64 {
        self.shard.acked
    }

    /// Notes that writes up to this number are acknowledged by all members that they wait for.
    pub(in crate::pg) fn set_acked(&mut self, acked: u64) {
        self.shard.acked = acked;
    }

    /// Lets the plan of a push wait until the writes of its object can't be undone any more.
    pub(in crate::pg) fn await_settling(&mut self, plan: u64) {
        self.shard.settling.insert(plan);
    }

    /// Takes the plans of pushes that wait until writes can't be undone any more.
    pub(in crate::pg) fn take_settling(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.shard.settling)
    }
}

/// Layout and codec of a pool's erasure code.
#[derive(Debug)]
pub(in crate::pg) struct Coder {
    pub layout: Layout,
    pub codec: Codec,
}

impl Coder {
    /// `None` if the code is not supported.
    pub(in crate::pg) fn new(code: Code) -> Option<Self> {
        let (k, m) = (usize::from(code.k), usize::from(code.m));
        let layout = Layout::new(k, m, code.chunk)?;
        let codec = Codec::new(code.technique, k, m).ok()?;
        Some(Self { layout, codec })
    }
}

impl Pg {
    /// Sets up the code of the pool, which never changes.
    pub(in crate::pg) fn learn_code(&mut self) {
        if self.ec.coder.is_some() || !self.is_coded() {
            return;
        }
        self.ec.coder = self.pool().and_then(|p| p.code).and_then(Coder::new).map(Rc::new);
    }

    /// Does the work of a shard between plans: answers reads, handles messages to itself, drops undo data.
    pub(in crate::pg) fn pump_shard(&mut self, turn: &mut Turn<'_>) {
        if !self.ec.shard.reading.is_empty() {
            self.pump_reading(turn);
        }
        while let Some(m) = self.ec.shard.used().and_then(|s| s.to_self.pop_front()) {
            self.handle_peer(self.env.whoami(), &m, turn);
        }
        self.pump_undo(turn);
    }

    /// Ends the interval: open questions and waiting answers are dropped.
    pub(in crate::pg) fn end_shard_interval(&mut self) {
        if let Some(s) = self.ec.shard.used() {
            s.reads = None;
            s.to_self.clear();
            s.asked.clear();
            s.reading.clear();
            s.touched = None;
            s.asks_touched = None;
            s.contradictions = 0;
            s.acked = 0;
            s.settling.clear();
            s.undo.end_interval();
        }
    }

    /// The holders of each shard of an object in its current version: members, then strays, those with the newest log
    /// first. This copy does not know which objects a stray lacks; the read of the shard shows it.
    pub(in crate::pg) fn shard_holders(&self, head: &HObject) -> Holders {
        let mut all = Holders::new();
        let at = |p: PeerId| usize::try_from(p.shard.0).ok();
        let me = self.me();
        let acting = self.acting_set();
        for p in acting.iter() {
            let there = if p == me {
                !self.recovery.missing().contains_key(head)
            } else {
                self.peers.members().get(&p).is_some_and(|m| m.has(head))
            };
            if let Some(s) = at(p).filter(|_| there) {
                all.insert(s, smallvec![p]);
            }
        }
        let rest = self.peers.members().iter().filter(|(_, m)| m.has(head)).map(|(p, _)| *p);
        // The version in the answer tells whether a stray has the right object.
        add_holders(&mut all, rest.chain(self.strays(|i| *head <= i.last_backfill)));
        all
    }

    /// Copies that may have shards of the object from before: they are still to be filled, and have not got to it. As
    /// with strays, the version in the answer tells. (Nothing is filled while the primary lacks an object, so what they
    /// have is still there.)
    pub(in crate::pg) fn last_shards(&self, head: &HObject) -> Holders {
        let mut all = Holders::new();
        let members = self.peers.members().keys().copied().filter(|p| self.is_unfilled(*p, head));
        add_holders(&mut all, members.chain(self.strays(|i| *head > i.last_backfill)));
        all
    }

    /// The copies that are no members and have such an info, those with the newest log first.
    fn strays(&self, which: impl Fn(&PgInfo) -> bool) -> impl Iterator<Item = PeerId> {
        let others =
            self.peers.known().iter().filter(|(p, _)| !self.peers.members().contains_key(p) && **p != self.me());
        let infos = others.filter_map(|(p, k)| Some((*p, k.as_deref().filter(|i| which(i))?)));
        let mut all: Vec<_> = infos.map(|(p, i)| (Reverse(i.last_update), p)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, p)| p)
    }

    /// True if a copy is still to be filled, and has not got to the object.
    pub(in crate::pg) fn is_unfilled(&self, p: PeerId, head: &HObject) -> bool {
        match self.peers.members().get(&p) {
            Some(m) => m.backfill.as_ref().is_some_and(|b| head > b.upto()),
            None => self.peers.known().get(&p).and_then(|k| k.as_deref()).is_some_and(|i| *head > i.last_backfill),
        }
    }
}

/// Adds holders behind those that are there.
fn add_holders(all: &mut Holders, more: impl Iterator<Item = PeerId>) {
    for p in more {
        let of = usize::try_from(p.shard.0).ok().map(|s| all.entry(s).or_default());
        if let Some(of) = of.filter(|of| !of.contains(&p)) {
            of.push(p);
        }
    }
}
