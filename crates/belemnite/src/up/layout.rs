//! Where things are below a cluster's directory, and which ports its daemons use.

use std::path::{Path, PathBuf};

/// Ports that each OSD takes at least, from its first one: public, cluster (one for each reactor), heartbeat back, heartbeat
/// front, and spares for ports that turn out to be taken.
const PORTS_PER_OSD: u16 = 8;
/// Ports beside those of the reactors, spares included.
const PORTS_BESIDE_REACTORS: u16 = 6;

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

/// Port of a monitor, the first of which has the cluster's.
#[must_use]
pub(crate) fn mon_port(base: u16, i: u32) -> u16 {
    base + [0, 2, 3].get(i as usize).copied().unwrap_or_default()
}

/// Port of the manager role of a monitor, used while it leads.
#[must_use]
pub(crate) fn mgr_port_of(base: u16, i: u32) -> u16 {
    match i {
        0 => mgr_port(base),
        i => base + 5 + i as u16,
    }
}

/// Ports of a member of etcd: for clients and for the other members. They lie below the cluster's others.
#[must_use]
pub(crate) fn etcd_ports(base: u16, i: u32) -> (u16, u16) {
    let first = base - ETCD_PORTS + 2 * i as u16;
    (first, first + 1)
}

/// Ports that the members of etcd use.
pub(crate) const ETCD_PORTS: u16 = 6;

/// Ports that each OSD of so many reactors gets.
#[must_use]
pub(crate) fn ports_per_osd(reactors: usize) -> u16 {
    PORTS_PER_OSD.max(PORTS_BESIDE_REACTORS.saturating_add(u16::try_from(reactors).unwrap_or(u16::MAX)))
}

/// First and last port of an OSD.
#[must_use]
pub(crate) fn osd_ports(mon: u16, osd: u32, reactors: usize) -> (u16, u16) {
    let per = ports_per_osd(reactors);
    let first = mon.saturating_add(10).saturating_add(per.saturating_mul(u16::try_from(osd).unwrap_or(u16::MAX)));
    (first, first.saturating_add(per - 1))
}

/// A path made absolute without following links, so that messages show what the user typed.
pub(crate) fn absolute(p: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(p)
}
