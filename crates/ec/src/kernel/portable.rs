//! One byte at a time: the ends of runs, and processors without a kernel of their own.

use super::Factor;

/// `dst ^= f · src`; both are of one length.
pub(super) fn mul_add(dst: &mut [u8], src: &[u8], f: &Factor) {
    if f.value == 1 {
        dst.iter_mut().zip(src).for_each(|(d, s)| *d ^= s);
        return;
    }
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= f.low[usize::from(s & 15)] ^ f.high[usize::from(s >> 4)];
    }
}
