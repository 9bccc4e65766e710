//! Notes of OSDs that are being made, so that `osd create` goes on where it was interrupted.
//!
//! A note is written before the monitors give an id, and removed once the store is whole. An OSD starts after that,
//! so a store with a note was never served from.

use super::Error;
use super::crypt::Secrets;
use crate::up::dir::{sync_parent, write_private};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// An OSD that is being made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// File or device, without links.
    pub(super) target: PathBuf,
    /// Uuid of the OSD; the monitors know its id by it.
    pub(super) uuid: String,
    /// Key of the OSD.
    pub(super) key: String,
    /// Secrets of an OSD on dm-crypt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) crypt: Option<Secrets>,
    /// Id that the monitors gave.
    pub(super) id: Option<u32>,
}

/// The notes of a host; only one command changes OSDs of a host at a time.
pub(super) struct Notes {
    dir: PathBuf,
    _lock: File,
}

impl Notes {
    /// Takes the lock of the directory with the OSDs' data directories, which is made if there is none.
    ///
    /// # Errors
    /// Another command holds the lock, or the directory cannot be made.
    pub(super) fn open(osds: &Path) -> Result<Self, Error> {
        let shown = |e: std::io::Error| format!("{}: {e}", osds.display());
        fs::create_dir_all(osds).map_err(shown)?;
        let lock = File::open(osds).map_err(shown)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir: osds.join(".new"), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err("another `belemnite osd` command changes OSDs of this host".into()),
            Err(TryLockError::Error(e)) => Err(shown(e).into()),
        }
    }

    fn path(&self, uuid: &str) -> PathBuf {
        self.dir.join(format!("{uuid}.json"))
    }

    /// The note of a file or device.
    pub(super) fn find(&self, target: &Path) -> Result<Option<Note>, Error> {
        for e in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = e.path();
            if path.extension().is_some_and(|x| x == "json") {
                let shown = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
                let text = fs::read_to_string(&path).map_err(|e| shown(&e))?;
                let note: Note = serde_json::from_str(&text).map_err(|e| shown(&e))?;
                if note.target == target {
                    return Ok(Some(note));
                }
            }
        }
        Ok(None)
    }

    /// Writes a note durably.
    pub(super) fn store(&self, n: &Note) -> Result<(), Error> {
        let path = self.path(&n.uuid);
        let write = || {
            fs::create_dir_all(&self.dir)?;
            write_private(&path, &serde_json::to_string(n)?)
        };
        Ok(write().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))?)
    }

    /// Removes a note, and the directory of notes with the last one.
    pub(super) fn remove(&self, n: &Note) -> Result<(), Error> {
        let path = self.path(&n.uuid);
        fs::remove_file(&path).and_then(|()| sync_parent(&path)).map_err(|e| format!("{}: {e}", path.display()))?;
        for e in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            // A write that was cut short.
            if e.path().extension().is_some_and(|x| x == "tmp") {
                let _ = fs::remove_file(e.path());
            }
        }
        let _ = fs::remove_dir(&self.dir);
        Ok(())
    }
}
