//! State of an index shard: header, entries, and the logs that record each change.
//!
//! Invariant: the header's statistics are those of all plain entries without flags and of all versions. Every change of
//! a counted entry updates the header in the same call.
//!
//! Tests: `src/rgw/tests/mod.rs` (`statistics_equal_the_entries_whatever_gateways_do`).

use super::keys;
use super::types::{BiEntry, DirEntry, Header, Key, LogEntry, Resharding, Stats, bi, flags};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::util::{enc, fail, omap_opt, omap_put, stored_as};
use base::errno::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Decode, Encode};

/// Operations of a gateway on an object (`RGWModifyOp`).
pub(super) mod op {
    pub(crate) const ADD: u8 = 0;
    pub(crate) const DEL: u8 = 1;
    pub(crate) const CANCEL: u8 = 2;
    pub(crate) const LINK_OLH: u8 = 4;
    pub(crate) const LINK_OLH_DM: u8 = 5;
    pub(crate) const UNLINK_INSTANCE: u8 = 6;
    pub(crate) const SYNC_STOP: u8 = 7;
    pub(crate) const RESYNC: u8 = 8;
}
/// States of operations (`RGWPendingState`).
pub(super) const PENDING_MODIFY: u8 = 0;
pub(super) const COMPLETE: u8 = 1;

/// `ERR_BUSY_RESHARDING`, an errno that only radosgw defines.
const BUSY_RESHARDING: Errno = -2300;
/// Entries in the reshard log above which writes wait for the end of the resharding (`rgw_reshardlog_threshold`).
const RESHARD_LOG_MAX: u32 = 30_000;

/// An index shard with the changes of the current call.
pub(super) struct Index<'a> {
    pub(super) c: &'a mut dyn ObjectCtx,
    pub(super) header: Header,
    /// Entries written and removed by the current call. [`Index::get`] ignores them; docs/design/classes.md says which
    /// state methods read.
    changed: BTreeMap<Bytes, Option<Bytes>>,
    /// Entries that the call has added to the change log.
    logged: u32,
}

impl<'a> Index<'a> {
    /// Loads the header; an object without one is an empty shard.
    pub(super) fn load(c: &'a mut dyn ObjectCtx) -> ClsResult<Self> {
        let b = c.omap_header()?;
        let header = if b.is_empty() { Header::default() } else { stored_as(&b)? };
        Ok(Self { c, header, changed: BTreeMap::new(), logged: 0 })
    }

    /// Loads the header; refuses writes while the bucket is being resharded.
    pub(super) fn load_writable(c: &'a mut dyn ObjectCtx) -> ClsResult<Self> {
        let me = Self::load(c)?;
        if me.is_busy() { fail(BUSY_RESHARDING) } else { Ok(me) }
    }

    /// True if writes must wait for a resharding.
    pub(super) fn is_busy(&self) -> bool {
        let h = &self.header;
        h.resharding == Resharding::IN_PROGRESS
            || (h.resharding == Resharding::IN_LOGRECORD && h.reshard_log_entries >= RESHARD_LOG_MAX)
    }

    /// Writes the header with an incremented version.
    pub(super) fn store(&mut self) -> ClsResult<()> {
        self.header.ver = self.header.ver.wrapping_add(1);
        let h = &self.header;
        self.c.omap_set_header(&enc(|w| w.put(h)))
    }

    /// Writes the header if the reshard log has grown.
    pub(super) fn store_if_logging(&mut self) -> ClsResult<()> {
        if self.header.resharding == Resharding::IN_LOGRECORD { self.store() } else { Ok(()) }
    }

    /// Reads an entry in its state before the call.
    pub(super) fn get<T: Decode>(&mut self, idx: &[u8]) -> ClsResult<Option<T>> {
        omap_opt(self.c, idx)?.map(|b| stored_as(&b)).transpose()
    }

    /// Reads an entry's bytes in their state after the call's changes so far.
    pub(super) fn get_now(&mut self, idx: &[u8]) -> ClsResult<Option<Bytes>> {
        match self.changed.get(idx) {
            Some(v) => Ok(v.clone()),
            None => omap_opt(self.c, idx),
        }
    }

    /// Writes an entry and, while resharding, adds it to the reshard log.
    pub(super) fn put(&mut self, idx: &Bytes, entry: &impl Encode) -> ClsResult<()> {
        let data = enc(|w| w.put(entry));
        omap_put(self.c, idx.clone(), data.clone())?;
        self.changed.insert(idx.clone(), Some(data.clone()));
        if self.header.resharding == Resharding::IN_LOGRECORD {
            self.note_reshard(BiEntry { kind: bi::INVALID, idx: idx.clone(), data })?;
        }
        Ok(())
    }

    /// Removes an entry and, while resharding, adds the removal to the reshard log.
    pub(super) fn remove(&mut self, idx: &Bytes, key: &Key) -> ClsResult<()> {
        self.c.omap_rm(idx)?;
        self.changed.insert(idx.clone(), None);
        if self.header.resharding == Resharding::IN_LOGRECORD {
            let data = enc(|w| w.versioned(1, 1, |w| w.put(key)));
            self.note_reshard(BiEntry { kind: bi::RESHARD_DELETED, idx: idx.clone(), data })?;
        }
        Ok(())
    }

    fn note_reshard(&mut self, e: BiEntry) -> ClsResult<()> {
        self.header.reshard_log_entries = self.header.reshard_log_entries.saturating_add(1);
        omap_put(self.c, keys::reshard_log(&e.idx), enc(|w| w.put(&e)))
    }

    /// Adds an entry to the change log. Its id comes from the header's version and the op's index. Further entries of a
    /// call add multiples of a thousand to the index, which no vector reaches.
    pub(super) fn log(&mut self, e: LogEntry) -> ClsResult<()> {
        let index_ver = self.header.ver;
        self.log_marker(LogEntry { index_ver, ..e })
    }

    /// Adds a log entry that does not describe a change.
    pub(super) fn log_marker(&mut self, mut e: LogEntry) -> ClsResult<()> {
        let subop = u64::from(self.c.subop_index()) + 1000 * u64::from(self.logged);
        self.logged += 1;
        let id = format!("{:011}.{}.{subop}", self.header.ver, self.c.current_version());
        e.id = id.into();
        if e.id > self.header.max_marker {
            self.header.max_marker = e.id.clone();
        }
        omap_put(self.c, keys::cat(&[keys::LOG, &e.id]), enc(|w| w.put(&e)))
    }

    pub(super) fn count(&mut self, e: &DirEntry) {
        if e.exists {
            self.header.of(e.meta.category).add(&Stats::of(&e.meta));
        }
    }

    pub(super) fn uncount(&mut self, e: &DirEntry) {
        if e.exists {
            self.header.of(e.meta.category).sub(&Stats::of(&e.meta));
        }
    }

    /// The entry of an object and its key. For an object with versions the plain entry is only a placeholder, and its
    /// null version is returned. `marker` prefers the delete marker that is the null version.
    pub(super) fn get_object(&mut self, k: &Key, marker: bool) -> ClsResult<(Bytes, Option<DirEntry>)> {
        let idx = keys::object(k);
        let e = self.get::<DirEntry>(&idx)?;
        let placeholder = e.as_ref().is_some_and(|e| e.flags & flags::VER_MARKER != 0);
        if !k.instance.is_empty() || !placeholder {
            return Ok((idx, e));
        }
        if marker {
            let idx = keys::null_marker(k);
            if let Some(e) = self.get(&idx)? {
                return Ok((idx, Some(e)));
            }
        }
        let idx = keys::instance(k);
        let e = self.get(&idx)?;
        Ok((idx, e))
    }
}
