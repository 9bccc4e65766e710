//! The directory beside an inventory: what facts of hosts cannot tell.
//!
//! | file | holds |
//! | --- | --- |
//! | `fsid` | the cluster's id, chosen before anything is made |
//! | `ceph.conf`, `ceph.client.admin.keyring` | for clients on this machine |
//! | `tls/` | the authority of etcd's certificates, and the certificates of the members |
//! | `hosts.json` | hosts that were worked on, with their addresses |
//! | `made` | the cluster's state was made |
//! | `noout` | `noout` was set by an upgrade |
//! | `pause` | an upgrade is to end after its current step |

use super::Error;
use crate::admin;
use crate::up::dir::write_private;
use deploy::Inventory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// A host that was worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Its address.
    pub(super) address: IpAddr,
    /// Its account, if not that of all hosts.
    pub(super) user: Option<String>,
}

/// The directory of a cluster, locked for one command.
pub(super) struct Dir {
    path: PathBuf,
    _lock: Option<File>,
}

impl Dir {
    /// Opens the directory, which is made if there is none, and takes its lock.
    ///
    /// # Errors
    /// Another command works with it, or it cannot be made.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let shown = |e: std::io::Error| format!("{}: {e}", path.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(shown)?;
        let lock = File::open(path).map_err(shown)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err("another `belemnite deploy` works with this inventory".into()),
            Err(TryLockError::Error(e)) => Err(shown(e).into()),
        }
    }

    /// The directory of a command that may run, without its lock.
    pub(super) fn find(path: &Path) -> Result<Self, Error> {
        match path.is_dir() {
            true => Ok(Self { path: path.to_owned(), _lock: None }),
            false => Err(format!("{}: no such directory; nothing was deployed", path.display()).into()),
        }
    }

    /// A path in it.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Text of a file; `None` if there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<String>, Error> {
        let path = self.at(name);
        match fs::read_to_string(&path) {
            Ok(s) => Ok(Some(s)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("{}: {e}", path.display()).into()),
        }
    }

    /// Writes a file durably, readable for its owner only.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.at(name);
        Ok(write_private(&path, text).map_err(|e| format!("{}: {e}", path.display()))?)
    }

    fn set(&self, name: &str, is: bool) -> Result<(), Error> {
        if is {
            return self.write(name, "yes\n");
        }
        match fs::remove_file(self.at(name)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {e}", self.at(name).display()).into())
            }
            _ => Ok(()),
        }
    }

    /// The cluster's id, which is chosen at the first use, before the key of its administrator.
    pub(super) fn fsid(&self) -> Result<String, Error> {
        let fsid = match self.read("fsid")? {
            Some(s) => s.trim().to_owned(),
            None => {
                let new = admin::new_uuid()?.to_string();
                self.write("fsid", &new)?;
                new
            }
        };
        if self.read(ADMIN)?.is_none() {
            let caps = [("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")];
            self.write(ADMIN, &crate::up::keyring("client.admin", &admin::new_key()?, &caps))?;
        }
        Ok(fsid)
    }

    /// Writes the configuration of clients on this machine.
    pub(super) fn write_conf(&self, i: &Inventory, fsid: &str) -> Result<(), Error> {
        let keyring = std::path::absolute(self.at(ADMIN))?;
        let own = format!("\n[client.admin]\nkeyring = {}\n", keyring.display());
        self.write("ceph.conf", &(deploy::conf::client(i, fsid) + &own))
    }

    /// Hosts that were worked on.
    pub(super) fn known(&self) -> Result<BTreeMap<String, Known>, Error> {
        let Some(text) = self.read("hosts.json")? else { return Ok(BTreeMap::new()) };
        Ok(serde_json::from_str(&text).map_err(|e| format!("{}: {e}", self.at("hosts.json").display()))?)
    }

    /// Notes hosts that are worked on.
    pub(super) fn write_known(&self, all: &BTreeMap<String, Known>) -> Result<(), Error> {
        self.write("hosts.json", &serde_json::to_string_pretty(all)?)
    }

    pub(super) fn is_made(&self) -> bool {
        self.at("made").exists()
    }

    pub(super) fn set_made(&self) -> Result<(), Error> {
        self.set("made", true)
    }

    pub(super) fn has_noout(&self) -> bool {
        self.at("noout").exists()
    }

    pub(super) fn set_noout(&self, is: bool) -> Result<(), Error> {
        self.set("noout", is)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.at("pause").exists()
    }

    pub(super) fn set_paused(&self, is: bool) -> Result<(), Error> {
        self.set("pause", is)
    }

    /// Removes the directory: its cluster is gone.
    pub(super) fn remove(&self) -> Result<(), Error> {
        Ok(fs::remove_dir_all(&self.path).map_err(|e| format!("{}: {e}", self.path.display()))?)
    }
}

/// Keyring of the administrator.
pub(super) const ADMIN: &str = "ceph.client.admin.keyring";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_cluster() {
        let path = std::env::temp_dir().join(format!("belemnite-deploy-{}", std::process::id()));
        let d = Dir::open(&path).unwrap();
        let fsid = d.fsid().unwrap();
        let key = d.read(ADMIN).unwrap().unwrap();
        assert!(Dir::open(&path).is_err_and(|e| e.to_string().contains("another `belemnite deploy`")));
        drop(d);
        let d = Dir::open(&path).unwrap();
        assert_eq!((d.fsid().unwrap(), d.read(ADMIN).unwrap().unwrap()), (fsid, key));
        assert!(!d.is_made() && !d.has_noout());
        d.set_noout(true).unwrap();
        assert!(d.has_noout());
        d.set_noout(false).unwrap();
        d.set_noout(false).unwrap();
        assert!(!d.has_noout());
        let known = BTreeMap::from([("a".to_owned(), Known { address: "10.0.0.1".parse().unwrap(), user: None })]);
        d.write_known(&known).unwrap();
        assert_eq!(d.known().unwrap(), known);
        d.remove().unwrap();
        assert!(Dir::find(&path).is_err());
    }
}
