//! The `config-key` store, with summaries of the crash reports in it.

use std::collections::BTreeMap;
use std::ops::RangeFrom;

use bytes::Bytes;

use super::crash::{self, CrashSummary};

/// The committed entries of the `config-key` store.
///
/// Invariant: there is a summary for each entry that is a crash report, and for no other.
#[derive(Clone, Debug)]
pub struct KvStore {
    entries: BTreeMap<String, Bytes>,
    crashes: BTreeMap<String, CrashSummary>,
    version: u64,
}

impl Default for KvStore {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), crashes: BTreeMap::new(), version: 1 }
    }
}

impl KvStore {
    /// The value of an entry.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Bytes> {
        self.entries.get(key)
    }

    /// True if there is an entry.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// All entries.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<String, Bytes> {
        &self.entries
    }

    /// The entries from a key on.
    pub fn range(&self, from: RangeFrom<String>) -> impl Iterator<Item = (&String, &Bytes)> {
        self.entries.range(from)
    }

    /// Summaries of the crash reports, by crash id.
    #[must_use]
    pub fn crashes(&self) -> &BTreeMap<String, CrashSummary> {
        &self.crashes
    }

    /// Version of the newest change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Begins another version.
    pub(crate) fn next_version(&mut self) {
        self.version += 1;
    }

    /// Sets or removes an entry.
    pub(crate) fn set(&mut self, k: String, v: Option<Bytes>) {
        if let Some(id) = crash::id_of(&k) {
            match v.as_ref().and_then(CrashSummary::of) {
                Some(s) => self.crashes.insert(id.to_owned(), s),
                None => self.crashes.remove(id),
            };
        }
        match v {
            Some(v) => self.entries.insert(k, v),
            None => self.entries.remove(&k),
        };
    }
}
