//! Does CRUSH pick the devices that Ceph's `crushtool --test` picked, and do maps survive a round trip?

use bytes::Bytes;
use cluster::CrushMap;
use cluster::crush::{ITEM_NONE, Scratch, do_rule};
use std::path::PathBuf;
use wire::{Encode, Features};

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/crush")
}

fn load(name: &str) -> (Bytes, CrushMap) {
    let b: Bytes = std::fs::read(dir().join(format!("{name}.crush"))).unwrap().into();
    let m = CrushMap::decode_blob(&b).unwrap_or_else(|e| panic!("{name}: {e}"));
    (b, m)
}

/// Checks every line `CRUSH rule R x X [a,b,c]` of an output. Returns the number of lines.
fn check(map: &CrushMap, text: &str, file: &str, weights: &[u32], max: usize) -> usize {
    let mut scratch = Scratch::default();
    let mut n = 0;
    for line in text.lines().filter(|l| l.starts_with("CRUSH rule")) {
        let mut words = line.split(' ').skip(2);
        let rule: i32 = words.next().unwrap().parse().unwrap();
        let x: u32 = words.nth(1).unwrap().parse().unwrap();
        let set = words.next().unwrap().trim_matches(['[', ']']);
        let want: Vec<i32> = set.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect();
        let mut got: Vec<i32> = Vec::new();
        do_rule(map, map.rule(rule).unwrap(), x, max, weights, None, &mut scratch, &mut got);
        assert_eq!(got, want, "{file}: {line}");
        n += 1;
    }
    n
}

#[test]
fn every_mapping_of_every_map() {
    let mut files = 0;
    let mut entries: Vec<_> = std::fs::read_dir(dir()).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some((stem, n)) = file.strip_suffix(".txt").and_then(|f| f.rsplit_once(".n")) else { continue };
        let Ok(max) = n.parse::<usize>() else { continue };
        let name = stem.split('.').next().unwrap();
        let (_, map) = load(name);
        let mut weights = vec![0x1_0000; map.max_devices as usize];
        if stem.contains("reweight") {
            // --weight 3 0 --weight 7 0.5 --weight 8 0.25 --weight 20 0.9
            for (osd, w) in [(3, 0.0), (7, 0.5), (8, 0.25), (20, 0.9)] {
                weights[osd] = (w * 65536.0) as u32;
            }
        }
        if stem.starts_with("tun-") && stem.ends_with(".rule2") {
            // These were made with --weight 3 0.
            weights[3] = 0;
        }
        let lines = check(&map, &std::fs::read_to_string(&path).unwrap(), &file, &weights, max);
        assert!(lines > 0, "{file} holds no mapping");
        files += 1;
    }
    assert!(files >= 40, "only {files} files of mappings");
}

#[test]
fn maps_reencode_byte_for_byte() {
    for e in std::fs::read_dir(dir()).unwrap() {
        let path = e.unwrap().path();
        if path.extension().is_none_or(|x| x != "crush") {
            continue;
        }
        let (b, m) = load(path.file_stem().unwrap().to_str().unwrap());
        // Squid's rule tunables are encoded only for peers that know them.
        let features =
            if m.tunables.msr.is_some() { Features(Features::PACIFIC.0 | 1 << 38) } else { Features::PACIFIC };
        assert_eq!(m.to_bytes(features), b, "{}", path.display());
    }
}

#[test]
fn names_classes_and_shadow_trees() {
    let (_, m) = load("full");
    assert_eq!(m.class_of(0), Some("ssd"));
    assert_eq!(m.class_of(2), Some("hdd"));
    let root = m.roots()[0];
    assert_eq!(m.leaves(root).len(), 24);
    let shadow = m.all_roots().into_iter().find(|r| m.is_shadow(*r)).unwrap();
    let (base, class) = m.split_shadow(shadow).unwrap();
    assert_eq!(base, root);
    assert!(m.leaves(shadow).iter().all(|d| m.class_map[d] == class));
    let parents = m.parents();
    for item in m.item_names.keys() {
        assert_eq!(parents.get(item).copied(), m.parent_of(*item), "{item}");
    }
    let loc = m.full_location(0);
    assert_eq!(loc.first().unwrap().0, "host");
    assert_eq!(loc.last().unwrap().0, "root");
}

#[test]
fn holes_are_marked() {
    // Two replicas on six OSDs, with an erasure-coded rule over hosts: some positions stay empty.
    let (_, m) = load("full");
    let weights = vec![0u32; m.max_devices as usize];
    let indep = (0..m.rules.len() as i32)
        .find(|r| m.rule(*r).is_some_and(|r| r.steps.iter().any(|s| s.op == cluster::crush::op::CHOOSELEAF_INDEP)));
    let mut out: Vec<i32> = Vec::new();
    do_rule(&m, m.rule(indep.unwrap()).unwrap(), 1, 4, &weights, None, &mut Scratch::default(), &mut out);
    assert_eq!(out, [ITEM_NONE; 4]);
}
