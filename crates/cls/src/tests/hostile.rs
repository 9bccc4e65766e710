//! Every method with damaged and random input, on objects that are absent, empty, valid and damaged. Each call returns,
//! a failed call leaves the object unchanged, and the output is bounded.

use super::recorded::{self, Recorded};
use crate::ClsError;
use crate::registry::{CLASSES, Method};
use crate::testing::{MemCtx, MemObject};
use base::rng::Rng;
use bytes::Bytes;
use std::collections::BTreeMap;

/// More than the output of any method on the small objects here.
const OUT_MAX: usize = 4 << 20;

fn random_bytes(rng: &mut Rng, max: u64) -> Bytes {
    let mut v = vec![0; rng.below(max) as usize];
    rng.fill(&mut v);
    v.into()
}

/// Truncates, extends, flips bits, or enlarges a length.
fn damaged(rng: &mut Rng, b: &Bytes) -> Bytes {
    let mut v = b.to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.below(v.len() as u64) as usize;
        match rng.below(5) {
            0 => v.truncate(at),
            1 => v.extend_from_slice(&random_bytes(rng, 64)),
            2 if at + 4 <= v.len() => v[at..at + 4].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f]),
            3 if at + 8 <= v.len() => v[at..at + 8].fill(0xff),
            _ if at < v.len() => v[at] ^= 1 << rng.below(8),
            _ => {}
        }
    }
    v.into()
}

fn damaged_object(rng: &mut Rng, o: &MemObject) -> MemObject {
    let mut o = o.clone();
    if rng.chance(1, 2) {
        o.data = damaged(rng, &o.data.into()).to_vec();
        // A length in the data may have created a large hole, which tests do not need.
        o.data.truncate(1 << 20);
    }
    if rng.chance(1, 3) {
        o.header = damaged(rng, &o.header);
    }
    let part = |rng: &mut Rng, m: &mut BTreeMap<Bytes, Bytes>| {
        for v in m.values_mut() {
            if rng.chance(1, 4) {
                *v = damaged(rng, v);
            }
        }
    };
    part(rng, &mut o.xattrs);
    part(rng, &mut o.omap);
    o
}

fn one(c: &mut MemCtx, class: &str, m: &Method, input: &Bytes, object: Option<MemObject>) {
    c.object = object;
    let before = c.object.clone();
    match c.exec_full(class, m.name, input.clone()) {
        Ok(o) => {
            assert!(o.ret >= 0 && o.out.len() <= OUT_MAX, "{class}.{}: {} bytes", m.name, o.out.len());
            assert!(m.flags.writes() || c.object == before, "{class}.{} reads and yet changes", m.name);
        }
        Err(ClsError::Fail { errno, .. }) => {
            // A script chooses its errno, and a damaged one may choose any.
            let known = class == "lua" || errno >= -4096;
            assert!(errno < 0 && known, "{class}.{}: errno {errno}", m.name);
            assert_eq!(c.object, before, "{class}.{} fails and yet changes", m.name);
        }
        Err(ClsError::Wait) => panic!("memory never waits"),
    }
}

/// Random generator with seed `CLS_SEED`, or a new seed each time; a failed test prints it.
fn seeded() -> Rng {
    let seed = std::env::var("CLS_SEED").map_or(std::process::id().into(), |s| s.parse().unwrap());
    println!("CLS_SEED={seed}");
    Rng::new(seed)
}

/// `CLS_ROUNDS`: number of damaged variants of each recorded call.
fn rounds() -> u32 {
    std::env::var("CLS_ROUNDS").map_or(4, |s| s.parse().unwrap())
}

fn contexts(rng: &mut Rng) -> MemCtx {
    let mut c = MemCtx::new();
    c.quiet = true;
    c.page = 1 + rng.below(20) as usize;
    c
}

#[test]
fn random_input_causes_no_panic() {
    let mut rng = seeded();
    for (class, methods) in CLASSES {
        for m in *methods {
            let mut c = contexts(&mut rng);
            for n in 0..60 {
                let mut input = random_bytes(&mut rng, 80).to_vec();
                // A plausible structure header gets the input further.
                if n % 2 == 0 && input.len() > 6 {
                    input[0] = 1 + (rng.next_u64() % 3) as u8;
                    input[1] = 1;
                    let len = (input.len() - 6) as u32;
                    input[2..6].copy_from_slice(&len.to_le_bytes());
                }
                let object = (n % 3 > 0).then(MemObject::default);
                one(&mut c, class, m, &input.into(), object);
            }
        }
    }
}

#[test]
fn damaged_input_and_objects_cause_no_panic() {
    let mut rng = seeded();
    let mut samples = Vec::new();
    for p in recorded::recordings() {
        // A few calls of each method, each with the object in its state before the call.
        let mut of_method: BTreeMap<String, Vec<Recorded>> = BTreeMap::new();
        recorded::calls(&p, &mut |r| {
            let small = r.object.as_ref().is_none_or(|o| o.data.len() < 65536 && o.omap.len() < 200);
            let v = of_method.entry(format!("{}.{}", r.class, r.method.name)).or_default();
            if small && r.input.len() < 65536 {
                if v.len() < 4 {
                    v.push(r);
                } else if rng.chance(1, 8) {
                    v[rng.below(4) as usize] = r;
                }
            }
        });
        samples.extend(of_method.into_values().flatten());
    }
    assert!(samples.len() > 500, "{} samples", samples.len());
    for r in &samples {
        let mut c = contexts(&mut rng);
        for n in 0..rounds() {
            let input = if n % 3 < 2 { damaged(&mut rng, &r.input) } else { r.input.clone() };
            let object = r.object.as_ref().map(|o| if n % 2 == 0 { damaged_object(&mut rng, o) } else { o.clone() });
            one(&mut c, r.class, r.method, &input, object);
        }
    }
}
