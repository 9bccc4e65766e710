//! Arithmetic in GF(2⁸) with the polynomial x⁸+x⁴+x³+x²+1 (0x11d), the field of `jerasure` (w = 8) and of ISA-L.
//!
//! Addition is exclusive or. Multiplication goes by tables that the compiler fills in.

/// The field's polynomial, without its highest bit.
const POLYNOMIAL: u8 = 0x1d;

/// `EXP[i]` is 2ⁱ; twice as long as the group, so that a sum of two logarithms needs no reduction.
const EXP: [u8; 510] = exp_table();

/// `LOG[x]` is the logarithm of `x` to the base 2; `LOG[0]` is not used.
const LOG: [u8; 256] = log_table();

const fn exp_table() -> [u8; 510] {
    let mut t = [0; 510];
    let mut x: u8 = 1;
    let mut i = 0;
    while i < 255 {
        t[i] = x;
        t[i + 255] = x;
        x = (x << 1) ^ if x & 0x80 == 0 { 0 } else { POLYNOMIAL };
        i += 1;
    }
    t
}

const fn log_table() -> [u8; 256] {
    let mut t = [0; 256];
    let mut i = 0;
    while i < 255 {
        t[EXP[i] as usize] = i as u8;
        i += 1;
    }
    t
}

/// The product of two elements.
#[must_use]
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// The multiplicative inverse; `None` for zero, which has none.
#[must_use]
pub const fn inv(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(EXP[255 - LOG[a as usize] as usize]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication bit by bit, as the field is defined.
    fn slow_mul(a: u8, b: u8) -> u8 {
        let (mut a, mut r) = (a, 0);
        for i in 0..8 {
            if b >> i & 1 == 1 {
                r ^= a;
            }
            a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { POLYNOMIAL };
        }
        r
    }

    #[test]
    fn products_follow_from_the_polynomial_and_inverses_from_products() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow_mul(a, b), "{a} · {b}");
            }
            match inv(a) {
                Some(i) => assert_eq!(mul(a, i), 1, "1/{a}"),
                None => assert_eq!(a, 0),
            }
        }
    }
}
