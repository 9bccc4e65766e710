//! Vectors of x86-64: PSHUFB on half bytes, or GF2P8AFFINEQB with a bit matrix.
//!
//! Each function handles whole vectors from the front of both slices and returns how many bytes these were.

use super::Factor;
use std::arch::x86_64::*;

/// 32 bytes at a time by two table look-ups.
#[target_feature(enable = "avx2")]
pub(super) fn avx2(dst: &mut [u8], src: &[u8], f: &Factor) -> usize {
    // SAFETY: each table has the 16 bytes that are loaded.
    let (low, high) = unsafe {
        (
            _mm256_broadcastsi128_si256(_mm_loadu_si128(f.low.as_ptr().cast())),
            _mm256_broadcastsi128_si256(_mm_loadu_si128(f.high.as_ptr().cast())),
        )
    };
    let mask = _mm256_set1_epi8(15);
    let mut done = 0;
    for (d, s) in dst.chunks_exact_mut(32).zip(src.chunks_exact(32)) {
        // SAFETY: both chunks have 32 bytes, and unaligned loads and stores need no more.
        unsafe {
            let x = _mm256_loadu_si256(s.as_ptr().cast());
            let lo = _mm256_shuffle_epi8(low, _mm256_and_si256(x, mask));
            let hi = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(x), mask));
            let sum = _mm256_xor_si256(_mm256_loadu_si256(d.as_ptr().cast()), _mm256_xor_si256(lo, hi));
            _mm256_storeu_si256(d.as_mut_ptr().cast(), sum);
        }
        done += 32;
    }
    done
}

/// 32 bytes at a time by one affine transformation.
#[target_feature(enable = "avx2,gfni")]
pub(super) fn gfni(dst: &mut [u8], src: &[u8], f: &Factor) -> usize {
    let matrix = _mm256_set1_epi64x(f.bits.cast_signed());
    let mut done = 0;
    for (d, s) in dst.chunks_exact_mut(32).zip(src.chunks_exact(32)) {
        // SAFETY: both chunks have 32 bytes, and unaligned loads and stores need no more.
        unsafe {
            let product = _mm256_gf2p8affine_epi64_epi8::<0>(_mm256_loadu_si256(s.as_ptr().cast()), matrix);
            let sum = _mm256_xor_si256(_mm256_loadu_si256(d.as_ptr().cast()), product);
            _mm256_storeu_si256(d.as_mut_ptr().cast(), sum);
        }
        done += 32;
    }
    done
}

/// 64 bytes at a time by one affine transformation.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn gfni512(dst: &mut [u8], src: &[u8], f: &Factor) -> usize {
    let matrix = _mm512_set1_epi64(f.bits.cast_signed());
    let mut done = 0;
    for (d, s) in dst.chunks_exact_mut(64).zip(src.chunks_exact(64)) {
        // SAFETY: both chunks have 64 bytes, and unaligned loads and stores need no more.
        unsafe {
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(_mm512_loadu_si512(s.as_ptr().cast()), matrix);
            let sum = _mm512_xor_si512(_mm512_loadu_si512(d.as_ptr().cast()), product);
            _mm512_storeu_si512(d.as_mut_ptr().cast(), sum);
        }
        done += 64;
    }
    done
}
