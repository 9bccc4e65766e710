//! `ceph tell osd.N bench`: writes to the store from inside the OSD, without network and PGs.

use super::reactor_host::ReactorHost;
use base::errno::{EINVAL, Errno};
use base::{HObject, PoolId, SnapId};
use bytes::Bytes;
use cluster::settings::Settings;
use cluster::units::bytes;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::time::Instant;
use store::{Cid, Oid, Op, Transaction};

/// Default of `count` in bytes.
const COUNT: u64 = 1 << 30;
/// Default of `size` in bytes.
const SIZE: u64 = 4 << 20;
/// Block size from which the throughput limits the amount, not the number of blocks.
const LARGE_BLOCK: u64 = 1 << 20;
/// Largest block, whatever the options say.
const SIZE_MAX: u64 = 64 << 20;
/// Size of the written objects.
const OBJECT: u64 = 4 << 20;
/// Most transactions in flight.
const DEPTH: u64 = 16;

fn number(cmd: &Map<String, Value>, key: &str, default: u64) -> u64 {
    let v = cmd.get(key);
    v.and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok())).unwrap_or(default)
}

fn object(n: u64) -> Oid {
    let name = format!("bench.{n}");
    HObject { oid: Bytes::from(name), snap: SnapId::HEAD, pool: PoolId(-1), ..HObject::min() }.into()
}

/// Bounds of one run, so that it does not occupy the OSD for minutes (`osd_bench_*`).
#[derive(Clone, Copy, Debug)]
struct Bounds {
    size: u64,
    seconds: u64,
    small_iops: u64,
    large_throughput: u64,
}

impl Bounds {
    fn of(s: &Settings) -> Self {
        let number = |name: &str| s.get(name).ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        Self {
            size: number("osd_bench_max_block_size").min(SIZE_MAX),
            seconds: number("osd_bench_duration"),
            small_iops: number("osd_bench_small_size_max_iops"),
            large_throughput: number("osd_bench_large_size_max_throughput"),
        }
    }

    /// Refuses a run that exceeds the bounds, in Ceph's words.
    fn check(self, count: u64, size: u64) -> Result<(), (Errno, String)> {
        if size == 0 || count == 0 {
            return Err((EINVAL, "block size and/or count of Bytes to write not specified".to_owned()));
        }
        if size > self.size {
            let text = format!(
                "block 'size' values are capped at {}. If you wish to use a higher value, please adjust 'osd_bench_max_block_size'",
                bytes(self.size)
            );
            return Err((EINVAL, text));
        }
        let (max, rate, option) = if size < LARGE_BLOCK {
            let rate = format!("{} IOPS", self.small_iops);
            (size.saturating_mul(self.small_iops), rate, "osd_bench_small_size_max_iops")
        } else {
            (
                self.large_throughput,
                format!("{}/s", bytes(self.large_throughput)),
                "osd_bench_large_size_max_throughput",
            )
        };
        let max = max.saturating_mul(self.seconds);
        if count <= max {
            return Ok(());
        }
        let text = format!(
            "'count' values greater than {max} for a block size of {}, assuming {rate}, for {} seconds, can cause ill effects on osd.  Please adjust '{option}' with a higher value if you wish to use a higher 'count'.",
            bytes(size),
            self.seconds
        );
        Err((EINVAL, text))
    }
}

/// True for the options of this command, which are read when it runs.
pub(super) fn observes(name: &str) -> bool {
    name.starts_with("osd_bench_")
}

/// Writes `count` bytes in blocks of `size`, removes them, and reports the rate.
pub(super) async fn run(
    host: &ReactorHost,
    settings: &RefCell<Settings>,
    cmd: &Map<String, Value>,
) -> Result<Value, (Errno, String)> {
    let (count, size) = (number(cmd, "count", COUNT), number(cmd, "size", SIZE));
    Bounds::of(&settings.borrow()).check(count, size)?;
    let mut block = vec![0; size as usize];
    base::rng::Rng::new(1).fill(&mut block);
    let block = Bytes::from(block);
    let per_object = (OBJECT / size).max(1);
    let blocks = count.div_ceil(size);
    let fail = |e: Errno| (e, format!("write failed: {}", base::errno::name(e)));
    let start = Instant::now();
    let mut at = 0;
    while at < blocks {
        let wave: Vec<_> = (at..blocks.min(at + DEPTH))
            .map(|i| {
                let mut t = Transaction::new();
                let (oid, off) = (object(i / per_object), i % per_object * size);
                let data = block.slice(..size.min(count - i * size) as usize);
                t.push(Op::Write { cid: Cid::Meta, oid, off, data, sums: None });
                Box::pin(host.submit_and_wait(t))
            })
            .collect();
        at += wave.len() as u64;
        for w in join(wave).await {
            w.map_err(fail)?;
        }
    }
    let took = start.elapsed().as_secs_f64().max(1e-9);
    for n in 0..blocks.div_ceil(per_object) {
        let mut t = Transaction::new();
        t.push(Op::Remove { cid: Cid::Meta, oid: object(n) });
        host.submit_and_wait(t).await.map_err(fail)?;
    }
    Ok(json!({
        "bytes_written": count,
        "blocksize": size,
        "elapsed_sec": took,
        "bytes_per_sec": count as f64 / took,
        "iops": blocks as f64 / took,
    }))
}

/// Polls all futures to completion, concurrently.
async fn join<F: Future + Unpin>(mut futs: Vec<F>) -> Vec<F::Output> {
    let mut out: Vec<Option<F::Output>> = futs.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (f, o) in futs.iter_mut().zip(&mut out) {
            if o.is_none() {
                match std::pin::Pin::new(f).poll(cx) {
                    std::task::Poll::Ready(v) => *o = Some(v),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    out.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_bounded_by_the_options() {
        let mut s = Settings::default();
        s.inject(&["--osd-bench-duration 10 --osd-bench-max-block-size 2097152".to_owned()], observes).unwrap();
        let rates = "--osd-bench-large-size-max-throughput 10485760 --osd-bench-small-size-max-iops 10";
        s.inject(&[rates.to_owned()], observes).unwrap();
        let b = Bounds::of(&s);
        b.check(1, 2 << 20).unwrap();
        b.check(409_600, 4096).unwrap();
        b.check(100 << 20, 2 << 20).unwrap();
        let no = |count, size| b.check(count, size).unwrap_err();
        assert!(no(1, (2 << 20) + 1).1.contains("capped at 2 MiB."));
        assert_eq!(
            no(409_601, 4096).1,
            "'count' values greater than 409600 for a block size of 4 KiB, assuming 10 IOPS, for 10 seconds, can cause ill effects on osd.  Please adjust 'osd_bench_small_size_max_iops' with a higher value if you wish to use a higher 'count'."
        );
        assert!(no((100 << 20) + 1, 2 << 20).1.contains("assuming 10 MiB/s, for 10 seconds"));
        assert_eq!((no(0, 1).0, no(1, 0).0), (EINVAL, EINVAL));
        Bounds::of(&Settings::default()).check(COUNT, SIZE).unwrap();
    }
}
