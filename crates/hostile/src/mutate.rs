//! Mutations that find decoder bugs: changed lengths and counts; pieces cut, duplicated and mixed.

use base::rng::Rng;

/// Values at which length arithmetic tends to fail.
const INTERESTING: [u32; 14] =
    [0, 1, 2, 4, 7, 0x7f, 0x80, 0xff, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, 0xffff_ffff];

fn place(rng: &mut Rng, len: usize) -> usize {
    rng.below(len as u64) as usize
}

/// A damaged copy of `seed`; pieces are taken from `other`.
#[must_use]
pub fn mutate(rng: &mut Rng, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut b = seed.to_vec();
    for _ in 0..=rng.below(4) {
        if b.is_empty() {
            b.push(0);
        }
        let at = place(rng, b.len());
        match rng.below(9) {
            0 => b[at] ^= 1 << rng.below(8),
            1 => b[at] = rng.next_u64() as u8,
            2 => b[at] = [0, 1, 0x7f, 0xff][place(rng, 4)],
            3 | 4 => {
                let v = INTERESTING[place(rng, INTERESTING.len())].to_le_bytes();
                let n = v.len().min(b.len() - at);
                b[at..at + n].copy_from_slice(&v[..n]);
            }
            5 => b.truncate(at),
            6 => {
                let to = (at + 1 + place(rng, 32)).min(b.len());
                b.drain(at..to);
            }
            7 => {
                let to = (at + 1 + place(rng, 64)).min(b.len());
                let piece = b[at..to].to_vec();
                b.splice(at..at, piece);
            }
            _ => {
                if !other.is_empty() {
                    let from = place(rng, other.len());
                    let to = (from + 1 + place(rng, 64)).min(other.len());
                    let end = (at + place(rng, 64)).min(b.len());
                    b.splice(at..end, other[from..to].iter().copied());
                }
            }
        }
    }
    b
}
