//! Do edits of CRUSH maps give, byte for byte, the maps that Ceph's `crushtool` 16.2 gives?
//!
//! `data/crush-edits/S.steps` lists the options of one crushtool run per line; `Snn.crush` is the map after step nn,
//! `S00.crush` the start. Series `a` has device classes, series `b` also weight sets (a compat one and one by position).

use bytes::Bytes;
use cluster::CrushMap;
use cluster::crush::{CrushError, Location, RuleSpec, Scratch, do_rule, weight_from_float};
use std::path::PathBuf;
use wire::{Encode, Features};

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn load(name: &str) -> (Bytes, CrushMap) {
    let b: Bytes = std::fs::read(data().join(format!("crush-edits/{name}.crush"))).unwrap().into();
    let m = CrushMap::decode_blob(&b).unwrap();
    (b, m)
}

fn run(m: &mut CrushMap, line: &str) -> Result<(), CrushError> {
    let w: Vec<&str> = line.split(' ').collect();
    let mut loc = Location::new();
    for (i, word) in w.iter().enumerate() {
        if *word == "--loc" {
            loc.insert(w[i + 1].to_owned(), w[i + 2].to_owned());
        }
    }
    let weight = |s: &str| weight_from_float(s.parse().unwrap()).unwrap();
    match w[0] {
        "--add-item" => m.insert_item(w[1].parse().unwrap(), weight(w[2]), w[3], &loc),
        "--update-item" => m.update_item(w[1].parse().unwrap(), weight(w[2]), w[3], &loc).map(|_| ()),
        "--reweight-item" => m.reweight_item(m.id_of(w[1]).unwrap(), weight(w[2])),
        "--remove-item" => m.remove_item(m.id_of(w[1]).unwrap()),
        "--move" => m.move_item(m.id_of(w[1]).unwrap(), &loc),
        "--reweight" => m.reweight_all(),
        "--add-bucket" => {
            let id = m.add_bucket(w[1], w[2])?;
            if loc.is_empty() { Ok(()) } else { m.move_item(id, &loc) }
        }
        "--create-replicated-rule" | "--create-simple-rule" => {
            let class = w.iter().position(|x| *x == "--device-class").map_or("", |i| w[i + 1]);
            let indep = w.get(4) == Some(&"indep");
            let spec = RuleSpec { name: w[1], root: w[2], failure_domain: w[3], class, indep, ..RuleSpec::default() };
            m.add_simple_rule(&spec).map(|_| ())
        }
        "--remove-rule" => m.remove_rule(m.rule_id(w[1]).unwrap()),
        other => panic!("unknown step {other}"),
    }
}

/// Drops the sums of shadow buckets from positional weight sets. `crushtool` 16.2 loses them except for the
/// last position, so they can't be compared.
fn without_shadow_sums(m: &CrushMap) -> CrushMap {
    let mut m = m.clone();
    let shadow_items: Vec<(usize, Vec<bool>)> = m
        .iter_buckets()
        .filter(|b| m.is_shadow(b.id))
        .map(|b| ((-1 - b.id) as usize, b.items.iter().map(|i| *i < 0).collect()))
        .collect();
    for set in m.choose_args.values_mut() {
        for (slot, inner) in &shadow_items {
            let Some(arg) = set.get_mut(slot).filter(|a| a.weight_sets.len() > 1) else { continue };
            for ws in &mut arg.weight_sets {
                for (w, _) in ws.iter_mut().zip(inner).filter(|(_, inner)| **inner) {
                    *w = 0;
                }
            }
        }
    }
    m
}

fn series(name: &str) -> usize {
    let steps = std::fs::read_to_string(data().join(format!("crush-edits/{name}.steps"))).unwrap();
    let (_, mut m) = load(&format!("{name}00"));
    let mut n = 0;
    for line in steps.lines() {
        let (no, line) = line.split_once(' ').unwrap();
        run(&mut m, line).unwrap_or_else(|e| panic!("{name}{no} {line}: {e}"));
        let (bytes, want) = load(&format!("{name}{no}"));
        assert_eq!(m.item_names, want.item_names, "{name}{no} {line}");
        for (a, b) in m.buckets.iter().zip(&want.buckets) {
            assert_eq!(a, b, "{name}{no} {line}");
        }
        if without_shadow_sums(&want) == want {
            assert_eq!(m.to_bytes(Features::PACIFIC), bytes, "{name}{no} {line}");
        }
        assert_eq!(without_shadow_sums(&m), without_shadow_sums(&want), "{name}{no} {line}");
        n += 1;
    }
    n
}

#[test]
fn edits_of_a_map_with_classes() {
    assert!(series("a") >= 18);
}

#[test]
fn edits_of_a_map_with_weight_sets() {
    assert!(series("b") >= 5);
}

#[test]
fn tree_buckets_place_as_crushtool_does() {
    let b: Bytes = std::fs::read(data().join("tree.crush")).unwrap().into();
    let m = CrushMap::decode_blob(&b).unwrap();
    assert_eq!(m.to_bytes(Features::PACIFIC), b);
    for bucket in m.iter_buckets() {
        let mut again = cluster::crush::Bucket::new(bucket.id, bucket.kind, bucket.alg());
        again.set_items(bucket.items.clone(), bucket.weights(), 1).unwrap();
        assert_eq!(&again, bucket.as_ref());
    }
    let weights = vec![0x1_0000; m.max_devices as usize];
    let text = std::fs::read_to_string(data().join("tree.n3.txt")).unwrap();
    let mut n = 0;
    for (x, line) in (0u32..).zip(text.lines()) {
        let mut got: Vec<i32> = Vec::new();
        do_rule(&m, m.rule(0).unwrap(), x, 3, &weights, None, &mut Scratch::default(), &mut got);
        let set: Vec<String> = got.iter().map(i32::to_string).collect();
        assert_eq!(format!("CRUSH rule 0 x {x} [{}]", set.join(",")), line);
        n += 1;
    }
    assert_eq!(n, 256);
}
