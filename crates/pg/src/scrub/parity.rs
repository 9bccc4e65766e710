//! A check whether the shards of an object fit each other, without moving their bytes.
//!
//! Each shard is folded to a digest by a map that is linear over the code's field. First its rows of `ROW` bytes are
//! added up, each weighted by another power of two. Then the parts of that sum are added up, weighted by powers of
//! three. A linear map and a code that works byte by byte commute: the digests of the coding shards are the code of
//! the data shards' digests. If the digests are no code word, some shard differs from what was written. With two or
//! more coding shards they show which, if it is a single one.
//!
//! Invariant: any change of bits within one row changes the digest.
//!
//! Tests: below.

use base::ShardId;
use bytes::Bytes;
use ec::{Codec, Layout};

/// Bytes of a digest.
pub const DIGEST: usize = 64;
/// Bytes of a row: a block.
const ROW: usize = 4096;

/// Multiplies eight field elements by two.
fn double(x: u64) -> u64 {
    let high = (x >> 7) & 0x0101_0101_0101_0101;
    ((x & 0x7f7f_7f7f_7f7f_7f7f) << 1) ^ (high * 0x1d)
}

/// The running fold of a shard.
#[derive(Clone, Debug)]
pub struct Fold {
    sum: Vec<u64>,
    /// Bytes added.
    len: u64,
}

impl Default for Fold {
    fn default() -> Self {
        Self { sum: vec![0; ROW / 8], len: 0 }
    }
}

impl Fold {
    /// Adds the next bytes of the shard: whole rows, except at its end.
    pub fn add(&mut self, data: &[u8]) {
        self.len += data.len() as u64;
        for row in data.chunks(ROW) {
            let (words, rest) = row.as_chunks::<8>();
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            let words = words.iter().chain(std::iter::once(&last)).map(|w| u64::from_le_bytes(*w));
            for (s, w) in self.sum.iter_mut().zip(words.chain(std::iter::repeat(0))) {
                *s = double(*s) ^ w;
            }
        }
    }

    /// The digest of the shard, padded with zeros to `len` bytes, the length of the object's longest shard.
    #[must_use]
    pub fn finish(mut self, len: u64) -> Bytes {
        // The weights of rows repeat after 255 rows.
        let rows = len.div_ceil(ROW as u64).saturating_sub(self.len.div_ceil(ROW as u64)) % 255;
        for _ in 0..rows {
            self.sum.iter_mut().for_each(|s| *s = double(*s));
        }
        let mut out = [0u64; DIGEST / 8];
        for part in self.sum.chunks(DIGEST / 8) {
            for (o, w) in out.iter_mut().zip(part) {
                *o = *o ^ double(*o) ^ w;
            }
        }
        out.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>().into()
    }
}

/// Judgement of the digests of an object's shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The shards fit, or too few are known to tell.
    Fits,
    /// This shard is wrong; all others fit each other.
    Wrong(ShardId),
    /// The shards don't fit, and no single one is to blame.
    Unclear,
}

/// Erasure code of a pool: layout and codec.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Placement of an object's bytes on the shards.
    pub layout: &'a Layout,
    /// The codec that computes coding shards.
    pub codec: &'a Codec,
}

impl Shape<'_> {
    /// Length of the shard of an object of `size` bytes.
    #[must_use]
    pub fn shard_len(&self, size: u64, shard: ShardId) -> u64 {
        usize::try_from(shard.0).map_or(0, |s| self.layout.shard_len(size, s))
    }

    /// Number of shards that give the object (`k`).
    #[must_use]
    pub fn needed(&self) -> usize {
        self.layout.k()
    }

    /// Judges digests, each given with its shard.
    #[must_use]
    pub fn judge(&self, digests: &[(ShardId, &Bytes)]) -> Verdict {
        let known: Vec<(usize, &[u8])> = digests
            .iter()
            .filter_map(|(s, d)| Some((usize::try_from(s.0).ok().filter(|s| *s < self.layout.shards())?, &d[..])))
            .filter(|(_, d)| d.len() == DIGEST)
            .collect();
        let left_over = |without: Option<usize>| known.iter().filter(move |(s, _)| Some(*s) != without).copied();
        if self.fit(&left_over(None).collect::<Vec<_>>()) {
            return Verdict::Fits;
        }
        // To blame one shard, the others must be more than `k`: any `k` digests fit each other.
        if known.len() < self.needed() + 2 {
            return Verdict::Unclear;
        }
        let blamed = known.iter().find(|(s, _)| self.fit(&left_over(Some(*s)).collect::<Vec<_>>()));
        blamed.map_or(Verdict::Unclear, |(s, _)| Verdict::Wrong(ShardId(*s as i8)))
    }

    /// True if the digests beyond the first `k` are those that the first `k` imply.
    fn fit(&self, known: &[(usize, &[u8])]) -> bool {
        let Some((first, rest)) = known.split_at_checked(self.needed()) else { return true };
        let set = |of: &[(usize, &[u8])]| of.iter().fold(0u32, |all, (s, _)| all | 1 << s);
        if rest.is_empty() {
            return true;
        }
        let Ok(plan) = self.codec.rebuild(set(first), set(rest)) else { return true };
        let of = |s: &usize| first.iter().find(|(f, _)| f == s).map_or(&[][..], |(_, d)| d);
        let sources: Vec<&[u8]> = plan.sources().iter().map(of).collect();
        let outputs: Vec<usize> = plan.outputs().collect();
        let mut out = vec![[0u8; DIGEST]; outputs.len()];
        if plan.run(&sources, &mut out.iter_mut().map(|o| &mut o[..]).collect::<Vec<_>>()).is_err() {
            return true;
        }
        outputs.iter().zip(&out).all(|(s, o)| rest.iter().find(|(r, _)| r == s).is_none_or(|(_, d)| *d == o))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use ec::Technique;

    fn digest(shard: &[u8], len: u64) -> Bytes {
        let mut f = Fold::default();
        // In parts, as scrub reads them.
        for part in shard.chunks(3 * ROW) {
            f.add(part);
        }
        f.finish(len)
    }

    /// Shards of a random object of `size` bytes, each with its proper length.
    fn shards(layout: &Layout, codec: &Codec, size: u64, r: &mut Rng) -> Vec<Vec<u8>> {
        let (k, len) = (layout.k(), layout.shard_len(size, 0) as usize);
        let mut all: Vec<Vec<u8>> = (0..k)
            .map(|s| {
                let mut d: Vec<u8> = (0..layout.bytes_before(s, size)).map(|_| r.below(256) as u8).collect();
                d.resize(len, 0);
                d
            })
            .collect();
        let mut coding = vec![vec![0; len]; layout.shards() - k];
        let data: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        codec.encode(&data, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        all.extend(coding);
        (0..).zip(&mut all).for_each(|(s, d)| d.truncate(layout.shard_len(size, s) as usize));
        all
    }

    #[test]
    fn digests_of_written_shards_fit_and_those_of_changed_shards_do_not() {
        let mut r = Rng::new(7);
        for (k, m) in [(2, 1), (4, 2), (3, 2), (6, 3)] {
            for technique in [Technique::JerasureVandermonde, Technique::IsaVandermonde, Technique::IsaCauchy] {
                let (layout, codec) = (Layout::new(k, m, 4096).unwrap(), Codec::new(technique, k, m).unwrap());
                let shape = Shape { layout: &layout, codec: &codec };
                for size in [0, 1, 5000, 70_000, 4096 * k as u64 * 300 + 17] {
                    let len = layout.shard_len(size, 0);
                    let mut all = shards(&layout, &codec, size, &mut r);
                    let judge = |all: &[Vec<u8>]| {
                        let d: Vec<Bytes> = all.iter().map(|s| digest(s, len)).collect();
                        shape.judge(&(0..).map(ShardId).zip(&d).collect::<Vec<_>>())
                    };
                    assert_eq!(judge(&all), Verdict::Fits, "{k}+{m}, {size} bytes");
                    let at = r.below((k + m) as u64) as usize;
                    if all[at].is_empty() {
                        continue;
                    }
                    let byte = r.below(all[at].len() as u64) as usize;
                    all[at][byte] ^= 1 << r.below(8);
                    // Further bytes of the same row.
                    let row = byte / ROW * ROW..all[at].len().min((byte / ROW + 1) * ROW);
                    for _ in 0..r.below(4) {
                        let other = row.start + r.below(row.len() as u64) as usize;
                        if other != byte {
                            all[at][other] ^= r.below(256) as u8;
                        }
                    }
                    let wants = if m > 1 { Verdict::Wrong(ShardId(at as i8)) } else { Verdict::Unclear };
                    assert_eq!(judge(&all), wants, "{k}+{m}, byte {byte} of shard {at}");
                }
            }
        }
    }
}
