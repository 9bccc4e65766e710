//! `mon scrub`: reads the stored state and compares it with the state in memory.
//!
//! Every record is decoded, as at start, and the result must equal this monitor's memory. A commit in between makes
//! the two incomparable; the records are then read again. Ceph compares the stores of its monitors with each other;
//! here they share one. Results go to the cluster log, in Ceph's words where Ceph has some.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use state::Entry;

use crate::core::MonCore;
use crate::core::reply::fetch::Fetch;
use crate::core::start::load::{self, Loaded};
use crate::state::log::Prio;
use crate::state::options::MonOptions;
use crate::state::{ClusterState, ConnKey};
use base::unreached;

/// Most reads of the state, if commits happen in between.
const TRIES: u32 = 8;

impl MonCore {
    /// Starts to read the state, unless a read is in flight.
    pub(in crate::core) fn scrub_state(&mut self, conn: ConnKey) {
        if !self.is_scrubbing() {
            self.scrub_again(conn, 1);
        }
    }

    fn scrub_again(&mut self, conn: ConnKey, tries: u32) {
        let fetch = Fetch::Scrub { conn, commits: self.writer.commits().0, tries, records: Vec::new() };
        self.fetch(load::ranges(), 0, fetch);
    }

    /// Handles a part of the read: first the records, then the maps that they name.
    pub(in crate::core) fn scrub_read(&mut self, f: Fetch, got: Vec<(Bytes, Entry)>) {
        let Fetch::Scrub { conn, commits, tries, records } = f else {
            return unreached("reads for a scrub come here");
        };
        if commits != self.writer.commits().0 || self.writer.is_busy() {
            return match tries {
                TRIES => self.scrub_says(Prio::WARN, "scrub: the state changed while it was read, each time".into()),
                n => self.scrub_again(conn, n + 1),
            };
        }
        if records.is_empty() {
            return match load::map_ranges(&got) {
                Ok(ranges) => self.fetch(ranges, 0, Fetch::Scrub { conn, commits, tries, records: got }),
                Err(e) => self.scrub_says(Prio::ERROR, format!("scrub: {e}")),
            };
        }
        let (name, random) = (self.state.mon_name.clone(), Rc::clone(&self.state.random));
        let rank = self.state.monmap.rank_of(&name).unwrap_or(0);
        match Loaded::read(&records, &got, name, MonOptions::default(), random, self.now) {
            Err(e) => self.scrub_says(Prio::ERROR, format!("scrub error on {rank}: {e}")),
            Ok(l) => match differences(&self.state, l.state()) {
                d if d.is_empty() => {
                    let result = summary(records.iter().chain(&got));
                    self.scrub_says(Prio::INFO, format!("scrub ok on {rank}: ScrubResult({result})"));
                }
                d => {
                    let text = format!("scrub mismatch on {rank}: stored and served differ in {}", d.join(", "));
                    self.scrub_says(Prio::ERROR, text);
                }
            },
        }
    }

    pub(in crate::core) fn scrub_says(&mut self, prio: Prio, text: String) {
        tracing::info!("mon: {text}");
        self.pending.log(&self.state, self.now, prio, "cluster", text);
    }
}

/// Names of the stored parts in which two states differ.
fn differences(served: &ClusterState, stored: &ClusterState) -> Vec<&'static str> {
    let (a, b) = (served, stored);
    let log = |s: &ClusterState| s.log.newest_first().next().map(|(n, _)| *n);
    let all = [
        ("the cluster's id", a.fsid == b.fsid),
        ("the OSD map", a.osdmap == b.osdmap),
        ("the epochs of OSD maps", (a.history.oldest, a.history.newest) == (b.history.oldest, b.history.newest)),
        ("the map of monitors", a.monmap == b.monmap),
        ("the map of managers", a.mgrmap == b.mgrmap),
        ("the map of file systems", a.fs.map == b.fs.map),
        ("keys and caps", a.auth == b.auth),
        ("the configuration", a.config.values == b.config.values && a.config.version == b.config.version),
        ("config-keys", a.kv.entries() == b.kv.entries()),
        ("mutes", a.mutes == b.mutes),
        ("metadata of OSDs", a.osds.metadata == b.osds.metadata),
        ("metadata of MDS daemons", a.fs.metadata == b.fs.metadata),
        ("PGs to create", a.osds.creating == b.osds.creating),
        ("the pass that holds PGs", a.osds.growth == b.osds.growth),
        ("purged snapshots", a.osds.purged_snaps == b.osds.purged_snaps),
        ("the cluster log", log(a) == log(b)),
        ("the term", a.mons.term == b.mons.term),
    ];
    all.into_iter().filter(|(_, same)| !same).map(|(what, _)| what).collect()
}

/// Number and checksum of records, by the first word of their keys.
fn summary<'a>(records: impl Iterator<Item = &'a (Bytes, Entry)>) -> String {
    let mut by: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    for (k, e) in records {
        let family = k.split(|b| *b == b'/').next().unwrap_or_default();
        let (n, crc) = by.entry(String::from_utf8_lossy(family).into_owned()).or_insert((0, u32::MAX));
        *n += 1;
        *crc = base::crc::crc32c(base::crc::crc32c(*crc, k), &e.value);
    }
    let list = |f: &dyn Fn(&(u64, u32)) -> String| -> String {
        by.iter().map(|(k, v)| format!("{k}={}", f(v))).collect::<Vec<_>>().join(",")
    };
    format!("keys {{{}}} crc {{{}}}", list(&|v| v.0.to_string()), list(&|v| v.1.to_string()))
}
