//! Marks OSDs out whose devices are expected to fail, every `mgr/devicehealth/sleep_interval`. The rules are in
//! `command::device::life`.

use crate::command::device::life::{heal, interval};
use crate::core::MonCore;
use std::time::Duration;

/// Time after which the options are looked at again while devices are not judged.
const LOOK: Duration = Duration::from_secs(60);

impl MonCore {
    /// Looks at the devices if it is time.
    pub(in crate::core) fn tick_devices(&mut self) {
        let every = || interval(&self.state);
        let due = self.ticks.takes_devices(self.now.mono, || every().map_or(LOOK, Duration::from_secs));
        if due && every().is_some() {
            heal(&self.state, &mut self.pending, self.now);
        }
    }
}
