//! For tests of this crate and of those above it: a device with faults, and the comparison of a store with the model.

pub mod compare;
pub mod disk;
pub mod workload;

use crate::engine::{self, Config, FormatOptions, Store};
use base::Uuid;
use base::rng::Rng;
use disk::SimDisk;

/// A new device of so many bytes with a new store of one reactor on it.
///
/// # Panics
/// If it cannot be made: then there is nothing to test.
#[must_use]
pub fn fresh(bytes: u64, seed: u64, cfg: &Config) -> (SimDisk, Store) {
    let mut dev = SimDisk::new(bytes);
    let o = FormatOptions { uuid: Uuid([seed as u8; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap_or_else(|e| panic!("no new store: {e}"));
    let store = engine::open(&mut dev, cfg).unwrap_or_else(|e| panic!("the new store does not open: {e}")).remove(0);
    (dev, store)
}

/// A whole turn: ends it and completes everything that its requests and those before it ask of the device.
pub fn turn(dev: &mut SimDisk, s: &mut Store, rng: &mut Rng) {
    s.end_turn();
    while let Some(r) = s.poll_io() {
        dev.submit(r);
    }
    while let Some(c) = dev.step(rng) {
        s.handle_io(c);
    }
}

/// Lets a store and its device go on by at most `steps` completions; whether the store's turn ends first is up to `rng`.
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
