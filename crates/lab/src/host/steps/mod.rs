//! Loads of whole objects (S3, RADOS) and of file metadata: workers that carry out one operation after the other.
//!
//! Each client has its workers; each worker has its connection or directory. Operations on files block their thread, so
//! each of their workers has its own. The calling thread only watches, as in the block generator.
//!
//! | module | contents |
//! | --- | --- |
//! | `place` | places: the bucket, pool or directory on which a worker operates |
//! | `s3` | a connection to an S3 gateway that sends one signed request at a time |
//! | `watch` | watches over a running load: each second, CPU over the measured time, and the result at the end |

mod place;
mod s3;
mod watch;

pub use watch::Outcome;

use crate::load::pace::{Arrivals, Pace};
use crate::load::recorder::{Latencies, Second};
use crate::load::sigv4::Keys;
use crate::load::steps::{Book, Kind, Mix, Needs, Sizes};
use base::rng::Rng;
use place::{Item, Place};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Delay between the last worker becoming ready and the start of the load.
const LEAD: Duration = Duration::from_millis(20);
/// Most workers of a load.
const WORKERS_MAX: usize = 4096;

/// Target of a load's operations.
#[derive(Clone)]
pub enum To {
    /// A bucket of an S3 gateway.
    S3 {
        /// `http://HOST:PORT`.
        endpoint: String,
        /// Name of the bucket; it is made if it does not exist.
        bucket: String,
        /// The user.
        keys: Keys,
    },
    /// A pool of a cluster.
    Pool {
        /// The cluster, and the user.
        options: client::Options,
        /// Name of the pool.
        pool: String,
    },
    /// A directory of a mounted file system.
    Files {
        /// Path of the directory.
        dir: PathBuf,
    },
}

/// A group of workers with the same operations and rate.
#[derive(Clone, Debug)]
pub struct Role {
    /// Operations of these workers.
    pub mix: Mix,
    /// Number of workers of each client.
    pub workers: usize,
    /// Operations started per second by the workers of all clients together; `None`: each worker starts an operation
    /// when its previous one has ended.
    pub rate: Option<f64>,
}

/// A load of whole objects or files.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The workers.
    pub roles: Vec<Role>,
    /// Number of clients.
    pub clients: usize,
    /// Objects that exist before the load, or files in the directory of each client.
    pub objects: u64,
    /// Sizes of objects or files.
    pub sizes: Sizes,
    /// Measured time.
    pub time: Duration,
    /// Unmeasured load before the measured time.
    pub warm_up: Duration,
    /// First part of all names: letters, digits, `.`, `_` and `-`.
    pub prefix: String,
    /// Check every byte that is read.
    pub verify: bool,
    /// Make the objects before the load; otherwise they exist.
    pub fill: bool,
    /// Keep the objects after the load.
    pub keep: bool,
    /// Seed of order, sizes and contents.
    pub seed: u64,
    /// Processes whose CPU is measured over the measured time.
    pub cpu_of: Vec<u32>,
}

/// Error of one operation, as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct StepError(pub(super) String);

/// Error that ended a load.
#[derive(Debug, thiserror::Error)]
pub enum StepsError {
    /// The load's description is invalid.
    #[error("{0}")]
    Spec(&'static str),
    /// The target can't be reached or prepared.
    #[error("{0}")]
    Place(String),
    /// An operation failed.
    #[error("{kind} of number {number}: {why}")]
    Operation {
        /// Name of its kind.
        kind: &'static str,
        /// Number of the object or file.
        number: u64,
        /// Cause.
        why: String,
    },
    /// Starting a thread or reading a process's CPU time failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A thread ended without a result.
    #[error("a thread of the load ended early")]
    Gone,
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// When the first byte of the reply came, if there is a reply.
    pub(super) first: Option<Instant>,
    /// Bytes of contents that were written or read.
    pub(super) bytes: u64,
}

/// Counters that the watcher reads.
#[derive(Debug, Default)]
struct Counters {
    started: AtomicU64,
    finished: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    begin: Instant,
    measure: Instant,
    end: Instant,
}

/// Measurements of a thread.
#[derive(Debug, Default)]
struct Tally {
    kinds: BTreeMap<Kind, Latencies>,
    first_byte: Latencies,
    clients: BTreeMap<usize, u64>,
    bytes: u64,
    not_started: u64,
}

enum Word {
    Ready,
    Done(Box<Tally>),
    Failed(StepsError),
}

impl Steps {
    /// Checks that the load can be run. Error: [`StepsError::Spec`].
    pub fn check(&self) -> Result<(), StepsError> {
        let workers: usize = self.roles.iter().map(|r| r.workers).sum();
        if self.clients == 0 || workers == 0 || workers.saturating_mul(self.clients) > WORKERS_MAX {
            return Err(StepsError::Spec("clients and workers: at least 1, and together at most 4096"));
        }
        let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if self.prefix.is_empty() || !self.prefix.chars().all(safe) || self.prefix.starts_with('.') {
            return Err(StepsError::Spec("a name of letters, digits, `.`, `_` and `-`"));
        }
        Ok(())
    }
}

/// Locks a book. Each change is one call, so a book is consistent even if a thread panicked while it held the lock.
fn lock(b: &Mutex<Book>) -> MutexGuard<'_, Book> {
    b.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker of a load.
struct Worker {
    place: Place,
    book: Arc<Mutex<Book>>,
    mix: Mix,
    pace: Option<Pace>,
    rng: Rng,
    client: usize,
}

/// Parts that all workers of a thread share.
struct Shared {
    spec: Arc<Steps>,
    counters: Arc<Counters>,
    tally: RefCell<Tally>,
}

impl Worker {
    fn item(&self, spec: &Steps, number: u64) -> Item {
        Item { number, size: spec.sizes.of(spec.seed, number), other: 0 }
    }

    async fn one(&mut self, spec: &Steps, kind: Kind, i: Item) -> Result<Done, StepsError> {
        let failed = |e: StepError| StepsError::Operation { kind: kind.name(), number: i.number, why: e.0 };
        self.place.step(spec, kind, i).await.map_err(failed)
    }

    /// Makes a new object.
    async fn make(&mut self, spec: &Steps) -> Result<Done, StepsError> {
        let kind = if matches!(self.place, Place::Files { .. }) { Kind::Create } else { Kind::Put };
        let number = lock(&self.book).begin_new();
        let done = self.one(spec, kind, self.item(spec, number)).await?;
        lock(&self.book).end_new(number);
        Ok(done)
    }

    /// Selects the number for an operation that needs one. If no object exists, it makes one; that time does not count.
    async fn number(&mut self, spec: &Steps, needs: Needs) -> Result<u64, StepsError> {
        loop {
            let have = match needs {
                Needs::Any => lock(&self.book).any(&mut self.rng),
                _ => lock(&self.book).take(&mut self.rng),
            };
            match have {
                Some(n) => return Ok(n),
                None => self.make(spec).await?,
            };
        }
    }

    /// Carries out one operation; returns when it began, apart from preparations.
    async fn step(&mut self, spec: &Steps, kind: Kind) -> Result<(Instant, Done), StepsError> {
        let needs = kind.needs();
        match needs {
            Needs::New => {
                let begin = Instant::now();
                Ok((begin, self.make(spec).await?))
            }
            Needs::Nothing => {
                // A page of a listing begins after a random name.
                let number = self.rng.below(spec.objects.max(1));
                let begin = Instant::now();
                Ok((begin, self.one(spec, kind, Item { number, ..Item::default() }).await?))
            }
            Needs::Any | Needs::Taken | Needs::Moved => {
                let number = self.number(spec, needs).await?;
                let other = if needs == Needs::Moved { lock(&self.book).begin_new() } else { 0 };
                let begin = Instant::now();
                let done = self.one(spec, kind, Item { other, ..self.item(spec, number) }).await;
                match needs {
                    Needs::Any => lock(&self.book).release(number),
                    Needs::Moved => lock(&self.book).end_new(other),
                    _ => {}
                }
                Ok((begin, done?))
            }
        }
    }

    async fn run(mut self, shared: Rc<Shared>, times: Times) -> Result<(), StepsError> {
        let spec = shared.spec.clone();
        loop {
            let mut due = None;
            if let Some(p) = &mut self.pace {
                let at = times.begin + p.due();
                if at >= times.end {
                    return Ok(());
                }
                let now = Instant::now();
                if now >= times.end {
                    // Operations that were due and did not start.
                    let mut t = shared.tally.borrow_mut();
                    while times.begin + p.due() < times.end {
                        p.advance(&mut self.rng);
                        t.not_started += 1;
                    }
                    return Ok(());
                }
                p.advance(&mut self.rng);
                if at > now {
                    tokio::time::sleep_until(at.into()).await;
                    if Instant::now() >= times.end {
                        shared.tally.borrow_mut().not_started += 1;
                        return Ok(());
                    }
                } else {
                    // The previous operation ended after this one was due; its latency counts from the due time.
                    due = Some(at);
                }
            } else if Instant::now() >= times.end {
                return Ok(());
            }
            let kind = self.mix.draw(&mut self.rng);
            shared.counters.started.fetch_add(1, Ordering::Relaxed);
            let (begin, done) = self.step(&spec, kind).await?;
            let (now, begin) = (Instant::now(), due.unwrap_or(begin));
            let nanos = now.duration_since(begin).as_nanos() as u64;
            shared.counters.bytes.fetch_add(done.bytes, Ordering::Relaxed);
            shared.counters.nanos.fetch_add(nanos, Ordering::Relaxed);
            shared.counters.finished.fetch_add(1, Ordering::Relaxed);
            if begin >= times.measure && begin < times.end {
                let t = &mut *shared.tally.borrow_mut();
                t.kinds.entry(kind).or_default().record(nanos);
                if let Some(first) = done.first.filter(|_| kind == Kind::Get) {
                    t.first_byte.record(first.saturating_duration_since(begin).as_nanos() as u64);
                }
                *t.clients.entry(self.client).or_insert(0) += 1;
                t.bytes += done.bytes;
            }
        }
    }
}

/// Places of workers: `(client, role, number within the client)`.
fn workers(spec: &Steps) -> Vec<(usize, usize, usize)> {
    let mut out = Vec::new();
    for client in 0..spec.clients {
        let mut n = 0;
        for (role, r) in spec.roles.iter().enumerate() {
            for _ in 0..r.workers {
                out.push((client, role, n));
                n += 1;
            }
        }
    }
    out
}

/// Parts of a load that every thread begins with.
#[derive(Clone)]
struct Begin {
    spec: Arc<Steps>,
    to: To,
    books: Arc<[Arc<Mutex<Book>>]>,
    counters: Arc<Counters>,
    /// Whether each worker has a thread.
    apart: bool,
}

impl Begin {
    fn book(&self, client: usize) -> Option<Arc<Mutex<Book>>> {
        self.books.get(client % self.books.len().max(1)).cloned()
    }

    /// The workers of a thread, connected; they have made their part of the objects.
    async fn workers(&self, thread: usize) -> Result<Vec<Worker>, StepsError> {
        let spec = &*self.spec;
        let all = workers(spec);
        let mut places: BTreeMap<usize, Place> = BTreeMap::new();
        let mut out = Vec::new();
        for (i, (client, role, _)) in all.iter().enumerate().filter(|(i, _)| !self.apart || *i == thread) {
            let place = match places.get(client) {
                Some(p) => p.again(),
                None => {
                    let p = Place::open(spec, &self.to, *client).await.map_err(|e| StepsError::Place(e.0))?;
                    let first = p.again();
                    places.insert(*client, p);
                    first
                }
            };
            let mut rng = Rng::new(spec.seed ^ (i as u64 + 1).rotate_left(40));
            let Some(r) = spec.roles.get(*role) else { continue };
            let rate = r.rate.map(|rate| rate / (r.workers * spec.clients) as f64);
            let pace = rate.map(|rate| Pace::new(rate, Arrivals::Even, &mut rng));
            let book = self.book(*client).ok_or(StepsError::Gone)?;
            out.push(Worker { place, book, mix: r.mix.clone(), pace, rng, client: *client });
        }
        Ok(out)
    }

    /// Makes this thread's part of the objects: worker `i` of `n` makes every n-th number.
    async fn fill(&self, mine: Vec<Worker>, thread: usize) -> Result<Vec<Worker>, StepsError> {
        if !self.spec.fill {
            return Ok(mine);
        }
        let all = workers(&self.spec);
        let per_client = all.len() / self.spec.clients.max(1);
        let shared = self.books.len() == 1;
        let mut tasks = Vec::new();
        for (at, mut w) in mine.into_iter().enumerate() {
            let index = if self.apart { thread } else { at };
            let (first, step) = if shared { (index, all.len()) } else { (index % per_client, per_client) };
            let spec = self.spec.clone();
            let kind = if matches!(w.place, Place::Files { .. }) { Kind::Create } else { Kind::Put };
            tasks.push(tokio::task::spawn_local(async move {
                for number in (first as u64..spec.objects).step_by(step.max(1)) {
                    w.one(&spec, kind, w.item(&spec, number)).await?;
                }
                Ok::<Worker, StepsError>(w)
            }));
        }
        let mut out = Vec::new();
        for t in tasks {
            out.push(t.await.map_err(|_| StepsError::Gone)??);
        }
        Ok(out)
    }

    async fn thread(
        self,
        thread: usize,
        mut started: tokio::sync::watch::Receiver<Option<Times>>,
        ready: impl FnOnce(),
    ) -> Result<Tally, StepsError> {
        let mine = self.workers(thread).await?;
        let mine = self.fill(mine, thread).await?;
        ready();
        let times = match started.wait_for(Option::is_some).await {
            Ok(t) => t.ok_or(StepsError::Gone)?,
            Err(_) => return Err(StepsError::Gone),
        };
        tokio::time::sleep_until(times.begin.into()).await;
        let (spec, counters) = (self.spec.clone(), self.counters.clone());
        let shared = Rc::new(Shared { spec, counters, tally: RefCell::default() });
        let tasks: Vec<_> = mine.into_iter().map(|w| tokio::task::spawn_local(w.run(shared.clone(), times))).collect();
        for t in tasks {
            t.await.map_err(|_| StepsError::Gone)??;
        }
        Ok(shared.tally.take())
    }

    /// Makes the bucket if there is none, and returns whether it made one.
    async fn prepare(&self) -> Result<bool, StepsError> {
        let place = async { Place::open(&self.spec, &self.to, 0).await?.prepare().await };
        place.await.map_err(|e| StepsError::Place(e.0))
    }

    /// Removes all objects, and the bucket if the load made it.
    async fn clean(&self, made: bool) -> Result<(), StepsError> {
        for client in 0..self.spec.clients {
            let mut place = Place::open(&self.spec, &self.to, client).await.map_err(|e| StepsError::Place(e.0))?;
            let kind = if matches!(place, Place::Files { .. }) { Kind::Unlink } else { Kind::Delete };
            let own = self.books.len() > 1 || client == 0;
            let live = self.book(client).map(|b| lock(&b).live().to_vec()).filter(|_| own).unwrap_or_default();
            let mut tasks = Vec::new();
            let live = Rc::new(RefCell::new(live));
            for _ in 0..if self.apart { 1 } else { 16 } {
                let (mut p, live, spec) = (place.again(), live.clone(), self.spec.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    while let Some(number) = { live.borrow_mut().pop() } {
                        p.step(&spec, kind, Item { number, ..Item::default() }).await?;
                    }
                    Ok::<(), StepError>(())
                }));
            }
            for t in tasks {
                let r = t.await.map_err(|_| StepsError::Gone)?;
                r.map_err(|e| StepsError::Operation { kind: kind.name(), number: 0, why: e.0 })?;
            }
            place.remove(made).await;
        }
        Ok(())
    }
}

/// Runs a load to its end; `progress` is called each second.
///
/// # Errors
/// [`StepsError`]: of an invalid `spec` before anything starts, else the first error, which ends the load.
pub fn run(spec: &Steps, to: &To, progress: &mut dyn FnMut(&Second)) -> Result<Outcome, StepsError> {
    spec.check()?;
    let apart = matches!(to, To::Files { .. });
    // The files of each client are its own; objects belong to all clients.
    let books = if apart { spec.clients } else { 1 };
    // All objects exist before the load: the load makes them first, or they are left from an earlier one.
    let book = || Arc::new(Mutex::new(Book::new(spec.objects)));
    let begin = Begin {
        spec: Arc::new(spec.clone()),
        to: to.clone(),
        books: (0..books).map(|_| book()).collect(),
        counters: Arc::default(),
        apart,
    };
    let b = begin.clone();
    let made = reactor::runtime::run_here(|_, _| async move { b.prepare().await })??;
    let threads = if apart { workers(spec).len() } else { 1 };
    let (tx, rx) = mpsc::channel();
    let (start, started) = tokio::sync::watch::channel(None);
    let b = begin.clone();
    let running = reactor::runtime::Reactors::start(threads, "load", move |cx| {
        let (b, tx, started) = (b.clone(), tx.clone(), started.clone());
        async move {
            let ready = tx.clone();
            let r = b.thread(cx.index, started, || drop(ready.send(Word::Ready))).await;
            // The watcher may have returned after an error of another thread.
            let _ = tx.send(r.map_or_else(Word::Failed, |t| Word::Done(Box::new(t))));
        }
    })?;
    let stop = running.stopper();
    let out = watch::watch_over(spec, threads, &rx, &start, &begin.counters, progress);
    stop.stop();
    drop(start);
    if out.is_ok() {
        running.join().map_err(|e| std::io::Error::other(e.to_string()))?;
        if !spec.keep {
            reactor::runtime::run_here(|_, _| async move { begin.clean(made).await })??;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(job: &str) -> Steps {
        Steps {
            roles: vec![Role { mix: Mix::of_job(job).unwrap(), workers: 2, rate: None }],
            clients: 2,
            objects: 20,
            sizes: Sizes::Fixed(100),
            time: Duration::from_millis(60),
            warm_up: Duration::ZERO,
            prefix: "t".into(),
            verify: false,
            fill: true,
            keep: false,
            seed: 1,
            cpu_of: Vec::new(),
        }
    }

    /// A directory of its own, removed at the end.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let d = std::env::temp_dir().join(format!("belemnite-steps-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&d).unwrap();
            Self(d)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_are_used_and_removed() {
        let d = Dir::new("files");
        for job in ["create", "stat", "rename", "unlink", "readdir", "mixed-files"] {
            let o = run(&steps(job), &To::Files { dir: d.0.clone() }, &mut |_| ()).unwrap();
            assert!(o.all.count() > 0, "{job}");
            assert_eq!(o.all.count(), o.clients.iter().sum::<u64>());
            assert_eq!(o.all.count(), o.kinds.iter().map(|(_, l)| l.count()).sum::<u64>());
            if job != "mixed-files" {
                assert_eq!(o.kinds.iter().map(|(k, _)| k.name()).collect::<Vec<_>>(), [job]);
            }
            assert_eq!(std::fs::read_dir(&d.0).unwrap().count(), 0, "{job} leaves nothing");
        }
    }

    #[test]
    fn a_rate_is_kept_and_what_is_kept_stays() {
        let d = Dir::new("rate");
        let mut s = steps("create");
        s.roles[0].rate = Some(200.0);
        s.time = Duration::from_millis(500);
        s.keep = true;
        let o = run(&s, &To::Files { dir: d.0.clone() }, &mut |_| ()).unwrap();
        // Every start within the measured time either happened or is counted as not started.
        let due = o.all.count() + o.not_started;
        assert!((96..=104).contains(&due), "{due}");
        let files = |c: &str| std::fs::read_dir(d.0.join("t").join(c)).unwrap().count() as u64;
        assert_eq!(files("c0") + files("c1"), 40 + o.all.count());
    }

    #[test]
    fn a_failed_operation_ends_the_load() {
        let d = Dir::new("failed");
        // The load assumes existing files, but there are none.
        let s = Steps { fill: false, ..steps("stat") };
        let failed = |s: &Steps| run(s, &To::Files { dir: d.0.clone() }, &mut |_| ()).err().unwrap();
        let e = failed(&s);
        assert!(matches!(e, StepsError::Operation { kind: "stat", .. }), "{e}");
        let e = failed(&steps("get"));
        assert!(e.to_string().contains("a directory has no get"), "{e}");
        let s = Steps { prefix: "../x".into(), ..steps("stat") };
        assert!(matches!(s.check(), Err(StepsError::Spec(_))));
    }
}
