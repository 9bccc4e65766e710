//! Coding chunks against `vectors/ec/coding.txt`, and reconstruction for every loss pattern.

use ec::kernel::Kernel;
use ec::{Codec, Technique};

/// The bytes that the vectors were made from, as `vectors/README.md` describes them.
fn input(n: usize) -> Vec<u8> {
    (0..n).map(|i| ((i * 167 + 13 + (i >> 8) * 31 + ((i * i) >> 5)) & 255) as u8).collect()
}

fn hex(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn coding_chunks_equal_those_of_the_plugins_for_every_kernel() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/ec/coding.txt")).unwrap();
    let mut cases = 0;
    for line in text.lines() {
        let w: Vec<&str> = line.split(' ').collect();
        let technique = Technique::from_profile(w[0], w[1]).unwrap();
        let (k, m): (usize, usize) = (w[2].parse().unwrap(), w[3].parse().unwrap());
        let expected: Vec<Vec<u8>> = w[4..].iter().map(|h| hex(h)).collect();
        let len = expected[0].len();
        let bytes = input(k * len);
        let data: Vec<&[u8]> = bytes.chunks(len).collect();
        for kernel in Kernel::available() {
            let codec = Codec::with_kernel(technique, k, m, kernel).unwrap();
            let mut coding = vec![vec![0xee; len]; m];
            codec.encode(&data, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
            assert_eq!(coding, expected, "{kernel:?}: {}", w[..4].join(" "));
            assert_eq!(codec.encode_new(&data).unwrap(), expected, "{kernel:?}, new buffers: {}", w[..4].join(" "));
        }
        cases += 1;
    }
    assert_eq!(cases, 156);
}

#[test]
fn any_k_chunks_give_all_others() {
    let shapes = [(2, 1), (2, 2), (3, 2), (4, 2), (6, 2), (6, 3), (6, 4), (8, 3)];
    let techniques =
        [Technique::JerasureVandermonde, Technique::JerasureRaid6, Technique::IsaVandermonde, Technique::IsaCauchy];
    for (k, m) in shapes {
        for t in techniques.into_iter().filter(|t| t.shape_is_valid(k, m)) {
            let codec = Codec::new(t, k, m).unwrap();
            let len = 100;
            let bytes = input(k * len);
            let mut all: Vec<Vec<u8>> = bytes.chunks(len).map(<[u8]>::to_vec).collect();
            let mut coding = vec![vec![0; len]; m];
            let data: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            codec.encode(&data, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
            all.extend(coding);
            let every = (1u32 << (k + m)) - 1;
            for present in (0..=every).filter(|p| p.count_ones() as usize == k) {
                let plan = codec.rebuild(present, every & !present).unwrap();
                let sources: Vec<&[u8]> = plan.sources().iter().map(|c| all[*c].as_slice()).collect();
                let mut out = vec![vec![0; len]; m];
                plan.run(&sources, &mut out.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
                for (c, o) in plan.outputs().zip(&out) {
                    assert_eq!(*o, all[c], "{t:?} {k}+{m}: chunk {c} from {present:b}");
                }
            }
        }
    }
}

/// Shapes with too many loss patterns for an exhaustive test: every loss of `m` adjacent shards and of every `m`-th
/// shard, and the two shapes at the limits of `isa`, `reed_sol_van`.
#[test]
fn large_shapes_lose_m_chunks() {
    for (t, k, m) in [
        (Technique::JerasureVandermonde, 16, 4),
        (Technique::IsaCauchy, 16, 4),
        (Technique::IsaVandermonde, 16, 4),
        (Technique::IsaVandermonde, 21, 4),
        (Technique::JerasureVandermonde, 12, 3),
    ] {
        let codec = Codec::new(t, k, m).unwrap();
        let n = k + m;
        let every = (1u32 << n) - 1;
        for first in 0..n {
            for step in 1..n {
                let lost = (0..m).fold(0u32, |set, i| set | 1 << ((first + i * step) % n));
                codec.rebuild(every & !lost, lost).unwrap();
            }
        }
    }
}

#[test]
fn a_difference_changes_coding_chunks_as_encoding_anew_does() {
    let codec = Codec::new(Technique::JerasureVandermonde, 4, 2).unwrap();
    let len = 96;
    let mut bytes = input(4 * len);
    let encode = |b: &[u8]| {
        let mut coding = vec![vec![0; len]; 2];
        let data: Vec<&[u8]> = b.chunks(len).collect();
        codec.encode(&data, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        coding
    };
    let mut coding = encode(&bytes);
    let difference: Vec<u8> = (0..32).map(|i| i * 7 + 1).collect();
    for (i, d) in difference.iter().enumerate() {
        bytes[2 * len + 40 + i] ^= d;
    }
    for (i, c) in coding.iter_mut().enumerate() {
        codec.apply(2, &difference, 4 + i, &mut c[40..72]).unwrap();
    }
    assert_eq!(coding, encode(&bytes));
    assert!(codec.apply(4, &difference, 4, &mut coding[0][..32]).is_err(), "chunk 4 is no data chunk");
    assert!(codec.apply(0, &difference, 6, &mut coding[0][..32]).is_err(), "there is no chunk 6");
    assert!(codec.apply(0, &difference, 4, &mut coding[0][..31]).is_err(), "lengths differ");
}

#[test]
fn too_few_chunks_to_rebuild_are_refused() {
    let codec = Codec::new(Technique::IsaCauchy, 4, 2).unwrap();
    assert!(codec.rebuild(0b000111, 0b001000).is_err(), "three of four");
    assert!(codec.rebuild(0b1000111, 1).is_err(), "no chunk has the number 6");
    assert!(codec.rebuild(0b1111, 1 << 31).is_err());
    let plan = codec.rebuild(0b111101, 0b000100).unwrap();
    assert_eq!(plan.sources(), [2], "a chunk that is there is its own source");
    let (a, b) = ([0; 8], [0; 9]);
    let mut out = [0; 8];
    let plan = codec.rebuild(0b111100, 0b000001).unwrap();
    assert!(plan.run(&[&a, &a, &a], &mut [&mut out]).is_err(), "three sources of four");
    assert!(plan.run(&[&a, &a, &a, &b], &mut [&mut out]).is_err(), "lengths differ");
    assert!(codec.encode(&[&a, &a, &a, &a], &mut [&mut out]).is_err(), "one coding chunk of two");
    assert!(codec.encode_new(&[&a, &a, &a]).is_err(), "three data chunks of four");
    assert!(codec.encode_new(&[&a, &a, &a, &a[1..]]).is_err(), "lengths differ");
}
