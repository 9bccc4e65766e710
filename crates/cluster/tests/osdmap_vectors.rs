//! Do maps of real clusters decode, re-encode to the same bytes, and place every PG as Ceph's own tools did?

use base::{OsdId, PgId, PoolId};
use bytes::Bytes;
use cluster::OsdMap;
use cluster::osdmap::{CANONICAL, CANONICAL_REEF};
use std::path::PathBuf;
use wire::Features;

const RELEASES: [&str; 3] = ["pacific", "reef", "tentacle"];
const KINDS: [&str; 4] = ["base", "reweight_affinity_out", "upmap_pgtemp", "chooseargs"];

fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

fn load(rel: &str, kind: &str) -> (Bytes, OsdMap) {
    let b: Bytes = std::fs::read(vectors().join(format!("osdmap/{rel}-{kind}.osdmap"))).unwrap().into();
    let m = OsdMap::decode_blob(&b).unwrap_or_else(|e| panic!("{rel}-{kind}: {e}"));
    (b, m)
}

#[test]
fn pacific_maps_reencode_byte_for_byte() {
    for kind in KINDS.into_iter().chain(["erasure"]) {
        let (b, m) = load("pacific", kind);
        let (again, crc) = m.encode_blob(CANONICAL);
        assert_eq!(again, b, "{kind}");
        assert_eq!(crc.to_le_bytes(), b[b.len() - 4..], "{kind}");
    }
}

/// A map of a Reef cluster has the section with chosen primaries, whether it has any or not.
#[test]
fn reef_maps_reencode_byte_for_byte() {
    let mut chosen = 0;
    for kind in KINDS {
        let (b, m) = load("reef", kind);
        let (again, crc) = m.encode_blob(CANONICAL_REEF);
        assert_eq!(again, b, "{kind}");
        assert_eq!(crc.to_le_bytes(), b[b.len() - 4..], "{kind}");
        chosen += m.pg_upmap_primaries.len();
    }
    assert!(chosen > 0);
}

/// A whole map that a monitor encodes for a reader is the one that OSDs make of incrementals, byte for byte: the masks
/// of Pacific and of Ceph's newest releases have Reef's bit.
#[test]
fn the_bit_of_reef_in_a_readers_mask_does_not_change_the_form() {
    for (rel, kind) in RELEASES.into_iter().flat_map(|r| KINDS.map(|k| (r, k))) {
        let (_, mut m) = load(rel, kind);
        for newest in [Features::PACIFIC, Features(u64::MAX)] {
            let form = if m.pg_upmap_primaries.is_empty() { CANONICAL } else { CANONICAL_REEF };
            assert_eq!(m.encode_blob(newest), m.encode_blob(form), "{rel}-{kind}");
        }
        m.pg_upmap_primaries = Default::default();
        assert_eq!(m.encode_blob(Features::PACIFIC), m.encode_blob(CANONICAL), "{rel}-{kind}");
    }
}

#[test]
fn newer_maps_keep_what_the_older_form_holds() {
    for rel in ["reef", "tentacle"] {
        for kind in KINDS {
            let (_, m) = load(rel, kind);
            let (blob, _) = m.encode_blob(Features::PACIFIC);
            let again = OsdMap::decode_blob(&blob).unwrap();
            let mut m = m;
            std::sync::Arc::make_mut(&mut m.crush).tunables.msr = None;
            assert_eq!(again, m, "{rel}-{kind}");
        }
    }
}

#[test]
fn kernel_form_decodes_to_the_same_placement() {
    // Luminous level with MSG_ADDR2: what kernels before 5.11's nautilus bits announce.
    let kernel = Features(Features::PACIFIC.0 & !(1 << 28 | 1 << 2));
    for rel in RELEASES {
        let (_, m) = load(rel, "base");
        let (blob, _) = m.encode_blob(kernel);
        let k = OsdMap::decode_blob(&blob).unwrap();
        for pool in m.pools.keys() {
            for pg in m.pgs_of(*pool) {
                assert_eq!(k.pg_to_up_acting(pg), m.pg_to_up_acting(pg));
            }
        }
        for osd in m.osds() {
            let a = k.client_addr(osd).unwrap();
            assert_eq!(a.0.len(), 1);
            assert!(m.client_addr(osd).unwrap().0.contains(&a.0[0]), "{osd}: {a}");
        }
    }
}

fn parse_set(s: &str) -> (Vec<OsdId>, OsdId) {
    // ([1,5], p1)
    let s = s.trim_start_matches("([").trim_end_matches(')');
    let (set, p) = s.split_once("], p").unwrap();
    let ids = set.split(',').filter(|s| !s.is_empty());
    (
        ids.map(|s| if s == "NONE" { OsdId::NONE } else { OsdId(s.parse().unwrap()) }).collect(),
        OsdId(p.parse().unwrap()),
    )
}

#[test]
fn every_pg_is_where_osdmaptool_says() {
    let (mut pgs, mut holes) = (0, 0);
    for rel in RELEASES {
        for kind in KINDS.into_iter().chain((rel == "pacific").then_some("erasure")) {
            let (_, m) = load(rel, kind);
            let text = std::fs::read_to_string(vectors().join(format!("mapping/{rel}-{kind}.pgs.txt"))).unwrap();
            for line in text.lines() {
                let Some((pg, rest)) = line.split_once(" raw ") else { continue };
                let pg = PgId::parse(pg).unwrap();
                let (raw, rest) = rest.split_once(" up ").unwrap();
                let (up, acting) = rest.split_once(" acting ").unwrap();
                let (set, primary) = m.pg_to_raw(pg);
                assert_eq!((set.to_vec(), primary), parse_set(raw), "{rel}-{kind} {line}");
                let got = m.pg_to_up_acting(pg);
                assert_eq!((got.up.to_vec(), got.up_primary), parse_set(up), "{rel}-{kind} {line}");
                assert_eq!((got.acting.to_vec(), got.acting_primary), parse_set(acting.trim()), "{rel}-{kind} {line}");
                pgs += 1;
                holes += usize::from(got.acting.contains(&OsdId::NONE));
            }
        }
    }
    assert!(pgs > 900 && holes > 50, "only {pgs} PGs, {holes} with holes");
}

#[test]
fn objects_map_as_osdmaptool_says() {
    let mut n = 0;
    for rel in RELEASES {
        let (_, m) = load(rel, "base");
        let text = std::fs::read_to_string(vectors().join(format!("mapping/{rel}-base.objects.txt"))).unwrap();
        for line in text.lines().filter(|l| l.contains(" -> ")) {
            let mut parts = line.split(" -> ");
            let name = parts.next().unwrap().trim().trim_start_matches("object '").trim_end_matches('\'');
            let pg = PgId::parse(parts.next().unwrap()).unwrap();
            assert_eq!(m.object_to_pg(pg.pool, name.as_bytes(), b"", b""), Some(pg), "{rel} {line}");
            n += 1;
        }
    }
    assert!(n > 10);
}

#[test]
fn objects_in_namespaces_map_as_the_monitor_says() {
    let mut n = 0;
    for rel in RELEASES {
        let (_, m) = load(rel, "base");
        let text = std::fs::read_to_string(vectors().join(format!("mapping/{rel}-osdmap-cmd.json"))).unwrap();
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            let field = |k: &str| {
                let at = line.find(&format!("\"{k}\":")).unwrap() + k.len() + 3;
                line[at..].trim_start_matches('"').split([',', '"', '}']).next().unwrap().to_owned()
            };
            let pool = PoolId(field("pool_id").parse().unwrap());
            let obj = field("objname");
            let (ns, name) = obj.split_once('/').unwrap_or(("", &obj));
            let raw = m.object_to_raw_pg(pool, name.as_bytes(), b"", ns.as_bytes(), None).unwrap();
            assert_eq!(raw.to_string(), field("raw_pgid"), "{rel} {line}");
            let pg = m.raw_pg_to_pg(raw).unwrap();
            assert_eq!(pg.to_string(), field("pgid"), "{rel} {line}");
            let at = m.pg_to_up_acting(pg);
            assert_eq!(at.acting_primary.0.to_string(), field("acting_primary"), "{rel} {line}");
            n += 1;
        }
    }
    assert!(n > 10);
}

#[test]
fn a_flipped_bit_is_detected() {
    let (b, _) = load("pacific", "base");
    let mut seen = 0;
    for at in (0..b.len()).step_by(b.len() / 97) {
        let mut bad = b.to_vec();
        bad[at] ^= 0x10;
        assert!(OsdMap::decode_blob(&bad.into()).is_err(), "byte {at}");
        seen += 1;
    }
    assert!(seen > 90);
}

#[test]
fn blocklisted_ranges_are_read_and_written_as_a_real_monitor_does() {
    let blob: Bytes = std::fs::read(vectors().join("osdmap/pacific-ranges.osdmap")).unwrap().into();
    let map = OsdMap::decode_blob(&blob).unwrap();
    let names: Vec<String> = map.range_blocklist.keys().map(|k| k.0.to_string()).collect();
    assert_eq!(names, ["cidr:10.1.2.0:0/1", "cidr:10.10.0.0:0/16", "cidr:10.1.2.0:0/24", "cidr:[2001:db8::]:0/32"]);
    assert_eq!(map.encode_blob(CANONICAL).0, blob);
}
