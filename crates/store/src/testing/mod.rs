//! For tests of this crate and of those above it: a device with faults, and the comparison of a store with the model.

pub mod compare;
pub mod disk;
pub mod workload;

use crate::engine::Store;
use base::rng::Rng;
use disk::SimDisk;

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
