//! CRUSH maps, and mappings with decoded maps: the rules of a damaged map must terminate.

use super::Family;
use crate::vectors;
use bytes::Bytes;
use cluster::CrushMap;
use cluster::crush::{Scratch, do_rule};
use wire::Features;

pub(super) const FAMILY: Family = Family { name: "crush", run, seeds, alloc_fixed: 1 << 20, cost: 10 };

/// Rules tried per map, and inputs per rule.
const RULES: usize = 4;
const INPUTS: u32 = 4;

fn run(input: &[u8]) {
    let Ok(map) = CrushMap::decode_blob(&Bytes::copy_from_slice(input)) else { return };
    let weights = vec![0x10000; 32];
    let mut scratch = Scratch::default();
    let mut out: Vec<i32> = Vec::new();
    for rule in map.rules.iter().flatten().take(RULES) {
        for x in 0..INPUTS {
            out.clear();
            do_rule(&map, rule, x, 3, &weights, map.choose_args_for(1), &mut scratch, &mut out);
            assert!(out.len() <= 3);
        }
    }
    for root in map.roots().into_iter().take(RULES) {
        let _ = map.leaves(root);
        let _ = map.full_location(root);
    }
    let once = map.encode_blob(Features::PACIFIC);
    let again = CrushMap::decode_blob(&once).unwrap_or_else(|e| panic!("own encoding refused: {e}"));
    assert!(again.encode_blob(Features::PACIFIC) == once, "encoding is not stable");
}

fn seeds() -> Vec<Vec<u8>> {
    vectors::files("crush", |n| n.ends_with(".crush"))
}
