//! Memory of an OSD for each idle PG, measured with the production state machines and store of one OSD in a simulated
//! cluster with few and with many PGs.

use hostile::meter::{Meter, live};
use sim::study::Quiet;

#[global_allocator]
static METER: Meter = Meter;

/// Bytes held by an OSD of a cluster with these numbers of OSDs and of PGs on each.
fn held(osds: usize, pgs: u32) -> isize {
    let mut cluster = Quiet::new(osds, pgs).expect("a cluster at rest");
    let osd = cluster.take(0).expect("it runs");
    let before = live();
    drop(osd);
    before - live()
}

/// Bytes for each PG. The cluster has a second pool with few PGs, which both measurements include.
fn per_pg(osds: usize) -> isize {
    let (few, many) = (8, 240);
    (held(osds, many) - held(osds, few)) / (many - few) as isize
}

#[test]
fn of_one_copy() {
    let n = per_pg(1);
    println!("{n} bytes per PG");
    assert!((500..=5900).contains(&n), "{n}");
}

#[test]
fn of_three_copies() {
    let n = per_pg(3);
    println!("{n} bytes per PG");
    assert!((500..=6500).contains(&n), "{n}");
}
