//! A monitor's state in a file: for backup, and to move it between a single monitor's file and etcd.
//!
//! The file has one line of JSON for each record. The first line names the format, and the last one counts the
//! records and has their checksum, so a truncated or changed file is refused. The file holds the cluster's keys.
//! Records of running monitors are left out.

use std::io::{BufRead, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reactor::run_here;
use serde_json::{Value, json};
use state::etcd::EtcdOptions;
use state::{Compare, MAX_TXN_BYTES, Op, Outcome, Range, Txn};

use super::{MonError, STATE_FILE, Store};
use crate::core::records::key;

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
    fn open(&self, make: bool) -> Result<Store, MonError> {
        match self {
            Self::Etcd(o) => Store::etcd(o),
            Self::Directory(d) => {
                let path = d.join(STATE_FILE);
                if !make && !path.exists() {
                    let error = std::io::ErrorKind::NotFound.into();
                    return Err(MonError::Io { path: path.display().to_string(), error });
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

    fn shown(&self) -> String {
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
/// a single monitor must be stopped, because it locks its file.
pub fn export(from: &Place, out: &mut dyn Write) -> Result<usize, MonError> {
    let io = |error| MonError::Io { path: "archive".into(), error };
    let records = run_here(|_, _| async {
        let mut store = from.open(false)?;
        let everything = Range { start: Bytes::new(), end: None };
        let failed = |error| MonError::Store { path: from.shown(), error };
        store.read(vec![everything], &mut 0).await.map_err(failed)
    })
    .map_err(io)??;
    let records: Vec<_> = records.into_iter().filter(|(k, _)| !k.starts_with(b"mon/")).collect();
    if !records.iter().any(|(k, _)| k == key::FORMAT) {
        return Err(bad(format!("{} holds no cluster", from.shown())));
    }
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

fn parse(input: &mut dyn BufRead) -> Result<Vec<(Bytes, Bytes)>, MonError> {
    let mut records = Vec::new();
    let (mut sum, mut ended) = (0, false);
    for (n, line) in input.lines().enumerate() {
        let line = line.map_err(|error| MonError::Io { path: "archive".into(), error })?;
        let at = |what: &str| bad(format!("line {}: {what}", n + 1));
        let v: Value = serde_json::from_str(&line).map_err(|_| at("no JSON"))?;
        if n == 0 {
            match v["belemnite_state"].as_u64() {
                Some(VERSION) => continue,
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

/// Reads the output of [`export`] into a place that holds no cluster, and returns the number of records.
pub fn import(to: &Place, input: &mut dyn BufRead) -> Result<usize, MonError> {
    let records = parse(input)?;
    // The format record makes a state valid. It is written last, so a partial import is no cluster.
    let (last, rest): (Vec<_>, Vec<_>) = records.iter().cloned().partition(|(k, _)| k == key::FORMAT);
    if last.len() != 1 {
        return Err(bad("the file holds no cluster"));
    }
    let mut chunks: Vec<Vec<(Bytes, Bytes)>> = vec![Vec::new()];
    let mut bytes = 0;
    for (k, v) in rest {
        let n = k.len() + v.len();
        if let Some(chunk) = chunks.last_mut().filter(|c| c.len() < CHUNK && bytes + n < MAX_TXN_BYTES) {
            chunk.push((k, v));
            bytes += n;
        } else {
            chunks.push(vec![(k, v)]);
            bytes = n;
        }
    }
    chunks.push(last);
    let none = || Compare::Modified(Bytes::from_static(key::FORMAT.as_bytes()), 0);
    run_here(|_, _| async {
        let mut store = to.open(true)?;
        for chunk in chunks {
            let mut t = Txn { compare: vec![none()], ..Txn::default() };
            chunk.into_iter().for_each(|(k, v)| t.put(k, v));
            match store.ask(Op::Txn(t)).await {
                Ok(Outcome::Committed) => {}
                Ok(_) => return Err(MonError::Exists(to.shown())),
                Err(error) => return Err(MonError::Store { path: to.shown(), error }),
            }
        }
        Ok(())
    })
    .map_err(|error| MonError::Io { path: to.shown(), error })??;
    Ok(records.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_or_changed_archive_is_refused() {
        let line = json!({ "key": b64(b"k"), "value": b64(b"v") }).to_string();
        let sum = base::crc::crc32c(0, line.as_bytes());
        let good = format!("{}\n{line}\n{}\n", json!({ "belemnite_state": 1 }), json!({ "records": 1, "crc32c": sum }));
        let read = |s: &str| parse(&mut s.as_bytes());
        assert_eq!(read(&good).unwrap(), [(Bytes::from_static(b"k"), Bytes::from_static(b"v"))]);
        assert!(read(&good.replace(&b64(b"v"), &b64(b"w"))).is_err(), "changed");
        assert!(read(&good[..good.len() - 30]).is_err(), "cut");
        assert!(read(&good.lines().take(2).collect::<Vec<_>>().join("\n")).is_err(), "without its end");
        assert!(read(&good.replace("\"belemnite_state\":1", "\"belemnite_state\":9")).is_err(), "of a later version");
        assert!(read("{}\n").is_err());
    }
}
