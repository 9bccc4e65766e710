//! What the manager sees of the monitor, and what it asks of it: all of it.
//!
//! Snapshots come from here; changes go the way that a separate manager's go, as commands by the manager's own client.

use crate::images::rates::Reported;
use auth::CryptoKey;
use base::AuthName;
use cluster::OsdMap;
use std::sync::Arc;
use wire::types::PerfMetricQuery;

/// The monitor that the manager belongs to.
pub trait Monitor {
    /// True if this is the manager of the cluster: not while a separate one is expected.
    fn is_active(&self) -> bool;
    /// The newest OSD map.
    fn osdmap(&self) -> Arc<OsdMap>;
    /// Who the manager signs in as, with the key unless authentication is off.
    fn identity(&self) -> Option<(AuthName, Option<CryptoKey>)>;
    /// What any source but the default says of an option, for this process.
    fn option(&self, name: &str) -> Option<String>;
    /// An option as it is stored for a section.
    fn stored_option(&self, who: &str, name: &str) -> Option<String>;
    /// Seconds between the reports of daemons.
    fn report_period(&self) -> u32;
    /// Has OSDs count what a query asks for, from now on.
    fn add_query(&self, q: PerfMetricQuery);
    /// Has them count it no more.
    fn remove_query(&self, q: &PerfMetricQuery);
    /// What they counted since the last time.
    fn take_reports(&self, q: &PerfMetricQuery) -> Reported;
}
