//! Benchmark of map operations at 10,000 OSDs and 1,000,000 PGs.
//!
//! `cargo run --release -p belemnite-cluster --example map_bench [OSDS] [PGS]`. Prints one line per operation;
//! the figures are of one thread.

use base::id::Uuid;
use base::rng::Rng;
use base::{AddrVec, EntityAddr, Epoch, OsdId, PgId, PoolId, Utime};
use cluster::crush::{CrushMap, Location, WEIGHT_ONE};
use cluster::osdmap::{CANONICAL, PlaceScratch, WEIGHT_IN, osd_state};
use cluster::pool::{PgPool, flag, kind};
use cluster::{Incremental, OsdMap, UpActing};
use std::hint::black_box;
use std::time::{Duration, Instant};

const OSDS_PER_HOST: i32 = 10;
const HOSTS_PER_RACK: i32 = 25;
const POOLS: i64 = 8;

fn report(what: &str, n: u64, took: Duration) {
    let each = took.as_nanos() as f64 / n.max(1) as f64;
    let (value, unit) = match each {
        ns if ns < 10_000.0 => (ns, "ns"),
        ns if ns < 10_000_000.0 => (ns / 1e3, "us"),
        ns => (ns / 1e6, "ms"),
    };
    println!("{what:<46} {value:>9.1} {unit}   ({n} in {:.3} s)", took.as_secs_f64());
}

fn addr(osd: i32, port: u16) -> AddrVec {
    let ip = std::net::Ipv4Addr::from_bits(0x0a00_0000 + osd as u32);
    AddrVec::from(EntityAddr::msgr2((ip, port).into(), osd as u32 + 1))
}

fn build(osds: i32, pgs: u32) -> OsdMap {
    let fsid = Uuid([7; 16]);
    let mut crush = CrushMap::fresh("host");
    // Devices hang below hosts, hosts below racks: built by hand, as 10,000 single commands would take a while.
    let root = crush.id_of("default").expect("root");
    let mut rack_ids = Vec::new();
    for host in 0..osds / OSDS_PER_HOST {
        let rack = host / HOSTS_PER_RACK;
        if rack as usize == rack_ids.len() {
            rack_ids.push(crush.add_bucket(&format!("rack{rack}"), "rack").expect("rack"));
        }
        let id = crush.add_bucket(&format!("host{host}"), "host").expect("host");
        let devices: Vec<i32> = (host * OSDS_PER_HOST..(host + 1) * OSDS_PER_HOST).collect();
        let n = devices.len();
        crush.bucket_mut(id).expect("host").set_items(devices.clone(), vec![WEIGHT_ONE; n], 1).expect("items");
        for d in devices {
            crush.item_names.insert(d, format!("osd.{d}"));
        }
        let b = crush.bucket_mut(rack_ids[rack as usize]).expect("rack");
        let (mut items, mut weights) = (b.items.clone(), b.weights());
        items.push(id);
        weights.push(WEIGHT_ONE * OSDS_PER_HOST as u32);
        b.set_items(items, weights, 1).expect("items");
    }
    crush.max_devices = osds;
    let weights = rack_ids.iter().map(|r| crush.bucket(*r).expect("rack").weight).collect();
    crush.bucket_mut(root).expect("root").set_items(rack_ids, weights, 1).expect("items");

    let mut inc = Incremental::new(fsid, Epoch(1), Utime { sec: 1, nsec: 0 });
    inc.new_max_osd = osds;
    inc.crush = crush.encode_blob(CANONICAL);
    inc.new_require_osd_release = cluster::release::PACIFIC;
    for o in 0..osds {
        let id = OsdId(o);
        inc.new_weight.insert(id, WEIGHT_IN);
        inc.new_up_client.insert(id, addr(o, 6800));
        inc.new_up_cluster.insert(id, addr(o, 6801));
        inc.new_hb_back_up.insert(id, addr(o, 6802));
        inc.new_hb_front_up.insert(id, addr(o, 6803));
        inc.new_uuid.insert(id, Uuid([o as u8; 16]));
    }
    for p in 1..=POOLS {
        let pg_num = pgs / POOLS as u32;
        let pool = PgPool {
            kind: kind::REPLICATED,
            size: 3,
            min_size: 2,
            pg_num,
            pgp_num: pg_num,
            flags: flag::HASHPSPOOL,
            ..PgPool::default()
        };
        inc.new_pools.insert(PoolId(p), pool);
        inc.new_pool_names.insert(PoolId(p), format!("pool{p}"));
    }
    inc.new_pool_max = POOLS;
    let mut map = OsdMap::default().apply(&inc).expect("first map");
    // Adds some of every override that slows a lookup down.
    let mut inc = Incremental::new(fsid, Epoch(2), Utime { sec: 2, nsec: 0 });
    let mut rng = Rng::new(1);
    for _ in 0..pgs / 50 {
        let pg = PgId::new(1 + rng.below(POOLS as u64) as i64, rng.below(u64::from(pgs) / POOLS as u64) as u32);
        let (from, to) = (rng.below(osds as u64) as i32, rng.below(osds as u64) as i32);
        inc.new_pg_upmap_items.insert(pg, vec![(OsdId(from), OsdId(to))]);
    }
    map = map.apply(&inc).expect("upmaps");
    map
}

fn map_all(map: &OsdMap) -> (u64, u64) {
    let (mut scratch, mut out) = (PlaceScratch::default(), UpActing::default());
    let (mut n, mut sum) = (0, 0u64);
    for pool in map.pools.keys() {
        for pg in map.pgs_of(*pool) {
            map.pg_to_up_acting_with(pg, &mut scratch, &mut out);
            sum = sum.wrapping_mul(31).wrapping_add(out.acting_primary.0 as u64);
            n += 1;
        }
    }
    (n, sum)
}

fn main() {
    let arg = |i: usize, d: u32| std::env::args().nth(i).and_then(|s| s.parse().ok()).unwrap_or(d);
    let (osds, pgs) = (arg(1, 10_000) as i32, arg(2, 1_000_000));
    println!(
        "{osds} OSDs in hosts of {OSDS_PER_HOST}, racks of {HOSTS_PER_RACK} hosts; {pgs} PGs of size 3 in {POOLS} pools"
    );
    let map = build(osds, pgs);

    let t = Instant::now();
    let (blob, _) = map.encode_blob(CANONICAL);
    report(&format!("encode the full map ({} KiB)", blob.len() / 1024), 1, t.elapsed());

    let t = Instant::now();
    let decoded = OsdMap::decode_blob(&blob).expect("decodes");
    report("decode the full map", 1, t.elapsed());
    assert_eq!(decoded.encode_blob(CANONICAL).0, blob);

    let mut at = map.clone();
    let mut rng = Rng::new(2);
    let incs: Vec<bytes::Bytes> = (0..1000u32)
        .map(|i| {
            let mut inc = Incremental::new(at.fsid, Epoch(at.epoch.0 + 1 + i), Utime { sec: 9, nsec: 0 });
            let osd = OsdId(rng.below(osds as u64) as i32);
            inc.new_up_thru.insert(osd, inc.epoch);
            inc.new_weight.insert(OsdId(rng.below(osds as u64) as i32), WEIGHT_IN);
            inc.new_state.insert(OsdId(rng.below(osds as u64) as i32), osd_state::FULL);
            let pg = PgId::new(1, rng.below(u64::from(pgs) / POOLS as u64) as u32);
            inc.new_pg_temp.insert(pg, vec![osd]);
            inc.encode_blob(CANONICAL, 0)
        })
        .collect();
    let t = Instant::now();
    let mut kept = Vec::new();
    for blob in &incs {
        let inc = Incremental::decode_blob(blob).expect("decodes");
        let next = at.apply(&inc).expect("applies");
        kept.push(std::mem::replace(&mut at, next));
    }
    report("decode and apply an incremental (old maps kept)", incs.len() as u64, t.elapsed());
    drop(kept);

    let mut crush = (*map.crush).clone();
    let loc: Location = [("host", "host0"), ("root", "default")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let t = Instant::now();
    for i in 0..10 {
        crush.insert_item(osds + i, WEIGHT_ONE, &format!("osd.{}", osds + i), &loc).expect("inserts");
    }
    report("add an OSD to CRUSH", 10, t.elapsed());

    let t = Instant::now();
    let (n, sum) = map_all(&map);
    report("map a PG (all PGs of all pools in turn)", n, t.elapsed());
    println!("{:<46} {:>9.3} s", "map all PGs", t.elapsed().as_secs_f64());
    black_box(sum);

    let names: Vec<String> = (0..1000).map(|i| format!("rbd_data.{i:x}.{:016x}", i * 7919)).collect();
    let t = Instant::now();
    let mut sum = 0u64;
    for _ in 0..200 {
        for n in &names {
            let pg = map.object_to_pg(PoolId(1), n.as_bytes(), b"", b"").expect("pool");
            sum = sum.wrapping_add(u64::from(pg.seed));
        }
    }
    report("hash an object name to its PG", 200_000, t.elapsed());
    black_box(sum);
}
