//! Sends maps of file systems to subscribers.
//!
//! | subscription | answer |
//! |---|---|
//! | `fsmap`, `fsmap.user` | all file systems, or their names |
//! | `mdsmap` of an MDS | the file system it belongs to; else a map without file systems, with its own entry |
//! | `mdsmap.ID`, `mdsmap` of a client | that file system, or the default one; nothing if there is none |
//!
//! A client sees the file systems that its monitor capability names, or all if it names none.

use base::{EntityKind, Epoch};
use wire::msg::{MFsMap, MFsMapUser, MMdsMap};
use wire::types::{FsMap, FsMapUser, FsUserInfo, MdsMap};
use wire::{Encode, Features};

use crate::core::MonCore;
use crate::state::ConnKey;

impl MonCore {
    /// Sends the map of a due subscription of this family.
    pub(in crate::core) fn check_fs_sub(&mut self, c: ConnKey, what: &str) {
        let epoch = self.state.fs.map.epoch;
        match what {
            "fsmap" => {
                if self.take_due(c, what, epoch.0.into()) {
                    let fsmap = self.fs_view(c);
                    self.reply(c, 0, &MFsMap { epoch, fsmap });
                }
            }
            "fsmap.user" => {
                if self.take_due(c, what, epoch.0.into()) {
                    let map = self.fs_view(c);
                    let name =
                        |f: &wire::types::Filesystem| FsUserInfo { cid: f.fscid, name: f.mds_map.fs_name.clone() };
                    let filesystems = map.filesystems.values().map(name).collect();
                    let fsmap = FsMapUser { epoch, legacy_client_fscid: map.legacy_client_fscid, filesystems };
                    self.reply(c, 0, &MFsMapUser { epoch, fsmap });
                }
            }
            _ => {
                let Some(map) = self.mdsmap_for(c, what) else { return };
                if self.take_due(c, what, map.epoch.0.into()) {
                    let (epoch, encoded) = (map.epoch, map.to_bytes(Features::PACIFIC));
                    self.reply(c, 0, &MMdsMap { fsid: self.state.fsid, epoch, encoded, map_fs_name: String::new() });
                }
            }
        }
    }

    /// The FSMap, reduced to the file systems that the session may see.
    fn fs_view(&self, c: ConnKey) -> FsMap {
        let names = self.sessions.get(&c).map(|s| s.principal().access.fs_names()).unwrap_or_default();
        self.state.fs.map.filtered(&names).into_owned()
    }

    fn mdsmap_for(&self, c: ConnKey, what: &str) -> Option<MdsMap> {
        let s = self.sessions.get(&c)?;
        let map = &self.state.fs.map;
        if s.who().name.kind == EntityKind::MDS {
            let me = map.daemon(s.who().global_id).filter(|i| i.addrs == *s.addrs());
            if let Some(fs) = me.and_then(|i| map.fs_of(i.global_id)) {
                return Some(fs.mds_map.clone());
            }
            let mut null = MdsMap { epoch: map.epoch, ..MdsMap::default() };
            if let Some(i) = me {
                null.epoch = map.standby_epochs.get(&i.global_id).copied().unwrap_or(map.epoch);
                null.mds_info.insert(i.global_id, i.clone());
            }
            return Some(null);
        }
        let fscid = match what.strip_prefix("mdsmap.") {
            Some(id) => id.parse().ok()?,
            None => map.legacy_client_fscid,
        };
        let fs = map.filesystems.get(&fscid)?;
        let names = s.principal().access.fs_names();
        (names.is_empty() || names.contains(&fs.mds_map.fs_name.as_str())).then(|| fs.mds_map.clone())
    }

    /// Sends the maps of all due subscriptions, after a commit.
    pub(in crate::core) fn publish_fsmap(&mut self) {
        for family in ["fsmap", "mdsmap"] {
            for (c, what) in self.subscriptions_with_prefix(family) {
                self.check_fs_sub(c, &what);
            }
        }
    }

    /// The oldest and newest stored FSMap epoch.
    pub(in crate::core) fn fsmap_epochs(&self) -> (Epoch, Epoch) {
        let newest = self.state.fs.map.epoch;
        (self.state.fs.epochs.first_key_value().map_or(newest, |(e, _)| *e), newest)
    }
}
