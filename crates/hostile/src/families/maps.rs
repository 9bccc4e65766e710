//! OSD maps, incremental maps and monitor maps, with the first operations on them: encoding again, placing PGs,
//! applying. Input: u8 selector, then the blob. Checksums of maps are corrected first; otherwise nothing behind them
//! would be reached.

use super::{Family, select, there_and_back};
use crate::vectors;
use base::crc::{SEED, crc32c};
use bytes::Bytes;
use cluster::{Incremental, MonMap, OsdMap};
use std::sync::LazyLock;
use wire::msg::MOsdMap;
use wire::{Features, WireMessage};

pub(super) const FAMILY: Family = Family { name: "maps", run, seeds, alloc_fixed: ALLOC_FIXED, cost: 4 };

/// A small map may announce `cluster::osdmap::MAX_OSD_LIMIT` OSDs.
const ALLOC_FIXED: usize = 96 << 20;
/// Most pools, and most PGs per pool, that are placed: the cost of mapping is bounded per PG, not per map.
const POOLS: usize = 3;
const PGS: usize = 8;
/// Limit for applying incremental maps: a new maximum of OSDs may legitimately require a large map.
const MAX_OSD: i32 = 10_000;
/// Features of a kernel client, which select older encodings.
const KERNEL: Features = Features(Features::PACIFIC.0 & !(1 << 28) & !(1 << 2));

const WHICH: &[fn(&[u8])] = &[full, incremental, there_and_back::<MonMap>];

fn run(input: &[u8]) {
    if let Some((decode, rest)) = select(WHICH, input) {
        decode(rest);
    }
}

fn place(map: &OsdMap) {
    for (id, _) in map.pools.iter().take(POOLS) {
        for pg in map.pgs_of(*id).take(PGS) {
            let _ = map.pg_to_up_acting(pg);
        }
        let _ = map.object_to_pg(*id, b"object", b"", b"namespace");
    }
}

fn full(input: &[u8]) {
    let mut b = input.to_vec();
    if let Some(at) = b.len().checked_sub(4) {
        let crc = crc32c(SEED, &b[..at]);
        b[at..].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok(map) = OsdMap::decode_blob(&b.into()) else { return };
    place(&map);
    let (once, _) = map.encode_blob(Features::PACIFIC);
    let again = OsdMap::decode_blob(&once).unwrap_or_else(|e| panic!("own encoding refused: {e}"));
    assert!(again.encode_blob(Features::PACIFIC).0 == once, "encoding is not stable");
    let _ = map.encode_blob(KERNEL);
}

/// The smallest captured map, on which incremental maps are applied.
static BASE: LazyLock<Option<OsdMap>> = LazyLock::new(|| {
    let blobs = captured().into_iter().flat_map(|m| m.maps.into_values());
    blobs.min_by_key(Bytes::len).and_then(|b| OsdMap::decode_blob(&b).ok())
});

fn incremental(input: &[u8]) {
    let mut b = input.to_vec();
    if let Some(at) = b.len().checked_sub(8) {
        let crc = crc32c(crc32c(SEED, &b[..at]), &b[at + 4..]);
        b[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok(mut inc) = Incremental::decode_blob(&b.into()) else { return };
    let once = inc.encode_blob(Features::PACIFIC, 0);
    let again = Incremental::decode_blob(&once).unwrap_or_else(|e| panic!("own encoding refused: {e}"));
    assert!(again.encode_blob(Features::PACIFIC, 0) == once, "encoding is not stable");
    if let Some(base) = &*BASE
        && inc.new_max_osd < MAX_OSD
    {
        inc.fsid = base.fsid;
        inc.epoch = base.epoch.next();
        if let Ok(next) = base.apply(&inc) {
            place(&next);
        }
    }
}

fn captured() -> Vec<MOsdMap> {
    let all = vectors::all_messages();
    all.iter().filter(|m| m.header.kind == MOsdMap::KIND).filter_map(|m| MOsdMap::from_message(m).ok()).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    // Initialized here, not in the first measured run.
    LazyLock::force(&BASE);
    let mut out = Vec::new();
    let mut add = |which: u8, blob: &[u8]| out.push([&[which], blob].concat());
    let maps = captured();
    for b in maps.iter().flat_map(|m| m.maps.values()).step_by(3) {
        add(0, b);
    }
    for b in maps.iter().flat_map(|m| m.incremental_maps.values()).step_by(5) {
        add(1, b);
    }
    for f in vectors::files("osdmap", |n| n.ends_with(".osdmap")) {
        add(0, &f);
    }
    for f in vectors::files("enc", |n| n.starts_with("monmap") && n.ends_with(".bin")) {
        add(2, &f);
    }
    out
}
