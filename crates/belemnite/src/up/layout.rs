//! Where things are below a cluster's directory, and which ports its daemons use.

use std::path::{Path, PathBuf};

/// Ports that each OSD takes, from its first one: public, cluster, heartbeat back, heartbeat front, and spares for
/// ports that turn out to be taken.
const PORTS_PER_OSD: u16 = 8;

/// The directory of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The directory, absolute.
    pub(crate) dir: PathBuf,
}

impl Layout {
    /// `ceph.conf`.
    #[must_use]
    pub(crate) fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// Keyring of `client.admin`.
    #[must_use]
    pub(crate) fn admin_keyring(&self) -> PathBuf {
        self.dir.join("ceph.client.admin.keyring")
    }

    /// What `up` knows of the cluster: [`super::plan::Plan`] as JSON.
    #[must_use]
    pub(crate) fn plan(&self) -> PathBuf {
        self.dir.join("cluster.json")
    }

    /// Held while an `up` serves the directory.
    #[must_use]
    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Pid files and admin sockets.
    #[must_use]
    pub(crate) fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Logs of the daemons.
    #[must_use]
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Pid file of a daemon.
    #[must_use]
    pub(crate) fn pid(&self, name: &str) -> PathBuf {
        self.run().join(format!("{name}.pid"))
    }

    /// Data directory of a daemon.
    #[must_use]
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Port of the manager role, next to the monitor's.
#[must_use]
pub(crate) fn mgr_port(mon: u16) -> u16 {
    mon + 1
}

/// First and last port of an OSD.
#[must_use]
pub(crate) fn osd_ports(mon: u16, osd: u32) -> (u16, u16) {
    let first = mon + 10 + PORTS_PER_OSD * osd as u16;
    (first, first + PORTS_PER_OSD - 1)
}

/// A path made absolute without following links, so that messages show what the user typed.
pub(crate) fn absolute(p: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(p)
}
