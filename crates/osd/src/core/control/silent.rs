//! A device that does not answer yet: the monitors are told, and the OSD does not boot before it answers again.
//!
//! The monitors decide whether this OSD is taken out of service: they know whether its PGs go on without it. See
//! [`crate::core::silence`].

use super::{Control, Phase, prio};
use base::Now;
use base::planted::{Bug, acts};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Devices that do not answer; see the module.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Reactors whose device does not answer, with the reason.
    reactors: BTreeMap<usize, String>,
}

impl Silence {
    /// Reason of the first reactor whose device does not answer.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reactors.values().next().map(String::as_str)
    }
}

impl Control {
    /// The device of a reactor does not answer, for this reason, or answers again (`None`).
    pub fn device_silent(&mut self, reactor: usize, why: Option<String>, now: Now) {
        let was = !self.silence.reactors.is_empty();
        match why {
            Some(why) => _ = self.silence.reactors.insert(reactor, why),
            None => _ = self.silence.reactors.remove(&reactor),
        }
        let why = self.silence.reason().map(str::to_owned);
        if was == why.is_some() || self.leave.has_begun() {
            return;
        }
        let me = self.id.whoami;
        let line = match &why {
            Some(why) => format!("{me} asks to be taken out of service: {why}"),
            None => format!("the device of {me} answers again"),
        };
        self.clog(prio::WARN, line, now);
        self.tell_silence();
        // It may have been marked down meanwhile.
        self.progress(now);
    }

    /// Tells the monitors what the device does. The session repeats that until it is answered; a refusal will do.
    pub(super) fn tell_silence(&mut self) {
        if self.phase == Phase::Registering {
            return;
        }
        let why = self.silence.reason().unwrap_or("");
        let reason = serde_json::Value::from(why);
        let json = format!(r#"{{"prefix":"osd device-silent","id":{},"reason":{reason}}}"#, self.id.whoami.0);
        self.mon.command(&json, Bytes::new());
    }

    /// True if an OSD with this device is of no use.
    pub(super) fn is_silent(&self) -> bool {
        !self.silence.reactors.is_empty() && !acts(Bug::BootInSilence)
    }
}
