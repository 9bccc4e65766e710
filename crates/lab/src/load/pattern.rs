//! Order in which operations use blocks: sequential, random, or by Zipf's law.

use super::ops::gcd;
use base::rng::Rng;

/// Order of blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// In ascending order, wrapping around at the end.
    Sequential,
    /// Each block with the same probability.
    Random,
    /// The block of rank `k` with a probability in proportion to `1 / k^s`. Ranks are spread over all blocks.
    Zipf(f64),
    /// In ascending order, each block once.
    Once,
}

/// Draws block numbers.
#[derive(Clone, Debug)]
pub struct Pattern {
    order: Order,
    blocks: u64,
    next: u64,
    zipf: Option<Zipf>,
}

impl Pattern {
    /// Draws from `0..blocks`, at least one block.
    #[must_use]
    pub fn new(order: Order, blocks: u64) -> Self {
        let blocks = blocks.max(1);
        let zipf = if let Order::Zipf(s) = order { Some(Zipf::new(blocks, s)) } else { None };
        Self { order, blocks, next: 0, zipf }
    }

    /// The next block; `None` once all were drawn, in order `Once`.
    pub fn next(&mut self, rng: &mut Rng) -> Option<u64> {
        match (self.order, &self.zipf) {
            (Order::Random, _) => Some(rng.below(self.blocks)),
            (Order::Zipf(_), Some(z)) => {
                // Blocks of adjacent ranks must not be adjacent in an object: a multiplier coprime to the count spreads
                // them.
                let rank = z.draw(rng) - 1;
                Some((u128::from(rank) * u128::from(spread(self.blocks)) % u128::from(self.blocks)) as u64)
            }
            (Order::Once, _) if self.next == self.blocks => None,
            _ => {
                let at = self.next % self.blocks;
                self.next = at + 1;
                Some(at)
            }
        }
    }
}

/// A multiplier coprime to `n`, which permutes `0..n`.
fn spread(n: u64) -> u64 {
    let mut m = 0x9e37_79b9_7f4a_7c15 % n.max(1);
    while gcd(m.max(1), n) != 1 || m == 0 {
        m += 1;
    }
    m
}

/// Zipf's distribution by rejection from the inverse of its integral (Hörmann and Derflinger, 1996): constant time and
/// no table, however many ranks there are.
#[derive(Clone, Debug)]
struct Zipf {
    n: f64,
    s: f64,
    from: f64,
    to: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(n: u64, s: f64) -> Self {
        let mut z = Self { n: n as f64, s, from: 0.0, to: 0.0, shortcut: 0.0 };
        z.from = z.integral(1.5) - 1.0;
        z.to = z.integral(z.n + 0.5);
        z.shortcut = 2.0 - z.inverse(z.integral(2.5) - z.density(2.0));
        z
    }

    fn density(&self, x: f64) -> f64 {
        (-self.s * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let l = x.ln();
        let t = (1.0 - self.s) * l;
        let factor = if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 };
        factor * l
    }

    fn inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.s)).max(-1.0);
        let factor = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 };
        (factor * x).exp()
    }

    /// A rank from 1 to `n`.
    fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.to + unit(rng) * (self.from - self.to);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64;
            }
        }
    }
}

/// A random number in `0.0..1.0`.
pub fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(order: Order, blocks: u64, n: usize) -> Vec<u64> {
        let (mut p, mut rng) = (Pattern::new(order, blocks), Rng::new(3));
        std::iter::from_fn(|| p.next(&mut rng)).take(n).collect()
    }

    #[test]
    fn orders() {
        assert_eq!(draws(Order::Sequential, 3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(draws(Order::Once, 3, 7), [0, 1, 2]);
        let mut hits = [0u32; 10];
        for b in draws(Order::Random, 10, 100_000) {
            hits[b as usize] += 1;
        }
        assert!(hits.iter().all(|h| (9_500..10_500).contains(h)), "{hits:?}");
    }

    #[test]
    fn zipf_follows_its_law() {
        for (s, n) in [(0.99, 1000u64), (1.0, 1000), (1.3, 100_000), (0.5, 10)] {
            let z = Zipf::new(n, s);
            let mut rng = Rng::new(5);
            let draws = 200_000;
            let mut hits = [0f64; 4];
            for _ in 0..draws {
                let k = z.draw(&mut rng);
                assert!((1..=n).contains(&k));
                if k <= 4 {
                    hits[k as usize - 1] += 1.0;
                }
            }
            let total: f64 = (1..=n).map(|k| (k as f64).powf(-s)).sum();
            for (i, h) in hits.iter().enumerate() {
                let want = ((i + 1) as f64).powf(-s) / total;
                assert!((h / f64::from(draws) / want - 1.0).abs() < 0.05, "s {s} rank {}: {h} {want}", i + 1);
            }
        }
    }

    #[test]
    fn ranks_are_spread_over_all_blocks() {
        for n in [1u64, 2, 7, 1024, 3 << 20] {
            let m = spread(n);
            assert_eq!(gcd(m, n), 1);
        }
        let mut seen: Vec<u64> = (0..1000u64).map(|r| r * (spread(1000) % 1000) % 1000).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
    }
}
