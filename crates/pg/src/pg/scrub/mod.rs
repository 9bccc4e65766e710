//! Scrub: comparison of a PG's copies. [`crate::scrub`] decides which copy is right.
//!
//! - `when`: requests, due times, and what forbids a scrub
//! - `lead`: the primary asks and compares
//! - `result`: errors that were found, and their repair
//! - `serve`: a copy reports its objects

mod lead;
mod result;
pub(in crate::pg) mod serve;
mod when;

use crate::limits::{SCRUB_HOLD_MAX, SCRUB_PREEMPT_MAX};
use crate::scrub::message::{Answer, Ask};
use crate::scrub::report::Findings;
use crate::scrub::slots::ScrubSlot;
use crate::scrub::{ScrubConfig, ScrubRequest, ScrubSlots};
use crate::shards::PeerId;
use base::{HObject, Mono};
use bytes::Bytes;
use result::Tally;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Scrub state of a machine.
#[derive(Debug, Default)]
pub(in crate::pg) struct Scrub {
    /// A requested scrub that has not begun, or whose interval ended.
    wanted: Option<ScrubRequest>,
    /// Scrub of the present interval, as primary or member.
    interval: Interval,
    /// Settings and slots that the PGs of a reactor share.
    settings: Rc<Scrubs>,
}

impl Scrub {
    /// Sets the settings and slots that the PGs of a reactor share.
    pub(in crate::pg) fn use_settings(&mut self, settings: Rc<Scrubs>) {
        self.settings = settings;
    }

    /// Ends the interval, and with it its scrub.
    pub(in crate::pg) fn end_interval(&mut self) {
        self.interval = Interval::default();
    }

    /// Time of the next step, if it depends on time.
    pub(in crate::pg) fn deadline(&self) -> Option<Mono> {
        self.interval.deadline()
    }

    /// Unanswered questions to members, encoded.
    pub(in crate::pg) fn unanswered(&self) -> impl Iterator<Item = (PeerId, (Bytes, Bytes))> + '_ {
        self.interval.unanswered()
    }

    /// True if this copy serves a scrub, or a repair is in progress.
    pub(in crate::pg) fn is_busy(&self) -> bool {
        self.interval.is_busy()
    }

    /// True if a member has not answered.
    pub(in crate::pg) fn asks(&self) -> bool {
        self.interval.asks()
    }
}

/// Scrub settings and slots that the PGs of a reactor share.
#[derive(Debug, Default)]
pub struct Scrubs {
    /// Scrub slots, shared with the other reactors.
    pub slots: Arc<ScrubSlots>,
    /// Scrub settings.
    pub config: RefCell<ScrubConfig>,
}

/// Scrub state of one interval.
#[derive(Debug, Default)]
pub(in crate::pg) struct Interval {
    run: Option<Box<Run>>,
    /// Number of the last question.
    asked: u64,
    /// Findings of the last scrub.
    found: Option<Box<Findings>>,
    /// Time before which no scrub begins.
    not_before: Option<Mono>,
    /// Recovery is replacing bad copies.
    repairing: bool,
    /// Bad copies have just been marked as missing: recovery is to begin.
    kick: bool,
    /// After the repair a deep scrub checks the result.
    recheck: bool,
    /// The last repair left errors.
    failed: bool,
    serving: Serving,
}

impl Interval {
    /// True if this copy serves a scrub, or a repair is in progress.
    pub(super) fn is_busy(&self) -> bool {
        let serves = self.serving.slot.is_some() || self.serving.waits.is_some();
        serves || self.repairing || self.kick || self.recheck
    }
}

/// Scrub state as a member.
#[derive(Debug, Default)]
struct Serving {
    slot: Option<ScrubSlot>,
    /// End of the slot's reservation unless a question comes: the release may be lost.
    until: Mono,
    /// Number of the newest question.
    n: u64,
    /// A question that waits for writes up to this number.
    waits: Option<Box<(u64, Ask)>>,
    /// The encoded answer to the newest question.
    answer: Option<Box<(Bytes, Bytes)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Reserve,
    List,
    Hold,
    Scan,
    Pause,
    Lack,
}

/// A scrub in progress, on the primary.
#[derive(Debug)]
struct Run {
    what: ScrubRequest,
    at: At,
    /// The scrub checks the result of a repair.
    recheck: bool,
    _slot: ScrubSlot,
    /// Number of the question, and the members that have not answered it.
    n: u64,
    open: BTreeMap<PeerId, (Bytes, Bytes)>,
    own_open: bool,
    answers: BTreeMap<PeerId, Answer>,
    /// All objects up to this one are compared.
    upto: HObject,
    /// End of the present range; `todo` has its objects that are not compared.
    end: HObject,
    todo: VecDeque<HObject>,
    group: Vec<HObject>,
    group_max: usize,
    /// Bytes read by the last group, charged to the pacer.
    cost: usize,
    holds: BTreeSet<u64>,
    held: BTreeSet<u64>,
    held_since: Mono,
    preempted: u32,
    resume: Mono,
    ranges: u32,
    tally: Tally,
}

impl Interval {
    pub(super) fn deadline(&self) -> Option<Mono> {
        if self.serving.slot.is_some() {
            return Some(self.serving.until);
        }
        match &self.run {
            None => self.not_before,
            Some(r) => match r.at {
                At::Pause => Some(r.resume),
                At::Scan if r.preempted < SCRUB_PREEMPT_MAX => Some(r.held_since + SCRUB_HOLD_MAX),
                At::Hold if !r.holds.is_empty() => Some(r.held_since + SCRUB_HOLD_MAX),
                _ => None,
            },
        }
    }

    /// True if a member has not answered.
    pub(super) fn asks(&self) -> bool {
        self.run.as_ref().is_some_and(|r| !r.open.is_empty())
    }

    /// Unanswered questions, encoded.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (PeerId, (Bytes, Bytes))> + '_ {
        self.run.iter().flat_map(|r| r.open.iter().map(|(o, m)| (*o, m.clone())))
    }
}
