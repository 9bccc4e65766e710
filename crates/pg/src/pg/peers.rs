//! Messages between the machines of one PG on different OSDs.

use super::Pg;
use crate::effect::Effect;
use base::{Now, OsdId};
use store::ObjectStore;
use wire::msg::MPgPeer;

impl Pg {
    pub(super) fn handle_peer(
        &mut self,
        from: OsdId,
        m: &MPgPeer,
        _now: Now,
        _store: &mut dyn ObjectStore,
        _out: &mut Vec<Effect>,
    ) {
        if m.epoch < self.info.history.same_interval_since {
            tracing::debug!(pg = %self.cfg.spg, %from, epoch = %m.epoch, "message of an older interval dropped");
            return;
        }
        tracing::debug!(pg = %self.cfg.spg, %from, bytes = m.cost(), "message of a peer: pools of one copy have no peers");
    }

    /// Sends again what an OSD has not answered.
    pub(super) fn handle_peer_reset(&mut self, osd: OsdId, _now: Now, _out: &mut Vec<Effect>) {
        tracing::debug!(pg = %self.cfg.spg, %osd, "session reset");
    }
}
