//! `belemnite bench`: load from this process, with the latencies it saw and the CPU that daemons used meanwhile.

mod calls;

use super::Error;
use bytes::Bytes;
use client::{Client, ObjectRef};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::msg::{OpCode, OsdOp};

/// Arguments of `belemnite bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Pool
    pool: String,
    /// What to do: random 4 KiB blocks of objects filled before (randread, randwrite), whole objects (write, read), or a
    /// class call on an image's header (lock.lock, rbd.get_size, …)
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(JOBS.into_iter().chain(calls::NAMES)))]
    job: String,
    /// Seconds
    #[arg(long, default_value_t = 10)]
    secs: u64,
    /// Operations in flight
    #[arg(long, default_value_t = 16)]
    depth: usize,
    /// Bytes per operation [default: 4M for write and read, 4K for the random jobs]
    #[arg(long)]
    block: Option<String>,
    /// Objects to work on
    #[arg(long, default_value_t = 64)]
    objects: u64,
    /// Size of each object
    #[arg(long, default_value = "4M")]
    object_size: String,
    /// Leave the objects there
    #[arg(long)]
    keep: bool,
    /// Daemons on this machine whose CPU time per operation is shown
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    cpu_of: Vec<u32>,
}

/// Jobs that write and read data.
const JOBS: [&str; 4] = ["write", "read", "randwrite", "randread"];
/// Before it is measured, a job runs for this part of its time.
const WARM_UP: u32 = 10;

/// What is repeated.
enum Job {
    /// Reading or writing a block somewhere in an object.
    Block { read: bool, whole: bool, block: u64, object_size: u64, data: Bytes },
    /// The same operation on every object.
    Fixed(OsdOp),
}

/// Nanoseconds that all threads of these processes have run.
fn cpu_of(pids: &[u32]) -> Result<u64, Error> {
    let mut sum = 0;
    for pid in pids {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| format!("process {pid}: {e}"))?;
        for t in tasks {
            // A thread that ended meanwhile no longer counts.
            let text = std::fs::read_to_string(t?.path().join("schedstat")).unwrap_or_default();
            sum += text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(sum)
}

struct Load {
    client: Client,
    pool: base::PoolId,
    job: Job,
    objects: u64,
    rng: RefCell<base::rng::Rng>,
    lat_us: RefCell<Vec<u32>>,
    failed: Cell<i32>,
}

fn name(i: u64) -> String {
    format!("belemnite_bench_{i}")
}

impl Load {
    async fn one(&self) -> Result<i32, client::ClientError> {
        let (obj, op) = {
            let mut r = self.rng.borrow_mut();
            let obj = r.below(self.objects);
            let op = match &self.job {
                Job::Fixed(op) => op.clone(),
                Job::Block { read, whole, block, object_size, data } => {
                    let off = r.below((object_size / block).max(1)) * block;
                    match (read, whole) {
                        (true, _) => OsdOp::with_extent(OpCode::READ, off, *block, Bytes::new()),
                        (false, true) => OsdOp::with_extent(OpCode::WRITEFULL, 0, *block, data.clone()),
                        (false, false) => OsdOp::with_extent(OpCode::WRITE, off, *block, data.clone()),
                    }
                }
            };
            (obj, op)
        };
        Ok(self.client.op(&ObjectRef::new(self.pool, &name(obj)), vec![op]).await?.result)
    }

    async fn worker(self: Rc<Self>, end: Instant) -> Result<(), client::ClientError> {
        while Instant::now() < end && self.failed.get() == 0 {
            let t = Instant::now();
            let r = self.one().await?;
            if r < 0 {
                self.failed.set(r);
                break;
            }
            self.lat_us.borrow_mut().push(t.elapsed().as_micros().min(u128::from(u32::MAX)) as u32);
        }
        Ok(())
    }

    /// Keeps `depth` operations in flight for a time; returns how long it took to the last answer, and the latencies.
    async fn run(self: &Rc<Self>, depth: usize, time: Duration) -> Result<(f64, Vec<u32>), Error> {
        let start = Instant::now();
        let workers: Vec<_> = (0..depth).map(|_| tokio::task::spawn_local(self.clone().worker(start + time))).collect();
        for w in workers {
            w.await??;
        }
        if self.failed.get() < 0 {
            return Err(format!("an operation failed: {}", base::errno::name(self.failed.get())).into());
        }
        let mut lat = self.lat_us.take();
        lat.sort_unstable();
        Ok((start.elapsed().as_secs_f64(), lat))
    }
}

/// Prepares the objects of a job that reads and writes blocks.
async fn blocks(c: &Client, pool: base::PoolId, a: &BenchArgs) -> Result<Job, Error> {
    let size = |s: &str| crate::size::parse(s).filter(|n| *n > 0).ok_or_else(|| format!("{s}: not a size"));
    let object_size = size(&a.object_size)?;
    let block = match &a.block {
        Some(b) => size(b)?,
        None if a.job.starts_with("rand") => 4096,
        None => object_size,
    };
    if block > object_size {
        return Err("--block: no larger than an object".into());
    }
    let mut pattern = vec![0u8; block.max(object_size).min(4 << 20) as usize];
    base::rng::Rng::new(1).fill(&mut pattern);
    let pattern = Bytes::from(pattern);
    let data = pattern.slice(..(block as usize).min(pattern.len()));
    if data.len() as u64 != block {
        return Err("--block: at most 4M".into());
    }
    let alignment = c.required_alignment(pool).await?;
    if a.job != "write" {
        let step = super::objects::aligned(pattern.len() as u64, alignment).min(pattern.len() as u64);
        fill(c, pool, a.objects, object_size, &pattern.slice(..step as usize)).await?;
    }
    let read = a.job.ends_with("read");
    // Such a pool takes no overwrites: objects are written whole, or not at all.
    let whole = alignment.is_some();
    if whole && !read && block != object_size {
        return Err(format!(
            "pool {} takes no overwrites (allow_ec_overwrites): only job 'write' with --block of the size of an object",
            a.pool
        )
        .into());
    }
    Ok(Job::Block { read, whole, block, object_size, data })
}

pub(super) async fn run(c: &Client, a: &BenchArgs) -> Result<(), Error> {
    if a.objects == 0 || a.depth == 0 {
        return Err("bench needs an object and an operation in flight".into());
    }
    let pool = c.pool(&a.pool).await?;
    let job = match calls::call(&a.job) {
        Some(op) => {
            for i in 0..a.objects {
                let r = c.op(&ObjectRef::new(pool, &name(i)), vec![calls::header()]).await?.result;
                if r < 0 {
                    return Err(format!("making {}: {}", name(i), base::errno::name(r)).into());
                }
            }
            Job::Fixed(op)
        }
        None => blocks(c, pool, a).await?,
    };
    let block = if let Job::Block { block, .. } = &job { *block } else { 0 };
    let load = Rc::new(Load {
        client: c.clone(),
        pool,
        job,
        objects: a.objects,
        rng: RefCell::new(base::rng::Rng::new(7)),
        lat_us: RefCell::default(),
        failed: Cell::new(0),
    });
    let time = Duration::from_secs(a.secs);
    load.run(a.depth, time / WARM_UP).await?;
    let before = cpu_of(&a.cpu_of)?;
    let (took, lat) = load.run(a.depth, time).await?;
    let cpu = cpu_of(&a.cpu_of)?.saturating_sub(before);
    let at = |q: f64| lat.get(((lat.len() as f64 * q) as usize).min(lat.len().saturating_sub(1))).copied().unwrap_or(0);
    let rate = lat.len() as f64 / took;
    print!("{}: {} operations in {took:.1} s, {rate:.0} per second", a.job, lat.len());
    if block > 0 {
        print!(", {:.1} MiB/s", rate * block as f64 / 1_048_576.0);
    }
    print!("; latency µs p50 {} p99 {} max {}", at(0.5), at(0.99), at(1.0));
    if !a.cpu_of.is_empty() {
        print!("; CPU µs per operation {:.1}", cpu as f64 / 1e3 / lat.len().max(1) as f64);
    }
    println!();
    if !a.keep {
        for i in 0..a.objects {
            // An object that the job never touched is not there.
            c.op(&ObjectRef::new(pool, &name(i)), vec![OsdOp::new(OpCode::DELETE)]).await?;
        }
    }
    Ok(())
}

async fn fill(c: &Client, pool: base::PoolId, n: u64, size: u64, pattern: &Bytes) -> Result<(), Error> {
    for i in 0..n {
        let mut off = 0;
        while off < size {
            let len = (size - off).min(pattern.len() as u64);
            // The first write replaces what a run before left there.
            let code = if off == 0 { OpCode::WRITEFULL } else { OpCode::WRITE };
            let op = OsdOp::with_extent(code, off, len, pattern.slice(..len as usize));
            let r = c.op(&ObjectRef::new(pool, &name(i)), vec![op]).await?;
            if r.result < 0 {
                return Err(format!("filling {}: {}", name(i), base::errno::name(r.result)).into());
            }
            off += len;
        }
    }
    Ok(())
}
