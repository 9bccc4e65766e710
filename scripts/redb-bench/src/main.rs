//! The omap job of `belemnite store bench` on redb: the same keys, values and order, durable commits.
//!
//!     redb-bench FILE KEYS BATCH CACHE_BYTES
//!
//! A commit has BATCH keys. redb has a single writer, so several concurrent small transactions can only be compared
//! with one large transaction.

use redb::{Database, ReadableTableMetadata, TableDefinition};
use std::time::Instant;

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("omap");
/// Number of ranges to remove, each in its own commit.
const RANGES: u64 = 2000;

fn key(i: u64) -> String {
    format!("key{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// CPU seconds of this process.
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let f: Vec<&str> = s.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let t = |i: usize| f.get(i).and_then(|x| x.parse::<f64>().ok()).unwrap_or(0.0);
    (t(11) + t(12)) / 100.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, keys, batch, cache] = args.as_slice() else { return Err("FILE KEYS BATCH CACHE_BYTES".into()) };
    let (keys, batch, cache): (u64, u64, usize) = (keys.parse()?, batch.parse()?, cache.parse()?);
    let db = Database::builder().set_cache_size(cache).create(file)?;
    let (t, c) = (Instant::now(), cpu());
    for n in 0..keys / batch {
        let w = db.begin_write()?;
        {
            let mut table = w.open_table(TABLE)?;
            for i in n * batch..(n + 1) * batch {
                table.insert(key(i).as_bytes(), &[3u8; 100][..])?;
            }
        }
        w.commit()?;
    }
    let (e, u) = (t.elapsed().as_secs_f64(), cpu() - c);
    println!("redb, {batch} keys a commit: {:.0} keys/s, cpu {:.2} us/key", keys as f64 / e, u * 1e6 / keys as f64);
    let before = db.begin_write()?.open_table(TABLE)?.len()?;
    let (t, c) = (Instant::now(), cpu());
    for n in 0..RANGES {
        let w = db.begin_write()?;
        {
            let mut table = w.open_table(TABLE)?;
            let (a, b) = (format!("key{n:04x}"), format!("key{:04x}", n + 1));
            table.retain_in(a.as_bytes()..b.as_bytes(), |_, _| false)?;
        }
        w.commit()?;
    }
    let (e, u) = (t.elapsed().as_secs_f64(), cpu() - c);
    let gone = before - db.begin_write()?.open_table(TABLE)?.len()?;
    println!(
        "redb, range removed a commit: {:.0} ranges/s of {:.1} keys, cpu {:.1} us/range",
        RANGES as f64 / e,
        gone as f64 / RANGES as f64,
        u * 1e6 / RANGES as f64
    );
    Ok(())
}
