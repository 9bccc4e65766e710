//! Compressed extents of a store with invalid contents. On a device the checksums of their blocks detect damage.
//!
//! Input: the number of blocks that the map states u8, then what is stored.

use super::{ALLOC_DECODER, Family};
use store::compress::{Algorithm, Compression, Mode};
use store::testing::{pack, unpack};

pub(super) const FAMILY: Family =
    Family { name: "store_extents", run, seeds, alloc_fixed: ALLOC_DECODER + EXTENT_BYTES, cost: 4 };

/// Memory of a decompressor, and of the largest extent with a copy of it.
const EXTENT_BYTES: usize = 2 << 20;

fn run(input: &[u8]) {
    let Some((blocks, stored)) = input.split_first() else { return };
    if let Some(out) = unpack(stored, u64::from(*blocks)) {
        assert_eq!(out.len(), usize::from(*blocks) * 4096);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for algorithm in Algorithm::ALL {
        let level = algorithm.usual_level();
        let how =
            Compression { mode: Mode::Force, algorithm, level, required_ratio: 1.0, min_blob: 0, max_blob: 512 << 10 };
        for blocks in [2_u8, 5, 16] {
            let data: Vec<u8> = (0..usize::from(blocks) * 4096).map(|i| ((i / 40) ^ (i / 900)) as u8 & 0x0f).collect();
            let stored = pack(&how, &data).expect("the data is compressible");
            let used = stored.iter().rposition(|x| *x != 0).map_or(0, |n| n + 1);
            out.push([&[blocks], stored.get(..used).unwrap_or_default()].concat());
        }
    }
    out
}
