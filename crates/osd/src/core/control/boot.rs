//! Boot of an OSD: its place in the CRUSH map, and OSD_BOOT once nothing is missing.
//!
//! Invariants:
//!  1. OSD_BOOT is sent only when the newest map known to the monitor has been applied.
//!  2. OSD_BOOT is sent only when the OSD can authenticate peers.
//!
//! Tests: `tests/boot.rs`.

use super::{Control, Phase};
use base::{Epoch, Now};
use bytes::Bytes;
use cluster::osdmap::{map_flag, osd_state};
use wire::Features;
use wire::msg::MOsdBoot;

/// A monitor command that places the OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    DeviceClass,
    Location,
}

/// Progress of the boot; see the module.
#[derive(Debug, Default)]
pub(super) struct Boot {
    /// Commands that place the OSD and are not answered yet.
    commands: Vec<(u64, Placement)>,
    placed: bool,
    /// The host can authenticate peers; without that the OSD would be useless.
    ready: bool,
    /// First epoch in which this process was up, 0 before.
    epoch: Epoch,
}

impl Boot {
    /// Records that this map shows the process up.
    pub(super) fn note_up(&mut self, epoch: Epoch) {
        if self.epoch == Epoch(0) {
            self.epoch = epoch;
        }
    }

    /// True once the CRUSH map has the place of this OSD, or need not have it.
    pub(super) fn is_placed(&self) -> bool {
        self.placed
    }
}

impl Control {
    /// Records that the host can verify tickets (or needs none), so that the OSD may boot.
    pub fn set_ready(&mut self, now: Now) {
        if !self.boot.ready {
            self.boot.ready = true;
            self.leases.start(self.maps.current().map(|m| &**m), now);
            self.progress(now);
        }
    }

    /// Begins to place this OSD in the CRUSH map, if it is to be placed.
    pub(super) fn begin_placement(&mut self, now: Now) {
        self.boot.commands.clear();
        if self.id.crush_update_on_start {
            self.place();
        } else {
            self.boot.placed = true;
            self.start_sync(now);
        }
    }

    fn place(&mut self) {
        let n = self.id.whoami.0;
        let class =
            format!(r#"{{"prefix":"osd crush set-device-class","class":"{}","ids":["{n}"]}}"#, self.id.device_class);
        let args: Vec<String> = self.id.crush_location.iter().map(|a| format!("\"{a}\"")).collect();
        let location = format!(
            r#"{{"prefix":"osd crush create-or-move","id":{n},"weight":{:.4},"args":[{}]}}"#,
            self.id.crush_weight,
            args.join(",")
        );
        for (what, cmd) in [(Placement::DeviceClass, class), (Placement::Location, location)] {
            let tid = self.mon.command(&cmd, Bytes::new());
            self.boot.commands.push((tid, what));
        }
    }

    /// Handles the answer to a command.
    pub(super) fn command_done(&mut self, tid: u64, rc: i32, status: &str, now: Now) {
        let Some(at) = self.boot.commands.iter().position(|(t, _)| *t == tid) else { return self.report_answered(tid) };
        let (_, what) = self.boot.commands.remove(at);
        // An OSD that has a device class keeps it, so `EBUSY` is no failure.
        if rc < 0 && !(what == Placement::DeviceClass && rc == base::errno::EBUSY) {
            let why = format!("monitor refuses to place this OSD: {status} ({})", base::errno::name(rc));
            return self.exit(why, now);
        }
        if self.boot.commands.is_empty() && self.phase == Phase::Registering {
            self.boot.placed = true;
            self.begin_sync();
        }
    }

    /// Continues the boot if nothing is missing.
    pub(super) fn progress(&mut self, now: Now) {
        if self.phase != Phase::Syncing || self.sync.is_asking() || !self.boot.ready || self.is_silent() {
            return;
        }
        let Some(map) = self.maps.current().cloned() else { return };
        if map.epoch < self.sync.newest() {
            self.ask_maps();
            return;
        }
        let me = self.id.whoami;
        let noup = map.has_flag(map_flag::NOUP) || map.state(me) & osd_state::NOUP != 0;
        if noup || map.state(me) & osd_state::DESTROYED != 0 || !map.exists(me) {
            // The subscription brings the map that lifts this condition.
            self.ask_maps();
            return;
        }
        if !self.rejoin.may_boot(self.hb.health(now), &self.hb.missed(), now) {
            return;
        }
        self.send_boot();
        self.sync.put_off(now);
        self.enter(Phase::Booting);
        self.ask_maps();
    }

    /// Sends OSD_BOOT.
    pub(super) fn send_boot(&mut self) {
        let boot = MOsdBoot {
            paxos: self.maps.epoch().into(),
            sb: self.sb.clone(),
            hb_back_addrs: self.id.addrs.hb_back.clone(),
            cluster_addrs: self.id.addrs.cluster.clone(),
            boot_epoch: self.boot.epoch,
            hb_front_addrs: self.id.addrs.hb_front.clone(),
            metadata: self.id.metadata.clone(),
            osd_features: Features::PACIFIC.0 | Features::OSD_RELEASES.0 | self.id.peer_features.bits(),
        };
        self.mon.send_now(&boot);
    }
}
