//! Reads of the state store for sessions: old maps and purged snapshots.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::Epoch;
use bytes::Bytes;
use cluster::OsdMap;
use mgr::balance::StoredGrowth;
use state::{Entry, Op, Outcome, Range, StateError};
use wire::Message;

use super::subscribe::MAP_MESSAGE_BYTES;
use crate::core::MonCore;
use crate::state::ConnKey;
use crate::state::log::Prio;
use crate::state::maps::StoredMaps;

/// Most reads of the state store that one session may have in flight.
const FETCHES: usize = 64;

/// The purpose of a read.
#[derive(Debug)]
pub(in crate::core) enum Fetch {
    /// Full maps and incrementals for a MON_GET_OSDMAP.
    Maps { conn: ConnKey, fulls: Vec<Epoch>, incs: Vec<Epoch> },
    /// Maps above an epoch for a session.
    Send { conn: ConnKey, fulls: Vec<Epoch>, incs: Vec<Epoch> },
    /// A full map that a command needs, and the command.
    Command { conn: ConnKey, message: Message, epoch: Epoch },
    /// The whole state, for `mon scrub`: the records read so far, and the number of commits at the start of the read.
    Scrub { conn: ConnKey, commits: u64, tries: u32, records: Vec<(Bytes, Entry)> },
    /// Purged snapshots by epoch.
    Purged { conn: ConnKey, tid: u64, start: Epoch, last: Epoch },
    /// The maps that a stored pass over PGs compares with.
    Growth(StoredGrowth),
}

/// Connection of reads that are for no session.
const NO_SESSION: ConnKey = ConnKey::MAX;

impl Fetch {
    /// The connection that the read is for.
    fn conn(&self) -> ConnKey {
        match self {
            Self::Maps { conn, .. }
            | Self::Send { conn, .. }
            | Self::Command { conn, .. }
            | Self::Scrub { conn, .. }
            | Self::Purged { conn, .. } => *conn,
            Self::Growth(_) => NO_SESSION,
        }
    }
}

/// A read of several ranges, one after the other.
#[derive(Debug)]
pub(in crate::core) struct Gather {
    fetch: Fetch,
    limit: usize,
    todo: VecDeque<Range>,
    got: Vec<(Bytes, Entry)>,
}

impl MonCore {
    /// True while `mon scrub` reads the state.
    pub(in crate::core) fn is_scrubbing(&self) -> bool {
        self.requests.reads().any(|g| matches!(g.fetch, Fetch::Scrub { .. }))
    }

    /// Reads ranges, each with at most `limit` entries (0: all), and continues with `fetch`. A session with too many
    /// reads in flight is closed.
    pub(in crate::core) fn fetch(&mut self, ranges: Vec<Range>, limit: usize, fetch: Fetch) {
        let conn = fetch.conn();
        if self.requests.reads().filter(|f| f.fetch.conn() == conn).count() >= FETCHES {
            return self.close(conn, "too many of its reads of old maps are under way".into());
        }
        self.gather(Gather { fetch, limit, todo: ranges.into(), got: Vec::new() });
    }

    fn gather(&mut self, mut g: Gather) {
        match g.todo.pop_front() {
            Some(range) => {
                let token = self.submit(Op::Range { range, limit: g.limit, reverse: false, at: 0 });
                self.requests.add_read(token, g);
            }
            None if matches!(g.fetch, Fetch::Scrub { .. }) => self.scrub_read(g.fetch, g.got),
            None => self.fetched(g.fetch, &g.got),
        }
    }

    /// Handles the answer to one range. On an error the session is closed, so that its client reconnects and asks
    /// again.
    pub(in crate::core) fn gathered(&mut self, mut g: Gather, result: Result<Outcome, StateError>) {
        match result {
            Ok(Outcome::Entries { entries, .. }) => {
                g.got.extend(entries);
                self.gather(g);
            }
            Ok(o) => tracing::error!("mon: unexpected answer of the state store to {:?}: {o:?}", g.fetch),
            Err(e) => {
                tracing::error!("mon: a read of the state store failed: {e}");
                self.state.store_failed(e.to_string());
                if let Fetch::Scrub { .. } = g.fetch {
                    return self.scrub_says(Prio::ERROR, format!("scrub: the state cannot be read: {e}"));
                }
                self.close(g.fetch.conn(), "the state store failed".into());
            }
        }
    }

    fn fetched(&mut self, f: Fetch, got: &[(Bytes, Entry)]) {
        let mut maps = StoredMaps::of(got);
        let mut full = |e: Epoch| match maps.full(e) {
            Ok(Some(b)) => {
                // Later epochs are made from this one.
                maps.fulls.insert(e, b.clone());
                Some(b)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::error!("mon: cannot make the map of epoch {e} from the stored ones: {error}");
                None
            }
        };
        match f {
            Fetch::Send { conn, fulls, incs } => {
                let held = |e: &Epoch| self.state.history.full(*e).is_some();
                let made: Vec<(Epoch, Bytes)> =
                    fulls.iter().filter(|e| !held(e)).filter_map(|e| Some((*e, full(*e)?))).collect();
                for (e, b) in made {
                    self.state.cache_fetched_map(e, b);
                }
                self.send_epochs(conn, &fulls, &incs, &maps.incs);
            }
            Fetch::Maps { conn, fulls, incs } => {
                let (mut wanted, mut bytes) = (BTreeMap::new(), 0);
                for e in fulls {
                    let Some(b) = full(e) else { continue };
                    bytes += b.len();
                    if bytes > MAP_MESSAGE_BYTES && !wanted.is_empty() {
                        break;
                    }
                    wanted.insert(e, b);
                }
                let incs = incs.into_iter().filter_map(|e| Some((e, maps.incs.get(&e)?.clone()))).collect();
                self.send_map_message(conn, incs, wanted, Epoch(0));
            }
            Fetch::Command { conn, message, epoch } => match full(epoch) {
                Some(b) => {
                    self.state.cache_fetched_map(epoch, b);
                    self.message(conn, message);
                }
                None => self.close(conn, format!("the map of epoch {epoch} cannot be read")),
            },
            // `gather` has already taken scrubs.
            Fetch::Scrub { .. } => {}
            Fetch::Growth(stored) => {
                let mut map = |e: &Epoch| OsdMap::decode_blob(&full(*e)?).ok().map(Arc::new);
                let maps = stored.before.iter().map(|(_, e)| *e).filter_map(|e| Some((e, map(&e)?))).collect();
                self.resume_growth(&stored, &maps);
            }
            Fetch::Purged { conn, tid, start, last } => self.purged_snaps_read(conn, tid, start, last, got),
        }
    }
}
