//! Cost of an operation's ledger: everything that a reactor does for it, from the begin to the sum.
//!
//! usage: cargo run --release -p belemnite-base --example ledger_cost [OPERATIONS]

use base::ledger::{Answered, Book, Cause, Ledger};
use base::{EntityKind, EntityName, Mono, OsdId, PoolId, Utime};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(10_000_000);
    let names: Vec<String> = (0..4096).map(|i| format!("rbd_data.10226b8b4567.{i:016x}")).collect();
    let wall = Utime { sec: 1_700_000_000, nsec: 0 };
    let mut book = Book::default();
    let begin = Instant::now();
    for i in 0..n {
        let at = |us: u64| Mono(i * 10_000 + us * 1000);
        let mut l = Ledger::begin(at(0), wall, Utime { sec: 1_699_999_999, nsec: 999_000_000 });
        l.pass(at(0));
        l.wait(Cause::Lock);
        l.pass(at(0));
        l.pass(black_box(at(0)));
        l.durable(at(150), Some(OsdId((i % 2) as i32)), at(210));
        let at_name = (i.wrapping_mul(2_654_435_761) % 4096) as usize;
        let (name, hash) = (names[at_name].as_bytes(), at_name as u32 * 65_537);
        let client = EntityName::new(EntityKind::CLIENT, (i % 24) as i64);
        book.add(&Answered { ledger: &l, client, tid: i, pool: PoolId(2), name, hash, busy: false }, at(210));
        book.acked(OsdId(0), std::time::Duration::from_micros(200), at(210));
        book.acked(OsdId(1), std::time::Duration::from_micros(200), at(210));
    }
    let ns = begin.elapsed().as_nanos() as f64 / n as f64;
    let w = book.since(std::time::Duration::from_secs(30), Mono(n * 10_000));
    println!("{ns:.1} ns for an operation; {} operations in the last windows", w.all.ops);
}
