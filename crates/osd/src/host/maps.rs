//! Where the OSD keeps its superblock and maps: objects of the meta collection.
//!
//! `osd_superblock` holds the encoded `OSDSuperblock`; `osdmap.EPOCH` a full map, `inc_osdmap.EPOCH` the step to that
//! epoch (epochs as eight hexadecimal digits). A start takes the newest full map and the steps after it.

use crate::core::maps::{MapHistory, Record};
use base::id::Uuid;
use base::{Epoch, HObject, PoolId, SnapId};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use store::{Cid, Oid, Op, Transaction};
use wire::types::OsdSuperblock;
use wire::{Decode as _, Encode as _, Features};

/// Steps kept behind the newest full map, for peers that are far behind; older ones are removed.
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
    t.push(Op::Write { cid: Cid::Meta, oid, off: 0, data });
}

/// The transaction that makes a fresh store an OSD's.
#[must_use]
pub(super) fn first_transaction(sb: &OsdSuperblock) -> Transaction {
    let mut t = Transaction::new();
    t.push(Op::MakeCollection { cid: Cid::Meta, bits: 0 });
    replace(&mut t, superblock_object(), sb.to_bytes(Features::PACIFIC));
    t
}

type Submit = dyn Fn(Transaction);

/// Writes maps and superblock as they come.
pub(super) struct Writer {
    submit: Box<Submit>,
    stored: RefCell<Stored>,
}

/// Epochs in the store.
#[derive(Debug, Default)]
pub(super) struct Stored {
    full: BTreeSet<Epoch>,
    inc: BTreeSet<Epoch>,
}

impl Writer {
    pub(super) fn new(stored: Stored, submit: Box<Submit>) -> Self {
        Self { submit, stored: RefCell::new(stored) }
    }

    /// Stores what came with one message of maps, and removes what nobody will ask for.
    pub(super) fn store(&self, records: Vec<Record>, sb: &OsdSuperblock, trim_below: Epoch) {
        let mut t = Transaction::new();
        let mut s = self.stored.borrow_mut();
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
        let newest_full = s.full.last().copied().unwrap_or_default();
        let keep = trim_below.max(Epoch(newest_full.0.saturating_sub(KEEP_STEPS))).min(newest_full);
        let later = s.full.split_off(&newest_full);
        for e in std::mem::replace(&mut s.full, later) {
            t.push(Op::Remove { cid: Cid::Meta, oid: full_object(e) });
        }
        let later = s.inc.split_off(&keep);
        for e in std::mem::replace(&mut s.inc, later) {
            t.push(Op::Remove { cid: Cid::Meta, oid: inc_object(e) });
        }
        replace(&mut t, superblock_object(), sb.to_bytes(Features::PACIFIC));
        (self.submit)(t);
    }
}

/// Reads from the store at start.
pub(super) trait MetaReader {
    /// All data of an object; `None` if it is not there.
    async fn read(&self, oid: &Oid) -> Result<Option<Bytes>, String>;
    /// All objects of the meta collection.
    async fn list(&self) -> Result<Vec<Oid>, String>;
}

/// Superblock and maps as stored.
pub(super) async fn load(r: &impl MetaReader, fsid: Uuid) -> Result<(OsdSuperblock, MapHistory, Stored), String> {
    let sb = r.read(&superblock_object()).await?.ok_or("the store holds no superblock: run `belemnite osd --mkfs`")?;
    let sb = OsdSuperblock::from_bytes(&sb).map_err(|e| format!("superblock: {e}"))?;
    if sb.cluster_fsid != fsid {
        return Err(format!("the store belongs to cluster {}, not {fsid}", sb.cluster_fsid));
    }
    let mut stored = Stored::default();
    for o in r.list().await? {
        let name = String::from_utf8_lossy(&o.hobj.oid).into_owned();
        let epoch = |s: &str| u32::from_str_radix(s, 16).ok().map(Epoch);
        if let Some(e) = name.strip_prefix("osdmap.").and_then(epoch) {
            stored.full.insert(e);
        } else if let Some(e) = name.strip_prefix("inc_osdmap.").and_then(epoch) {
            stored.inc.insert(e);
        }
    }
    let Some(newest) = stored.full.last().copied() else {
        return Ok((sb, MapHistory::new(fsid), stored));
    };
    let missing = |e: Epoch| format!("map {e} is listed but cannot be read");
    let full = r.read(&full_object(newest)).await?.ok_or_else(|| missing(newest))?;
    let mut incs = BTreeMap::new();
    for e in stored.inc.range(newest.next()..) {
        incs.insert(*e, r.read(&inc_object(*e)).await?.ok_or_else(|| missing(*e))?);
    }
    let h = MapHistory::restore(fsid, &full, &incs).map_err(|e| format!("stored maps: {e}"))?;
    Ok((sb, h, stored))
}
