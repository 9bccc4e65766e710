//! The semantics of the store over any ordered map; backends supply the map and say when it is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Mono;
use bytes::Bytes;

use crate::api::{
    Change, Compare, Entry, Event, LeaseId, MAX_KEY, MAX_TXN_BYTES, MAX_VALUE, Op, Outcome, Range, Reply, Request,
    StateError, Txn, WatchId, Write,
};

/// An ordered map of entries, with a small side map for the engine's own records.
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

/// Revision, leases and watches.
#[derive(Default)]
pub(crate) struct Engine {
    revision: u64,
    next_lease: u64,
    leases: BTreeMap<LeaseId, Lease>,
    watches: BTreeMap<WatchId, Range>,
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
    /// Rebuilds the engine from its records. Leases start anew with their full time at the first tick.
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
        s
    }

    fn lease_slot(&mut self, id: LeaseId) -> &mut Lease {
        self.leases.entry(id).or_insert_with(|| Lease { ttl: Duration::ZERO, deadline: None, keys: BTreeSet::new() })
    }

    /// True if there is any lease.
    pub(crate) fn has_leases(&self) -> bool {
        !self.leases.is_empty()
    }

    /// True if the time has come to run [`Engine::expire`].
    pub(crate) fn tick(&mut self, now: Mono) -> bool {
        self.now = now;
        for l in self.leases.values_mut() {
            l.deadline.get_or_insert(now + l.ttl);
        }
        self.leases.values().any(|l| l.deadline.is_some_and(|d| d <= now))
    }

    /// Removes the keys of expired leases.
    pub(crate) fn expire(&mut self, tree: &mut impl Tree, out: &mut Vec<Event>) -> Result<(), StateError> {
        let now = self.now;
        let gone: Vec<LeaseId> =
            self.leases.iter().filter(|(_, l)| l.deadline.is_some_and(|d| d <= now)).map(|(id, _)| *id).collect();
        gone.into_iter().try_for_each(|id| self.revoke(tree, id, out))
    }

    /// Runs one request and appends what comes out of it.
    pub(crate) fn run(&mut self, tree: &mut impl Tree, req: Request, out: &mut Vec<Event>) {
        let result = self.run_op(tree, req.op, out);
        let reply = Event::Reply(Reply { token: req.token, revision: self.revision, result });
        out.push(reply);
    }

    fn run_op(&mut self, tree: &mut impl Tree, op: Op, out: &mut Vec<Event>) -> Result<Outcome, StateError> {
        Ok(match op {
            Op::Get(keys) => Outcome::Values(keys.iter().map(|k| tree.get(k)).collect::<Result<_, _>>()?),
            Op::Range { range, limit, reverse } => {
                let ask = if limit == 0 { 0 } else { limit.saturating_add(1) };
                let mut entries = tree.range(&range, ask, reverse)?;
                let more = limit > 0 && entries.len() > limit;
                if more {
                    entries.truncate(limit);
                }
                Outcome::Entries { entries, more }
            }
            Op::Txn(t) => self.txn(tree, t, out)?,
            Op::Watch(id, range) => {
                self.watches.insert(id, range);
                Outcome::Done
            }
            Op::Unwatch(id) => {
                self.watches.remove(&id);
                Outcome::Done
            }
            Op::Grant(ttl) => {
                self.next_lease += 1;
                let id = LeaseId(self.next_lease);
                tree.put_meta(META_NEXT_LEASE, Some(&self.next_lease.to_be_bytes()))?;
                let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                tree.put_meta(&meta_key(META_LEASE, id, b""), Some(&ms.to_be_bytes()))?;
                let deadline = Some(self.now + ttl);
                self.leases.insert(id, Lease { ttl, deadline, keys: BTreeSet::new() });
                Outcome::Lease(id)
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
        let mut total = 0usize;
        for w in t.then.iter().chain(&t.otherwise) {
            if let Write::Put(k, v, lease) = w {
                if k.len() > MAX_KEY {
                    return Err(StateError::TooLarge("key"));
                }
                if v.len() > MAX_VALUE {
                    return Err(StateError::TooLarge("value"));
                }
                if lease.is_some_and(|l| !self.leases.contains_key(&l)) {
                    return Err(StateError::NoLease);
                }
                total = total.saturating_add(k.len() + v.len());
            }
        }
        if total > MAX_TXN_BYTES { Err(StateError::TooLarge("transaction")) } else { Ok(()) }
    }

    fn txn(&mut self, tree: &mut impl Tree, t: Txn, out: &mut Vec<Event>) -> Result<Outcome, StateError> {
        self.check_bounds(&t)?;
        let mut holds = true;
        for c in &t.compare {
            holds &= match c {
                Compare::Modified(k, rev) => tree.get(k)?.map_or(0, |e| e.modified) == *rev,
                Compare::Value(k, v) => tree.get(k)?.is_some_and(|e| e.value == *v),
            };
        }
        self.apply(tree, if holds { t.then } else { t.otherwise }, out)?;
        Ok(Outcome::Txn(holds))
    }

    fn apply(&mut self, tree: &mut impl Tree, writes: Vec<Write>, out: &mut Vec<Event>) -> Result<(), StateError> {
        let rev = self.revision + 1;
        let mut changes = Vec::with_capacity(writes.len());
        for w in writes {
            match w {
                Write::Put(key, value, lease) => {
                    let old = tree.get(&key)?;
                    self.unlink(tree, &key, old.as_ref())?;
                    let e = Entry { value, created: old.map_or(rev, |o| o.created), modified: rev, lease };
                    tree.put(&key, &e)?;
                    if let Some(l) = lease {
                        tree.put_meta(&meta_key(META_LEASE_KEY, l, &key), Some(b""))?;
                        self.lease_slot(l).keys.insert(key.clone());
                    }
                    changes.push(Change { key, entry: Some(e) });
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
        for (watch, range) in &self.watches {
            let changes: Vec<Change> = changes.iter().filter(|c| range.contains(&c.key)).cloned().collect();
            if !changes.is_empty() {
                out.push(Event::Changed { watch: *watch, revision: rev, changes });
            }
        }
        Ok(())
    }

    fn remove(&mut self, tree: &mut impl Tree, key: Bytes, changes: &mut Vec<Change>) -> Result<(), StateError> {
        if let Some(old) = tree.get(&key)? {
            self.unlink(tree, &key, Some(&old))?;
            tree.delete(&key)?;
            changes.push(Change { key, entry: None });
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
