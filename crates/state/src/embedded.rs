//! The state in a local file (redb), written by a dedicated thread.
//!
//! The handle queues requests. The thread applies all waiting requests in one database transaction, commits it durably,
//! and then emits the events. So concurrent requests share a flush, and the reactor never blocks. If a commit fails,
//! all requests of its batch fail with unknown outcome, watches are lost, and the next batch reopens the file.
//! Revisions from before the file was opened can be neither read nor watched: the history is kept in memory (see
//! `history`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use base::Mono;
use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use crate::api::{Entry, Event, LeaseId, Range, Reply, Request, StateError, StateStore};
use crate::engine::{Engine, Tree};

const DATA: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("data");
const META: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("meta");
/// Page cache of the database in bytes.
const CACHE_BYTES: usize = 16 << 20;
/// Most requests in one commit.
const BATCH: usize = 256;

/// Called from the store's thread when events are ready.
pub type Waker = Box<dyn Fn() + Send>;

enum ToThread {
    Compact(u64),
    Request(Request),
    Tick(Mono),
}

/// A store in a file.
pub struct EmbeddedStore {
    requests: Option<Sender<ToThread>>,
    /// Whether leases exist, so that the thread needs the time.
    timed: Arc<AtomicBool>,
    events: Receiver<Event>,
    failed: Vec<Event>,
    thread: Option<JoinHandle<()>>,
}

impl EmbeddedStore {
    /// Opens or creates the store at `path`. The file is locked against other processes. `waker` is called from the
    /// store's thread when [`StateStore::poll`] has new events. Error: the file cannot be opened, locked or read, or
    /// the thread cannot be started.
    pub fn open(path: &Path, waker: Waker) -> Result<Self, StateError> {
        let (db, engine) = open_file(path)?;
        let timed = Arc::new(AtomicBool::new(engine.has_leases()));
        let (req_tx, req_rx) = channel();
        let (ev_tx, ev_rx) = channel();
        let thread = std::thread::Builder::new()
            .name("state".into())
            .spawn({
                let (path, timed) = (path.to_owned(), Arc::clone(&timed));
                move || Worker { path, open: Some((db, engine)), timed, waker, out: ev_tx }.run(&req_rx)
            })
            .map_err(failed)?;
        Ok(Self { requests: Some(req_tx), timed, events: ev_rx, failed: Vec::new(), thread: Some(thread) })
    }

    /// Compacts revisions below a given one, before later requests run.
    pub fn compact(&mut self, revision: u64) {
        if let Some(r) = &self.requests {
            // If the thread has ended, the next request reports it.
            let _ = r.send(ToThread::Compact(revision));
        }
    }
}

impl StateStore for EmbeddedStore {
    fn submit(&mut self, request: Request) {
        let token = request.token;
        let sent = self.requests.as_ref().is_some_and(|r| r.send(ToThread::Request(request)).is_ok());
        if !sent {
            let result = Err(StateError::Unavailable("the store's thread has ended".into()));
            self.failed.push(Event::Reply(Reply { token, revision: 0, result }));
        }
    }

    fn poll(&mut self) -> Option<Event> {
        match self.events.try_recv() {
            Ok(e) => Some(e),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => self.failed.pop(),
        }
    }

    fn tick(&mut self, now: Mono) {
        // Without leases nothing depends on the time, and the thread need not wake.
        if let Some(r) = &self.requests
            && self.timed.load(Ordering::Acquire)
        {
            // If the thread has ended, the next request reports it.
            let _ = r.send(ToThread::Tick(now));
        }
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

fn failed(e: impl std::fmt::Display) -> StateError {
    StateError::Unknown(e.to_string())
}

fn open_file(path: &Path) -> Result<(Database, Engine), StateError> {
    let db = Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(|e| match e {
        redb::DatabaseError::DatabaseAlreadyOpen => failed("in use by another process: a monitor that runs"),
        e => failed(e),
    })?;
    let engine = load_engine(&db)?;
    Ok((db, engine))
}

fn load_engine(db: &Database) -> Result<Engine, StateError> {
    let w = db.begin_write().map_err(failed)?;
    w.open_table(DATA).map_err(failed)?;
    w.open_table(META).map_err(failed)?;
    w.commit().map_err(failed)?;
    let r = db.begin_read().map_err(failed)?;
    let t = r.open_table(META).map_err(failed)?;
    let mut meta = Vec::new();
    for row in t.iter().map_err(failed)? {
        let (k, v) = row.map_err(failed)?;
        meta.push((k.value().to_vec(), v.value().to_vec()));
    }
    Ok(Engine::load(meta.into_iter()))
}

struct Worker {
    path: PathBuf,
    /// `None` after a failure: the next batch reopens the file.
    open: Option<(Database, Engine)>,
    timed: Arc<AtomicBool>,
    waker: Waker,
    out: Sender<Event>,
}

impl Worker {
    fn run(mut self, requests: &Receiver<ToThread>) {
        while let Ok(first) = requests.recv() {
            let mut batch = Vec::new();
            let mut times = Vec::new();
            let mut compact = 0;
            let mut next = Some(first);
            while let Some(m) = next {
                match m {
                    ToThread::Compact(r) => compact = compact.max(r),
                    ToThread::Request(r) => batch.push(r),
                    ToThread::Tick(now) => times.push(now),
                }
                next = if batch.len() < BATCH { requests.try_recv().ok() } else { None };
            }
            if let Some((_, engine)) = &mut self.open {
                engine.compact(compact);
            }
            let tokens: Vec<u64> = batch.iter().map(|r| r.token).collect();
            let events = self.run_batch(batch, &times).unwrap_or_else(|e| {
                // Memory and file may differ now: drop the engine in memory, which ends its watches.
                let watches = self.open.take().map(|(_, engine)| engine.watch_ids()).unwrap_or_default();
                let reply = |token| Event::Reply(Reply { token, revision: 0, result: Err(e.clone()) });
                let lost = |watch| Event::Lost { watch, why: e.clone() };
                tokens.into_iter().map(reply).chain(watches.into_iter().map(lost)).collect()
            });
            if events.is_empty() {
                continue;
            }
            for e in events {
                if self.out.send(e).is_err() {
                    return;
                }
            }
            (self.waker)();
        }
    }

    fn run_batch(&mut self, batch: Vec<Request>, times: &[Mono]) -> Result<Vec<Event>, StateError> {
        let (db, engine) = match &mut self.open {
            Some(o) => o,
            none => none.insert(open_file(&self.path)?),
        };
        let mut expire = false;
        for now in times {
            expire |= engine.tick(*now);
        }
        if batch.is_empty() && !expire {
            return Ok(Vec::new());
        }
        let mut w = db.begin_write().map_err(failed)?;
        w.set_durability(Durability::Immediate).map_err(failed)?;
        let mut out = Vec::with_capacity(batch.len());
        let wrote;
        {
            let mut tree = RedbTree {
                data: w.open_table(DATA).map_err(failed)?,
                meta: w.open_table(META).map_err(failed)?,
                wrote: false,
                error: None,
            };
            if expire {
                engine.expire(&mut tree, &mut out)?;
            }
            for r in batch {
                engine.run(&mut tree, r, &mut out);
            }
            if let Some(e) = tree.error {
                return Err(e);
            }
            wrote = tree.wrote;
        }
        if wrote {
            w.commit().map_err(failed)?
        } else {
            w.abort().map_err(failed)?
        }
        self.timed.store(engine.has_leases(), Ordering::Release);
        Ok(out)
    }
}

struct RedbTree<'t> {
    data: Table<'t, &'static [u8], &'static [u8]>,
    meta: Table<'t, &'static [u8], &'static [u8]>,
    wrote: bool,
    /// An I/O error fails the whole batch, whichever request caused it.
    error: Option<StateError>,
}

impl RedbTree<'_> {
    fn note<T>(&mut self, r: Result<T, StateError>) -> Result<T, StateError> {
        if let Err(e) = &r {
            self.error.get_or_insert(e.clone());
        }
        r
    }
}

/// Length of a row's header; a row is created, modified, lease (0: none), value.
const ROW_HEAD: usize = 24;

fn encode_row(e: &Entry) -> Vec<u8> {
    let mut v = Vec::with_capacity(ROW_HEAD + e.value.len());
    v.extend_from_slice(&e.created.to_le_bytes());
    v.extend_from_slice(&e.modified.to_le_bytes());
    v.extend_from_slice(&e.lease.map_or(0, |l| l.0).to_le_bytes());
    v.extend_from_slice(&e.value);
    v
}

fn decode_row(b: &[u8]) -> Result<Entry, StateError> {
    let (head, value) = b.split_at_checked(ROW_HEAD).ok_or_else(|| failed("row too short"))?;
    let num = |i: usize| {
        head.get(i * 8..i * 8 + 8).and_then(|s| s.try_into().ok()).map(u64::from_le_bytes).unwrap_or_default()
    };
    let lease = Some(num(2)).filter(|l| *l != 0).map(LeaseId);
    Ok(Entry { value: Bytes::copy_from_slice(value), created: num(0), modified: num(1), lease })
}

impl Tree for RedbTree<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>, StateError> {
        self.data.get(key).map_err(failed)?.map(|g| decode_row(g.value())).transpose()
    }

    fn range(&self, r: &Range, limit: usize, reverse: bool) -> Result<Vec<(Bytes, Entry)>, StateError> {
        if r.end.as_ref().is_some_and(|e| *e <= r.start) {
            return Ok(Vec::new());
        }
        let it = match &r.end {
            Some(end) => self.data.range::<&[u8]>(&r.start[..]..&end[..]),
            None => self.data.range::<&[u8]>(&r.start[..]..),
        }
        .map_err(failed)?;
        let n = if limit == 0 { usize::MAX } else { limit };
        type Guard<'a> = redb::AccessGuard<'a, &'static [u8]>;
        let row = |r: Result<(Guard<'_>, Guard<'_>), redb::StorageError>| {
            let (k, v) = r.map_err(failed)?;
            Ok((Bytes::copy_from_slice(k.value()), decode_row(v.value())?))
        };
        if reverse { it.rev().take(n).map(row).collect() } else { it.take(n).map(row).collect() }
    }

    fn put(&mut self, key: &[u8], e: &Entry) -> Result<(), StateError> {
        self.wrote = true;
        let r = self.data.insert(key, encode_row(e).as_slice()).map(|_| ()).map_err(failed);
        self.note(r)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StateError> {
        self.wrote = true;
        let r = self.data.remove(key).map(|_| ()).map_err(failed);
        self.note(r)
    }

    fn put_meta(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StateError> {
        self.wrote = true;
        let r = match value {
            Some(v) => self.meta.insert(key, v).map(|_| ()),
            None => self.meta.remove(key).map(|_| ()),
        }
        .map_err(failed);
        self.note(r)
    }
}
