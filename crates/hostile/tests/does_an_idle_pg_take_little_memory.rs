//! Memory of an OSD for each PG at rest, counted: the production machines and store of one OSD of a simulated cluster, with few
//! PGs and with many.

use hostile::meter::{Meter, live};
use sim::study::Quiet;

#[global_allocator]
static METER: Meter = Meter;

/// Bytes that an OSD holds, with that many PGs on each of that many OSDs.
fn held(osds: usize, pgs: u32) -> isize {
    let mut cluster = Quiet::new(osds, pgs).expect("a cluster at rest");
    let osd = cluster.take(0).expect("it runs");
    let before = live();
    drop(osd);
    before - live()
}

/// Bytes for each PG. The cluster has another pool with few PGs; it is in both.
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
