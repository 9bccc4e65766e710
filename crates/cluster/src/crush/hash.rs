//! Hashes of placement: CRUSH's rjenkins1 over integers, and the two string hashes of object names.

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1232;

#[inline(always)]
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 13);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 8);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 13);
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 12);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 16);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 5);
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 3);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 10);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 15);
}

/// Hash of two numbers.
#[must_use]
pub fn hash32_2(mut a: u32, mut b: u32) -> u32 {
    let mut h = SEED ^ a ^ b;
    let (mut x, mut y) = (X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut x, &mut a, &mut h);
    mix(&mut b, &mut y, &mut h);
    h
}

/// Hash of three numbers.
#[inline(always)]
#[must_use]
pub fn hash32_3(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let mut h = SEED ^ a ^ b ^ c;
    let (mut x, mut y) = (X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    h
}

/// Hash of four numbers.
#[must_use]
pub fn hash32_4(mut a: u32, mut b: u32, mut c: u32, mut d: u32) -> u32 {
    let mut h = SEED ^ a ^ b ^ c ^ d;
    let (mut x, mut y) = (X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut a, &mut x, &mut h);
    mix(&mut y, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut d, &mut h);
    h
}

/// Number of items that [`hash32_3_lanes`] hashes at once.
pub(crate) const LANES: usize = 8;

/// [`hash32_3`] of `(a, b[i], c)` for several `b`. The compiler turns the lanes into vector instructions.
#[inline]
pub(crate) fn hash32_3_lanes(a: u32, b: &[u32; LANES], c: u32) -> [u32; LANES] {
    let mut out = [0; LANES];
    let (mut va, mut vb, mut vc) = ([a; LANES], *b, [c; LANES]);
    let (mut vx, mut vy) = ([X; LANES], [Y; LANES]);
    for (o, b) in out.iter_mut().zip(b) {
        *o = SEED ^ a ^ *b ^ c;
    }
    mix_lanes(&mut va, &mut vb, &mut out);
    mix_lanes(&mut vc, &mut vx, &mut out);
    mix_lanes(&mut vy, &mut va, &mut out);
    mix_lanes(&mut vb, &mut vx, &mut out);
    mix_lanes(&mut vy, &mut vc, &mut out);
    out
}

#[inline(always)]
fn mix_lanes(a: &mut [u32; LANES], b: &mut [u32; LANES], c: &mut [u32; LANES]) {
    for ((a, b), c) in a.iter_mut().zip(b.iter_mut()).zip(c.iter_mut()) {
        mix(a, b, c);
    }
}

/// Jenkins' string hash (`ceph_str_hash_rjenkins`), the default of pools.
#[must_use]
pub fn str_rjenkins(s: &[u8]) -> u32 {
    let mut h = StrHash::new(s.len());
    h.feed(s);
    h.finish()
}

/// Bytes that [`StrHash`] mixes at once.
const BLOCK: usize = 12;

fn words(b: &[u8; BLOCK]) -> [u32; 3] {
    let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3] = *b;
    [u32::from_le_bytes([a0, a1, a2, a3]), u32::from_le_bytes([b0, b1, b2, b3]), u32::from_le_bytes([c0, c1, c2, c3])]
}

/// Jenkins' string hash over pieces, so that namespace and key need not be concatenated first.
#[derive(Debug)]
pub struct StrHash {
    abc: [u32; 3],
    block: [u8; BLOCK],
    fill: usize,
    total: u32,
}

impl StrHash {
    /// Starts the hash of a text of `total` bytes.
    #[must_use]
    pub fn new(total: usize) -> Self {
        Self { abc: [0x9e37_79b9, 0x9e37_79b9, 0], block: [0; BLOCK], fill: 0, total: total as u32 }
    }

    /// Feeds the next bytes.
    pub fn feed(&mut self, mut s: &[u8]) {
        // Fills up a begun block first, then mixes whole blocks, then begins a block with the rest.
        if self.fill > 0 {
            let n = s.len().min(BLOCK - self.fill);
            let (head, tail) = s.split_at_checked(n).unwrap_or((s, &[]));
            self.begin(head);
            s = tail;
            if self.fill < BLOCK {
                return;
            }
            let block = self.block;
            self.mix_block(&block);
            self.fill = 0;
        }
        let (blocks, rest) = s.as_chunks::<BLOCK>();
        for b in blocks {
            self.mix_block(b);
        }
        self.begin(rest);
    }

    fn begin(&mut self, s: &[u8]) {
        if let Some(slot) = self.block.get_mut(self.fill..self.fill + s.len()) {
            slot.copy_from_slice(s);
        }
        self.fill += s.len();
    }

    fn mix_block(&mut self, b: &[u8; BLOCK]) {
        let [w0, w1, w2] = words(b);
        let [a, b, c] = &mut self.abc;
        *a = a.wrapping_add(w0);
        *b = b.wrapping_add(w1);
        *c = c.wrapping_add(w2);
        mix(a, b, c);
    }

    /// The hash of all bytes fed.
    #[must_use]
    pub fn finish(mut self) -> u32 {
        for slot in self.block.iter_mut().skip(self.fill) {
            *slot = 0;
        }
        let [w0, w1, w2] = words(&self.block);
        let [mut a, mut b, mut c] = self.abc;
        // The lowest byte of c is the length, so the third word moves up by one byte.
        c = c.wrapping_add(self.total).wrapping_add(w2 << 8);
        b = b.wrapping_add(w1);
        a = a.wrapping_add(w0);
        mix(&mut a, &mut b, &mut c);
        c
    }
}

/// Hash of the Linux directory cache, an alternative for pools.
#[must_use]
pub fn str_linux(s: &[u8]) -> u32 {
    s.iter().fold(0u64, |h, c| {
        let c = u64::from(*c);
        h.wrapping_add(c << 4).wrapping_add(c >> 4).wrapping_mul(11)
    }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_equal_single_hashes() {
        let b: [u32; LANES] = std::array::from_fn(|i| (i as u32).wrapping_mul(0x9e37_79b9) ^ 77);
        for (x, r) in [(0, 0), (1, 2), (0xdead_beef, 50)] {
            assert_eq!(hash32_3_lanes(x, &b, r), b.map(|b| hash32_3(x, b, r)));
        }
    }

    #[test]
    fn names_hash_as_ceph_says() {
        // Values from `ceph osd map POOL foo`, and for the same name in namespace ns1.
        assert_eq!(str_rjenkins(b"foo"), 0x7fc1_f406);
        assert_eq!(str_rjenkins(b"bar"), 0xefe6_384b);
        assert_eq!(str_rjenkins(b"ns1\x1ffoo"), 0xf456_9544);
    }

    #[test]
    fn pieces_hash_like_the_whole() {
        let text: Vec<u8> = (0..60u8).map(|i| i.wrapping_mul(7)).collect();
        for n in 0..text.len() {
            for cut in 0..=n {
                let mut h = StrHash::new(n);
                h.feed(&text[..cut / 2]);
                h.feed(&text[cut / 2..cut]);
                h.feed(&text[cut..n]);
                assert_eq!(h.finish(), str_rjenkins(&text[..n]), "{n} {cut}");
            }
        }
    }
}
