//! Dropping undo data that is no longer needed: blocks kept by the store, and objects set aside.
//!
//! An entry is safe when all members have it durably, or when an interval started with it. Undo data of safe entries
//! is dropped in batches, in transactions of their own.
//!
//! Invariant: undo data of an entry stays as long as peering may have to undo the entry.
//!
//! Tests: `tests/coded_attack.rs` (`deaths_while_entries_are_undone_lose_nothing`), `tests/coded_deferred.rs`.

use super::undo::{Undo, aside, decode};
use crate::log::LogEntry;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::ShardWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, Turn};
use base::{Eversion, HObject};
use std::collections::VecDeque;
use store::Op;

/// Entries whose undo data is dropped at once while writes go on.
const BATCH: usize = 32;

/// Before all entries.
pub(in crate::pg) const NOTHING: Eversion = Eversion { epoch: base::Epoch(0), version: 0 };

/// Undo data of a shard.
#[derive(Debug, Default)]
pub(in crate::pg) struct UndoData {
    /// Writes of the interval that may have to be undone, by number.
    writes: VecDeque<(u64, Eversion)>,
    /// Objects set aside, by the version of their entry.
    aside: VecDeque<(Eversion, HObject)>,
    /// Newest safe version, and the version up to which undo data is dropped.
    safe: Eversion,
    dropped: Eversion,
    /// Writes that became safe after the last drop.
    ready: usize,
    dropping: bool,
}

impl UndoData {
    pub(in crate::pg) const EMPTY: Self = Self {
        writes: VecDeque::new(),
        aside: VecDeque::new(),
        safe: NOTHING,
        dropped: NOTHING,
        ready: 0,
        dropping: false,
    };

    /// Sets the objects that were set aside before this machine existed.
    pub(in crate::pg) fn set_aside(&mut self, all: Vec<(Eversion, HObject)>) {
        self.aside = all.into();
    }

    /// Takes out the entries about objects set aside that `which` selects.
    pub(in crate::pg) fn give(&mut self, which: impl Fn(&HObject) -> bool) -> Vec<(Eversion, HObject)> {
        let (gone, stays) = std::mem::take(&mut self.aside).into_iter().partition(|(_, o)| which(o));
        self.aside = stays;
        gone.into()
    }

    /// Ends the interval: the next one's peering decides about its writes.
    pub(in crate::pg) fn end_interval(&mut self) {
        self.writes.clear();
        self.ready = 0;
        self.dropping = false;
    }
}

impl Pg {
    /// Notes the objects that an entry sets aside; called when the entry is loaded or about to be submitted.
    pub(in crate::pg) fn note_aside(&mut self, e: &LogEntry) {
        if e.undo.is_empty() || !self.is_mine(&e.soid) {
            return;
        }
        // The name of an object set aside has the version's number alone. Numbers ascend in a log, and an entry that
        // leaves the log takes with it what it set aside; so no two of them are for one number.
        let unique = |v: &Eversion| v.version < e.version.version || *v == e.version;
        debug_assert!(self.ec.shard.undo.aside.back().is_none_or(|(v, _)| unique(v)), "{} after another", e.version);
        for u in decode(&e.undo).unwrap_or_default() {
            if let Undo::Aside(o) = u {
                self.ec.shard.undo.aside.push_back((e.version, o));
            }
        }
    }

    /// Notes a submitted write with entries up to `version`; `seq` is its number in the interval, 0 if no other shard
    /// has it.
    pub(in crate::pg) fn note_undo(&mut self, seq: u64, version: Eversion) {
        if seq == 0 {
            self.ec.shard.undo.safe = version;
            self.ec.shard.undo.ready += 1;
        } else {
            self.ec.shard.undo.writes.push_back((seq, version));
        }
    }

    /// Marks writes up to `seq` as safe: they are durable on all members.
    pub(in crate::pg) fn mark_safe(&mut self, seq: u64) {
        let Some(k) = self.ec.shard.used().map(|s| &mut s.undo) else { return };
        while let Some((n, v)) = k.writes.front().copied()
            && n <= seq
        {
            k.writes.pop_front();
            k.safe = v;
            k.ready += 1;
        }
    }

    /// Marks the log as safe up to the start of the interval.
    pub(in crate::pg) fn mark_log_safe(&mut self) {
        if self.is_coded() {
            // Writes of the interval may have arrived before the message that it started.
            let to = self
                .journal
                .log()
                .last_before(self.journal.info().history.same_interval_since)
                .min(self.journal.info().last_update);
            self.ec.shard.undo.safe = self.ec.shard.undo.safe.max(to);
        }
    }

    /// Forgets the entries newer than `to`, which the log no longer has. Objects that those entries set aside are
    /// restored or removed.
    pub(in crate::pg) fn rewind_undo(&mut self, to: Eversion) {
        let Some(k) = self.ec.shard.used().map(|s| &mut s.undo) else { return };
        k.aside.retain(|(v, _)| *v <= to);
        k.writes.retain(|(_, v)| *v <= to);
        k.safe = k.safe.min(to);
        k.dropped = k.dropped.min(to);
    }

    /// Changes that remove all objects set aside, for a log of which no entry will be undone.
    pub(in crate::pg) fn forget_aside(&self) -> Vec<Op> {
        let cid = self.env.cid();
        self.ec.shard.undo.aside.iter().map(|(v, o)| Op::Remove { cid, oid: aside(o, *v) }).collect()
    }

    /// Starts dropping undo data, if a batch is due or no write is in flight.
    pub(in crate::pg) fn pump_undo(&mut self, turn: &mut Turn<'_>) {
        let k = &self.ec.shard.undo;
        // The primary waits until it has told the members that it is idle. Otherwise each isolated write would be
        // followed by a transaction.
        let told = !self.is_primary() || self.peers.told_stable() >= self.peers.seq();
        let idle = k.writes.is_empty() && (told || !k.aside.is_empty());
        let due = k.safe > k.dropped && (k.ready >= BATCH || idle);
        if due && !k.dropping && !self.life.is_stopping() && self.is_settled() {
            self.ec.shard.undo.dropping = true;
            self.start_work(Work::Shard(ShardWork::DropUndo), None, turn);
        }
    }

    pub(in crate::pg) fn run_drop_undo(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let (cid, to) = (self.env.cid(), self.ec.shard.undo.safe);
        let gone = self.ec.shard.undo.aside.iter().take_while(|(v, _)| *v <= to).take(2 * BATCH).cloned();
        let gone: Vec<(Eversion, HObject)> = gone.collect();
        let mut ops: Vec<Op> = gone.iter().map(|(v, o)| Op::Remove { cid, oid: aside(o, *v) }).collect();
        ops.push(Op::DropKept { cid, to });
        match self.commit_alone(self.tag(id), ops, turn.store) {
            Ok(()) => {
                self.ec.shard.undo.aside.drain(..gone.len());
                let rest = self.ec.shard.undo.aside.front().is_some_and(|(v, _)| *v <= to);
                self.ec.shard.undo.dropped = if rest { self.ec.shard.undo.dropped } else { to };
                self.ec.shard.undo.ready = 0;
                self.ec.shard.undo.dropping = false;
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }
}
