//! `belemnite bench`: load from this process, with the latencies it saw.

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
    /// What to do: random 4 KiB blocks of objects filled before (randread, randwrite), or whole objects (write, read)
    #[arg(value_parser = ["write", "read", "randwrite", "randread"])]
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
}

struct Load {
    client: Client,
    pool: base::PoolId,
    read: bool,
    block: u64,
    object_size: u64,
    objects: u64,
    data: Bytes,
    rng: RefCell<base::rng::Rng>,
    end: Instant,
    lat_us: RefCell<Vec<u32>>,
    failed: Cell<i32>,
}

fn name(i: u64) -> String {
    format!("belemnite_bench_{i}")
}

impl Load {
    async fn one(&self) -> Result<i32, client::ClientError> {
        let (obj, off) = {
            let mut r = self.rng.borrow_mut();
            (r.below(self.objects), r.below((self.object_size / self.block).max(1)) * self.block)
        };
        let op = if self.read {
            OsdOp::with_extent(OpCode::READ, off, self.block, Bytes::new())
        } else {
            OsdOp::with_extent(OpCode::WRITE, off, self.block, self.data.clone())
        };
        Ok(self.client.op(&ObjectRef::new(self.pool, &name(obj)), vec![op]).await?.result)
    }

    async fn worker(self: Rc<Self>) -> Result<(), client::ClientError> {
        while Instant::now() < self.end && self.failed.get() == 0 {
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
}

pub(super) async fn run(c: &Client, a: &BenchArgs) -> Result<(), Error> {
    let size = |s: &str| crate::size::parse(s).filter(|n| *n > 0).ok_or_else(|| format!("{s}: not a size"));
    let object_size = size(&a.object_size)?;
    let random = a.job.starts_with("rand");
    let block = match &a.block {
        Some(b) => size(b)?,
        None => {
            if random {
                4096
            } else {
                object_size
            }
        }
    };
    if block > object_size || a.objects == 0 || a.depth == 0 {
        return Err("bench needs an object, an operation in flight, and a block no larger than an object".into());
    }
    let pool = c.pool(&a.pool).await?;
    let mut pattern = vec![0u8; block.max(object_size).min(4 << 20) as usize];
    base::rng::Rng::new(1).fill(&mut pattern);
    let pattern = Bytes::from(pattern);
    if a.job != "write" {
        fill(c, pool, a.objects, object_size, &pattern).await?;
    }
    let data = pattern.slice(..(block as usize).min(pattern.len()));
    if data.len() as u64 != block {
        return Err("--block: at most 4M".into());
    }
    let load = Rc::new(Load {
        client: c.clone(),
        pool,
        read: a.job.ends_with("read"),
        block,
        object_size,
        objects: a.objects,
        data,
        rng: RefCell::new(base::rng::Rng::new(7)),
        end: Instant::now() + Duration::from_secs(a.secs),
        lat_us: RefCell::default(),
        failed: Cell::new(0),
    });
    let start = Instant::now();
    let workers: Vec<_> = (0..a.depth).map(|_| tokio::task::spawn_local(load.clone().worker())).collect();
    for w in workers {
        w.await??;
    }
    let took = start.elapsed().as_secs_f64();
    if load.failed.get() < 0 {
        return Err(format!("an operation failed: {}", base::errno::name(load.failed.get())).into());
    }
    let mut lat = load.lat_us.take();
    lat.sort_unstable();
    let at = |q: f64| lat.get(((lat.len() as f64 * q) as usize).min(lat.len().saturating_sub(1))).copied().unwrap_or(0);
    let iops = lat.len() as f64 / took;
    println!(
        "{}: {} operations in {took:.1} s, {iops:.0} per second, {:.1} MiB/s; latency µs p50 {} p99 {} max {}",
        a.job,
        lat.len(),
        iops * block as f64 / 1_048_576.0,
        at(0.5),
        at(0.99),
        at(1.0)
    );
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
            let op = OsdOp::with_extent(OpCode::WRITE, off, len, pattern.slice(..len as usize));
            let r = c.op(&ObjectRef::new(pool, &name(i)), vec![op]).await?;
            if r.result < 0 {
                return Err(format!("filling {}: {}", name(i), base::errno::name(r.result)).into());
            }
            off += len;
        }
    }
    Ok(())
}
