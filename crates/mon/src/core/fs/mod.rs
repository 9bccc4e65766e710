//! File systems: their MDS daemons and ranks, and the takeover of a rank whose daemon is gone.
//!
//! The FSMap ([`wire::types::FsMap`]) is part of the committed state. Commands and beacons change it by the functions
//! of [`crate::state::fs`], in the same proposal as the OSD map. The transaction that gives a rank to a new daemon also
//! blocklists the last one at the OSDs, and the map names the OSD map epoch of the blocklist entry. The new daemon
//! waits for that epoch.
//!
//! | file | what |
//! |---|---|
//! | `beacon` | reports and requests of daemons |
//! | `watch` | changes that time brings about |
//! | `publish` | maps to subscribers |
//! | `snaps` | snapshots that an MDS removed |

mod beacon;
mod publish;
mod snaps;
mod watch;

pub(super) use watch::MdsWatch;

use base::Epoch;
use bytes::Bytes;

use super::MonCore;
use super::propose::batch::Batch;
use crate::state::Pending;
use crate::state::fs::map;
use crate::state::records::{key, value};

/// Number of FSMap epochs that are kept (`mon_max_mdsmap_epochs`).
pub const FSMAP_EPOCHS_KEPT: usize = 500;

impl MonCore {
    /// Writes the pending FSMap and metadata, and returns the map's epoch and bytes.
    pub(super) fn put_fs(&self, b: &mut Batch, c: &mut Pending) -> Option<(Epoch, Bytes)> {
        if let Some(m) = &c.fsmap {
            for gid in self.state.fs.metadata.keys().filter(|g| !m.mds_roles.contains_key(g)) {
                c.mds_metadata.insert(*gid, None);
            }
        }
        for (gid, m) in &c.mds_metadata {
            let k = key::numbered(key::MDS_METADATA, *gid);
            match m {
                Some(m) => b.put(k, value(m)),
                None => b.delete(k),
            }
        }
        let m = c.fsmap.as_mut()?;
        map::seal(m, self.now.wall);
        if let Err(e) = map::check(m) {
            tracing::error!("mon: the new map of file systems breaks an invariant: {e}");
        }
        let blob = value(m);
        b.head(key::fsmap(m.epoch), Some(blob.clone()));
        let over = (self.state.fs.epochs.len() + 1).saturating_sub(FSMAP_EPOCHS_KEPT);
        for e in self.state.fs.epochs.keys().take(over) {
            b.delete(key::fsmap(*e));
        }
        Some((m.epoch, blob))
    }

    /// Applies the committed FSMap and metadata to the state in memory.
    pub(super) fn take_up_fs(&mut self, c: &mut Pending, blob: Option<(Epoch, Bytes)>) {
        for (gid, m) in std::mem::take(&mut c.mds_metadata) {
            match m {
                Some(m) => self.state.fs.metadata.insert(gid, m),
                None => self.state.fs.metadata.remove(&gid),
            };
        }
        if let Some((e, b)) = blob {
            self.state.fs.epochs.insert(e, b);
            while self.state.fs.epochs.len() > FSMAP_EPOCHS_KEPT {
                self.state.fs.epochs.pop_first();
            }
        }
        if let Some(m) = c.fsmap.take() {
            self.state.fs.map = m;
        }
    }
}
