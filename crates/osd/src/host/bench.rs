//! `ceph tell osd.N bench`: writes to the store from inside the OSD, without network and PGs.

use super::shard::ShardHost;
use base::errno::{EINVAL, Errno};
use base::{HObject, PoolId, SnapId};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::time::Instant;
use store::{Cid, Oid, Op, Transaction};

/// Default of `count` in bytes.
const COUNT: u64 = 1 << 30;
/// Default of `size` in bytes.
const SIZE: u64 = 4 << 20;
/// Most bytes of one run with blocks below [`LARGE_BLOCK`], so that the run does not occupy the OSD for
/// minutes.
const SMALL_COUNT_MAX: u64 = 128 << 20;
/// Block size from which the amount is not limited.
const LARGE_BLOCK: u64 = 1 << 20;
/// Largest block (`osd_bench_max_block_size`).
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

/// Writes `count` bytes in blocks of `size`, removes them, and reports the rate.
pub(super) async fn run(host: &ShardHost, cmd: &Map<String, Value>) -> Result<Value, (Errno, String)> {
    let (count, size) = (number(cmd, "count", COUNT), number(cmd, "size", SIZE));
    if size == 0 || size > SIZE_MAX {
        return Err((EINVAL, format!("block 'size' values are capped at {SIZE_MAX} bytes")));
    }
    if size < LARGE_BLOCK && count > SMALL_COUNT_MAX {
        let text =
            format!("'count' values greater than {SMALL_COUNT_MAX} for a block size of {size} would take too long");
        return Err((EINVAL, text));
    }
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
