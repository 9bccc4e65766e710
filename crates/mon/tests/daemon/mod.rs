//! Options of a whole monitor daemon, for tests that run one.

use base::id::Uuid;
use base::{AddrVec, EntityAddr};
use mon::host::mkfs::MkfsOptions;
use std::net::SocketAddr;
use std::path::Path;

/// Identity of the cluster.
pub(crate) fn fsid() -> Uuid {
    Uuid::from_random([9; 16])
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
