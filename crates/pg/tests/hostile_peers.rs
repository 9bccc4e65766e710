//! Does a PG survive arbitrary bytes from its peers, without panic, and with its copy either serving or failed?
//!
//! `PG_SEED=n` runs one seed, `PG_SEEDS=n` that many.

mod cluster;

use base::OsdId;
use base::rng::Rng;
use bytes::Bytes;
use cluster::Cluster;
use pg::Event;

fn mutate(r: &mut Rng, b: &Bytes) -> Bytes {
    let mut v = b.to_vec();
    match r.below(5) {
        // The kind changes; the rest of the message stays.
        0 => v.iter_mut().take(1).for_each(|k| *k = r.below(58) as u8),
        1 => v.truncate(r.below(v.len() as u64 + 1) as usize),
        2 => v.extend((0..r.below(20)).map(|_| 0xff)),
        _ => {
            for _ in 0..=r.below(4) {
                let at = r.below(v.len().max(1) as u64) as usize;
                if let Some(x) = v.get_mut(at) {
                    *x = [0, 1, 0xff, 0x7f, x.wrapping_add(1), r.below(256) as u8][r.below(6) as usize];
                }
            }
        }
    }
    v.into()
}

fn run(seed: u64, coded: bool) {
    println!("PG_SEED={seed} coded {coded}");
    let mut r = Rng::new(seed);
    let mut c = match coded {
        true => Cluster::coded(seed, 5, (2, 2), 4, 6),
        false => Cluster::new(seed, 4, 3, 2, 4, 6),
    };
    c.may_fail = true;
    c.net.spies = 6_000;
    // Writes, peering, recovery by log and by backfill, scrubs, snapshots.
    c.run(3_000);
    c.take_snapshot();
    c.crash(1);
    c.run(25_000);
    c.restart(1);
    c.run(5_000);
    c.change(|m| m.order.rotate_right(1));
    c.run(20_000);
    let all = std::mem::take(&mut c.net.spied);
    assert!(all.len() > 500);
    for _ in 0..1_500 {
        let (from, to, m) = &all[r.below(all.len() as u64) as usize];
        let mut m = m.clone();
        m.body = mutate(&mut r, &m.body);
        if r.chance(1, 4) {
            m.data = mutate(&mut r, &m.data);
        }
        // Mostly in the current epoch, and from the primary.
        if r.chance(9, 10) {
            m.epoch = base::Epoch(c.map().epoch);
        }
        let from = if r.chance(1, 2) { c.map().mapping().acting_primary } else { OsdId(*from) };
        if from.0 != *to {
            c.give(*to, Event::Peer { from, msg: m });
        }
        if r.chance(1, 20) {
            c.run(200);
        }
        // A failed copy restarts now and then.
        if r.chance(1, 100)
            && let Some((n, _)) = c.failed.pop()
        {
            c.crash(n);
            c.restart(n);
        }
    }
    c.run(10_000);
    let states: Vec<String> = (0..c.osds.len()).map(|n| c.describe(n)).collect();
    println!("{}", states.join("\n"));
}

fn runs(coded: bool) {
    let env = |k: &str| std::env::var(k).ok().and_then(|v| v.parse::<u64>().ok());
    if let Some(seed) = env("PG_SEED") {
        return run(seed, coded);
    }
    for seed in 0..env("PG_SEEDS").unwrap_or(4) {
        run(seed, coded);
    }
}

#[test]
fn no_message_of_a_peer_causes_a_panic() {
    runs(false);
}

#[test]
fn no_message_of_a_shard_causes_a_panic() {
    runs(true);
}
