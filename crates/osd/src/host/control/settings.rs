//! Options in force: those that take effect while the OSD runs are given to the machines and to all reactors.

use super::ControlHost;
use crate::core::compress::Defaults;
use crate::core::control::Control;
use crate::core::memory;
use crate::core::pgs::Input;
use crate::core::recovery;
use crate::core::scrub::ScrubSettings;
use crate::host::route::Setting;
use crate::host::tracker::HistoryOptions;
use net::Endpoint;
use net::modes::Modes;
use pg::pace::Profile;
use std::cell::{Cell, RefCell};

/// Option that gives freed blocks back to the device.
const DISCARD: &str = "bdev_enable_discard";
/// Option that sets the priority of clients against recovery.
const MCLOCK_PROFILE: &str = "osd_mclock_profile";

/// Endpoints on which peers connect, and whether they have the cluster's connection modes.
#[derive(Default)]
pub(super) struct Listening {
    /// Endpoints with the heartbeat addresses.
    endpoints: RefCell<Vec<Endpoint>>,
    modes_taken: Cell<bool>,
}

impl Listening {
    /// True the first time: the cluster's connection modes are applied once.
    pub(super) fn may_take_modes(&self) -> bool {
        !self.modes_taken.replace(true)
    }
}

impl ControlHost {
    /// True for options that take effect while the OSD runs.
    pub(in crate::host) fn observes(name: &str) -> bool {
        Control::observes(name)
            || net::log_filter::observes(name)
            || HistoryOptions::observes(name)
            || name == MCLOCK_PROFILE
            || name == DISCARD
            || name == memory::TARGET
            || ScrubSettings::observes(name)
            || Defaults::observes(name)
            || recovery::observes(name)
            || crate::host::bench::observes(name)
    }

    /// Applies the options in force.
    pub(in crate::host) fn settings_changed(&self) {
        let settings = self.settings.borrow();
        net::log_filter::apply(&settings);
        let history = HistoryOptions::from_settings(&settings);
        self.routes.set(&Setting::History(history));
        let discard = settings.given(DISCARD).is_some_and(|v| matches!(v.trim(), "true" | "1" | "yes" | "on"));
        self.routes.set(&Setting::Discard(discard));
        let data = self.memory.with_target(settings.given(memory::TARGET)).data();
        self.routes.set(&Setting::DataMemory(data));
        let name = settings.given(MCLOCK_PROFILE).unwrap_or_default();
        let profile = Profile::parse(name.trim());
        if profile.is_none() && !name.trim().is_empty() {
            tracing::warn!(profile = name, "unknown value of osd_mclock_profile; the default is used");
        }
        self.routes.set(&Setting::Profile(profile.unwrap_or_default()));
        self.reserver.set(&recovery::recovery_config(self.device.rotates(), |name| settings.given(name)));
        self.reserver.set_log(&recovery::log_config(|name| settings.given(name)));
        self.routes.inputs(|| Input::Reserved);
        let scrubs = ScrubSettings::take(|name| settings.given(name));
        self.routes.set(&Setting::Scrubs(Box::new(scrubs.clone())));
        let compression = Defaults::take(|name| settings.given(name));
        self.routes.set(&Setting::Compression(compression));
        // The sources apply in their order, even over the monitor's values.
        let mut core = self.core.borrow_mut();
        core.take_config(|name| settings.given(name));
        core.set_options(settings.held());
    }

    /// Applies the cluster's connection modes once, before the OSD boots. As on Ceph, later changes need a
    /// restart.
    pub(super) fn take_modes(&self) {
        let taken = {
            let settings = self.settings.borrow();
            Modes::take(|name| settings.given(name).map(str::to_owned))
        };
        let modes = match taken {
            Ok(m) => m,
            Err(error) => {
                return tracing::error!(%error, "the cluster's connection modes are invalid; those of the configuration file stay in force");
            }
        };
        let own = [self.sessions.endpoint(), self.objecter.borrow().as_ref().and_then(|o| o.endpoint())];
        let links = self.links.borrow().as_ref().and_then(|l| l.endpoint());
        for e in own.into_iter().chain([links]).flatten().chain(self.listening.endpoints.borrow().iter().cloned()) {
            e.set_modes(&modes);
        }
        self.routes.set(&Setting::Modes(Box::new(modes.clone())));
    }

    /// Registers an endpoint on which peers connect.
    pub(in crate::host) fn listens(&self, e: Endpoint) {
        self.listening.endpoints.borrow_mut().push(e);
    }

    /// The endpoints of the control machine, by the names that Ceph's OSDs have for them.
    pub(in crate::host) fn messengers(&self) -> Vec<(&'static str, serde_json::Value)> {
        let names = ["hb_back_server", "hb_front_server"];
        let mut all: Vec<_> = names.into_iter().zip(self.listening.endpoints.borrow().iter().cloned()).collect();
        all.extend(self.sessions.endpoint().map(|e| ("client", e)));
        all.extend(self.links.borrow().as_ref().and_then(|l| l.endpoint()).map(|e| ("hb_client", e)));
        all.extend(self.objecter.borrow().as_ref().and_then(|o| o.endpoint()).map(|e| ("ms_objecter", e)));
        all.into_iter().map(|(name, e)| (name, e.dump(self.reactor.index()))).collect()
    }
}
