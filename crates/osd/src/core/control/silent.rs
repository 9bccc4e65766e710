//! A device that does not answer yet: the monitors are told, and the OSD does not boot before it answers again.
//!
//! The monitors decide whether this OSD is taken out of service: they know whether its PGs go on without it. See
//! [`crate::core::silence`].

use super::{Control, Phase, prio};
use base::Now;
use base::planted::{Bug, acts};
use bytes::Bytes;

impl Control {
    /// The device of a reactor does not answer, for this reason, or answers again (`None`).
    pub fn device_silent(&mut self, reactor: usize, why: Option<String>, now: Now) {
        let was = !self.silent.is_empty();
        match why {
            Some(why) => _ = self.silent.insert(reactor, why),
            None => _ = self.silent.remove(&reactor),
        }
        let why = self.silent.values().next().cloned();
        if was == why.is_some() || self.leaving.is_some() {
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
        let why = self.silent.values().next().map_or("", String::as_str);
        let reason = serde_json::Value::from(why);
        let json = format!(r#"{{"prefix":"osd device-silent","id":{},"reason":{reason}}}"#, self.id.whoami.0);
        self.mon.command(&json, Bytes::new());
    }

    /// True if an OSD with this device is of no use.
    pub(super) fn is_silent(&self) -> bool {
        !self.silent.is_empty() && !acts(Bug::BootInSilence)
    }
}
