//! Do maps survive the wire whatever they hold, and do incrementals give the same map before and after it?
//!
//! Random chains of incrementals from a seed (printed on failure) against two independent paths: apply in memory, and
//! encode, decode, apply, encode, decode.

use base::id::Uuid;
use base::rng::Rng;
use base::{AddrVec, EntityAddr, Epoch, OsdId, PgId, PoolId, SnapId, Utime};
use cluster::crush::{CHOOSE_ARGS_COMPAT, CrushMap, Location, RuleSpec};
use cluster::osdmap::interval::is_new_interval_between;
use cluster::osdmap::{AddrKey, CANONICAL, OsdXinfo, StretchMode};
use cluster::pool::{PgPool, PoolOpt, PoolSnap, kind};
use cluster::{Incremental, IntervalSet, MapError, OsdMap};
use wire::Features;

const OSDS: i32 = 24;
const POOLS: i64 = 4;

fn osd(r: &mut Rng) -> OsdId {
    OsdId(r.below(OSDS as u64) as i32)
}

fn pg(r: &mut Rng) -> PgId {
    PgId::new(1 + r.below(POOLS as u64) as i64, r.below(16) as u32)
}

fn addr(r: &mut Rng) -> EntityAddr {
    let port = r.below(60_000) as u16;
    let sock = if r.chance(1, 4) {
        (std::net::Ipv6Addr::from_bits(u128::from(r.next_u64())), port).into()
    } else {
        (std::net::Ipv4Addr::from_bits(r.next_u64() as u32), port).into()
    };
    EntityAddr::msgr2(sock, r.next_u64() as u32)
}

fn addrs(r: &mut Rng) -> AddrVec {
    AddrVec((0..r.below(3)).map(|_| addr(r)).collect())
}

fn text(r: &mut Rng) -> String {
    (0..r.below(8)).map(|_| char::from(b'a' + r.below(26) as u8)).collect()
}

fn snaps(r: &mut Rng) -> IntervalSet {
    let mut s = IntervalSet::new();
    for _ in 0..1 + r.below(3) {
        s.insert(r.below(50), 1 + r.below(5));
    }
    s
}

fn pool(r: &mut Rng) -> PgPool {
    let pg_num = 1 + r.below(16) as u32;
    let mut p = PgPool {
        kind: if r.chance(1, 4) { kind::ERASURE } else { kind::REPLICATED },
        size: 1 + r.below(4) as u8,
        min_size: 1,
        crush_rule: r.below(3) as u8,
        pg_num,
        pgp_num: 1 + r.below(u64::from(pg_num)) as u32,
        flags: r.next_u64() & 0x3_ffff,
        quota_max_bytes: r.next_u64(),
        create_time: Utime { sec: r.next_u64() as u32, nsec: 5 },
        erasure_code_profile: text(r),
        ..PgPool::default()
    };
    p.opts.insert(0, PoolOpt::Float(0.5));
    p.opts.insert(6, PoolOpt::Str(text(r)));
    p.opts.insert(16, PoolOpt::Int(r.next_u64() as i64));
    p.application_metadata.entry("rbd".to_owned()).or_default().insert(text(r), text(r));
    p.snaps.insert(3, PoolSnap { snapid: SnapId(3), stamp: Utime::ZERO, name: text(r) });
    p.tiers.insert(r.below(9));
    p
}

fn crush(r: &mut Rng) -> CrushMap {
    let mut m = CrushMap::fresh("host");
    for o in 0..OSDS {
        let loc: Location = [
            ("host", format!("h{}", r.below(6))),
            ("rack", format!("r{}", r.below(2))),
            ("root", "default".to_owned()),
        ]
        .map(|(a, b)| (a.to_owned(), b))
        .into();
        m.insert_item(o, 1 + r.below(0x2_0000) as u32, &format!("osd.{o}"), &loc).unwrap();
        if r.chance(1, 2) {
            m.set_device_class(o, if r.chance(1, 2) { "ssd" } else { "hdd" }).unwrap();
        }
    }
    m.add_simple_rule(&RuleSpec { name: "ec", failure_domain: "osd", indep: true, kind: 3, ..RuleSpec::default() })
        .unwrap();
    let _ = m.add_simple_rule(&RuleSpec { name: "fast", class: "ssd", ..RuleSpec::default() });
    if r.chance(1, 2) {
        m.create_weight_set(CHOOSE_ARGS_COMPAT, 1).unwrap();
        m.reweight_in_set(CHOOSE_ARGS_COMPAT, 3, &[7]).unwrap();
    }
    m
}

fn range(r: &mut Rng) -> EntityAddr {
    let a = addr(r);
    EntityAddr { kind: base::AddrKind::CIDR, nonce: r.below(33) as u32, ..a }
}

/// Fills the first map.
fn first(i: &mut Incremental, r: &mut Rng) {
    i.new_max_osd = OSDS;
    i.crush = crush(r).encode_blob(CANONICAL);
    i.new_require_osd_release = cluster::release::PACIFIC;
    i.new_flags = cluster::osdmap::map_flag::FRESH as i32;
    for p in 1..=POOLS {
        i.new_pools.insert(PoolId(p), pool(r));
        i.new_pool_names.insert(PoolId(p), format!("p{p}"));
    }
    for o in 0..OSDS {
        i.new_weight.insert(OsdId(o), 0x1_0000);
    }
}

fn incremental(m: &OsdMap, r: &mut Rng) -> Incremental {
    let mut i = Incremental::new(Uuid([9; 16]), m.epoch.next(), Utime { sec: m.epoch.0 + 1, nsec: 1 });
    if m.epoch.0 == 0 {
        first(&mut i, r);
    }
    for _ in 0..r.below(4) {
        let o = osd(r);
        match r.below(26) {
            0 | 1 => {
                i.new_up_client.insert(o, addrs(r));
                i.new_hb_back_up.insert(o, addrs(r));
                i.new_hb_front_up.insert(o, addrs(r));
                i.new_up_cluster.insert(o, addrs(r));
                i.new_last_up_change = i.modified;
            }
            2 => drop(i.new_state.insert(o, r.below(0x2000) as u32)),
            3 => drop(i.new_weight.insert(o, r.below(0x1_0001) as u32)),
            4 => drop(i.new_pg_temp.insert(pg(r), (0..r.below(4)).map(|_| osd(r)).collect())),
            5 => drop(i.new_primary_temp.insert(pg(r), if r.chance(1, 3) { OsdId(-1) } else { osd(r) })),
            6 => drop(i.new_primary_affinity.insert(o, r.below(0x1_0001) as u32)),
            7 => drop(i.new_pg_upmap.insert(pg(r), (0..3).map(|_| osd(r)).collect())),
            8 => drop(i.new_pg_upmap_items.insert(pg(r), vec![(osd(r), osd(r)), (osd(r), osd(r))])),
            9 => drop(i.old_pg_upmap.insert(pg(r))),
            10 => drop(i.old_pg_upmap_items.insert(pg(r))),
            24 => drop(i.new_pg_upmap_primary.insert(pg(r), osd(r))),
            25 => drop(i.old_pg_upmap_primary.insert(pg(r))),
            11 => drop(i.new_blocklist.insert(AddrKey(addr(r)), Utime { sec: 5, nsec: 6 })),
            12 => i.old_blocklist.extend(m.blocklist.keys().next().copied()),
            21 => drop(i.new_range_blocklist.insert(AddrKey(range(r)), Utime { sec: 7, nsec: 8 })),
            22 => i.old_range_blocklist.extend(m.range_blocklist.keys().next().copied()),
            13 => {
                let p = 1 + r.below(POOLS as u64) as i64;
                i.new_pools.insert(PoolId(p), pool(r));
            }
            14 => drop(i.new_removed_snaps.insert(PoolId(1), snaps(r))),
            15 => {
                if let Some((p, s)) = m.removed_snaps_queue.iter().next() {
                    i.new_purged_snaps.insert(*p, s.clone());
                }
            }
            16 => i.crush = crush(r).encode_blob(CANONICAL),
            17 => {
                i.new_erasure_code_profiles.entry(text(r)).or_default().insert(text(r), text(r));
                i.old_erasure_code_profiles.push(text(r));
            }
            18 => {
                i.new_up_thru.insert(o, i.epoch);
                i.new_last_clean_interval.insert(o, (Epoch(1), i.epoch));
                i.new_lost.insert(o, Epoch(r.below(9) as u32));
                i.new_uuid.insert(o, Uuid([r.below(255) as u8; 16]));
                i.new_xinfo.insert(o, OsdXinfo { features: r.next_u64(), old_weight: 3, ..OsdXinfo::default() });
            }
            19 => {
                i.new_nearfull_ratio = 0.5;
                i.new_crush_node_flags.insert(-1, r.below(3) as u32);
                i.new_device_class_flags.insert(0, r.below(3) as u32);
            }
            20 => {
                i.new_stretch = Some(StretchMode { enabled: r.chance(1, 2), bucket_count: 2, ..StretchMode::default() })
            }
            _ => i.new_flags = r.below(0x80_0000) as i32,
        }
    }
    i
}

#[test]
fn chains_of_incrementals_survive_the_wire() {
    for seed in 0..12u64 {
        let mut r = Rng::new(seed);
        let mut at = OsdMap::default();
        let mut far = OsdMap::default();
        for step in 0..25 {
            let at_place = format!("seed {seed} step {step}");
            let inc = incremental(&at, &mut r);
            let next = at.apply(&inc).unwrap_or_else(|e| panic!("{at_place}: {e}"));
            let form = next.canonical_features(&inc);
            let (full, crc) = next.encode_blob(form);
            let sent = inc.encode_blob(form, crc);

            let got = Incremental::decode_blob(&sent).unwrap_or_else(|e| panic!("{at_place}: {e}"));
            assert_eq!(got.encode_blob(form, got.full_crc), sent, "{at_place}");
            let (far_next, far_full) = far.apply_checked(&got).unwrap_or_else(|e| panic!("{at_place}: {e}"));
            assert_eq!(far_full, full, "{at_place}");
            assert_eq!(far_next.pg_upmap_primaries, next.pg_upmap_primaries, "{at_place}");
            let again = OsdMap::decode_blob(&full).unwrap_or_else(|e| panic!("{at_place}: {e}"));
            assert_eq!(again.encode_blob(form).0, full, "{at_place}");
            for pool in next.pools.keys() {
                for pg in next.pgs_of(*pool) {
                    let here = next.pg_to_up_acting(pg);
                    assert_eq!(here, again.pg_to_up_acting(pg), "{at_place} {pg}");
                    let p = next.pool(*pool).unwrap();
                    let hole = |o: &OsdId| *o == OsdId::NONE;
                    assert!(here.up.iter().all(|o| next.is_up(*o) || (p.is_erasure() && hole(o))), "{at_place} {pg}");
                    if here.acting_primary == OsdId(-1) {
                        assert!(!next.primary_temp.contains_key(&pg), "{at_place} {pg}");
                    }
                    // A changed set always starts a new interval.
                    if at.pool(*pool).is_some() && pg.seed < at.pool(*pool).unwrap().pg_num {
                        let before = at.pg_to_up_acting(pg);
                        if before != here {
                            assert!(is_new_interval_between(&at, &next, pg), "{at_place} {pg}");
                        }
                    }
                }
            }
            // The encodings for older peers can be decoded too.
            for f in [CANONICAL, Features(CANONICAL.0 & !(1 << 2)), Features(CANONICAL.0 & !(1 << 2 | 1 << 28))] {
                let (b, _) = next.encode_blob(f);
                let old = OsdMap::decode_blob(&b).unwrap_or_else(|e| panic!("{at_place}: {e}"));
                assert_eq!(old.pools.len(), next.pools.len());
                Incremental::decode_blob(&inc.encode_blob(f, 0)).unwrap_or_else(|e| panic!("{at_place}: {e}"));
            }
            (at, far) = (next, far_next);
        }
    }
}

#[test]
fn incrementals_that_do_not_fit_are_refused() {
    let mut r = Rng::new(1);
    let first = incremental(&OsdMap::default(), &mut r);
    let m = OsdMap::default().apply(&first).unwrap();
    let inc = || Incremental::new(m.fsid, m.epoch.next(), Utime::ZERO);

    let mut late = inc();
    late.epoch = late.epoch.next();
    assert!(matches!(m.apply(&late), Err(MapError::EpochGap { .. })));
    let mut foreign = inc();
    foreign.fsid = Uuid([1; 16]);
    assert!(matches!(m.apply(&foreign), Err(MapError::OtherCluster { .. })));
    let mut outside = inc();
    outside.new_state.insert(OsdId(OSDS), 2);
    assert!(matches!(m.apply(&outside), Err(MapError::NoSuchOsd { .. })));
    let mut negative = inc();
    negative.new_weight.insert(OsdId(-1), 2);
    assert!(matches!(m.apply(&negative), Err(MapError::NoSuchOsd { .. })));
    let mut many = inc();
    many.new_max_osd = i32::MAX;
    assert!(matches!(m.apply(&many), Err(MapError::TooManyOsds { .. })));
    let mut purged = inc();
    purged.new_purged_snaps.insert(PoolId(77), snaps(&mut r));
    assert!(matches!(m.apply(&purged), Err(MapError::NotQueued { .. })));
    let mut crush = inc();
    crush.crush = bytes::Bytes::from_static(b"nonsense");
    assert!(matches!(m.apply(&crush), Err(MapError::Decode(_))));
    let wrong = Incremental::decode_blob(&inc().encode_blob(CANONICAL, 1)).unwrap();
    assert!(matches!(m.apply_checked(&wrong), Err(MapError::FullCrc { .. })));
}

#[test]
fn blocklist_entries_match_an_instance_or_a_whole_address() {
    let mut r = Rng::new(3);
    let mut first = incremental(&OsdMap::default(), &mut r);
    let any = |s: &str, nonce| EntityAddr { kind: base::AddrKind::ANY, nonce, sock: Some(s.parse().unwrap()) };
    first.new_blocklist.insert(AddrKey(any("10.0.0.1:5000", 77)), Utime::ZERO);
    first.new_blocklist.insert(AddrKey(any("10.0.0.2:0", 0)), Utime::ZERO);
    let m = OsdMap::default().apply(&first).unwrap();
    let at = |s: &str, nonce| EntityAddr::msgr2(s.parse().unwrap(), nonce);
    assert!(m.is_blocklisted(&at("10.0.0.1:5000", 77)));
    assert!(!m.is_blocklisted(&at("10.0.0.1:5000", 78)));
    assert!(!m.is_blocklisted(&at("10.0.0.1:5001", 77)));
    assert!(m.is_blocklisted(&at("10.0.0.2:1234", 5)));
    assert!(!m.is_blocklisted(&at("10.0.0.3:1234", 5)));
}

#[test]
fn a_blocklisted_range_blocks_the_addresses_in_it() {
    let cidr = |ip: &str, bits| EntityAddr {
        kind: base::AddrKind::CIDR,
        nonce: bits,
        sock: Some(std::net::SocketAddr::new(ip.parse().unwrap(), 0)),
    };
    let at = |s: &str| EntityAddr::msgr2(s.parse().unwrap(), 9);
    let check = |range: EntityAddr, inside: &[&str], outside: &[&str]| {
        let mut inc = Incremental::new(base::id::Uuid::ZERO, Epoch(1), Utime::ZERO);
        inc.new_range_blocklist.insert(AddrKey(range), Utime { sec: 9, nsec: 0 });
        let m = OsdMap::default().apply(&inc).unwrap();
        for a in inside {
            assert!(m.is_blocklisted(&at(a)), "{a} is in {range}");
            assert!(m.is_any_blocklisted(&AddrVec(vec![at("192.0.2.1:1"), at(a)])), "{a} is in {range}");
        }
        for a in outside {
            assert!(!m.is_blocklisted(&at(a)), "{a} is not in {range}");
        }
        assert!(!m.is_blocklisted(&EntityAddr::unlistening(5)), "a blank address is in no range");
        let mut inc = Incremental::new(base::id::Uuid::ZERO, Epoch(2), Utime::ZERO);
        inc.old_range_blocklist.push(AddrKey(range));
        let m = m.apply(&inc).unwrap();
        assert!(!inside.iter().any(|a| m.is_blocklisted(&at(a))), "let in again");
    };
    check(cidr("10.1.2.77", 24), &["10.1.2.0:5", "10.1.2.255:0"], &["10.1.3.0:5", "10.1.1.255:5", "[::10.1.2.0]:5"]);
    check(cidr("10.1.2.0", 32), &["10.1.2.0:5"], &["10.1.2.1:5"]);
    check(cidr("128.0.0.0", 1), &["255.0.0.1:5", "128.0.0.0:1"], &["127.255.255.255:5"]);
    check(cidr("10.1.2.0", 0), &["1.2.3.4:5"], &["[::1]:5"]);
    check(cidr("2001:db8::", 32), &["[2001:db8:ffff::1]:5", "[2001:db8::]:5"], &["[2001:db9::]:5", "32.1.13.184:5"]);
    check(cidr("2001:db8::100", 120), &["[2001:db8::1ff]:5"], &["[2001:db8::200]:5"]);
    check(cidr("2001:db8::1", 128), &["[2001:db8::1]:5"], &["[2001:db8::2]:5"]);
    check(cidr("::", 0), &["[2001:db8::2]:5"], &["0.0.0.0:5"]);
    // A prefix longer than an address, which only a broken monitor would send, matches the address itself.
    check(cidr("10.1.2.0", u32::MAX), &["10.1.2.0:5"], &["10.1.2.1:5"]);
}
