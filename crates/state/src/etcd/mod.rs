//! The state in an etcd v3 cluster, accessed through etcd's JSON gateway by threads of this module (reasons:
//! `docs/adr/0013-etcd-by-its-json-gateway.md`).
//!
//! | thread | does |
//! | --- | --- |
//! | `etcd` | reads and transactions, one after the other |
//! | `etcd-lease` | leases, so that a renewal never waits for a transaction |
//! | `etcd-watch` | one watch each |
//!
//! | module | contents |
//! | --- | --- |
//! | `care` | looks after the members of an etcd cluster: their versions, space and alarms, and defragmentation |
//! | `client` | calls to the members, one at a time on a persistent connection, with failover |
//! | `http` | the subset of HTTP/1.1 that etcd's JSON gateway needs, over TCP or TLS |
//! | `json` | encoding of requests and decoding of replies of etcd's JSON gateway |
//! | `watch` | a watch: a stream that is restarted at another member from its next revision |
//!
//! Invariants:
//!  1. A transaction is sent once. Without a reply its outcome is unknown, and the caller must read again.
//!  2. A broken watch resumes at another member, from its next revision. If that is compacted the watch is lost.
//!  3. Beyond the loopback address TLS is required, with a certificate or a user: the state has all keys of the cluster.
//!
//! Tests: `client` (1), `tests/does_etcd_agree.rs` (2, `a_watch_resumes_from_its_revision_when_etcd_restarts`; 3).

pub mod care;
mod client;
mod http;
mod json;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base::Mono;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::api::{
    Entry, Event, LeaseId, MIN_LEASE, Op, Outcome, Range, Reply, Request, StateError, StateStore, Token, WatchId,
};
use crate::embedded::Waker;
use crate::engine::check_bounds;
use client::{Client, Shared};
use http::Endpoint;
use json::{Prefix, num, revision};
use watch::{Stop, Watch};

/// Time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit of a lease call; shorter, because the holder's lease is running out.
const LEASE_TIMEOUT: Duration = Duration::from_millis(800);
/// Entries of the first request of a range: with values of the greatest length a reply stays within the read limit.
const PAGE: usize = 64;
/// Bytes of values that a page is made for, and its most entries. The sizes of the page before tell how many entries
/// that is; a page that etcd cannot answer is asked again with [`PAGE`] entries.
const PAGE_BYTES: usize = 8 << 20;
const PAGE_MAX: usize = 4096;
/// Single keys read per request.
const KEYS: usize = 100;

/// Access to an etcd cluster.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// URLs of the members: `http://HOST:PORT` or `https://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// Prefix of all keys; clusters that share an etcd have different ones.
    pub prefix: String,
    /// User and password.
    pub user: Option<(String, String)>,
    /// CA certificates (PEM) that sign the members' certificates.
    pub ca: Option<PathBuf>,
    /// Client certificate and key (PEM).
    pub cert: Option<(PathBuf, PathBuf)>,
}

/// A handle on the state in an etcd cluster.
pub struct EtcdStore {
    requests: Sender<ToThread>,
    leases: Sender<Request>,
    watches: BTreeMap<WatchId, Stop>,
    ended: Receiver<WatchId>,
    ended_tx: Sender<WatchId>,
    shared: Shared,
    prefix: Prefix,
    out: Out,
    events: Receiver<Event>,
    threads: Vec<JoinHandle<()>>,
}

enum ToThread {
    Request(Request),
    Compact(u64),
    /// Ends the thread.
    End,
}

/// Channel for events, with the waker.
#[derive(Clone)]
struct Out {
    events: Sender<Event>,
    waker: Arc<dyn Fn() + Send + Sync>,
}

impl Out {
    fn send(&self, e: Event) {
        // The owner may have been dropped.
        if self.events.send(e).is_ok() {
            (self.waker)();
        }
    }

    fn reply(&self, token: Token, result: Result<(u64, Outcome), StateError>) {
        let (revision, result) = match result {
            Ok((r, o)) => (r, Ok(o)),
            Err(e) => (0, Err(e)),
        };
        self.send(Event::Reply(Reply { token, revision, result }));
    }
}

fn refused(e: impl std::fmt::Display) -> StateError {
    StateError::Refused(e.to_string())
}

fn tls_of(o: &EtcdOptions) -> Result<Arc<rustls::ClientConfig>, StateError> {
    let file = |p: &PathBuf, e: &dyn std::fmt::Display| refused(format!("{}: {e}", p.display()));
    let mut roots = rustls::RootCertStore::empty();
    let ca = o.ca.as_ref().ok_or_else(|| refused("https needs the file of certificates that sign etcd's (etcd_ca)"))?;
    for cert in CertificateDer::pem_file_iter(ca).map_err(|e| file(ca, &e))? {
        roots.add(cert.map_err(|e| file(ca, &e))?).map_err(|e| file(ca, &e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let b = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let b = b.map_err(refused)?.with_root_certificates(roots);
    let config = match &o.cert {
        None => b.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).map_err(|e| file(cert, &e))?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| file(key, &e))?;
            b.with_client_auth_cert(chain, key).map_err(refused)?
        }
    };
    Ok(Arc::new(config))
}

/// The members and the ways to sign in. Error: a malformed, missing or unprotected endpoint, or unusable TLS files.
fn shared(o: &EtcdOptions) -> Result<Shared, StateError> {
    let parse = |s: &String| Endpoint::parse(s).ok_or_else(|| refused(format!("'{s}' is no http(s)://HOST:PORT")));
    let endpoints: Vec<Endpoint> = o.endpoints.iter().map(parse).collect::<Result<_, _>>()?;
    if endpoints.is_empty() {
        return Err(refused("no endpoints of etcd"));
    }
    for e in endpoints.iter().filter(|e| !e.is_loopback()) {
        if !e.tls || (o.user.is_none() && o.cert.is_none()) {
            let what = "needs https and a certificate or a user of our own: etcd holds every key of the cluster";
            return Err(refused(format!("etcd at {} {what}", e.host)));
        }
    }
    let tls = if endpoints.iter().any(|e| e.tls) { Some(tls_of(o)?) } else { None };
    Ok(Shared { endpoints: Arc::new(endpoints), tls, user: o.user.clone() })
}

impl EtcdStore {
    /// Makes a handle without contacting etcd. `waker` is called from its threads when [`StateStore::poll`] has new
    /// events. Error: a malformed, missing or unprotected endpoint, unusable TLS files, or a thread that cannot be
    /// started.
    pub fn open(o: &EtcdOptions, waker: Waker) -> Result<Self, StateError> {
        let shared = shared(o)?;
        let (events_tx, events) = channel();
        let waker = std::sync::Mutex::new(waker);
        let waker = Arc::new(move || (waker.lock().unwrap_or_else(std::sync::PoisonError::into_inner))());
        let out = Out { events: events_tx, waker };
        let prefix = Prefix(o.prefix.as_bytes().to_vec());
        let (requests, req_rx) = channel();
        let (leases, lease_rx) = channel();
        let main = Worker { client: Client::new(shared.clone(), 0, TIMEOUT), prefix: prefix.clone(), out: out.clone() };
        let lease = Worker { client: Client::new(shared.clone(), 0, LEASE_TIMEOUT), ..main.clone_with(&shared) };
        let spawn = |name: &str, f: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(f).map_err(|e| StateError::Unavailable(e.to_string()))
        };
        let threads = vec![
            spawn("etcd", Box::new(move || main.run(&req_rx)))?,
            spawn("etcd-lease", Box::new(move || lease.run_leases(&lease_rx)))?,
        ];
        let (ended_tx, ended) = channel();
        let watches = BTreeMap::new();
        Ok(Self { requests, leases, watches, ended, ended_tx, shared, prefix, out, events, threads })
    }

    fn watch(&mut self, token: Token, id: WatchId, range: Range, from: u64) {
        while let Ok(gone) = self.ended.try_recv() {
            // A replaced watch may report its end late.
            if gone != id {
                self.watches.remove(&gone);
            }
        }
        if let Some(old) = self.watches.remove(&id) {
            old.stop();
        }
        let stop = Stop::default();
        self.watches.insert(id, stop.clone());
        let client = Client::new(self.shared.clone(), 0, TIMEOUT);
        let (prefix, out) = (self.prefix.clone(), self.out.clone());
        let w = Watch { id, range, next: from, token: Some(token), prefix, client, out, stop };
        let done = self.ended_tx.clone();
        let spawned = std::thread::Builder::new().name("etcd-watch".into()).spawn(move || w.run(&done));
        if let Err(e) = spawned {
            self.out.reply(token, Err(StateError::Unavailable(e.to_string())));
        }
    }
}

impl StateStore for EtcdStore {
    fn submit(&mut self, request: Request) {
        let token = request.token;
        let sent = match request.op {
            Op::Watch { id, range, from } => return self.watch(token, id, range, from),
            Op::Unwatch(id) => {
                if let Some(w) = self.watches.remove(&id) {
                    w.stop();
                }
                return self.out.reply(token, Ok((0, Outcome::Done)));
            }
            Op::Grant(_) | Op::Renew(_) | Op::Revoke(_) => self.leases.send(request).is_ok(),
            _ => self.requests.send(ToThread::Request(request)).is_ok(),
        };
        if !sent {
            self.out.reply(token, Err(StateError::Unavailable("the thread of etcd has ended".into())));
        }
    }

    fn poll(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    fn tick(&mut self, _: Mono) {}

    fn compact(&mut self, revision: u64) {
        // If the thread has ended, the next request reports it.
        let _ = self.requests.send(ToThread::Compact(revision));
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        for w in self.watches.values() {
            w.stop();
        }
        let _ = self.requests.send(ToThread::End);
        // Dropping the sender ends the other thread. Neither is joined, because an unresponsive member would block us.
        self.threads.clear();
    }
}

struct Worker {
    client: Client,
    prefix: Prefix,
    out: Out,
}

/// The entries of the page after one with values of these lengths.
fn next_page(page: usize, lengths: impl ExactSizeIterator<Item = usize>) -> usize {
    let n = lengths.len().max(1);
    let mean = (lengths.sum::<usize>() / n).max(1);
    (PAGE_BYTES / mean).min(2 * page).clamp(PAGE, PAGE_MAX)
}

impl Worker {
    fn clone_with(&self, shared: &Shared) -> Self {
        Self { client: Client::new(shared.clone(), 0, TIMEOUT), prefix: self.prefix.clone(), out: self.out.clone() }
    }

    fn run(mut self, requests: &Receiver<ToThread>) {
        while let Ok(m) = requests.recv() {
            match m {
                ToThread::Request(r) => {
                    let result = self.ask(r.op);
                    self.out.reply(r.token, result);
                }
                ToThread::Compact(revision) => {
                    let body = json!({ "revision": revision.to_string() });
                    // Fails if another handle has compacted the revision already.
                    let _ = self.client.call("/v3/kv/compaction", &body, true);
                }
                ToThread::End => return,
            }
        }
    }

    fn run_leases(mut self, requests: &Receiver<Request>) {
        while let Ok(r) = requests.recv() {
            let result = self.lease(&r.op);
            self.out.reply(r.token, result);
        }
    }

    fn ask(&mut self, op: Op) -> Result<(u64, Outcome), StateError> {
        match op {
            Op::Get { keys, at } => self.get(&keys, at),
            Op::Range { range, limit, reverse, at } => self.range(range, limit, reverse, at),
            Op::Txn(t) => {
                check_bounds(&t)?;
                let v = self.client.call("/v3/kv/txn", &self.prefix.txn(&t), false)?;
                let held = v["succeeded"] == true;
                Ok((revision(&v), if held { Outcome::Committed } else { Outcome::Conflict }))
            }
            _ => Err(refused("internal error: request sent to the wrong thread")),
        }
    }

    fn get(&mut self, keys: &[bytes::Bytes], mut at: u64) -> Result<(u64, Outcome), StateError> {
        let mut out = Vec::with_capacity(keys.len());
        let mut newest = at;
        for some in keys.chunks(KEYS) {
            let v = self.client.call("/v3/kv/txn", &self.prefix.get_keys(some, at), true)?;
            newest = newest.max(revision(&v));
            // Read all keys at one revision.
            if at == 0 {
                at = newest;
            }
            let answers = v["responses"].as_array().map_or(0, Vec::len);
            if answers != some.len() {
                return Err(StateError::Unavailable("etcd returned fewer keys than requested".into()));
            }
            for i in 0..answers {
                let kv = &v["responses"][i]["response_range"]["kvs"][0];
                out.push(if kv.is_null() { None } else { Some(self.entry(kv)?.1) });
            }
        }
        Ok((at, Outcome::Values(out)))
    }

    fn range(&mut self, range: Range, limit: usize, reverse: bool, mut at: u64) -> Result<(u64, Outcome), StateError> {
        let mut entries: Vec<(bytes::Bytes, Entry)> = Vec::new();
        let mut left = range;
        if left.end.as_ref().is_some_and(|e| *e <= left.start) {
            let (revision, _) = self.get(&[left.start], at)?;
            return Ok((revision, Outcome::Entries { entries, more: false }));
        }
        let mut page = PAGE;
        loop {
            let want = if limit == 0 { page } else { page.min(limit - entries.len()) };
            let v = match self.client.call("/v3/kv/range", &self.prefix.get(&left, want, reverse, at), true) {
                Err(StateError::Unavailable(_)) if want > PAGE => {
                    page = PAGE;
                    continue;
                }
                r => r?,
            };
            if at == 0 {
                at = revision(&v);
            }
            let none = Vec::new();
            let from = entries.len();
            for kv in v["kvs"].as_array().unwrap_or(&none) {
                entries.push(self.entry(kv)?);
            }
            page = next_page(page, entries.get(from..).unwrap_or_default().iter().map(|(_, e)| e.value.len()));
            let more = v["more"] == true;
            let Some((last, _)) = entries.last().filter(|_| more && (limit == 0 || entries.len() < limit)) else {
                return Ok((at, Outcome::Entries { entries, more }));
            };
            if reverse {
                left.end = Some(last.clone());
            } else {
                left.start = [&last[..], &[0]].concat().into();
            }
        }
    }

    fn entry(&self, kv: &Value) -> Result<(bytes::Bytes, Entry), StateError> {
        self.prefix.entry(kv).ok_or_else(|| StateError::Unavailable("etcd returned a malformed entry".into()))
    }

    fn lease(&mut self, op: &Op) -> Result<(u64, Outcome), StateError> {
        match op {
            Op::Grant(ttl) => {
                let ttl = (*ttl).max(MIN_LEASE).as_millis().div_ceil(1000) as u64;
                let body = json!({ "TTL": ttl.to_string(), "ID": "0" });
                // A lease that was granted twice expires by itself.
                let v = self.client.call("/v3/lease/grant", &body, true)?;
                let (id, ttl) = (num(&v["ID"]), num(&v["TTL"]));
                Ok((revision(&v), Outcome::Lease(LeaseId(id), Duration::from_secs(ttl))))
            }
            Op::Renew(id) => {
                let v = self.client.call("/v3/lease/keepalive", &json!({ "ID": id.0.to_string() }), true)?;
                let r = &v["result"];
                if num(&r["TTL"]) == 0 { Err(StateError::NoLease) } else { Ok((revision(r), Outcome::Done)) }
            }
            Op::Revoke(id) => {
                let v = self.client.call("/v3/lease/revoke", &json!({ "ID": id.0.to_string() }), true)?;
                Ok((revision(&v), Outcome::Done))
            }
            _ => Err(refused("internal error: request sent to the wrong thread")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_the_sizes_of_the_entries() {
        let (mut page, mut asked, mut left) = (PAGE, 0, 100_000);
        while left > 0 {
            let n = page.min(left);
            left -= n;
            asked += 1;
            page = next_page(page, std::iter::repeat_n(200, n));
        }
        assert!(asked < 40, "{asked} requests for 100,000 short records");
        assert_eq!(next_page(PAGE_MAX, std::iter::repeat_n(512 << 10, 64)), PAGE);
        assert_eq!(next_page(PAGE, std::iter::empty()), 2 * PAGE);
    }
}
