//! When a PG is scrubbed: requests, due times, flags of the map, and what is shown of it.

use crate::effect::{Effect, LogLevel};
use crate::map::{map_flags, pool_flags};
use crate::pg::scrub::At;
use crate::pg::{Pg, State};
use crate::scrub::report::Findings;
use crate::scrub::{Due, ScrubRequest};
use base::Now;
use bytes::Bytes;
use wire::types::pg_state;

impl Pg {
    /// Requests a scrub.
    pub(in crate::pg) fn want_scrub(&mut self, r: ScrubRequest) {
        self.scrub.wanted = Some(self.scrub.wanted.map_or(r, |w| w.or(r)));
        if r.required {
            self.scrub.interval.not_before = None;
        }
    }

    /// True while a scrub runs or is requested.
    #[must_use]
    pub fn is_scrubbing(&self) -> bool {
        self.scrub.interval.run.is_some() || self.scrub.wanted.is_some()
    }

    /// Errors of the last scrubs that are not repaired.
    #[must_use]
    pub fn scrub_errors(&self) -> i64 {
        self.journal.info().stats.num_shallow_scrub_errors + self.journal.info().stats.num_deep_scrub_errors
    }

    /// The scrub that is due by the PG's stamps, if the PG can begin one.
    #[must_use]
    pub fn scrub_due(&self, now: Now) -> Option<Due> {
        if !self.may_scrub() || self.is_scrubbing() {
            return None;
        }
        let (map, pool) = (self.maps.newest()?, self.pool()?);
        let may = |m: u32, p: u64| map.flags & m == 0 && !pool.has(p);
        self.scrub.settings.config.borrow().due(
            &self.journal.info().history,
            pool.scrub,
            now.wall,
            self.jitter(),
            may(map_flags::NOSCRUB, pool_flags::NOSCRUB),
            may(map_flags::NODEEP_SCRUB, pool_flags::NODEEP_SCRUB),
        )
    }

    /// This PG's own number, which spreads the scrubs of a pool.
    pub(super) fn jitter(&self) -> u64 {
        u64::from(self.env.spg().pg.seed.wrapping_mul(0x9e37_79b1) >> 8) ^ self.env.spg().pg.pool.0 as u64
    }

    /// Time of the next scrub, the time from which hours and load are ignored, and whether an operator asked for it.
    /// `None` unless this copy leads the PG.
    #[must_use]
    pub fn next_scrub(&self) -> Option<(base::Utime, Option<base::Utime>, bool)> {
        let pool = self.pool().filter(|_| self.is_primary())?;
        let (at, deadline) =
            self.scrub.settings.config.borrow().next(&self.journal.info().history, pool.scrub, self.jitter());
        Some((at, deadline, self.scrub.wanted.is_some_and(|r| r.required)))
    }

    /// True if flags of the map or the pool forbid this scrub; a required one is never forbidden.
    pub(super) fn forbidden(&self, what: ScrubRequest) -> bool {
        let (Some(map), Some(pool)) = (self.maps.newest(), self.pool()) else { return true };
        let set = |m: u32, p: u64| map.flags & m != 0 || pool.has(p);
        !what.required
            && if what.deep {
                set(map_flags::NODEEP_SCRUB, pool_flags::NODEEP_SCRUB)
            } else {
                set(map_flags::NOSCRUB, pool_flags::NOSCRUB)
            }
    }

    pub(super) fn may_scrub(&self) -> bool {
        let whole = self.acting_set().len() >= self.journal.info().interval.size as usize;
        *self.life.state() == State::Active
            && self.peers.is_clean()
            && whole
            && !self.life.is_stopping()
            && !self.holds_still()
    }

    pub(in crate::pg) fn scrub_bits(&self) -> u64 {
        let s = &self.scrub.interval;
        let mut bits = 0;
        if let Some(r) = s.run.as_ref().filter(|r| r.at != At::Reserve) {
            bits |= pg_state::SCRUBBING;
            if r.what.deep {
                bits |= pg_state::DEEP_SCRUB;
            }
            if r.what.repair {
                bits |= pg_state::REPAIR;
            }
        }
        if s.repairing {
            bits |= pg_state::REPAIR;
        }
        if s.failed {
            bits |= pg_state::FAILED_REPAIR;
        }
        if self.scrub_errors() > 0 {
            bits |= pg_state::INCONSISTENT;
        }
        bits
    }

    /// Answers `SCRUBLS`: result and output.
    pub(in crate::pg) fn list_scrub(&self, indata: &Bytes) -> (i32, Bytes) {
        let Some(found) = &self.scrub.interval.found else { return (base::errno::ENOENT, Bytes::new()) };
        match found.list(indata, self.journal.info().history.same_interval_since) {
            None => (base::errno::EINVAL, Bytes::new()),
            Some((_, true)) => (base::errno::EAGAIN, Bytes::new()),
            Some((b, false)) => (0, b),
        }
    }

    /// Findings of the last scrub in this interval.
    #[must_use]
    pub fn scrub_findings(&self) -> Option<&Findings> {
        self.scrub.interval.found.as_deref()
    }

    pub(super) fn scrub_log(&mut self, level: LogLevel, text: &str) {
        self.mail.post(Effect::Log(level, format!("{} {text}", self.env.spg().pg)));
    }
}
