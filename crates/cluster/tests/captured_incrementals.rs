//! Does applying the incrementals of real monitors give, byte for byte, the maps those monitors had?
//!
//! Real OSDs and monitors check each other by the checksum of the canonical full map; a map of ours that differs in
//! one bit would make a real OSD stop and ask for full maps.

use base::id::Uuid;
use base::{Epoch, crc};
use bytes::Bytes;
use cluster::osdmap::CANONICAL;
use cluster::{Incremental, OsdMap};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use wire::{Features, Reader};

const MSG_OSD_MAP: u16 = 41;
const TAG_MESSAGE: u8 = 17;

/// Map blobs of one cluster, by epoch.
#[derive(Default)]
struct Maps {
    incs: BTreeMap<u32, Bytes>,
    fulls: BTreeMap<u32, Bytes>,
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap())
}

/// Fronts of the OSD_MAP messages of one direction of a connection.
fn osd_map_fronts(stream: &[u8]) -> Vec<Bytes> {
    let mut at = 10 + usize::from(u16::from_le_bytes([stream[8], stream[9]]));
    let mut out = Vec::new();
    while at + 32 <= stream.len() {
        let lens: Vec<usize> = (0..4).map(|i| u32_at(stream, at + 2 + 6 * i) as usize).collect();
        let (tag, n) = (stream[at], stream[at + 1]);
        let seg1 = at + 32 + lens[0] + if lens[0] > 0 { 4 } else { 0 };
        let next = seg1 + lens[1] + lens[2] + lens[3] + if n > 1 { 13 } else { 0 };
        if next > stream.len() {
            break;
        }
        if tag == TAG_MESSAGE && u16::from_le_bytes([stream[at + 48], stream[at + 49]]) == MSG_OSD_MAP {
            let front = &stream[seg1..seg1 + lens[1]];
            assert_eq!(crc::crc32c(crc::SEED, front), u32_at(stream, next - 12), "front at {at}");
            out.push(Bytes::copy_from_slice(front));
        }
        at = next;
    }
    out
}

fn clusters() -> BTreeMap<Uuid, Maps> {
    let mut all: BTreeMap<Uuid, Maps> = BTreeMap::new();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/daemons");
    for e in std::fs::read_dir(dir).unwrap() {
        let path = e.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".bin.gz") {
            continue;
        }
        let mut stream = Vec::new();
        flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_end(&mut stream).unwrap();
        for front in osd_map_fronts(&stream) {
            let mut r = Reader::shared(&front);
            let fsid: Uuid = r.get().unwrap();
            let maps = all.entry(fsid).or_default();
            for (incs, into) in [(true, &mut maps.incs), (false, &mut maps.fulls)] {
                let m: BTreeMap<u32, Bytes> = r.get().unwrap();
                for (epoch, blob) in m {
                    if let Some(old) = into.insert(epoch, blob.clone()) {
                        assert_eq!(old, blob, "{name}: two forms of epoch {epoch}, incremental {incs}");
                    }
                }
            }
        }
    }
    all
}

/// The incrementals in real monitors' stores, from the first epoch on. In `erasure`, profiles, their rules and coded
/// pools were created, changed and removed. In `ranges`, address ranges were blocklisted, and none are at the end.
fn stores() -> [(Uuid, Maps); 2] {
    [(Uuid([0xec; 16]), store("erasure")), (Uuid([0xb1; 16]), store("ranges"))]
}

fn store(name: &str) -> Maps {
    incs_of(&format!("pacific-{name}"))
}

fn vectors() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

fn incs_of(name: &str) -> Maps {
    let path = vectors().join(format!("osdmap/{name}.incs.gz"));
    let mut all = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut all).unwrap();
    let mut maps = Maps::default();
    let mut rest = Bytes::from(all);
    while !rest.is_empty() {
        let (epoch, len) = (u32_at(&rest, 0), u32_at(&rest, 4) as usize);
        maps.incs.insert(epoch, rest.slice(8..8 + len));
        rest = rest.slice(8 + len..);
    }
    maps
}

#[test]
fn captured_blobs_reencode_byte_for_byte() {
    let (mut incs, mut fulls) = (0, 0);
    for (fsid, maps) in clusters().into_iter().chain(stores()) {
        for (epoch, blob) in &maps.incs {
            let inc = Incremental::decode_blob(blob).unwrap_or_else(|e| panic!("{fsid} {epoch}: {e}"));
            assert_eq!(inc.epoch, Epoch(*epoch));
            let again = inc.encode_blob(Features(inc.encode_features), inc.full_crc);
            assert_eq!(&again, blob, "{fsid} incremental {epoch}");
            incs += 1;
        }
        for (epoch, blob) in &maps.fulls {
            let map = OsdMap::decode_blob(blob).unwrap_or_else(|e| panic!("{fsid} {epoch}: {e}"));
            assert_eq!(map.epoch, Epoch(*epoch));
            assert_eq!(&map.encode_blob(CANONICAL).0, blob, "{fsid} map {epoch}");
            fulls += 1;
        }
    }
    assert!(incs > 150 && fulls > 5, "{incs} incrementals, {fulls} fulls");
}

#[test]
fn each_incremental_leads_to_the_map_its_monitor_had() {
    let (mut applied, mut whole) = (0, 0);
    let (mut set, mut removed) = (0, 0);
    let mut ranges = 0;
    for (fsid, maps) in clusters().into_iter().chain(stores()) {
        let mut at: Option<OsdMap> = None;
        let last = maps.incs.keys().chain(maps.fulls.keys()).max().copied().unwrap_or(0);
        for epoch in 1..=last {
            let prev = match at.take() {
                Some(m) => Some(m),
                None if epoch == 1 => Some(OsdMap::default()),
                None => None,
            };
            let next = maps.incs.get(&epoch).zip(prev).map(|(blob, prev)| {
                let inc = Incremental::decode_blob(blob).unwrap();
                set += inc.new_erasure_code_profiles.len();
                removed += inc.old_erasure_code_profiles.len();
                ranges += inc.new_range_blocklist.len() + inc.old_range_blocklist.len();
                // Epoch 1 contains the full map.
                whole += usize::from(!inc.fullmap.is_empty());
                let (next, full) = prev.apply_checked(&inc).unwrap_or_else(|e| panic!("{fsid} epoch {epoch}: {e}"));
                if let Some(captured) = maps.fulls.get(&epoch) {
                    assert_eq!(&full, captured, "{fsid} epoch {epoch}");
                }
                applied += 1;
                next
            });
            at = next.or_else(|| maps.fulls.get(&epoch).map(|b| OsdMap::decode_blob(b).unwrap()));
        }
    }
    println!("{applied} incrementals applied, {whole} of them whole maps");
    assert!(applied > 250, "only {applied} incrementals applied");
    assert!(set > 20 && removed > 1, "{set} profiles set, {removed} removed");
    assert!(ranges > 8, "{ranges} ranges shut out or let in");
}

#[test]
fn applying_shares_what_does_not_change_and_leaves_the_old_map_alone() {
    let (_, maps) = clusters().into_iter().max_by_key(|(_, m)| m.incs.len()).unwrap();
    let mut chain = vec![OsdMap::default()];
    for blob in maps.incs.values() {
        let inc = Incremental::decode_blob(blob).unwrap();
        if inc.epoch != chain.last().unwrap().epoch.next() {
            break;
        }
        let next = chain.last().unwrap().apply(&inc).unwrap();
        chain.push(next);
    }
    let before: Vec<u32> = chain.iter().map(|m| m.encode_blob(CANONICAL).1).collect();
    // The old maps are unchanged by the later ones that share data with them.
    for (m, crc) in chain.iter().zip(&before) {
        assert_eq!(m.encode_blob(CANONICAL).1, *crc, "epoch {}", m.epoch);
    }
    assert!(chain.len() > 20);
}

/// Every CRUSH change of a real monitor is reproduced by the edit of the same command.
#[test]
fn our_edits_reproduce_the_crush_changes_of_real_monitors() {
    use cluster::CrushMap;
    use cluster::crush::Location;
    let (mut fresh, mut edits) = (0, 0);
    for maps in clusters().into_values() {
        let mut at: Option<CrushMap> = None;
        for (epoch, blob) in &maps.incs {
            let inc = Incremental::decode_blob(blob).unwrap();
            if *epoch == 1 {
                let map = OsdMap::decode_blob(&inc.fullmap).unwrap();
                assert!(["host", "osd"].iter().any(|d| *map.crush == CrushMap::fresh(d)), "{:?}", map.crush);
                fresh += 1;
                at = Some((*map.crush).clone());
            }
            if inc.crush.is_empty() {
                continue;
            }
            let want = CrushMap::decode_blob(&inc.crush).unwrap();
            if let Some(from) = at.replace(want.clone()) {
                let found = (0..want.max_devices).any(|d| {
                    let loc: Location = want.full_location(d).into_iter().collect();
                    let mut moved = from.clone();
                    let name = want.name_of(d).unwrap_or_default().to_owned();
                    let ok = moved.create_or_move_item(d, want.item_weight(d), &name, &loc).is_ok();
                    let mut classed = from.clone();
                    let classed_ok = want.class_of(d).is_some_and(|c| classed.set_device_class(d, c).is_ok());
                    (ok && moved == want) || (classed_ok && classed == want)
                });
                assert!(found, "epoch {epoch}:\n{from:?}\n{want:?}");
                edits += 1;
            }
        }
    }
    assert!(fresh >= 3 && edits >= 3, "{fresh} fresh maps, {edits} edits");
}

/// The commands on chosen primaries, as a monitor of 20.2.4 wrote them: set, set again, taken back, all taken back.
#[test]
fn chosen_primaries_are_those_of_a_real_monitor() {
    let map_of = |name: &str| {
        let blob = std::fs::read(vectors().join(format!("osdmap/{name}.osdmap"))).unwrap();
        OsdMap::decode_blob(&blob.into()).unwrap()
    };
    let mut at = map_of("tentacle-primaries-first");
    let last = map_of("tentacle-primaries");
    let (mut set, mut removed) = (0, 0);
    for (epoch, blob) in &incs_of("tentacle-primaries").incs {
        let inc = Incremental::decode_blob(blob).unwrap();
        // Tentacle writes pools in a form of its own.
        if inc.new_pools.is_empty() {
            assert_eq!(&inc.encode_blob(Features(inc.encode_features), inc.full_crc), blob, "incremental {epoch}");
        }
        at = at.apply(&inc).unwrap();
        set += inc.new_pg_upmap_primary.len();
        removed += inc.old_pg_upmap_primary.len();
        if at.epoch == last.epoch {
            // The whole map was asked for by a client that has no MSR rules.
            let mut seen = at.clone();
            std::sync::Arc::make_mut(&mut seen.crush).tunables.msr = None;
            assert_eq!(seen, last);
            assert_eq!(at.pg_upmap_primaries.len(), 3);
            let text = std::fs::read_to_string(vectors().join("mapping/tentacle-primaries.pgs.txt")).unwrap();
            for pg in at.pools.keys().flat_map(|p| at.pgs_of(*p)) {
                let (up, first) = at.pg_to_up(pg);
                let up: Vec<String> = up.iter().map(|o| o.0.to_string()).collect();
                let want = format!("up ([{}], p{}) ", up.join(","), first.0);
                let line = text.lines().find(|l| l.split_whitespace().next() == Some(&pg.to_string())).unwrap();
                assert!(line.contains(&want), "{line}: {want}");
            }
        }
    }
    assert!(at.pg_upmap_primaries.is_empty() && set >= 7 && removed >= 5, "{set} {removed}");
}
