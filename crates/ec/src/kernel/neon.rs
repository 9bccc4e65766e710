//! Vectors of AArch64: TBL on half bytes.

use super::Factor;
use std::arch::aarch64::*;

/// 16 bytes at a time by two table look-ups; returns how many bytes were handled.
#[target_feature(enable = "neon")]
pub(super) fn neon(dst: &mut [u8], src: &[u8], f: &Factor) -> usize {
    // SAFETY: each table has the 16 bytes that are loaded.
    let (low, high) = unsafe { (vld1q_u8(f.low.as_ptr()), vld1q_u8(f.high.as_ptr())) };
    let mut done = 0;
    for (d, s) in dst.chunks_exact_mut(16).zip(src.chunks_exact(16)) {
        // SAFETY: both chunks have 16 bytes.
        unsafe {
            let x = vld1q_u8(s.as_ptr());
            let product = veorq_u8(vqtbl1q_u8(low, vandq_u8(x, vdupq_n_u8(15))), vqtbl1q_u8(high, vshrq_n_u8::<4>(x)));
            vst1q_u8(d.as_mut_ptr(), veorq_u8(vld1q_u8(d.as_ptr()), product));
        }
        done += 16;
    }
    done
}
