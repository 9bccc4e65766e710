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
use crate::state::fs::{EPOCHS_STORED, map};
use crate::state::records::{key, value};

impl MonCore {
    /// Writes the pending FSMap and metadata, and returns the map's epoch and bytes.
    pub(super) fn put_fs(&self, b: &mut Batch, c: &mut Pending) -> Option<(Epoch, Bytes)> {
        if let Some(m) = &c.fsmap {
            let gone = self.state.fs.metadata.keys().filter(|g| !m.mds_roles.contains_key(g));
            for gid in gone.copied().collect::<Vec<_>>() {
                c.set_mds_metadata(gid, None);
            }
        }
        for (gid, m) in &c.mds_metadata {
            let k = key::numbered(key::MDS_METADATA, *gid);
            match m {
                Some(m) => b.put(k, value(m)),
                None => b.delete(k),
            }
        }
        let m = c.sealed_fsmap(self.now.wall)?;
        if let Err(e) = map::check(m) {
            tracing::error!("mon: the new map of file systems breaks an invariant: {e}");
        }
        let blob = value(m);
        b.head(key::fsmap(m.epoch), Some(blob.clone()));
        let over = (self.state.fs.epochs.len() + 1).saturating_sub(EPOCHS_STORED);
        for e in self.state.fs.epochs.keys().take(over) {
            b.delete(key::fsmap(*e));
        }
        Some((m.epoch, blob))
    }
}
