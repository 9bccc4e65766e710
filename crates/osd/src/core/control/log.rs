//! Lines for the cluster log, which are sent until the monitor has them.

use super::Control;
use base::{AddrVec, AuthName, EntityKind, EntityName};
use base::{Now, OsdId, Utime};
use std::collections::VecDeque;
use wire::msg::MLog;
use wire::types::LogEntry;

/// Most entries that are kept. A further one takes the place of the oldest.
const ENTRIES_MAX: usize = 1000;

/// Entries that the monitor may not have; see the module.
#[derive(Debug, Default)]
pub(super) struct ClusterLog {
    entries: VecDeque<LogEntry>,
    seq: u64,
}

impl ClusterLog {
    /// Adds a line of the OSD `me` with these addresses.
    fn push(&mut self, me: OsdId, addrs: AddrVec, prio: u16, msg: String, stamp: Utime) {
        self.seq += 1;
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(LogEntry {
            name: AuthName { kind: EntityKind::OSD, id: me.0.to_string() },
            rank: EntityName::new(EntityKind::OSD, me.0.into()),
            addrs,
            stamp,
            seq: self.seq,
            prio,
            msg: msg.into(),
            channel: "cluster".to_owned(),
        });
    }

    /// Drops the entries up to that number, which the monitor has.
    pub(super) fn acknowledge(&mut self, last: u64) {
        self.entries.retain(|e| e.seq > last);
    }

    /// True if the monitor has all entries.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Control {
    /// Writes a line to the cluster log.
    pub fn clog(&mut self, prio: u16, msg: String, now: Now) {
        self.log.push(self.id.whoami, self.id.addrs.public.clone(), prio, msg, now.wall);
        self.send_log();
    }

    /// Sends the entries that the monitor may not have.
    pub(super) fn send_log(&mut self) {
        if !self.log.is_empty() {
            let entries = self.log.entries.iter().cloned().collect();
            self.mon.send_now(&MLog { fsid: self.id.fsid, entries, ..MLog::default() });
        }
    }
}
