//! Semantics of the store over an ordered map; backends provide the map and its durability.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Mono;
use bytes::Bytes;

use crate::api::{
    Change, Compare, Entry, Event, LeaseId, MAX_KEY, MAX_TXN_BYTES, MAX_TXN_OPS, MAX_VALUE, MIN_LEASE, Op, Outcome,
    Range, Reply, Request, StateError, Txn, WatchId, Write,
};
use crate::history::{History, Step};

/// An ordered map of entries, with a second map for the engine's own records.
pub(crate) trait Tree {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>, StateError>;
    fn range(&self, r: &Range, limit: usize, reverse: bool) -> Result<Vec<(Bytes, Entry)>, StateError>;
    fn put(&mut self, key: &[u8], e: &Entry) -> Result<(), StateError>;
    fn delete(&mut self, key: &[u8]) -> Result<(), StateError>;
    fn put_meta(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StateError>;
}

struct Lease {
    ttl: Duration,
    deadline: Option<Mono>,
    keys: BTreeSet<Bytes>,
}

/// State of the engine: revision, leases and watches.
#[derive(Default)]
pub(crate) struct Engine {
    revision: u64,
    next_lease: u64,
    leases: BTreeMap<LeaseId, Lease>,
    watches: BTreeMap<WatchId, (Range, u64)>,
    history: History,
    now: Mono,
}

pub(crate) const META_REVISION: &[u8] = b"revision";
pub(crate) const META_NEXT_LEASE: &[u8] = b"next-lease";
const META_LEASE: &[u8] = b"lease/";
const META_LEASE_KEY: &[u8] = b"lease-key/";

fn meta_key(prefix: &[u8], id: LeaseId, key: &[u8]) -> Vec<u8> {
    let mut k = prefix.to_vec();
    k.extend_from_slice(&id.0.to_be_bytes());
    k.extend_from_slice(key);
    k
}

impl Engine {
    /// Loads the engine from its records. Leases start with their full time to live at the first tick.
    pub(crate) fn load(meta: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let num = |v: &[u8]| v.try_into().map(u64::from_be_bytes).unwrap_or(0);
        let mut s = Self::default();
        for (k, v) in meta {
            if k == META_REVISION {
                s.revision = num(&v);
            } else if k == META_NEXT_LEASE {
                s.next_lease = num(&v);
            } else if let Some(id) = k.strip_prefix(META_LEASE) {
                let l = s.lease_slot(LeaseId(num(id)));
                l.ttl = Duration::from_millis(num(&v));
            } else if let Some((id, key)) = k.strip_prefix(META_LEASE_KEY).and_then(|r| r.split_at_checked(8)) {
                s.lease_slot(LeaseId(num(id))).keys.insert(Bytes::copy_from_slice(key));
            }
        }
        s.history = History::at(s.revision);
        s
    }

    /// Ids of all watches.
    pub(crate) fn watch_ids(&self) -> Vec<WatchId> {
        self.watches.keys().copied().collect()
    }

    /// Cancels a watch.
    pub(crate) fn unwatch(&mut self, id: WatchId) {
        self.watches.remove(&id);
    }

    /// Revision of the store.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Compacts revisions below `revision`.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.history.compact(revision.min(self.revision));
    }

    /// Expires a lease before its time.
    pub(crate) fn lose_lease(
        &mut self,
        tree: &mut impl Tree,
        id: LeaseId,
        out: &mut Vec<Event>,
    ) -> Result<(), StateError> {
        if self.leases.contains_key(&id) { self.revoke(tree, id, out) } else { Ok(()) }
    }

    /// Ids of all leases.
    pub(crate) fn lease_ids(&self) -> Vec<LeaseId> {
        self.leases.keys().copied().collect()
    }

    fn lease_slot(&mut self, id: LeaseId) -> &mut Lease {
        self.leases.entry(id).or_insert_with(|| Lease { ttl: Duration::ZERO, deadline: None, keys: BTreeSet::new() })
    }

    /// True if there is any lease.
    pub(crate) fn has_leases(&self) -> bool {
        !self.leases.is_empty()
    }

    /// True if [`Engine::expire`] is due.
    pub(crate) fn tick(&mut self, now: Mono) -> bool {
        self.now = now;
        for l in self.leases.values_mut() {
            l.deadline.get_or_insert(now + l.ttl);
        }
        self.leases.values().any(|l| l.deadline.is_some_and(|d| d <= now))
    }

    /// Deletes the keys of expired leases.
    pub(crate) fn expire(&mut self, tree: &mut impl Tree, out: &mut Vec<Event>) -> Result<(), StateError> {
        let now = self.now;
        let gone: Vec<LeaseId> =
            self.leases.iter().filter(|(_, l)| l.deadline.is_some_and(|d| d <= now)).map(|(id, _)| *id).collect();
        gone.into_iter().try_for_each(|id| self.revoke(tree, id, out))
    }

    /// Runs one request and appends the resulting events.
    pub(crate) fn run(&mut self, tree: &mut impl Tree, req: Request, out: &mut Vec<Event>) {
        let at = match &req.op {
            Op::Get { at, .. } | Op::Range { at, .. } if *at > 0 => Some(*at),
            _ => None,
        };
        let mut events = Vec::new();
        let result = self.run_op(tree, req.op, &mut events);
        let revision = if result.is_err() { 0 } else { at.unwrap_or(self.revision) };
        // The reply to a watch precedes its first events, also for a watch of past revisions.
        out.push(Event::Reply(Reply { token: req.token, revision, result }));
        out.append(&mut events);
    }

    /// Entries of a range at a revision (0: current).
    fn read(
        &self,
        tree: &impl Tree,
        range: &Range,
        limit: usize,
        reverse: bool,
        at: u64,
    ) -> Result<Vec<(Bytes, Entry)>, StateError> {
        if at > self.revision {
            return Err(StateError::Ahead(self.revision));
        }
        if at == 0 || at == self.revision {
            return tree.range(range, limit, reverse);
        }
        let all = self.history.rewind(at, range, tree.range(range, 0, false)?)?;
        let n = if limit == 0 { usize::MAX } else { limit };
        Ok(if reverse { all.into_iter().rev().take(n).collect() } else { all.into_iter().take(n).collect() })
    }

    fn run_op(&mut self, tree: &mut impl Tree, op: Op, out: &mut Vec<Event>) -> Result<Outcome, StateError> {
        Ok(match op {
            Op::Get { keys, at: 0 } => Outcome::Values(keys.iter().map(|k| tree.get(k)).collect::<Result<_, _>>()?),
            Op::Get { keys, at } => {
                let one = |k: &Bytes| Ok(self.read(tree, &Range::key(k), 1, false, at)?.pop().map(|(_, e)| e));
                Outcome::Values(keys.iter().map(one).collect::<Result<_, _>>()?)
            }
            Op::Range { range, limit, reverse, at } => {
                let ask = if limit == 0 { 0 } else { limit.saturating_add(1) };
                let mut entries = self.read(tree, &range, ask, reverse, at)?;
                let more = limit > 0 && entries.len() > limit;
                if more {
                    entries.truncate(limit);
                }
                Outcome::Entries { entries, more }
            }
            Op::Txn(t) => self.txn(tree, t, out)?,
            Op::Watch { id, range, from } => {
                if from > 0 {
                    let past = self.history.since(from, &range)?;
                    let event = |(revision, changes)| Event::Changed { watch: id, revision, changes };
                    out.extend(past.into_iter().map(event));
                }
                self.watches.insert(id, (range, from));
                Outcome::Done
            }
            Op::Unwatch(id) => {
                self.watches.remove(&id);
                Outcome::Done
            }
            Op::Grant(ttl) => {
                let ttl = ttl.max(MIN_LEASE);
                self.next_lease += 1;
                let id = LeaseId(self.next_lease);
                tree.put_meta(META_NEXT_LEASE, Some(&self.next_lease.to_be_bytes()))?;
                let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                tree.put_meta(&meta_key(META_LEASE, id, b""), Some(&ms.to_be_bytes()))?;
                let deadline = Some(self.now + ttl);
                self.leases.insert(id, Lease { ttl, deadline, keys: BTreeSet::new() });
                Outcome::Lease(id, ttl)
            }
            Op::Renew(id) => {
                let l = self.leases.get_mut(&id).ok_or(StateError::NoLease)?;
                l.deadline = Some(self.now + l.ttl);
                Outcome::Done
            }
            Op::Revoke(id) => {
                if !self.leases.contains_key(&id) {
                    return Err(StateError::NoLease);
                }
                self.revoke(tree, id, out)?;
                Outcome::Done
            }
        })
    }

    fn revoke(&mut self, tree: &mut impl Tree, id: LeaseId, out: &mut Vec<Event>) -> Result<(), StateError> {
        let keys = self.leases.get(&id).map(|l| l.keys.clone()).unwrap_or_default();
        let writes = keys.into_iter().map(Write::Delete).collect();
        self.apply(tree, writes, out)?;
        tree.put_meta(&meta_key(META_LEASE, id, b""), None)?;
        self.leases.remove(&id);
        Ok(())
    }

    fn check_bounds(&self, t: &Txn) -> Result<(), StateError> {
        check_bounds(t)?;
        let gone = |w: &Write| matches!(w, Write::Put(_, _, Some(l)) if !self.leases.contains_key(l));
        if t.then.iter().any(gone) { Err(StateError::NoLease) } else { Ok(()) }
    }

    fn txn(&mut self, tree: &mut impl Tree, t: Txn, out: &mut Vec<Event>) -> Result<Outcome, StateError> {
        self.check_bounds(&t)?;
        for c in &t.compare {
            let holds = match c {
                Compare::Modified(k, rev) => tree.get(k)?.map_or(0, |e| e.modified) == *rev,
                Compare::Value(k, v) => tree.get(k)?.is_some_and(|e| e.value == *v),
            };
            if !holds {
                return Ok(Outcome::Conflict);
            }
        }
        self.apply(tree, t.then, out)?;
        Ok(Outcome::Committed)
    }

    fn apply(&mut self, tree: &mut impl Tree, writes: Vec<Write>, out: &mut Vec<Event>) -> Result<(), StateError> {
        let rev = self.revision + 1;
        let mut changes = Vec::with_capacity(writes.len());
        for w in writes {
            match w {
                Write::Put(key, value, lease) => {
                    let old = tree.get(&key)?;
                    self.unlink(tree, &key, old.as_ref())?;
                    let e = Entry { value, created: old.as_ref().map_or(rev, |o| o.created), modified: rev, lease };
                    tree.put(&key, &e)?;
                    if let Some(l) = lease {
                        tree.put_meta(&meta_key(META_LEASE_KEY, l, &key), Some(b""))?;
                        self.lease_slot(l).keys.insert(key.clone());
                    }
                    changes.push(Step { key, before: old, after: Some(e) });
                }
                Write::Delete(key) => self.remove(tree, key, &mut changes)?,
                Write::DeleteRange(r) => {
                    for (key, _) in tree.range(&r, 0, false)? {
                        self.remove(tree, key, &mut changes)?;
                    }
                }
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.revision = rev;
        tree.put_meta(META_REVISION, Some(&rev.to_be_bytes()))?;
        for (watch, (range, _)) in self.watches.iter().filter(|(_, (_, from))| *from <= rev) {
            let changes: Vec<Change> = changes
                .iter()
                .filter(|c| range.contains(&c.key))
                .map(|c| Change { key: c.key.clone(), entry: c.after.clone() })
                .collect();
            if !changes.is_empty() {
                out.push(Event::Changed { watch: *watch, revision: rev, changes });
            }
        }
        self.history.push(rev, changes);
        Ok(())
    }

    fn remove(&mut self, tree: &mut impl Tree, key: Bytes, changes: &mut Vec<Step>) -> Result<(), StateError> {
        if let Some(old) = tree.get(&key)? {
            self.unlink(tree, &key, Some(&old))?;
            tree.delete(&key)?;
            changes.push(Step { key, before: Some(old), after: None });
        }
        Ok(())
    }

    fn unlink(&mut self, tree: &mut impl Tree, key: &[u8], old: Option<&Entry>) -> Result<(), StateError> {
        if let Some(l) = old.and_then(|o| o.lease) {
            tree.put_meta(&meta_key(META_LEASE_KEY, l, key), None)?;
            if let Some(l) = self.leases.get_mut(&l) {
                l.keys.remove(key);
            }
        }
        Ok(())
    }
}

/// Checks the limits of all backends: sizes of keys, values and transactions, and no key changed twice.
pub(crate) fn check_bounds(t: &Txn) -> Result<(), StateError> {
    if t.then.len() > MAX_TXN_OPS || t.compare.len() > MAX_TXN_OPS {
        return Err(StateError::TooLarge("transaction"));
    }
    let mut total = 0usize;
    let mut puts = BTreeSet::new();
    for w in &t.then {
        if let Write::Put(k, v, _) = w {
            if k.len() > MAX_KEY {
                return Err(StateError::TooLarge("key"));
            }
            if v.len() > MAX_VALUE {
                return Err(StateError::TooLarge("value"));
            }
            total = total.saturating_add(k.len() + v.len());
            if !puts.insert(k) {
                return Err(StateError::KeyTwice);
            }
        }
    }
    if total > MAX_TXN_BYTES {
        return Err(StateError::TooLarge("transaction"));
    }
    let removed = |w: &Write| match w {
        Write::Put(..) => false,
        Write::Delete(k) => puts.contains(k),
        Write::DeleteRange(r) => puts.iter().any(|k| r.contains(k)),
    };
    if t.then.iter().any(removed) { Err(StateError::KeyTwice) } else { Ok(()) }
}
