//! Compression of data: settings of pools, and the bytes of a compressed extent.
//!
//! The bytes say which algorithm they need, so that no map has to.

use crate::codec::{Get, Put};
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::meta::map::EXTENT_MAX;
use base::buf::AlignedBuf;
use bytes::Bytes;
use std::ops::RangeInclusive;

/// Bytes of an extent's head.
const HEAD: usize = 8;
/// Level by which zlib's own default, 6, is asked for.
const ZLIB_DEFAULT: i32 = -1;
/// Flags of hints about an object's content.
const COMPRESSIBLE: u32 = 256;
const INCOMPRESSIBLE: u32 = 512;

/// Algorithm of an extent. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// LZ4, block format.
    Lz4 = 1,
    /// Zstandard.
    Zstd = 2,
    /// Snappy, raw format.
    Snappy = 3,
    /// DEFLATE with zlib's head.
    Zlib = 4,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 4] = [Self::Lz4, Self::Zstd, Self::Snappy, Self::Zlib];

    /// The algorithm with one of Ceph's names.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let names = ["lz4", "zstd", "snappy", "zlib"];
        Self::ALL.into_iter().zip(names).find(|(_, n)| *n == name).map(|(a, _)| a)
    }

    /// The levels that the algorithm's library knows; one level if it has none.
    #[must_use]
    pub fn levels(self) -> RangeInclusive<i32> {
        match self {
            Self::Zlib => 0..=9,
            Self::Zstd => -7..=22,
            Self::Lz4 | Self::Snappy => 0..=0,
        }
    }

    /// Time that a level takes, in nanoseconds for each byte: a round number for text, not a measurement.
    fn time(self, level: i32) -> u64 {
        match (self, level) {
            (Self::Lz4 | Self::Snappy, _) | (Self::Zstd, ..=2) => 3,
            (Self::Zstd, 3..=4) => 6,
            (Self::Zstd, 5..=8) => 15,
            (Self::Zstd, 9..=12) => 40,
            (Self::Zstd, 13..=16) => 120,
            (Self::Zstd, _) => 400,
            (Self::Zlib, ..=1) => 15,
            (Self::Zlib, 2..=5) => 30,
            (Self::Zlib, 6) => 45,
            (Self::Zlib, _) => 120,
        }
    }

    /// The level that Ceph uses without options.
    #[must_use]
    pub fn usual_level(self) -> i32 {
        match self {
            Self::Zlib => 5,
            Self::Zstd => 1,
            Self::Lz4 | Self::Snappy => 0,
        }
    }
}

/// Objects that are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those whose client has said that they are compressible.
    Passive,
    /// All but those whose client has said that they are not.
    Aggressive,
    /// All.
    Force,
}

/// How the data of a pool is compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    /// Objects that are compressed.
    pub mode: Mode,
    /// Algorithm of new extents.
    pub algorithm: Algorithm,
    /// Its level: higher ones take more time for less space. One beyond [`Algorithm::levels`] counts as the nearest.
    pub level: i32,
    /// An extent is compressed if it takes no more than this part of its blocks, rounded up to a block.
    pub required_ratio: f64,
    /// Least bytes of a range that is compressed.
    pub min_blob: u64,
    /// Most bytes of an extent. It is rounded down to a power of two, from 8 to 512 KiB.
    pub max_blob: u64,
}

impl Compression {
    /// True if data of an object with these hints is to be compressed.
    #[must_use]
    pub fn wants(&self, hints: u32) -> bool {
        match self.mode {
            Mode::Passive => hints & COMPRESSIBLE != 0,
            Mode::Aggressive => hints & INCOMPRESSIBLE == 0,
            Mode::Force => true,
        }
    }

    /// The level that the library is asked for: the nearest that the algorithm has.
    fn level(&self) -> i32 {
        if self.algorithm == Algorithm::Zlib && self.level == ZLIB_DEFAULT {
            return 6;
        }
        let levels = self.algorithm.levels();
        self.level.clamp(*levels.start(), *levels.end())
    }

    /// Blocks of the grid to which extents are aligned, and the most blocks of one.
    pub(crate) fn grid(&self) -> u64 {
        let most = (self.max_blob / BLOCK).clamp(2, EXTENT_MAX);
        1 << most.ilog2()
    }

    /// Fewest blocks of an extent.
    pub(crate) fn blocks_min(&self) -> u64 {
        self.min_blob.div_ceil(BLOCK).max(2)
    }

    /// Most device blocks that an extent of `blocks` blocks may take.
    fn stored_max(&self, blocks: u64) -> u64 {
        let most = ((blocks * BLOCK) as f64 * self.required_ratio.clamp(0.0, 1.0)).ceil() as u64;
        most.div_ceil(BLOCK).min(blocks - 1)
    }
}

/// Work of compression in one turn of a reactor: what a turn has left, in nanoseconds as [`Algorithm`] counts them. It
/// depends on bytes and levels only, so that equal histories give equal stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// For the wanted levels.
    wanted: u64,
    /// For level 1, after that.
    fast: u64,
}

impl Effort {
    /// Most of each kind in a turn: more than the largest piece takes at the slowest level.
    const MAX: u64 = 250_000_000;

    /// The work that a turn may do.
    pub(crate) const FULL: Self = Self { wanted: Self::MAX, fast: Self::MAX };

    /// How the next `bytes` are compressed: as wanted, at level 1, or not at all (`None`).
    pub(crate) fn spend(&mut self, how: &Compression, bytes: usize) -> Option<Compression> {
        let time = |level| how.algorithm.time(level) * bytes as u64;
        let level = how.level();
        if let Some(left) = self.wanted.checked_sub(time(level)) {
            self.wanted = left;
            return Some(*how);
        }
        let level = level.min(1);
        self.fast = self.fast.checked_sub(time(level))?;
        Some(Compression { level, ..*how })
    }
}

impl Default for Effort {
    fn default() -> Self {
        Self::FULL
    }
}

/// Compressor and decompressor with their memory, which is allocated at the first use.
#[derive(Default)]
pub(crate) struct Packer {
    /// Output of the compressor.
    scratch: Vec<u8>,
    snappy: Option<snap::raw::Encoder>,
    zstd: Option<zstd_safe::CCtx<'static>>,
    /// The compressor and its level.
    zlib: Option<(i32, flate2::Compress)>,
    unzstd: Option<zstd_safe::DCtx<'static>>,
}

impl Packer {
    /// The stored form of `data`, which is whole blocks; `None` if it does not become small enough:
    ///
    /// | extent | form |
    /// | --- | --- |
    /// | algorithm | u8 |
    /// | blocks | u8 |
    /// | zero | u16 |
    /// | length | u32 |
    /// | + compressed byte | u8 |
    ///
    /// Blocks are those before compression. Zeros fill the last device block. The blocks' checksums cover all of it and are
    /// verified before the bytes are decompressed. Even so, decompression never writes beyond the blocks that the map
    /// states.
    pub(crate) fn pack(&mut self, how: &Compression, data: &[u8]) -> Option<Bytes> {
        let blocks = data.len() as u64 / BLOCK;
        if !(2..=EXTENT_MAX).contains(&blocks) {
            return None;
        }
        let room = (how.stored_max(blocks) * BLOCK) as usize;
        let n = self.compress(how, data)?;
        let len = HEAD + n;
        if len > room {
            return None;
        }
        let mut head = Vec::with_capacity(HEAD);
        head.u8(how.algorithm as u8);
        head.u8(blocks as u8);
        head.u16(0);
        head.u32(n as u32);
        let mut out = AlignedBuf::zeroed(len.next_multiple_of(BLOCK_LEN));
        out.get_mut(..HEAD)?.copy_from_slice(&head);
        out.get_mut(HEAD..len)?.copy_from_slice(self.scratch.get(..n)?);
        Some(out.freeze())
    }

    /// Compresses into `scratch`. Returns the length.
    fn compress(&mut self, how: &Compression, data: &[u8]) -> Option<usize> {
        let (by, level) = (how.algorithm, how.level());
        let room = match by {
            Algorithm::Lz4 => lz4_flex::block::get_maximum_output_size(data.len()),
            Algorithm::Snappy => snap::raw::max_compress_len(data.len()),
            Algorithm::Zstd => zstd_safe::compress_bound(data.len()),
            // More is not wanted.
            Algorithm::Zlib => data.len(),
        };
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let to = self.scratch.get_mut(..room)?;
        match by {
            Algorithm::Lz4 => lz4_flex::block::compress_into(data, to).ok(),
            Algorithm::Snappy => self.snappy.get_or_insert_with(snap::raw::Encoder::new).compress(data, to).ok(),
            Algorithm::Zstd => self.zstd.get_or_insert_default().compress(to, data, level).ok(),
            Algorithm::Zlib => {
                if self.zlib.as_ref().is_some_and(|(l, _)| *l != level) {
                    self.zlib = None;
                }
                let make = || (level, flate2::Compress::new(flate2::Compression::new(level as u32), true));
                let (_, z) = self.zlib.get_or_insert_with(make);
                z.reset();
                let end = z.compress(data, to, flate2::FlushCompress::Finish).ok()?;
                (end == flate2::Status::StreamEnd).then(|| z.total_out() as usize)
            }
        }
    }

    /// The `blocks` blocks that an extent's bytes stand for; `None` if the bytes are malformed.
    pub(crate) fn unpack(&mut self, stored: &[u8], blocks: u64) -> Option<Bytes> {
        let mut r = Get::new(stored);
        let (by, n, zero, len) = (r.u8().ok()?, r.u8().ok()?, r.u16().ok()?, r.u32().ok()?);
        let data = r.take(len as usize).ok()?;
        if u64::from(n) != blocks || !(2..=EXTENT_MAX).contains(&blocks) || zero != 0 {
            return None;
        }
        let by = Algorithm::ALL.into_iter().find(|a| *a as u8 == by)?;
        let mut out = AlignedBuf::zeroed((blocks * BLOCK) as usize);
        let got = match by {
            Algorithm::Lz4 => lz4_flex::block::decompress_into(data, &mut out).ok()?,
            Algorithm::Snappy => {
                // Asked first, since the decoder wants a buffer of at least that length.
                (snap::raw::decompress_len(data).ok()? == out.len()).then_some(())?;
                snap::raw::Decoder::new().decompress(data, &mut out).ok()?
            }
            Algorithm::Zstd => self.unzstd.get_or_insert_default().decompress(&mut *out, data).ok()?,
            Algorithm::Zlib => {
                let mut z = flate2::Decompress::new(true);
                let end = z.decompress(data, &mut out, flate2::FlushDecompress::Finish).ok()?;
                (end == flate2::Status::StreamEnd).then(|| z.total_out() as usize)?
            }
        };
        (got == out.len()).then(|| out.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    pub(crate) fn how(algorithm: Algorithm) -> Compression {
        let level = algorithm.usual_level();
        Compression {
            mode: Mode::Force,
            algorithm,
            level,
            required_ratio: 0.875,
            min_blob: 8 << 10,
            max_blob: 64 << 10,
        }
    }

    fn text(rng: &mut Rng, n: usize) -> Vec<u8> {
        (0..n).map(|i| if rng.chance(1, 20) { rng.below(256) as u8 } else { (i / 40 % 60) as u8 }).collect()
    }

    #[test]
    fn all_algorithms_round_trip_in_whole_blocks() {
        let (mut rng, mut p) = (Rng::new(5), Packer::default());
        for a in Algorithm::ALL {
            for blocks in [2u64, 3, 16, 127, 128] {
                let data = text(&mut rng, (blocks * BLOCK) as usize);
                let stored = p.pack(&how(a), &data).unwrap_or_else(|| panic!("{a:?} {blocks}"));
                assert!(stored.len() < data.len() && stored.len().is_multiple_of(BLOCK_LEN), "{a:?} {blocks}");
                assert_eq!(p.unpack(&stored, blocks).unwrap(), data, "{a:?} {blocks}");
                assert!(p.unpack(&stored, blocks - 1).is_none() && p.unpack(&stored, blocks + 1).is_none());
            }
            let mut noise = vec![0; 16 * BLOCK_LEN];
            rng.fill(&mut noise);
            assert!(p.pack(&how(a), &noise).is_none(), "{a:?}");
            assert!(
                p.pack(&how(a), &vec![0; 129 * BLOCK_LEN]).is_none() && p.pack(&how(a), &noise[..BLOCK_LEN]).is_none()
            );
        }
    }

    #[test]
    fn any_level_round_trips_and_the_highest_saves_most() {
        let (mut rng, mut p) = (Rng::new(7), Packer::default());
        let words: Vec<Vec<u8>> = (0..300).map(|_| (0..7).map(|_| rng.below(26) as u8 + b'a').collect()).collect();
        let text = std::iter::repeat_with(|| words[rng.below(300) as usize].clone()).flatten();
        let data: Vec<u8> = text.take(16 * BLOCK_LEN).collect();
        for a in [Algorithm::Zlib, Algorithm::Zstd] {
            let mut lens = Vec::new();
            // Back and forth, so that a compressor of another level is there.
            for level in [i32::MIN, 1, 9, 1, i32::MAX] {
                let how = Compression { level, required_ratio: 1.0, ..how(a) };
                lens.push(p.compress(&how, &data));
                let stored = p.pack(&how, &data);
                // Level 0 of zlib saves nothing.
                assert_eq!(stored.is_none(), a == Algorithm::Zlib && level == i32::MIN, "{a:?} {level}");
                assert!(stored.is_none_or(|s| p.unpack(&s, 16).unwrap() == data), "{a:?} {level}");
            }
            let (least, others) = lens[1..].split_last().unwrap();
            assert!(least.is_some() && others.iter().all(|l| l >= least), "{a:?} {lens:?}");
            assert!(lens[1] != lens[2] && lens[1] == lens[3], "{a:?} {lens:?}");
        }
    }

    /// As zlib counts levels, -1 is its default.
    #[test]
    fn the_level_before_the_lowest_of_zlib_is_its_default() {
        let level = |level| Compression { level, ..how(Algorithm::Zlib) }.level();
        assert_eq!([-2, -1, 0, 9, 10].map(level), [0, 6, 0, 9, 9]);
        assert_eq!(Compression { level: -1, ..how(Algorithm::Zstd) }.level(), -1);
    }

    /// The most that clients write at once, in pieces of 64 KiB.
    #[test]
    fn a_turn_takes_bounded_time_at_any_level() {
        const PIECE: usize = 64 << 10;
        for (a, level, least, most) in [
            (Algorithm::Zstd, 22, 9, 9),
            (Algorithm::Zstd, 1, 1440, 1440),
            (Algorithm::Zlib, 9, 31, 31),
            (Algorithm::Lz4, 0, 1440, 1440),
        ] {
            let how = Compression { level, ..how(a) };
            let largest = Effort::default().spend(&how, EXTENT_MAX as usize * BLOCK_LEN);
            assert_eq!(largest, Some(how), "the largest piece fits");
            let (mut turn, mut time, mut wanted, mut plain) = (Effort::FULL, 0, 0, 0);
            for _ in 0..(90 << 20) / PIECE {
                match turn.spend(&how, PIECE) {
                    Some(h) => {
                        time += a.time(h.level()) * PIECE as u64;
                        wanted += usize::from(h == how);
                        assert!(h == how || h.level() <= 1);
                    }
                    None => plain += 1,
                }
            }
            assert!(time <= 2 * Effort::MAX, "{a:?} {level}: {time} ns");
            assert!((least..=most).contains(&wanted), "{a:?} {level}: {wanted} as wanted, {plain} plain");
        }
    }

    #[test]
    fn damaged_extents_are_refused_or_give_other_bytes_of_the_same_length() {
        let (mut rng, mut p) = (Rng::new(6), Packer::default());
        for a in Algorithm::ALL {
            let data = text(&mut rng, 16 * BLOCK_LEN);
            let stored = p.pack(&how(a), &data).unwrap();
            for _ in 0..400 {
                let mut bad = stored.to_vec();
                for _ in 0..1 + rng.below(4) {
                    let within = bad.len() as u64 / if rng.chance(1, 2) { 1 } else { 200 };
                    let at = rng.below(within) as usize;
                    bad[at] = rng.below(256) as u8;
                }
                let cut = if rng.chance(1, 4) { rng.below(bad.len() as u64) as usize } else { bad.len() };
                if let Some(got) = p.unpack(&bad[..cut], 16) {
                    assert_eq!(got.len(), data.len());
                }
            }
            // The decompressor works on after malformed bytes.
            assert_eq!(p.unpack(&stored, 16).unwrap(), data);
        }
    }

    #[test]
    fn settings_decide_what_is_compressed_and_when_it_is_kept() {
        let h = how(Algorithm::Lz4);
        assert_eq!((h.grid(), h.blocks_min(), h.stored_max(16)), (16, 2, 14));
        for (max, grid) in [(0, 2), (12 << 10, 2), (100 << 10, 16), (1 << 30, 128)] {
            assert_eq!(Compression { max_blob: max, ..h }.grid(), grid);
        }
        assert_eq!(Compression { required_ratio: 1.0, ..h }.stored_max(16), 15);
        assert_eq!(Compression { required_ratio: 0.0, ..h }.stored_max(16), 0);
        let of = |mode| [0, COMPRESSIBLE, INCOMPRESSIBLE].map(|f| Compression { mode, ..h }.wants(f));
        assert_eq!(of(Mode::Passive), [false, true, false]);
        assert_eq!(of(Mode::Aggressive), [true, true, false]);
        assert_eq!(of(Mode::Force), [true; 3]);
        assert_eq!(Algorithm::named("snappy"), Some(Algorithm::Snappy));
        assert_eq!(Algorithm::named("brotli"), None);
    }
}
