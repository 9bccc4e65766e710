//! One thread of a load: its clients, their operations in flight, and its measurements.

use super::{Counters, GeneratorError, Seen, Times, image, ticker};
use crate::load::content::{self, Ledger};
use crate::load::ops::{self, Noise, Objects, Place};
use crate::load::pace::Pace;
use crate::load::pattern::{Order, Pattern};
use crate::load::{Spec, Work, calls};
use base::PoolId;
use base::rng::Rng;
use bytes::Bytes;
use client::{Client, ObjectRef};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_local;
use wire::msg::{MOsdOpReply, OpCode, OsdOp};
use wire::types::SnapContext;

/// Bytes of one write while filling objects.
const FILL_BLOCK: u64 = 4 << 20;
/// Objects that are filled, read back or removed concurrently.
const FILL_DEPTH: usize = 16;
/// Keys set by one operation while filling omaps.
const FILL_KEYS: u64 = 256;
/// Number of a thread's objects whose primary is recorded.
const PRIMARIES_MAX: u64 = 1 << 20;
/// Highest number of OSDs with summed latencies.
const OSDS_MAX: usize = 1 << 14;
/// Waiting time for a free slot at the end of the load, after which an operation counts as never started.
const OVERDUE: Duration = Duration::from_millis(10);
/// Attempts to find a block without a write in flight.
const TRIES: usize = 64;

struct Load {
    spec: Arc<Spec>,
    counters: Arc<[Counters]>,
    thread: usize,
    pool: PoolId,
    objects: Objects,
    /// Primary of each of this thread's objects when the load began, by the object's index.
    primaries: Vec<u32>,
    /// Append alignment of an erasure-coded pool: pieces of an object that is filled in parts must be multiples of it.
    alignment: u64,
    snaps: Option<SnapContext>,
    noise: Noise,
    pattern: RefCell<Pattern>,
    rng: RefCell<Rng>,
    ledger: RefCell<Ledger>,
    seen: RefCell<Seen>,
    failed: RefCell<Option<GeneratorError>>,
    done: Cell<bool>,
    /// Class calls chosen so far.
    called: Cell<u64>,
    /// Class calls that follow on one that has succeeded: unit and number.
    following: RefCell<VecDeque<(u64, u64)>>,
}

/// An operation chosen from the pattern.
struct Step {
    object: Bytes,
    /// Index of the object among this thread's.
    index: u64,
    op: OsdOp,
    read: bool,
    /// The block to verify, if the load verifies.
    place: Option<Place>,
    /// The oldest generation that a read may return.
    oldest: Option<u64>,
    /// The class call to send when this one has succeeded.
    then: Option<(u64, u64)>,
}

/// Runs this thread's share of a load. `ready` is called once connecting and filling are done.
pub(super) async fn run(
    thread: usize,
    spec: &Arc<Spec>,
    options: client::Options,
    counters: Arc<[Counters]>,
    mut started: watch::Receiver<Option<Times>>,
    ready: impl FnOnce(),
) -> Result<Seen, GeneratorError> {
    let mut clients = Vec::new();
    for _ in (thread..spec.clients).step_by(spec.threads) {
        clients.push(Client::connect(options.clone()).await?);
    }
    let first = clients.first().cloned().ok_or(GeneratorError::Gone)?;
    let load = Rc::new(prepare(thread, spec, counters, &first).await?);
    load.fill(&clients).await?;
    ready();
    let times = match started.wait_for(Option::is_some).await {
        Ok(t) => t.ok_or(GeneratorError::Gone)?,
        Err(_) => return Err(GeneratorError::Gone),
    };
    load.seen.borrow_mut().clients = vec![0; clients.len()];
    tokio::time::sleep_until(times.begin.into()).await;
    match spec.rate {
        None => load.closed(&clients, times).await,
        Some(_) => load.open(&clients, times).await?,
    }
    if let Some(e) = load.failed.borrow_mut().take() {
        return Err(e);
    }
    if spec.verify {
        load.read_back(&clients).await?;
    }
    if !spec.keep && spec.image.is_none() {
        load.remove(&clients).await?;
    }
    Ok(load.seen.take())
}

async fn prepare(
    thread: usize,
    spec: &Arc<Spec>,
    counters: Arc<[Counters]>,
    c: &Client,
) -> Result<Load, GeneratorError> {
    let header_pool = c.pool(&spec.pool).await?;
    let image = match &spec.image {
        Some(name) => Some(image::open(c, header_pool, name).await?),
        None => None,
    };
    let pool = image.as_ref().map_or(header_pool, |i| i.data_pool);
    let alignment = c.required_alignment(pool).await?.unwrap_or(1).max(1);
    let size = image.as_ref().map_or(spec.object_size, |i| i.object_size);
    if alignment > 1 {
        let appends = spec.is_once() && spec.block.is_multiple_of(alignment);
        if spec.reads() < 100 && spec.block != size && !appends || matches!(spec.work, Work::Omap { .. }) {
            return Err(GeneratorError::NoOverwrites);
        }
    }
    let objects = Objects {
        prefix: image.as_ref().map_or_else(|| spec.prefix.clone(), |i| i.prefix.clone()),
        image: image.is_some(),
        total: image.as_ref().map_or(spec.objects, |i| i.objects),
        size,
        block: spec.block,
        thread: thread as u64,
        threads: spec.threads as u64,
    };
    if objects.total < objects.threads || spec.block > size {
        return Err(crate::load::BadSpec::BlockTooLarge { block: spec.block, object_size: size }.into());
    }
    let mut rng = Rng::new(spec.seed ^ (thread as u64) << 32);
    let piece = alignment / ops::gcd(alignment, spec.block) * spec.block;
    let (order, units) = match &spec.work {
        Work::Data { order, .. } => (*order, objects.blocks()),
        Work::Omap { keys, .. } => (Order::Random, objects.own() * (*keys).max(1)),
        Work::Call(_) => (Order::Random, objects.own()),
    };
    Ok(Load {
        noise: Noise::new(FILL_BLOCK.max(piece) + spec.block, &mut rng),
        pattern: RefCell::new(Pattern::new(order, units)),
        ledger: RefCell::new(Ledger::new(spec.fill && spec.verify)),
        rng: RefCell::new(rng),
        spec: spec.clone(),
        counters,
        thread,
        pool,
        primaries: primaries(&*c.osdmap().await?, pool, &objects),
        objects,
        alignment,
        snaps: image.map(|i| i.snaps),
        seen: RefCell::default(),
        failed: RefCell::default(),
        done: Cell::new(false),
        called: Cell::new(0),
        following: RefCell::default(),
    })
}

/// Primaries of a thread's objects, up to [`PRIMARIES_MAX`].
fn primaries(map: &cluster::OsdMap, pool: PoolId, objects: &Objects) -> Vec<u32> {
    let of = |i: u64| {
        let raw = map.object_to_raw_pg(pool, &objects.name(objects.object(i)), &[], &[], None)?;
        u32::try_from(map.pg_to_up_acting(map.raw_pg_to_pg(raw)?).acting_primary.0).ok()
    };
    (0..objects.own().min(PRIMARIES_MAX)).map(|i| of(i).unwrap_or(u32::MAX)).collect()
}

impl Load {
    async fn send(&self, c: &Client, object: Bytes, op: OsdOp) -> Result<MOsdOpReply, client::ClientError> {
        let obj = ObjectRef { locator: wire::types::ObjectLocator::new(self.pool), oid: object };
        match &self.snaps {
            Some(s) => c.op_in(&obj, vec![op], s.clone()).await,
            None => c.op(&obj, vec![op]).await,
        }
    }

    /// Sends an operation and turns a negative result into an error that ends the load.
    async fn must(&self, c: &Client, what: &'static str, object: Bytes, op: OsdOp) -> Result<Bytes, GeneratorError> {
        let name = object.clone();
        let r = self.send(c, object, op).await?;
        if r.result < 0 {
            return Err(failure(what, &name, r.result));
        }
        Ok(r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default())
    }

    /// Chooses the next operation; `None` once each block was used, in order `Once`.
    fn choose(&self) -> Option<Step> {
        let (rng, spec) = (&mut *self.rng.borrow_mut(), &self.spec);
        let read = rng.below(100) < u64::from(spec.reads());
        let unit = self.pattern.borrow_mut().next(rng)?;
        let threads = self.objects.threads;
        let step = |object: u64, op| Step {
            object: self.objects.name(object),
            index: object / threads,
            op,
            read,
            place: None,
            oldest: None,
            then: None,
        };
        match &spec.work {
            Work::Call(name) => {
                let (unit, number) = self.following.borrow_mut().pop_front().unwrap_or_else(|| {
                    let number = self.called.get();
                    self.called.set(number + calls::calls_of_one(name));
                    (unit, number)
                });
                let then = ((number + 1) % calls::calls_of_one(name) != 0).then_some((unit, number + 1));
                // `Spec::check` has accepted the name.
                let op = calls::call(name, number)?;
                Some(Step { then, ..step(self.objects.object(unit), op) })
            }
            Work::Omap { keys, .. } => {
                let (object, key) = (self.objects.object(unit / keys), unit % keys);
                let op =
                    if read { ops::omap_get(key) } else { ops::omap_set(key..key + 1, spec.block, &self.noise, rng) };
                Some(step(object, op))
            }
            Work::Data { .. } if spec.verify => self.choose_checked(unit, read, rng),
            Work::Data { .. } => {
                let p = self.objects.place(unit);
                let op = match read {
                    true => ops::read(p.offset, spec.block),
                    false => ops::write(p.offset, self.noise.slice(spec.block, rng), self.objects.size),
                };
                Some(step(p.object, op))
            }
        }
    }

    fn choose_checked(&self, unit: u64, mut read: bool, rng: &mut Rng) -> Option<Step> {
        let mut l = self.ledger.borrow_mut();
        let mut p = self.objects.place(unit);
        let mut generation = None;
        for _ in 0..TRIES {
            if read || generation.is_some() {
                break;
            }
            generation = l.begin_write(p.number);
            if generation.is_none() {
                let next = self.pattern.borrow_mut().next(rng)?;
                p = self.objects.place(next);
            }
        }
        // All tried blocks have a write in flight: read one of them instead.
        read |= generation.is_none();
        let object = self.objects.name(p.object);
        let (op, oldest) = match generation {
            Some(g) => (ops::write(p.offset, self.contents(p.number, g), self.objects.size), None),
            None => (ops::read(p.offset, self.spec.block), l.begin_read(p.number)),
        };
        Some(Step { object, index: p.object / self.objects.threads, op, read, place: Some(p), oldest, then: None })
    }

    fn contents(&self, number: u64, generation: u64) -> Bytes {
        let mut b = vec![0; self.spec.block as usize];
        content::fill(&mut b, self.spec.seed, number, generation);
        b.into()
    }

    fn judge(&self, p: Place, oldest: Option<u64>, data: &[u8]) -> Result<(), GeneratorError> {
        content::check(data, self.spec.block as usize, self.spec.seed, p.number)
            .and_then(|g| self.ledger.borrow_mut().end_read(p.number, oldest, g))
            .map_err(|wrong| GeneratorError::Wrong {
                object: text(&self.objects.name(p.object)),
                offset: p.offset,
                wrong,
            })
    }

    fn fail(&self, e: GeneratorError) {
        self.failed.borrow_mut().get_or_insert(e);
        self.done.set(true);
    }

    /// Runs one operation, with latency counted from `due`; returns false if the load is over.
    async fn one(&self, client: (usize, &Client), due: Option<Instant>, times: &Times) -> bool {
        let Some(step) = self.choose() else { return false };
        let Step { object, index, op, read, place, oldest, then } = step;
        let name = object.clone();
        let counters = self.counters.get(self.thread);
        if let Some(c) = counters {
            c.started.fetch_add(1, Ordering::Relaxed);
        }
        let sent = Instant::now();
        let r = match self.send(client.1, object, op).await {
            Ok(r) => r,
            Err(e) => {
                self.fail(e.into());
                return false;
            }
        };
        let end = Instant::now();
        if r.result < 0 {
            self.fail(failure(if read { "reading" } else { "writing" }, &name, r.result));
            return false;
        }
        self.following.borrow_mut().extend(then);
        if let Some(p) = place {
            if !read {
                self.ledger.borrow_mut().end_write(p.number);
            } else if let Err(e) = self.judge(p, oldest, r.ops.first().map_or(&[][..], |o| &o.outdata)) {
                self.fail(e);
                return false;
            }
        }
        let latency = end.duration_since(due.unwrap_or(sent)).as_nanos() as u64;
        if let Some(c) = counters {
            c.finished.fetch_add(1, Ordering::Relaxed);
            c.bytes.fetch_add(self.spec.block, Ordering::Relaxed);
            c.nanos.fetch_add(latency, Ordering::Relaxed);
        }
        if end >= times.measure && end < times.end {
            let s = &mut *self.seen.borrow_mut();
            if read { &mut s.reads } else { &mut s.writes }.record(latency);
            if due.is_some() {
                s.service.record(end.duration_since(sent).as_nanos() as u64);
            }
            s.bytes += self.spec.block;
            s.last = Some(end);
            if let Some(osd) = self.primaries.get(index as usize).map(|o| *o as usize).filter(|o| *o < OSDS_MAX) {
                if s.osds.len() <= osd {
                    s.osds.resize(osd + 1, (0, 0));
                }
                if let Some((n, nanos)) = s.osds.get_mut(osd) {
                    *n += 1;
                    *nanos += latency;
                }
            }
            if let Some(n) = s.clients.get_mut(client.0) {
                *n += 1;
            }
        }
        true
    }

    /// Closed loop: each client keeps `depth` operations in flight.
    async fn closed(self: &Rc<Self>, clients: &[Client], times: Times) {
        let mut tasks = Vec::new();
        for (i, c) in clients.iter().enumerate() {
            for _ in 0..self.spec.depth {
                let (me, c) = (self.clone(), c.clone());
                tasks.push(spawn_local(async move {
                    while !me.done.get() && Instant::now() < times.end {
                        if !me.one((i, &c), None, &times).await {
                            break;
                        }
                    }
                }));
            }
        }
        for t in tasks {
            if let Err(e) = t.await {
                self.fail(std::io::Error::other(e.to_string()).into());
            }
        }
    }

    /// Open loop: operations have start times. Waiting for a free slot counts as latency.
    async fn open(self: &Rc<Self>, clients: &[Client], times: Times) -> Result<(), GeneratorError> {
        let Some((rate, arrivals)) = self.spec.rate else { return Ok(()) };
        let mut rng = Rng::new(self.spec.seed ^ 0x7061_6365 ^ (self.thread as u64) << 40);
        let pace = Pace::new(rate / self.spec.threads as f64, arrivals, &mut rng);
        let (due, ticker) = ticker::start(pace, rng, times.begin, times.end)?;
        let queue = Rc::new(RefCell::new(VecDeque::new()));
        // One permit for each queued start time.
        let permits = Rc::new(Semaphore::new(0));
        let mut tasks = Vec::new();
        for (i, c) in (0..self.spec.depth).flat_map(|_| clients.iter().enumerate()) {
            let (me, c, queue, permits) = (self.clone(), c.clone(), queue.clone(), permits.clone());
            tasks.push(spawn_local(async move {
                while let Ok(p) = permits.acquire().await {
                    p.forget();
                    let Some(at) = queue.borrow_mut().pop_front() else { break };
                    if !me.one((i, &c), Some(at), &times).await {
                        break;
                    }
                }
            }));
        }
        loop {
            let waiting = queue.borrow().len();
            let last = due.take(&mut queue.borrow_mut());
            permits.add_permits(queue.borrow().len() - waiting);
            if last || self.done.get() {
                break;
            }
            due.changed.notified().await;
        }
        // Operations still queued at the end never start; their waiting time counts as latency.
        let now = Instant::now();
        permits.close();
        {
            let s = &mut *self.seen.borrow_mut();
            // Operations that came due at the very end are not counted, like those in flight.
            let old = |at: &Instant| *at >= times.measure && now.duration_since(*at) > OVERDUE;
            for at in queue.borrow_mut().drain(..).filter(old) {
                let h = if self.spec.reads() >= 50 { &mut s.reads } else { &mut s.writes };
                h.record(now.duration_since(at).as_nanos() as u64);
                s.not_started += 1;
            }
        }
        for t in tasks {
            if let Err(e) = t.await {
                self.fail(std::io::Error::other(e.to_string()).into());
            }
        }
        // The ticker ends with its last start time.
        drop(ticker);
        Ok(())
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn failure(what: &'static str, object: &[u8], errno: i32) -> GeneratorError {
    GeneratorError::Operation { what, object: text(object), errno: base::errno::name(errno).to_owned() }
}

/// Runs `f` for each of `0..n`, [`FILL_DEPTH`] at once, until one fails.
async fn each<F>(n: u64, clients: &[Client], f: impl Fn(u64, Client) -> F + 'static) -> Result<(), GeneratorError>
where
    F: Future<Output = Result<(), GeneratorError>> + 'static,
{
    let (next, f) = (Rc::new(Cell::new(0)), Rc::new(f));
    let mut tasks = Vec::new();
    for slot in 0..FILL_DEPTH.min(n as usize) {
        let (next, f) = (next.clone(), f.clone());
        let Some(c) = clients.get(slot % clients.len().max(1)).cloned() else { continue };
        tasks.push(spawn_local(async move {
            while next.get() < n {
                let i = next.replace(next.get() + 1);
                if let Err(e) = f(i, c.clone()).await {
                    next.set(n);
                    return Err(e);
                }
            }
            Ok(())
        }));
    }
    let mut out = Ok(());
    for t in tasks {
        let r = t.await.unwrap_or_else(|e| Err(std::io::Error::other(e.to_string()).into()));
        out = out.and(r);
    }
    out
}

impl Load {
    /// Makes the objects that the load expects.
    async fn fill(self: &Rc<Self>, clients: &[Client]) -> Result<(), GeneratorError> {
        let me = self.clone();
        match &self.spec.work {
            // Headers are cheap, and class calls need them.
            Work::Call(kind) => {
                let header = calls::header(kind);
                let make = async |me: Rc<Self>, i, c: Client, header: OsdOp| {
                    let name = me.objects.name(me.objects.object(i));
                    me.must(&c, "making the header", name, header).await.map(|_| ())
                };
                each(self.objects.own(), clients, move |i, c| make(me.clone(), i, c, header.clone())).await
            }
            _ if !self.spec.fill || self.spec.is_once() => Ok(()),
            Work::Omap { keys, .. } => {
                let keys = *keys;
                each(self.objects.own(), clients, move |i, c| me.clone().fill_omap(i, c, keys)).await
            }
            Work::Data { .. } => each(self.objects.own(), clients, move |i, c| me.clone().fill_object(i, c)).await,
        }
    }

    async fn fill_omap(self: Rc<Self>, i: u64, c: Client, keys: u64) -> Result<(), GeneratorError> {
        let name = self.objects.name(self.objects.object(i));
        let mut at = 0;
        while at < keys {
            let to = keys.min(at + FILL_KEYS);
            let op = ops::omap_set(at..to, self.spec.block, &self.noise, &mut self.rng.borrow_mut());
            self.must(&c, "filling", name.clone(), op).await?;
            at = to;
        }
        Ok(())
    }

    async fn fill_object(self: Rc<Self>, i: u64, c: Client) -> Result<(), GeneratorError> {
        let (object, size) = (self.objects.object(i), self.objects.size);
        let name = self.objects.name(object);
        let per = self.objects.per_object();
        // Write several blocks at a time; the last piece has the rest of the object.
        let unit = self.alignment / ops::gcd(self.alignment, self.spec.block);
        let blocks = (FILL_BLOCK / self.spec.block / unit * unit).max(unit);
        let mut at = 0;
        while at < per {
            let to = per.min(at + blocks);
            let (offset, end) = (at * self.spec.block, if to == per { size } else { to * self.spec.block });
            let mut data = Vec::new();
            if self.spec.verify {
                for b in at..to {
                    data.extend_from_slice(&self.contents(object * per + b, 0));
                }
                data.resize((end - offset) as usize, 0);
            }
            let data = match self.spec.verify {
                true => data.into(),
                false => self.noise.slice(end - offset, &mut self.rng.borrow_mut()),
            };
            self.must(&c, "filling", name.clone(), ops::refill(offset, data)).await?;
            at = to;
        }
        Ok(())
    }

    /// Reads every written block and verifies it.
    async fn read_back(self: &Rc<Self>, clients: &[Client]) -> Result<(), GeneratorError> {
        let numbers = Rc::new(self.ledger.borrow().written());
        let (me, n) = (self.clone(), numbers.len() as u64);
        each(n, clients, move |i, c| {
            let (me, numbers) = (me.clone(), numbers.clone());
            async move {
                let Some(number) = numbers.get(i as usize) else { return Ok(()) };
                let p = me.objects.place_of(*number);
                let oldest = me.ledger.borrow_mut().begin_read(*number);
                let op = ops::read(p.offset, me.spec.block);
                let data = me.must(&c, "reading back", me.objects.name(p.object), op).await?;
                me.judge(p, oldest, &data)?;
                me.seen.borrow_mut().verified += 1;
                Ok(())
            }
        })
        .await
    }

    async fn remove(self: &Rc<Self>, clients: &[Client]) -> Result<(), GeneratorError> {
        let me = self.clone();
        each(self.objects.own(), clients, move |i, c| {
            let me = me.clone();
            async move {
                let name = me.objects.name(me.objects.object(i));
                // An object that the load never touched may not exist.
                me.send(&c, name, OsdOp::new(OpCode::DELETE)).await?;
                Ok(())
            }
        })
        .await
    }
}
