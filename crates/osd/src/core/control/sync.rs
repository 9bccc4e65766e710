//! Requests for maps up to the newest one that the monitor has.

use super::{Control, Phase};
use base::{Epoch, Mono, Now};
use std::time::Duration;

/// Interval at which a waiting OSD asks again for newer maps.
const RESUBSCRIBE: Duration = Duration::from_secs(30);

/// Requests for maps; see the module.
#[derive(Debug, Default)]
pub(super) struct Sync {
    /// Question for the monitor's newest epoch, until it is answered.
    question: Option<u64>,
    /// Own newest map when the newest epoch was asked for.
    asked_at: Epoch,
    newest: Epoch,
    /// Newest epoch when the monitor was asked for maps it had left out.
    gap_at: Option<Epoch>,
    resubscribe_at: Mono,
}

impl Sync {
    /// True while the monitor's newest epoch is asked for.
    pub(super) fn is_asking(&self) -> bool {
        self.question.is_some()
    }

    /// Forgets the question: every map is wanted, whatever the answer.
    pub(super) fn forget_question(&mut self) {
        self.question = None;
    }

    /// Newest epoch of the monitor, as far as it is known.
    pub(super) fn newest(&self) -> Epoch {
        self.newest
    }

    /// Notes an epoch that the monitor has.
    pub(super) fn note_newest(&mut self, epoch: Epoch) {
        self.newest = self.newest.max(epoch);
    }

    /// Notes that the monitor left out maps after that epoch. True the first time: a monitor that repeats the same
    /// answer has no other maps.
    pub(super) fn note_gap(&mut self, after: Epoch) -> bool {
        self.gap_at.replace(after) != Some(after)
    }

    /// Time at which maps are asked for again.
    pub(super) fn resubscribe_at(&self) -> Mono {
        self.resubscribe_at
    }

    /// Waits the full interval from now before maps are asked for again.
    pub(super) fn put_off(&mut self, now: Now) {
        self.resubscribe_at = now.mono + RESUBSCRIBE;
    }
}

impl Control {
    /// Asks the monitor for its newest epoch, and for what else an OSD follows.
    pub(super) fn begin_sync(&mut self) {
        self.enter(Phase::Syncing);
        self.mon.subscribe("mgrmap", 0, false);
        self.mon.subscribe("osd_pg_creates", 0, false);
        self.sync.question = Some(self.mon.get_version("osdmap"));
        self.sync.asked_at = self.maps.epoch();
    }

    /// Begins to fetch maps.
    pub(super) fn start_sync(&mut self, now: Now) {
        self.sync.put_off(now);
        self.begin_sync();
    }

    /// Handles the monitor's answer about its maps.
    pub(super) fn version_known(&mut self, tid: u64, newest: u64, oldest: u64, now: Now) {
        if self.sync.question != Some(tid) {
            return;
        }
        self.sync.question = None;
        let [newest, oldest] = [newest, oldest].map(|e| Epoch(u32::try_from(e).unwrap_or(u32::MAX)));
        self.compare_with_monitor(newest);
        self.sync.note_newest(newest);
        let next = self.maps.epoch().next();
        let start = if next < oldest { oldest.0.saturating_sub(1) } else { next.0 };
        self.mon.subscribe("osdmap", start.into(), true);
        self.progress(now);
    }

    /// Warns if this OSD had a newer map than the monitor when it asked. Such an OSD cannot boot.
    fn compare_with_monitor(&self, newest: Epoch) {
        if newest < self.sync.asked_at {
            tracing::error!(
                osd = self.id.whoami.0,
                have = self.sync.asked_at.0,
                monitor = newest.0,
                "the monitor's newest map is older than this OSD's, so its state is an old copy; this OSD waits (see \
                 `belemnite state advance`)"
            );
        }
    }

    /// Asks the monitor for newer maps.
    pub(super) fn ask_maps(&mut self) {
        self.mon.subscribe("osdmap", u64::from(self.maps.epoch().0) + 1, self.phase != Phase::Active);
    }

    /// Handles a PG that waits for a map.
    pub fn want_map(&mut self, epoch: Epoch) {
        if epoch > self.maps.epoch() && self.phase != Phase::Active {
            self.ask_maps();
        }
    }
}
