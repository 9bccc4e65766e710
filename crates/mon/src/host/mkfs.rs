//! Creates a new cluster: its id, monmap, first OSD map and first keys.

use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use auth::{CryptoKey, KeyKind, Keyring};
use base::id::Uuid;
use base::{AddrVec, AuthName, Utime};
use bytes::Bytes;
use net::OsRandom;
use reactor::{clock, run_here};
use state::etcd::EtcdOptions;
use state::{Op, Outcome};

use super::{MonError, STATE_FILE, Store};
use crate::core::start::load::NewCluster;
use crate::state::AuthEntry;
use crate::state::records::key;

/// The parameters of a new cluster.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The cluster's id.
    pub fsid: Uuid,
    /// The first monitor's name.
    pub mon_name: String,
    /// The first monitor's addresses.
    pub mon_addrs: AddrVec,
    /// The monitor's directory; created if it does not exist.
    pub data_dir: std::path::PathBuf,
    /// Further monitors in the first monmap.
    pub others: Vec<(String, AddrVec)>,
    /// The etcd cluster for the state; `None` for the monitor's directory.
    pub etcd: Option<EtcdOptions>,
    /// A keyring whose entities are imported (also its `mon.`). Usual entities that it lacks get new keys.
    pub keyring: Keyring,
    /// Failure domain of the first rule (`osd_crush_chooseleaf_type`): 0 OSDs, 1 hosts, and so on up the CRUSH types.
    pub failure_domain: i32,
}

/// The entities of every cluster, with their caps.
const ENTITIES: [(&str, &[(&str, &str)]); 9] = [
    ("mon.", &[("mon", "allow *")]),
    ("client.admin", &[("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")]),
    ("mgr.x", &[("mds", "allow *"), ("mon", "allow profile mgr"), ("osd", "allow *")]),
    ("client.bootstrap-mds", &[("mon", "allow profile bootstrap-mds")]),
    ("client.bootstrap-mgr", &[("mon", "allow profile bootstrap-mgr")]),
    ("client.bootstrap-osd", &[("mon", "allow profile bootstrap-osd")]),
    ("client.bootstrap-rbd", &[("mon", "allow profile bootstrap-rbd")]),
    ("client.bootstrap-rbd-mirror", &[("mon", "allow profile bootstrap-rbd-mirror")]),
    ("client.bootstrap-rgw", &[("mon", "allow profile bootstrap-rgw")]),
];

/// The keys and caps of a new cluster: those of `keyring`, and new keys for the usual entities that it lacks.
#[must_use]
pub fn first_entities(keyring: &Keyring, now: Utime) -> BTreeMap<AuthName, AuthEntry> {
    let caps_of = |list: &[(&str, &str)]| list.iter().map(|(s, c)| ((*s).to_owned(), (*c).to_owned())).collect();
    let mut all: BTreeMap<AuthName, AuthEntry> = BTreeMap::new();
    for (name, e) in keyring.iter() {
        let usual = ENTITIES.iter().find(|(n, _)| name.to_string() == *n).map(|(_, c)| caps_of(c)).unwrap_or_default();
        let caps = if e.caps.is_empty() { usual } else { e.caps.clone() };
        all.insert(name.clone(), AuthEntry { key: e.key.clone(), pending_key: None, caps });
    }
    for (name, caps) in ENTITIES {
        let Some(name) = AuthName::parse(name) else { continue };
        all.entry(name).or_insert_with(|| AuthEntry {
            key: CryptoKey::generate(KeyKind::Aes, now, &OsRandom),
            pending_key: None,
            caps: caps_of(caps),
        });
    }
    all
}

/// Creates a file that only its owner can read.
pub(super) fn private(path: &Path) -> std::io::Result<()> {
    let mut o = std::fs::OpenOptions::new();
    o.write(true).create(true).truncate(false).mode(0o600).open(path).map(|_| ())
}

/// Why a new cluster was not created.
async fn refused(store: &mut Store, shown: String) -> MonError {
    match store.ask(Op::get(vec![Bytes::from_static(key::IMPORT.as_bytes())])).await {
        Ok(Outcome::Values(v)) if v.iter().any(Option::is_some) => MonError::PartOfState(shown),
        _ => MonError::Exists(shown),
    }
}

/// Creates the cluster and returns its entities, for the keyring files. Errors: [`MonError::Exists`] if there is a
/// cluster already, [`MonError::PartOfState`] if there is part of one.
pub fn mkfs(o: &MkfsOptions) -> Result<BTreeMap<AuthName, AuthEntry>, MonError> {
    let io = |path: &Path, error| MonError::Io { path: path.display().to_string(), error };
    std::fs::create_dir_all(&o.data_dir).map_err(|e| io(&o.data_dir, e))?;
    let path = o.data_dir.join(STATE_FILE);
    let now = clock::read().wall;
    let entities = first_entities(&o.keyring, now);
    let new = NewCluster {
        fsid: o.fsid,
        mon_name: o.mon_name.clone(),
        mon_addrs: o.mon_addrs.clone(),
        others: o.others.clone(),
        auth: entities.clone(),
        now,
    };
    if let Some(etcd) = &o.etcd {
        let shown = "etcd".to_owned();
        let txn =
            new.records_for(o.failure_domain).map_err(|e| MonError::Load { path: shown.clone(), error: e.into() })?;
        run_here(|_, _| async {
            let mut store = Store::etcd(etcd)?;
            match super::several::make(&mut store, txn).await? {
                Outcome::Committed => Ok(()),
                _ => Err(refused(&mut store, shown).await),
            }
        })
        .map_err(|e| io(&path, e))??;
        return Ok(entities);
    }
    // The file holds keys, so its mode is set before the first of them is written.
    private(&path).map_err(|e| io(&path, e))?;
    let shown = path.display().to_string();
    let txn = new.records_for(o.failure_domain).map_err(|e| MonError::Load { path: shown.clone(), error: e.into() })?;
    run_here(|_, _| async {
        let mut store = Store::open(&path)?;
        match store.ask(Op::Txn(txn)).await {
            Ok(Outcome::Committed) => Ok(()),
            Ok(_) => Err(refused(&mut store, shown).await),
            Err(error) => Err(MonError::Store { path: shown, error }),
        }
    })
    .map_err(|e| io(&path, e))??;
    Ok(entities)
}
