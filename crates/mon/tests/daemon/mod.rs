//! Directory, ports and options of a whole monitor daemon, for tests that run one.

use base::id::Uuid;
use base::{AddrVec, EntityAddr};
use mon::host::mkfs::MkfsOptions;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Identity of the cluster.
pub(crate) fn fsid() -> Uuid {
    Uuid::from_random([9; 16])
}

/// A directory that is removed with all of its contents.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("belemnite-{name}-{}", std::process::id())))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn free_port() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
}

/// A cluster with one monitor, named `a`.
pub(crate) fn new_cluster(addr: SocketAddr, data_dir: &Path) -> MkfsOptions {
    MkfsOptions {
        fsid: fsid(),
        mon_name: "a".into(),
        mon_addrs: AddrVec(vec![EntityAddr::msgr2(addr, 0)]),
        others: Vec::new(),
        etcd: None,
        data_dir: data_dir.to_owned(),
        keyring: auth::Keyring::new(),
        failure_domain: 1,
    }
}
