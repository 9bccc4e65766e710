//! Paths below a cluster's directory, and ports of its daemons.

use std::path::{Path, PathBuf};

/// Least number of ports of an OSD: public, cluster (one for each reactor), heartbeat back, heartbeat front, and spares
/// for ports in use.
const PORTS_PER_OSD: u16 = 8;
/// Ports besides those of the reactors, with spares.
const PORTS_BESIDE_REACTORS: u16 = 6;

/// The directory of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Absolute path of the directory.
    pub(crate) dir: PathBuf,
}

impl Layout {
    /// Path of `ceph.conf`.
    #[must_use]
    pub(crate) fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// Keyring of `client.admin`.
    #[must_use]
    pub(crate) fn admin_keyring(&self) -> PathBuf {
        self.dir.join("ceph.client.admin.keyring")
    }

    /// Description of the cluster: [`super::plan::Plan`] as JSON.
    #[must_use]
    pub(crate) fn plan(&self) -> PathBuf {
        self.dir.join("cluster.json")
    }

    /// Note of a change of the cluster that is under way: [`super::dir::Change`] as JSON.
    #[must_use]
    pub(crate) fn change(&self) -> PathBuf {
        self.dir.join("cluster.json.new")
    }

    /// Note of the last command that changes OSDs, until it ends.
    #[must_use]
    pub(crate) fn osd_command(&self) -> PathBuf {
        self.dir.join("osd-command.json")
    }

    /// Directory of the socket at which `up` takes commands; open to its owner only.
    #[must_use]
    pub(crate) fn control_dir(&self) -> PathBuf {
        self.dir.join("control")
    }

    /// Socket at which `up` takes commands.
    #[must_use]
    pub(crate) fn control(&self) -> PathBuf {
        self.control_dir().join("up.sock")
    }

    /// Lock file, locked while an `up` runs in the directory.
    #[must_use]
    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Directory of pid files and admin sockets.
    #[must_use]
    pub(crate) fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Directory of the daemons' logs.
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

/// Port of a monitor; the first one has the base port.
#[must_use]
pub(crate) fn mon_port(base: u16, i: u32) -> u16 {
    base + [0, 2, 3].get(i as usize).copied().unwrap_or_default()
}

/// Port of a monitor for msgr1: Ceph's beside Ceph's port for msgr2, else one of those between the monitors' and the
/// first OSD's.
#[must_use]
pub(crate) fn mon_port_msgr1(base: u16, i: u32) -> u16 {
    match i {
        0 if base == MON_PORT => MON_PORT_MSGR1,
        i => base + [4, 8, 9].get(i as usize).copied().unwrap_or_default(),
    }
}

/// Ceph's ports of a monitor, for msgr2 and msgr1.
pub(crate) const MON_PORT: u16 = 3300;
const MON_PORT_MSGR1: u16 = 6789;

/// Port of a monitor's manager role, used while the monitor leads.
#[must_use]
pub(crate) fn mgr_port_of(base: u16, i: u32) -> u16 {
    match i {
        0 => mgr_port(base),
        i => base + 5 + i as u16,
    }
}

/// Client and peer port of an etcd member, below the base port.
#[must_use]
pub(crate) fn etcd_ports(base: u16, i: u32) -> (u16, u16) {
    let first = base - ETCD_PORTS + 2 * i as u16;
    (first, first + 1)
}

/// Number of ports for etcd.
pub(crate) const ETCD_PORTS: u16 = 6;

/// Number of ports of an OSD with so many reactors.
#[must_use]
pub(crate) fn ports_per_osd(reactors: usize) -> u16 {
    PORTS_PER_OSD.max(PORTS_BESIDE_REACTORS.saturating_add(u16::try_from(reactors).unwrap_or(u16::MAX)))
}

/// Number of ports that an OSD with so many reactors needs: for clients, for OSDs, and for two kinds of heartbeats. One
/// more is for clients of msgr1.
#[must_use]
pub(crate) fn ports_needed(reactors: usize) -> usize {
    3 + reactors
}

/// First and last port of an OSD.
#[must_use]
pub(crate) fn osd_ports(mon: u16, osd: u32, reactors: usize) -> (u16, u16) {
    let per = ports_per_osd(reactors);
    let first = mon.saturating_add(10).saturating_add(per.saturating_mul(u16::try_from(osd).unwrap_or(u16::MAX)));
    (first, first.saturating_add(per - 1))
}

/// Absolute path without resolving links, so that messages show the path as typed.
pub(crate) fn absolute(p: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(p)
}
