//! Scrub: comparison of a PG's copies.
//!
//! - `lead`: the primary asks, compares and repairs
//! - `serve`: a copy reports its objects

pub(in crate::pg) mod lead;
pub(in crate::pg) mod serve;

use crate::scrub::ScrubRequest;
use crate::shards::PeerId;
use base::Mono;
use bytes::Bytes;
use lead::{Interval, Scrubs};
use std::rc::Rc;

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
