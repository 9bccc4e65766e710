//! Storage of the OSD's superblock and maps: objects of the meta collection.
//!
//! `osd_superblock` holds the encoded `OSDSuperblock`, `osdmap.EPOCH` a full map, and `inc_osdmap.EPOCH` the
//! incremental to that epoch (epochs as eight hexadecimal digits). A start uses the full map before the newest,
//! and the incrementals after it.

use super::maps::{MapHistory, Record};
use base::id::Uuid;
use base::{Epoch, HObject, PoolId, SnapId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};
use wire::types::OsdSuperblock;
use wire::{Decode as _, Encode as _, Features};

/// Incrementals kept behind the newest full map, for peers that are far behind. Older ones are removed.
const KEEP_STEPS: u32 = 512;

fn meta_object(name: &str) -> Oid {
    HObject { oid: Bytes::copy_from_slice(name.as_bytes()), snap: SnapId::HEAD, pool: PoolId(-1), ..HObject::min() }
        .into()
}

fn superblock_object() -> Oid {
    meta_object("osd_superblock")
}

fn full_object(e: Epoch) -> Oid {
    meta_object(&format!("osdmap.{:08x}", e.0))
}

fn inc_object(e: Epoch) -> Oid {
    meta_object(&format!("inc_osdmap.{:08x}", e.0))
}

fn replace(t: &mut Transaction, oid: Oid, data: Bytes) {
    t.push(Op::Truncate { cid: Cid::Meta, oid: oid.clone(), size: 0 });
    t.push(Op::Write { cid: Cid::Meta, oid, off: 0, data, sums: None });
}

/// Transaction that turns a new store into an OSD's.
#[must_use]
pub fn first_transaction(sb: &OsdSuperblock) -> Transaction {
    let mut t = Transaction::new();
    t.push(Op::MakeCollection { cid: Cid::Meta, bits: 0 });
    replace(&mut t, superblock_object(), sb.to_bytes(Features::PACIFIC));
    t
}

/// Number of objects per listing of the meta collection.
const LIST_STEP: usize = 1024;

/// Epochs of the stored maps; makes the transactions that change them.
#[derive(Debug, Default)]
pub struct Stored {
    full: BTreeSet<Epoch>,
    inc: BTreeSet<Epoch>,
}

impl Stored {
    /// Stores the maps of one message, and removes maps that no peer will request.
    #[must_use]
    pub fn store(&mut self, records: Vec<Record>, sb: &OsdSuperblock, trim_below: Epoch) -> Transaction {
        let mut t = Transaction::new();
        let s = self;
        for r in records {
            match r {
                Record::Full(e, b) => {
                    s.full.insert(e);
                    replace(&mut t, full_object(e), b);
                }
                Record::Inc(e, b) => {
                    s.inc.insert(e);
                    replace(&mut t, inc_object(e), b);
                }
            }
        }
        // The full map before the newest stays, with all incrementals since. PGs store the epoch they have seen
        // less often than full maps are made, and a start shows them the maps they missed.
        let newest_full = s.full.last().copied().unwrap_or_default();
        let base = s.full.iter().rev().nth(1).copied().unwrap_or(newest_full);
        let keep = trim_below.max(Epoch(newest_full.0.saturating_sub(KEEP_STEPS))).min(base);
        let later = s.full.split_off(&base);
        for e in std::mem::replace(&mut s.full, later) {
            t.push(Op::Remove { cid: Cid::Meta, oid: full_object(e) });
        }
        let later = s.inc.split_off(&keep);
        for e in std::mem::replace(&mut s.inc, later) {
            t.push(Op::Remove { cid: Cid::Meta, oid: inc_object(e) });
        }
        replace(&mut t, superblock_object(), sb.to_bytes(Features::PACIFIC));
        t
    }
}

/// State that a start finds: superblock, maps, and the epochs of the stored maps.
pub type Loaded = Result<(OsdSuperblock, MapHistory, Stored), String>;

/// Reads superblock and maps of cluster `fsid`. This is a plan of the store, to be repeated from its start
/// while it says `Wait`. The error describes inconsistent maps of a failing device, or a store of another
/// cluster.
pub fn load(store: &mut dyn ObjectStore, tag: Tag, fsid: Uuid) -> Result<Loaded, ReadError> {
    let Some(sb) = read(store, tag, &superblock_object())? else {
        return Ok(Err("the store holds no superblock: run `belemnite osd --mkfs`".into()));
    };
    let sb = match OsdSuperblock::from_bytes(&sb) {
        Ok(sb) => sb,
        Err(e) => return Ok(Err(format!("superblock: {e}"))),
    };
    if sb.cluster_fsid != fsid {
        return Ok(Err(format!("the store belongs to cluster {}, not {fsid}", sb.cluster_fsid)));
    }
    let stored = list(store, tag)?;
    let Some(newest) = stored.full.last().copied() else {
        return Ok(Ok((sb, MapHistory::new(fsid), stored)));
    };
    let missing = |e: Epoch| Ok(Err(format!("map {e} is listed but cannot be read")));
    // Starts from the full map before the newest, if incrementals lead on from there.
    let before = stored
        .full
        .iter()
        .rev()
        .nth(1)
        .copied()
        .filter(|b| (b.0 + 1..=newest.0).all(|e| stored.inc.contains(&Epoch(e))));
    let base = before.unwrap_or(newest);
    let full = read(store, tag, &full_object(base));
    let mut incs = BTreeMap::new();
    // All reads are started before the first wait.
    let mut wait = full == Err(ReadError::Wait);
    for e in stored.inc.range(base.next()..) {
        match read(store, tag, &inc_object(*e)) {
            Ok(Some(inc)) => _ = incs.insert(*e, inc),
            Ok(None) => return missing(*e),
            Err(ReadError::Wait) => wait = true,
            Err(e) => return Err(e),
        }
    }
    if wait {
        return Err(ReadError::Wait);
    }
    let Some(full) = full? else { return missing(base) };
    let history = MapHistory::restore(fsid, &full, &incs).map_err(|e| format!("stored maps: {e}"));
    Ok(history.map(|h| (sb, h, stored)))
}

/// All data of an object; `None` if it does not exist.
fn read(store: &mut dyn ObjectStore, tag: Tag, oid: &Oid) -> Result<Option<Bytes>, ReadError> {
    match store.read(tag, Cid::Meta, oid, 0, u64::MAX) {
        Ok(b) => Ok(Some(b)),
        Err(ReadError::NoObject) => Ok(None),
        Err(e) => Err(e),
    }
}

fn list(store: &mut dyn ObjectStore, tag: Tag) -> Result<Stored, ReadError> {
    let mut stored = Stored::default();
    let mut at = Some(Oid::from(HObject::min()));
    while let Some(start) = at {
        let (page, next) = store.list(tag, Cid::Meta, &start, None, LIST_STEP)?;
        for o in page {
            let name = String::from_utf8_lossy(&o.hobj.oid).into_owned();
            let epoch = |s: &str| u32::from_str_radix(s, 16).ok().map(Epoch);
            if let Some(e) = name.strip_prefix("osdmap.").and_then(epoch) {
                stored.full.insert(e);
            } else if let Some(e) = name.strip_prefix("inc_osdmap.").and_then(epoch) {
                stored.inc.insert(e);
            }
        }
        at = next;
    }
    Ok(stored)
}
