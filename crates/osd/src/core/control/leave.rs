//! The end of an OSD: by order, by the map, or because its store failed.
//!
//! Invariants:
//!  1. The monitor hears "down and dead" only after every reactor has stopped serving. "Dead" lets the next
//!     primary serve without waiting for leases that this OSD may hold.
//!  2. Each step has a time limit, so neither a reactor that waits for a device nor a silent monitor keeps the
//!     process alive.
//!  3. A failed store is reported once, to the cluster log and to the monitor, and the process does not end before the
//!     monitor has the report: it may drop commands of a session that is closed.
//!
//! Tests: `tests/boot.rs`.

use super::{Control, Output, Phase, prio};
use base::{Mono, Now, unreached};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::msg::MOsdMarkMeDown;

/// Time that reactors get to finish operations in flight.
const DRAIN_MAX: Duration = Duration::from_secs(3);
/// Time that reactors get to drop their state if the store failed.
const ABANDON_MAX: Duration = Duration::from_secs(1);
/// Time that a stopping OSD waits for the monitor's answer.
const WORD_MAX: Duration = Duration::from_secs(5);

/// The end of an OSD; see the module.
#[derive(Debug, Default)]
pub(super) struct Leave {
    /// State of the end, once it has begun.
    state: Option<Leaving>,
    /// Reason of the store's failure, if it failed.
    failure: Option<String>,
}

impl Leave {
    /// True if the OSD leaves.
    pub(super) fn has_begun(&self) -> bool {
        self.state.is_some()
    }

    /// Deadline of the present step.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.state.as_ref().map(|l| l.by)
    }
}

/// State of a leaving OSD.
#[derive(Debug)]
struct Leaving {
    /// Deadline of the present step.
    by: Mono,
    /// True if the monitor is to be told.
    tell: bool,
    /// Reactors that have stopped serving.
    stopped: BTreeSet<usize>,
    /// True once all reactors have stopped serving.
    drained: bool,
    /// True once the reactors have stopped or run out of time. The monitor was told, or will be when its
    /// session opens.
    due: bool,
    /// True once the report of a failed store was sent; the session repeats it by itself.
    reported: bool,
    /// The report's command, until it is answered.
    report: Option<u64>,
    /// The monitor has marked this OSD down.
    acknowledged: bool,
}

impl Control {
    /// Begins a clean stop.
    pub fn leave(&mut self, now: Now) {
        let tell = self.phase == Phase::Active && self.mon.is_open();
        self.begin_leaving(tell, false, now);
    }

    /// Handles a failed store: the OSD stops serving, tells the monitor why, and ends. `why` names the device
    /// and its error. Later calls have no effect.
    pub fn store_failed(&mut self, why: &str, now: Now) {
        if self.leave.failure.is_some() || self.phase == Phase::Gone {
            return;
        }
        self.leave.failure = Some(why.to_owned());
        let me = self.id.whoami;
        tracing::error!(osd = me.0, why, "the store failed; this OSD marks itself down and ends");
        self.clog(prio::ERROR, format!("{me} stops: its store failed: {why}"), now);
        if self.leave.has_begun() {
            // Operations that wait for the device are dropped.
            return self.out.push_back(Output::Stop { abandon: true });
        }
        self.begin_leaving(self.phase != Phase::Registering, true, now);
    }

    /// Reason of the store's failure, if it failed.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.leave.failure.as_deref()
    }

    /// Ends an OSD that the cluster does not want.
    pub(super) fn exit(&mut self, why: String, now: Now) {
        if !self.leave.has_begun() && self.phase != Phase::Gone {
            self.out.push_back(Output::Exit(why));
            self.begin_leaving(false, false, now);
        }
    }

    fn begin_leaving(&mut self, tell: bool, abandon: bool, now: Now) {
        if self.leave.has_begun() || self.phase == Phase::Gone {
            return;
        }
        let by = now.mono + if abandon { ABANDON_MAX } else { DRAIN_MAX };
        self.leave.state = Some(Leaving {
            by,
            tell,
            stopped: BTreeSet::new(),
            drained: false,
            due: false,
            reported: false,
            report: None,
            acknowledged: false,
        });
        self.enter(Phase::Leaving);
        self.out.push_back(Output::Stop { abandon });
    }

    /// Records that reactor `at`, one of `all`, has stopped serving.
    pub fn reactor_stopped(&mut self, at: usize, all: usize, now: Now) {
        let Some(l) = &mut self.leave.state else { return };
        l.stopped.insert(at);
        if l.stopped.len() == all {
            self.stopped(now);
        }
    }

    /// Records that all reactors have stopped serving.
    pub fn stopped(&mut self, now: Now) {
        let Some(l) = self.leave.state.as_mut().filter(|l| !l.drained) else { return };
        l.drained = true;
        // A monitor that was told that this OSD is down now hears that it is dead.
        self.tell_monitor(now);
    }

    /// Handles the deadline of the present step.
    pub(super) fn tick_leaving(&mut self, now: Now) {
        match &self.leave.state {
            Some(l) if now.mono < l.by => {}
            Some(l) if !l.due => {
                tracing::warn!("reactors did not stop in time; this OSD leaves the cluster without them");
                self.tell_monitor(now);
            }
            _ => self.enter(Phase::Gone),
        }
    }

    pub(super) fn leaving_mon_open(&mut self, now: Now) {
        if self.leave.state.as_ref().is_some_and(|l| l.due) {
            self.tell_monitor(now);
        }
    }

    pub(super) fn leave_acknowledged(&mut self) {
        if let Some(l) = self.leave.state.as_mut().filter(|l| l.due) {
            l.acknowledged = true;
        }
        self.leave_if_told();
    }

    /// Handles the answer to a command. Whatever it is, the monitor has the report.
    pub(super) fn report_answered(&mut self, tid: u64) {
        if let Some(l) = &mut self.leave.state {
            l.report.take_if(|t| *t == tid);
        }
        self.leave_if_told();
    }

    /// Ends the process if the monitor has marked this OSD down, and has all reports of a failed store.
    pub(super) fn leave_if_told(&mut self) {
        let told = self.leave.state.as_ref().is_some_and(|l| l.acknowledged && l.report.is_none());
        if self.phase == Phase::Leaving && told && (self.leave.failure.is_none() || self.log.is_empty()) {
            self.enter(Phase::Gone);
        }
    }

    fn tell_monitor(&mut self, now: Now) {
        let Some(l) = &mut self.leave.state else { return unreached("the OSD leaves") };
        if !std::mem::replace(&mut l.due, true) {
            l.by = now.mono + WORD_MAX;
        }
        let (tell, dead) = (l.tell, l.drained);
        if !tell {
            return self.enter(Phase::Gone);
        }
        if let Some(why) = self.leave.failure.as_deref().filter(|_| !std::mem::replace(&mut l.reported, true)) {
            let reason = serde_json::Value::from(why);
            let json = format!(r#"{{"prefix":"osd store-failed","id":{},"reason":{reason}}}"#, self.id.whoami.0);
            // A refusal will do: a monitor that does not know the command has the line in its log.
            l.report = Some(self.mon.command(&json, Bytes::new()));
        }
        self.send_log();
        let m = MOsdMarkMeDown {
            paxos: self.maps.epoch().into(),
            fsid: self.id.fsid,
            target_osd: self.id.whoami,
            target_addrs: self.id.addrs.public.clone(),
            epoch: self.maps.epoch(),
            request_ack: true,
            down_and_dead: dead,
        };
        self.mon.send_now(&m);
    }
}
