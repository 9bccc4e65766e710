//! Cost of a removed snapshot, a peering and an idle second at an OSD of 8 PGs, with few and many removed snapshots.
//!
//! `cargo run --release -p belemnite-osd --example map_history [SNAPSHOTS]`: time. For instructions, which are the same
//! on every machine, compare the totals of `valgrind --tool=none` or `callgrind` with ROUNDS 0 and 64 of one kind:
//! `valgrind --tool=callgrind target/release/examples/map_history SNAPSHOTS KIND ROUNDS`.

#[path = "../tests/history/mod.rs"]
mod history;

use history::Osd;
use std::time::Instant;

/// The kinds of work, with what does one round of each.
/// A kind of change, and its name.
type Kind = (&'static str, fn(&mut Osd));

const KINDS: [Kind; 3] = [("change", Osd::change_map), ("peering", Osd::peer), ("idle", Osd::idle_second)];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let snaps: Option<u64> = args.first().and_then(|a| a.parse().ok());
    let kind = args.get(1);
    let rounds: u32 = args.get(2).and_then(|a| a.parse().ok()).unwrap_or(64);
    for n in snaps.map_or_else(|| vec![10, 1_000, 100_000], |n| vec![n]) {
        let mut osd = Osd::new(8, n);
        for (name, f) in KINDS.iter().filter(|(name, _)| kind.is_none_or(|k| k == name)) {
            let start = Instant::now();
            (0..rounds).for_each(|_| f(&mut osd));
            if rounds > 0 {
                println!(
                    "{n} removed snapshots, {name}: {:.1} µs",
                    start.elapsed().as_micros() as f64 / f64::from(rounds)
                );
            }
        }
        osd.check();
    }
}
