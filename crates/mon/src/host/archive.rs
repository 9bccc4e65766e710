//! A monitor's state in a file: for backup, and to move it between a single monitor's file and etcd.
//!
//! The file has one line of JSON for each record. The first line names the format, and the last one counts the
//! records and has their checksum, so a truncated or changed file is refused. The file holds the cluster's keys.
//! Records of running monitors are left out.
//!
//! An import takes several transactions. Invariants:
//!  1. The last one writes the format record, without which a state is no cluster: no monitor serves it, and nothing
//!     exports it.
//!  2. The first one removes what an earlier import has left, and marks the state with the import's random name. All
//!     others compare the mark. So a state has the records of one import, even if two run at a time or a request of an
//!     earlier one arrives late.
//!  3. All compare that there is no cluster and that no monitor leads.
//!
//! Tests: `src/host/archive/tests.rs` (1, `an_import_into_a_file_is_cut_short`, `an_import_into_etcd_is_cut_short`;
//! 2, `of_two_concurrent_imports_the_second_one_stays`; 3, `an_import_beside_a_monitor_with_a_file_is_refused`,
//! `an_import_beside_a_leader_with_etcd_is_refused`).

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use base::AddrVec;
use base::id::Uuid;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cluster::MonMap;
use reactor::run_here;
use serde_json::{Value, json};
use state::etcd::EtcdOptions;
use state::{Compare, Entry, MAX_TXN_BYTES, Op, Outcome, Range, Txn, Write as Change};

use wire::Decode as _;

use super::{MonError, STATE_FILE, Store};
use crate::core::start::load::{LoadError, check_format};
use crate::state::AuthEntry;
use crate::state::records::key;

/// Version of the file format.
const VERSION: u64 = 1;
/// Most records in one transaction of an import.
const CHUNK: usize = 100;

/// The place of a monitor's state.
#[derive(Clone, Debug)]
pub enum Place {
    /// A single monitor's directory.
    Directory(std::path::PathBuf),
    /// An etcd cluster.
    Etcd(EtcdOptions),
}

impl Place {
    pub(super) fn open(&self, make: bool) -> Result<Store, MonError> {
        match self {
            Self::Etcd(o) => Store::etcd(o),
            Self::Directory(d) => {
                let path = d.join(STATE_FILE);
                if !make && !path.exists() {
                    return Err(MonError::NoState(path.display().to_string()));
                }
                if make {
                    std::fs::create_dir_all(d)
                        .and_then(|()| super::mkfs::private(&path))
                        .map_err(|error| MonError::Io { path: path.display().to_string(), error })?;
                }
                Store::open(&path)
            }
        }
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Self::Directory(d) => d.join(STATE_FILE).display().to_string(),
            Self::Etcd(o) => format!("etcd at {}", o.endpoints.join(",")),
        }
    }
}

fn bad(what: impl Into<String>) -> MonError {
    MonError::Archive(what.into())
}

fn b64(b: &[u8]) -> String {
    STANDARD.encode(b)
}

/// Writes the state at one revision to `out` and returns the number of records. Monitors over etcd may keep running;
/// a single monitor must be stopped, because it locks its file. Error: the state cannot be read, holds no cluster, or
/// `out` cannot be written.
pub fn export(from: &Place, out: &mut dyn Write) -> Result<usize, MonError> {
    let io = |error| MonError::Io { path: "archive".into(), error };
    let records = run_here(|_, _| async {
        let mut store = from.open(false)?;
        let everything = Range { start: Bytes::new(), end: None };
        let failed = |error| MonError::Store { path: from.shown(), error };
        store.read(vec![everything], &mut 0).await.map_err(failed)
    })
    .map_err(io)??;
    write_records(&records, &from.shown(), out)
}

/// Writes the records of a state, without those of running monitors, and returns their number. Error: they are of no
/// cluster, or `out` cannot be written.
pub(super) fn write_records(records: &[(Bytes, Entry)], from: &str, out: &mut dyn Write) -> Result<usize, MonError> {
    let io = |error| MonError::Io { path: "archive".into(), error };
    let records: Vec<_> = records.iter().filter(|(k, _)| !k.starts_with(b"mon/")).collect();
    if !records.iter().any(|(k, _)| k == key::FORMAT) {
        return Err(bad(format!("{from} holds no cluster")));
    }
    let record = |name: &str| records.iter().find(|(k, _)| k == name).map(|(_, e)| e.value.clone());
    check_format(record, false).map_err(|error| MonError::Load { path: from.to_owned(), error })?;
    let mut sum = 0;
    writeln!(out, "{}", json!({ "belemnite_state": VERSION })).map_err(io)?;
    for (k, e) in &records {
        let line = json!({ "key": b64(k), "value": b64(&e.value) }).to_string();
        sum = base::crc::crc32c(sum, line.as_bytes());
        writeln!(out, "{line}").map_err(io)?;
    }
    writeln!(out, "{}", json!({ "records": records.len(), "crc32c": sum })).map_err(io)?;
    out.flush().map_err(io)?;
    Ok(records.len())
}

/// Facts of a state that a cluster's directory can be described by.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The cluster's id.
    pub fsid: Uuid,
    /// The monitors' addresses by name.
    pub mons: BTreeMap<String, AddrVec>,
    /// Keys in keyring format by entity.
    keys: BTreeMap<String, String>,
}

impl Facts {
    /// The key of an entity in keyring format.
    #[must_use]
    pub fn key(&self, entity: &str) -> Option<String> {
        self.keys.get(entity).cloned()
    }
}

/// Reads facts of a state. A single monitor must be stopped. Error: the state cannot be read, or holds no cluster.
pub fn facts(from: &Place) -> Result<Facts, MonError> {
    let io = |error| MonError::Io { path: from.shown(), error };
    let failed = |error| MonError::Store { path: from.shown(), error };
    let bad = |error| MonError::Load { path: from.shown(), error };
    let records = run_here(|_, _| async {
        let mut store = from.open(false)?;
        let wanted = [key::FORMAT, key::FSID, key::MONMAP].map(|k| Range::key(k.as_bytes()));
        let wanted = wanted.into_iter().chain([Range::prefix(key::AUTH.as_bytes())]).collect();
        store.read(wanted, &mut 0).await.map_err(failed)
    })
    .map_err(io)??;
    let found = |k: &'static str| {
        let e = records.iter().find(|(x, _)| x == k).map(|(_, e)| e);
        e.map(|e| e.value.clone()).ok_or_else(|| bad(LoadError::Missing(k)))
    };
    let wrong = |k: &str, error| bad(LoadError::Record { key: k.to_owned(), error });
    found(key::FORMAT)?;
    let monmap = MonMap::from_bytes(&found(key::MONMAP)?).map_err(|e| wrong(key::MONMAP, e))?;
    let fsid = Uuid::from_bytes(&found(key::FSID)?).map_err(|e| wrong(key::FSID, e))?;
    let mut keys = BTreeMap::new();
    for (k, e) in &records {
        let Some(name) = k.strip_prefix(key::AUTH.as_bytes()) else { continue };
        let name = String::from_utf8_lossy(name).into_owned();
        let entry = AuthEntry::from_bytes(&e.value).map_err(|e| wrong(&name, e))?;
        keys.insert(name, entry.key.to_base64());
    }
    let mons = monmap.mons.into_iter().map(|(n, m)| (n, m.public_addrs)).collect();
    Ok(Facts { fsid, mons, keys })
}

fn parse(input: &mut dyn BufRead) -> Result<Vec<(Bytes, Bytes)>, MonError> {
    let mut records = Vec::new();
    let (mut sum, mut ended) = (0, false);
    for (n, line) in input.lines().enumerate() {
        let line = line.map_err(|error| MonError::Io { path: "archive".into(), error })?;
        let at = |what: &str| bad(format!("line {}: {what}", n + 1));
        let v: Value =
            serde_json::from_str(&line).map_err(|_| at("no record: the file is cut short, or is no export"))?;
        if n == 0 {
            match v["belemnite_state"].as_u64() {
                Some(VERSION) => continue,
                Some(v) if v > VERSION => {
                    let what = "made by a newer version of Belemnite";
                    return Err(at(&format!("{what}: a file of version {v}; this version reads {VERSION}")));
                }
                Some(v) => return Err(at(&format!("version {v}; this program reads {VERSION}"))),
                None => return Err(at("not an export of a monitor's state")),
            }
        }
        if ended {
            return Err(at("more after the end"));
        }
        if let Some(count) = v["records"].as_u64() {
            if count != records.len() as u64 || v["crc32c"].as_u64() != Some(u64::from(sum)) {
                return Err(at("the count or checksum of the records is wrong"));
            }
            ended = true;
            continue;
        }
        sum = base::crc::crc32c(sum, line.as_bytes());
        let field = |k: &str| v[k].as_str().and_then(|s| STANDARD.decode(s).ok()).map(Bytes::from);
        records.push((field("key").ok_or_else(|| at("no key"))?, field("value").ok_or_else(|| at("no value"))?));
    }
    if ended { Ok(records) } else { Err(bad("the file is cut short")) }
}

/// The transactions of an import, in order; `name` names the import.
fn plan(records: Vec<(Bytes, Bytes)>, name: [u8; 8]) -> Result<Vec<Txn>, MonError> {
    if let Some((k, _)) = records.iter().find(|(k, _)| k.starts_with(key::MON.as_bytes()) || k == key::IMPORT) {
        return Err(bad(format!("the file holds '{}', which no export has", String::from_utf8_lossy(k))));
    }
    let (last, rest): (Vec<_>, Vec<_>) = records.into_iter().partition(|(k, _)| k == key::FORMAT);
    if last.len() != 1 {
        return Err(bad("the file holds no cluster"));
    }
    let of = Bytes::from_static;
    let mark = of(key::IMPORT.as_bytes());
    let next = |compare_mark: bool| {
        let none = [key::FORMAT, key::MON_LEADER].map(|k| Compare::Modified(of(k.as_bytes()), 0));
        let mut compare = none.to_vec();
        if compare_mark {
            compare.push(Compare::Value(mark.clone(), Bytes::copy_from_slice(&name)));
        }
        Txn { compare, then: Vec::new() }
    };
    let mut first = next(false);
    // Everything but the mark and the records of running monitors.
    let (monitors, marked) = (Range::prefix(key::MON.as_bytes()), Range::key(&mark));
    for r in [
        Range { start: Bytes::new(), end: Some(marked.start.clone()) },
        Range { start: marked.end.unwrap_or_default(), end: Some(monitors.start) },
        Range { start: monitors.end.unwrap_or_default(), end: None },
    ] {
        first.then.push(Change::DeleteRange(r));
    }
    first.put(mark.clone(), Bytes::copy_from_slice(&name));
    let mut all = vec![first, next(true)];
    let mut bytes = 0;
    for (k, v) in rest {
        let n = k.len() + v.len();
        bytes += n;
        if let Some(t) = all.last_mut().filter(|t| t.then.len() < CHUNK && bytes < MAX_TXN_BYTES) {
            t.put(k, v);
        } else {
            let mut t = next(true);
            t.put(k, v);
            bytes = n;
            all.push(t);
        }
    }
    let mut end = next(true);
    last.into_iter().for_each(|(k, v)| end.put(k, v));
    end.then.push(Change::Delete(mark));
    all.push(end);
    Ok(all)
}

/// Carries out transactions of an import.
async fn write(store: &mut Store, to: &Place, plan: Vec<Txn>) -> Result<(), MonError> {
    let failed = |error| MonError::Store { path: to.shown(), error };
    for t in plan {
        if store.ask(Op::Txn(t)).await.map_err(failed)? == Outcome::Committed {
            continue;
        }
        let keys = [key::FORMAT, key::MON_LEADER].map(|k| Bytes::from_static(k.as_bytes()));
        let Outcome::Values(v) = store.ask(Op::get(keys.to_vec())).await.map_err(failed)? else {
            return Err(bad("the state store gives a wrong answer"));
        };
        return Err(match &v[..] {
            [Some(_), _] => MonError::Exists(to.shown()),
            [_, Some(_)] => bad(format!("a monitor leads with its state in {}; stop all monitors", to.shown())),
            _ => bad(format!("another import into {} has begun", to.shown())),
        });
    }
    Ok(())
}

/// Reads the output of [`export`] into a place that holds no cluster, and returns the number of records. What an
/// import that was cut short has left there is removed. All monitors must be stopped. Error: a damaged or truncated
/// archive, a place that holds a cluster or cannot be written, a monitor that leads, or another import that begins
/// meanwhile.
pub fn import(to: &Place, input: &mut dyn BufRead) -> Result<usize, MonError> {
    let records = parse(input)?;
    let n = records.len();
    let record = |name: &str| records.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
    match check_format(record, true) {
        // Without a version there is no cluster, of which `plan` tells.
        Ok(_) | Err(LoadError::Missing(key::FORMAT)) => {}
        Err(error) => return Err(MonError::Load { path: "the file's state".into(), error }),
    }
    let mut name = [0; 8];
    auth::Random::fill(&net::OsRandom, &mut name);
    let plan = plan(records, name)?;
    run_here(|_, _| async { write(&mut to.open(true)?, to, plan).await })
        .map_err(|error| MonError::Io { path: to.shown(), error })??;
    Ok(n)
}

#[cfg(test)]
mod tests;
