//! OSDs that are marked down because they refused a peer's connection: which of them the map calls dead.
//!
//! Dead means that the process has ended, so no primary waits for leases that it holds. A refused connection alone does
//! not prove that: a firewall that rejects packets looks the same to a peer, and a peer may lie. The second witness is
//! the end of the OSD's own sessions with the monitors: the kernel of a living host closes them together with the
//! listeners of the process. Until then the OSD is down, and primaries wait for its leases.
//!
//! Invariants:
//!  1. No OSD with an open session is called dead on the word of another OSD.
//!  2. The list is volatile. OSDs that another leader finds down are called dead only when they say so themselves;
//!     else primaries wait until their leases end.
//!
//! Tests: `tests/is_a_failure_believed.rs` (1,
//! `an_osd_is_not_called_dead_on_another_s_word_while_its_session_is_open`; 2,
//! `another_leader_calls_no_osd_dead_that_is_down`).

use base::OsdId;

use super::super::MonCore;

impl MonCore {
    /// Notes that an OSD which is down has refused a connection.
    pub(super) fn refused_connection(&mut self, osd: OsdId) {
        let up_from = self.state.osdmap.info(osd).up_from;
        self.failures.refused_connection(osd, up_from);
    }

    /// Notes that a session of an OSD has ended.
    pub(in super::super) fn session_of_osd_ended(&mut self, osd: OsdId) {
        self.failures.session_ended(osd);
    }

    /// Calls the refused OSDs dead whose sessions have ended. Runs before each proposal, with none in flight, and looks
    /// at the sessions only if something has changed.
    pub(in super::super) fn judge_refused(&mut self) {
        for (osd, up_from) in self.failures.take_refused() {
            let map = &self.state.osdmap;
            let known = map.exists(osd) && map.info(osd).up_from == up_from && map.xinfo(osd).dead_epoch <= up_from;
            let down = map.is_down(osd) || self.going_down(osd);
            if !known || !down {
                continue;
            }
            if self.has_open_session(osd) {
                self.failures.wait_for_sessions_of(osd, up_from);
            } else {
                let dead = map.epoch.next();
                self.xinfo_mut(osd).dead_epoch = dead;
            }
        }
    }

    /// True if the instance of the OSD that the map knows has an open session.
    fn has_open_session(&self, osd: OsdId) -> bool {
        let addrs = self.state.osdmap.client_addr(osd);
        self.sessions.values().any(|s| s.osd() == Some(osd) && Some(s.addrs()) == addrs)
    }
}
