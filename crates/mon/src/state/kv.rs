//! The `config-key` store, with summaries of the crash reports and the lives of devices in it.

use std::collections::BTreeMap;
use std::ops::RangeFrom;

use bytes::Bytes;

use super::crash::{self, CrashSummary};
use super::device_life::{self, Life};

/// The committed entries of the `config-key` store.
///
/// Invariant: there is a summary for each entry that is a crash report, a life for each of a device, and for no other.
/// Tests: below.
#[derive(Clone, Debug)]
pub struct KvStore {
    entries: BTreeMap<String, Bytes>,
    crashes: BTreeMap<String, CrashSummary>,
    lives: BTreeMap<String, Life>,
    version: u64,
}

impl Default for KvStore {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), crashes: BTreeMap::new(), lives: BTreeMap::new(), version: 1 }
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

    /// Lives of devices, by their ids.
    #[must_use]
    pub fn lives(&self) -> &BTreeMap<String, Life> {
        &self.lives
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
        if let Some(id) = device_life::id_of(&k) {
            match v.as_ref().and_then(Life::of) {
                Some(l) => self.lives.insert(id.to_owned(), l),
                None => self.lives.remove(id),
            };
        }
        match v {
            Some(v) => self.entries.insert(k, v),
            None => self.entries.remove(&k),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_follow_their_entries() {
        let mut kv = KvStore::default();
        let mut set = |k: &str, v: Option<&'static str>| {
            kv.set(k.to_owned(), v.map(|v| Bytes::from_static(v.as_bytes())));
            (kv.crashes().len(), kv.lives().values().map(|l| l.wear).collect::<Vec<_>>())
        };
        assert_eq!(set("mgr/crash/crash/1", Some("{\"timestamp\": \"now\"}")), (1, vec![]));
        assert_eq!(set("device/a", Some("{\"wear_level\": \"0.5\"}")), (1, vec![Some(0.5)]));
        assert_eq!(set("device/a", Some("{\"wear_level\": \"0.75\"}")), (1, vec![Some(0.75)]));
        assert_eq!(set("other/a", Some("{\"wear_level\": \"1\"}")), (1, vec![Some(0.75)]));
        assert_eq!(set("device/a", Some("no life")), (1, vec![]));
        assert_eq!(set("mgr/crash/crash/1", None), (0, vec![]));
        assert_eq!(set("device/a", Some("{}")), (0, vec![None]));
        assert_eq!(set("device/a", None), (0, vec![]));
    }
}
