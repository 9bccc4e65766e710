//! Damaged input never panics a decoder and never makes it allocate more than the size of the input justifies.
//!
//! Bounded: `BELEMNITE_HOSTILE_ITERATIONS` inputs per family (default below; fewer for expensive families) from
//! `BELEMNITE_HOSTILE_SEED` (default: fixed, so that CI is repeatable). A failure prints both and the input, which
//! should become a test of its own.

use base::rng::Rng;
use hostile::families::ALL;
use hostile::meter::{Meter, peak_of};
use hostile::mutate::mutate;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[global_allocator]
static METER: Meter = Meter;

/// Inputs per family.
const ITERATIONS: u64 = 30_000;
/// Allowed bytes per byte of input: the input is copied, decoded, encoded and decoded again, and elements that are
/// small on the wire (an empty string: four bytes) are larger in memory.
const ALLOC_PER_BYTE: usize = 96;
/// Seeds above this size are used rarely: they cost time and contain little new.
const USUAL_SIZE: usize = 4 << 10;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn check(family: &str) {
    let f = ALL.iter().find(|f| f.name == family).unwrap();
    let seeds = (f.seeds)();
    assert!(!seeds.is_empty());
    let start = number("BELEMNITE_HOSTILE_SEED", 20_261_121);
    let iterations = number("BELEMNITE_HOSTILE_ITERATIONS", ITERATIONS) / f.cost;
    println!("{family}: {} seeds, {iterations} inputs, BELEMNITE_HOSTILE_SEED={start}", seeds.len());
    let mut rng = Rng::new(start);
    let pick = |rng: &mut Rng| loop {
        let s = &seeds[rng.below(seeds.len() as u64) as usize];
        if s.len() <= USUAL_SIZE || rng.chance(1, 64) {
            return s;
        }
    };
    let mut most = 0;
    for i in 0..iterations {
        // The first rounds use the seeds unchanged: they must decode without a panic, too.
        let input = if let Some(s) = seeds.get(i as usize).filter(|s| s.len() <= USUAL_SIZE) {
            s.clone()
        } else {
            let (a, b) = (pick(&mut rng), pick(&mut rng));
            mutate(&mut rng, a, b)
        };
        let (result, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| (f.run)(&input))));
        most = most.max(peak);
        let limit = f.alloc_fixed + ALLOC_PER_BYTE * input.len();
        if result.is_err() || peak > limit {
            let hex: String = input.iter().map(|b| format!("{b:02x}")).collect();
            panic!(
                "{family}: input {i} of seed {start}: {} ({peak} bytes allocated, limit {limit})\n{hex}",
                if result.is_err() { "panic" } else { "too much memory" }
            );
        }
    }
    println!("{family}: at most {most} bytes allocated for one input");
    assert!(most > 0, "the meter does not count");
}

macro_rules! families {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn all_families_are_tested() {
            let mut here = [$(stringify!($name)),*];
            let mut all: Vec<_> = ALL.iter().map(|f| f.name).collect();
            here.sort_unstable();
            all.sort_unstable();
            assert_eq!(here.as_slice(), all.as_slice());
            for name in all {
                let target = format!("{}/../../fuzz/fuzz_targets/{name}.rs", env!("CARGO_MANIFEST_DIR"));
                assert!(std::fs::read_to_string(&target).is_ok_and(|t| t.contains(&format!("{name:?}"))), "{target}");
            }
        }
    };
}

families! {
    messages structures maps crush caps auth frames msgr1 class_inputs counters inventories store_records store_pages store_extents mon_sessions osd_sessions
}
