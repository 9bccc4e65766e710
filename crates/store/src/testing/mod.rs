//! Test support for this crate and those above it: a device with faults, and the comparison of a store with the
//! model.
//!
//! | module | contents |
//! | --- | --- |
//! | `compare` | comparison of a store with the model through the interface |
//! | `disk` | a simulated device with a volatile cache |
//! | `workload` | random transactions from a seed, in small worlds that often meet corner cases |

pub mod compare;
pub mod disk;
pub mod workload;

use crate::api::ObjectStore as _;
use crate::compress::{Algorithm, Compression, Mode};
use crate::engine::{self, Config, FormatOptions, Store};
use crate::layout::Layout;
use crate::meta::Meta;
use crate::space::Space;
use base::rng::Rng;
use base::{PoolId, Uuid};
use disk::SimDisk;
use std::sync::Arc;

/// A new device of `bytes` bytes with a new store of one reactor.
///
/// # Panics
/// If the store can't be created.
#[must_use]
pub fn fresh(bytes: u64, seed: u64, cfg: &Config) -> (SimDisk, Store) {
    let mut dev = SimDisk::new(bytes);
    let o = FormatOptions { uuid: Uuid([seed as u8; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap_or_else(|e| panic!("no new store: {e}"));
    let store = engine::open(&mut dev, cfg).unwrap_or_else(|e| panic!("the new store does not open: {e}")).remove(0);
    (dev, store)
}

/// A whole turn: ends it, and completes all requests of the device.
pub fn turn(dev: &mut SimDisk, s: &mut Store, rng: &mut Rng) {
    s.end_turn();
    while let Some(r) = s.poll_io() {
        dev.submit(r);
    }
    while let Some(c) = dev.step(rng) {
        s.handle_io(c);
    }
}

/// Runs up to `steps` completions; `rng` decides whether the store's turn ends first.
pub fn pump(dev: &mut SimDisk, rng: &mut Rng, s: &mut Store, steps: u64) {
    if rng.chance(3, 4) {
        s.end_turn();
    }
    while let Some(r) = s.poll_io() {
        dev.submit(r);
    }
    for _ in 0..steps {
        match dev.step(rng) {
            Some(c) => s.handle_io(c),
            None => break,
        }
    }
}

/// Compresses the pool of the workloads in a way that a seed decides.
pub fn compress(s: &mut Store, seed: u64) {
    let mut rng = Rng::new(seed);
    let mode = [Mode::Force, Mode::Force, Mode::Aggressive][rng.below(3) as usize];
    let algorithm = Algorithm::ALL[rng.below(4) as usize];
    let how = Compression {
        mode,
        algorithm,
        level: algorithm.usual_level(),
        required_ratio: [0.5, 0.875, 1.0][rng.below(3) as usize],
        min_blob: [4, 8, 16][rng.below(3) as usize] << 10,
        max_blob: [8, 16, 64, 512][rng.below(4) as usize] << 10,
    };
    s.set_compression(PoolId(1), Some(how));
}

/// Stored bytes of a compressed extent of these whole blocks; `None` if it does not become small enough.
#[must_use]
pub fn pack(how: &Compression, data: &[u8]) -> Option<Vec<u8>> {
    crate::compress::Packer::default().pack(how, data).map(|b| b.to_vec())
}

/// Decompresses the stored bytes of a compressed extent of `blocks` blocks. `None` if it is refused.
#[must_use]
pub fn unpack(stored: &[u8], blocks: u64) -> Option<Vec<u8>> {
    crate::compress::Packer::default().unpack(stored, blocks).map(|b| b.to_vec())
}

/// Decodes a metadata page of a device of `bytes` bytes, with the changes beside its pointer, and encodes the
/// result. `None` if the page is refused.
#[must_use]
pub fn decode_page(bytes: u64, page: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let layout = Layout::of(bytes)?;
    let space = Arc::new(Space::new(layout.space_start, layout.space_end));
    Meta::new(layout, space, 0, 1).recode_page(page, delta)
}

/// Sets the feature words of all copies of the superblock, as a newer program would.
///
/// # Panics
/// If the device has no store.
pub fn set_features(dev: &mut dyn engine::Device, features: base::FeatureWords) {
    let mut sb = engine::probe(dev).unwrap_or_else(|e| panic!("{e}"));
    sb.features = features;
    for _ in 0..2 {
        sb.seq += 1;
        let layout = sb.layout().unwrap_or_else(|| panic!("no layout"));
        for slot in sb.slots() {
            let written = dev.write(layout.super_slot(slot) * crate::layout::BLOCK, &[sb.encode(slot)]);
            written.unwrap_or_else(|e| panic!("{e}"));
        }
    }
}
