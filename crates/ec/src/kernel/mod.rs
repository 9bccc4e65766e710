//! Runs of bytes: `dst ^= c · src` in GF(2⁸), with the widest instructions that the processor has.
//!
//! One [`Kernel`] is chosen when a codec is made. Each kernel handles whole vectors and leaves the rest of a run to
//! `portable`, so lengths and alignments are free. Products go by the two half-byte tables of a `Factor` (PSHUFB, TBL)
//! or by its bit matrix (GFNI).
//!
//! This module encloses the crate's `unsafe` code: vector loads and stores within checked slices, and calls of
//! functions whose instructions were detected at run time.
//!
//! | module | contents |
//! | --- | --- |
//! | `neon` | vectors of AArch64: TBL on half bytes |
//! | `portable` | one byte at a time: the ends of runs, and processors without a kernel of their own |
//! | `x86` | vectors of x86-64: PSHUFB on half bytes, or GF2P8AFFINEQB with a bit matrix |

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::gf;

/// One coefficient, prepared for all kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Factor {
    /// The coefficient.
    value: u8,
    /// Products of the coefficient with 0..16.
    low: [u8; 16],
    /// Products of the coefficient with 0, 16, 32, … 240.
    high: [u8; 16],
    /// The multiplication as an 8×8 bit matrix in the order of GF2P8AFFINEQB: byte 7−i holds the row of result bit i.
    bits: u64,
}

impl Factor {
    const fn new(value: u8) -> Self {
        let mut f = Self { value, low: [0; 16], high: [0; 16], bits: 0 };
        let mut i = 0;
        while i < 16 {
            f.low[i] = gf::mul(value, i as u8);
            f.high[i] = gf::mul(value, (i as u8) << 4);
            i += 1;
        }
        let mut column = 0;
        while column < 8 {
            let product = gf::mul(value, 1 << column);
            let mut bit = 0;
            while bit < 8 {
                if product >> bit & 1 == 1 {
                    f.bits |= 1 << ((7 - bit) * 8 + column);
                }
                bit += 1;
            }
            column += 1;
        }
        f
    }

    /// The prepared coefficient.
    fn of(value: u8) -> &'static Self {
        &FACTORS[value as usize]
    }
}

/// All coefficients, 10 KiB.
static FACTORS: [Factor; 256] = {
    let mut t = [Factor::new(0); 256];
    let mut i = 0;
    while i < 256 {
        t[i] = Factor::new(i as u8);
        i += 1;
    }
    t
};

/// An implementation of multiply-add over runs of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// One byte at a time, by tables; on every processor.
    Portable,
    /// 32 bytes at a time by PSHUFB (AVX2).
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 32 bytes at a time by GF2P8AFFINEQB.
    #[cfg(target_arch = "x86_64")]
    Gfni,
    /// 64 bytes at a time by GF2P8AFFINEQB (AVX-512).
    #[cfg(target_arch = "x86_64")]
    Gfni512,
    /// 16 bytes at a time by TBL.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kernel {
    /// All kernels that this processor can run, the fastest one last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx2") {
                all.push(Self::Avx2);
                if std::is_x86_feature_detected!("gfni") {
                    all.push(Self::Gfni);
                    if std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512bw") {
                        all.push(Self::Gfni512);
                    }
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            all.push(Self::Neon);
        }
        all
    }

    /// The fastest kernel that this processor can run.
    #[must_use]
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Self::Portable)
    }

    /// `dst ^= c · src` over the common length of both.
    pub(crate) fn mul_add(self, dst: &mut [u8], src: &[u8], c: u8) {
        let n = dst.len().min(src.len());
        let (dst, src) = (&mut dst[..n], &src[..n]);
        if c == 0 {
            return;
        }
        let f = Factor::of(c);
        let done = match self {
            Self::Portable => 0,
            // SAFETY: these kernels exist only where `available` has found their instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::avx2(dst, src, f) },
            #[cfg(target_arch = "x86_64")]
            Self::Gfni => unsafe { x86::gfni(dst, src, f) },
            #[cfg(target_arch = "x86_64")]
            Self::Gfni512 => unsafe { x86::gfni512(dst, src, f) },
            #[cfg(target_arch = "aarch64")]
            Self::Neon => unsafe { neon::neon(dst, src, f) },
        };
        portable::mul_add(&mut dst[done..], &src[done..], f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kernels_give_the_products_of_the_field() {
        let src: Vec<u8> = (0..1_000u32).map(|i| (i * 167 + (i >> 3)) as u8).collect();
        let before: Vec<u8> = (0..1_000u32).map(|i| (i * 59 + 7) as u8).collect();
        for kernel in Kernel::available() {
            for c in 0..=255 {
                for (from, to) in [(0, 0), (0, 15), (1, 34), (3, 131), (5, 197), (0, 512), (7, 1_000)] {
                    let mut dst = before.clone();
                    kernel.mul_add(&mut dst[from..to], &src[from..to], c);
                    for i in 0..dst.len() {
                        let product = if (from..to).contains(&i) { gf::mul(c, src[i]) } else { 0 };
                        assert_eq!(dst[i], before[i] ^ product, "{kernel:?}, {c}, byte {i} of {from}..{to}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_source_that_is_shorter_ends_the_run() {
        for kernel in Kernel::available() {
            let mut dst = [1; 100];
            kernel.mul_add(&mut dst, &[2; 70], 1);
            assert!(dst[..70].iter().all(|b| *b == 3) && dst[70..].iter().all(|b| *b == 1));
        }
    }
}
