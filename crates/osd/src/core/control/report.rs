//! Reports of reactors to the control machine.

use super::{Control, prio};
use crate::core::pgs::Ready;
use base::{Epoch, Now, OsdId, PgId};
use pg::LogLevel;
use std::collections::BTreeSet;

/// Report of a reactor to the control machine.
#[derive(Debug)]
pub enum Report {
    /// A PG needs a map with `up_thru` at this epoch.
    WantUpThru(Epoch),
    /// A PG or client waits for a map.
    WantMap(Epoch),
    /// A PG requests a temporary acting set; an empty one stands for CRUSH's own.
    WantPgTemp(PgId, Vec<OsdId>),
    /// A PG is ready to be merged with another one.
    ReadyToMerge(PgId, Ready),
    /// A PG was created.
    Created(PgId),
    /// OSDs that share PGs on the reactor, and those whose leases PGs led there need.
    PgPeers(BTreeSet<OsdId>, BTreeSet<OsdId>),
    /// A line for the cluster log.
    Log(LogLevel, String),
}

impl Control {
    /// Handles the report of reactor `at`.
    pub fn handle_report(&mut self, at: usize, r: Report, now: Now) {
        match r {
            Report::WantUpThru(e) => self.want_up_thru(e),
            Report::WantMap(e) => self.want_map(e),
            Report::WantPgTemp(pg, osds) => self.want_pg_temp(pg, osds),
            Report::ReadyToMerge(pg, r) => self.ready_to_merge(pg, r),
            Report::Created(pg) => self.pg_created(pg),
            Report::PgPeers(all, led) => self.set_pg_peers(at, all, led, now),
            Report::Log(level, text) => {
                let prio = match level {
                    LogLevel::Debug => prio::DEBUG,
                    LogLevel::Warn => prio::WARN,
                    LogLevel::Error => prio::ERROR,
                };
                self.clog(prio, text, now);
            }
        }
    }
}
