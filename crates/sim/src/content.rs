//! The model's bytes of an object: runs of eight-byte patterns, because every write repeats a pattern of its own.
//!
//! The search makes and compares very many contents, and a few runs are cheaper than tens of kilobytes. Runs are
//! never empty, and neighbours have different patterns.

/// The pattern that write `id` repeats; never zero.
#[must_use]
pub fn pattern(id: u64) -> u64 {
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// The `len` bytes that write `id` writes.
#[must_use]
pub fn fill(id: u64, len: usize) -> Vec<u8> {
    pattern(id).to_le_bytes().iter().copied().cycle().take(len).collect()
}

/// A run up to `end`: the byte at offset `p` of the object is byte `p % 8` of `word`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    end: usize,
    word: u64,
}

/// The bytes of an object, as runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    runs: Vec<Run>,
}

fn push(runs: &mut Vec<Run>, end: usize, word: u64) {
    match runs.last_mut() {
        Some(r) if r.word == word => r.end = end,
        _ => runs.push(Run { end, word }),
    }
}

fn bits(place: usize) -> u32 {
    8 * (place % 8) as u32
}

impl Content {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |r| r.end)
    }

    /// True if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn put(&mut self, off: usize, end: usize, word: u64) {
        if off >= end {
            return;
        }
        if self.len() < off {
            self.resize(off);
        }
        let mut runs = Vec::with_capacity(self.runs.len() + 2);
        let mut start = 0;
        for r in self.runs.iter().take_while(|r| std::mem::replace(&mut start, r.end) < off) {
            push(&mut runs, r.end.min(off), r.word);
        }
        push(&mut runs, end, word);
        for r in self.runs.iter().filter(|r| r.end > end) {
            push(&mut runs, r.end, r.word);
        }
        self.runs = runs;
    }

    /// Applies write `id` of `len` bytes at `off`.
    pub fn write(&mut self, id: u64, off: usize, len: usize) {
        self.put(off, off + len, pattern(id).rotate_left(bits(off)));
    }

    /// Writes zeros from `off` to `end`.
    pub fn zero(&mut self, off: usize, end: usize) {
        self.put(off, end, 0);
    }

    /// Truncates the content, or extends it with zeros.
    pub fn resize(&mut self, len: usize) {
        let whole = self.runs.partition_point(|r| r.end <= len);
        if let Some(cut) = self.runs.get(whole).copied() {
            self.runs.truncate(whole);
            if self.len() < len {
                self.runs.push(Run { end: len, ..cut });
            }
        } else if self.len() < len {
            push(&mut self.runs, len, 0);
        }
    }

    /// True if `data` are the same bytes.
    #[must_use]
    pub fn is(&self, data: &[u8]) -> bool {
        if self.len() != data.len() {
            return false;
        }
        let mut start = 0;
        self.runs.iter().all(|r| {
            let word = r.word.rotate_right(bits(start));
            let Some(part) = data.get(start..r.end) else { return false };
            start = r.end;
            let (words, rest) = part.as_chunks::<8>();
            words.iter().all(|w| u64::from_le_bytes(*w) == word)
                && rest.iter().zip(word.to_le_bytes()).all(|(a, b)| *a == b)
        })
    }

    /// The whole content.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        for r in &self.runs {
            let word = r.word.to_le_bytes();
            out.extend((out.len()..r.end).map(|p| word[p % 8]));
        }
        out
    }

    /// The ends and patterns of the runs, for hashing.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|r| [r.end as u64, r.word])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    #[test]
    fn runs_are_what_bytes_would_be() {
        for seed in 0..200 {
            let mut r = Rng::new(seed);
            let (mut c, mut b) = (Content::default(), Vec::new());
            for id in 1..40 {
                let (off, len) = (r.below(60) as usize, r.below(30) as usize);
                match r.below(4) {
                    0 => {
                        c.resize(off);
                        b.resize(off, 0);
                    }
                    1 if len > 0 && off + len <= b.len() => {
                        c.zero(off, off + len);
                        b[off..off + len].fill(0);
                    }
                    _ if len > 0 => {
                        c.write(id, off, len);
                        b.resize(b.len().max(off + len), 0);
                        b[off..off + len].copy_from_slice(&fill(id, len));
                    }
                    _ => {}
                }
                assert_eq!(c.bytes(), b, "seed {seed}, step {id}");
                assert_eq!(c.len(), b.len());
                assert!(c.is(&b), "seed {seed}, step {id}");
                for at in [r.below(90) as usize, b.len().saturating_sub(1), 0] {
                    if let Some(x) = b.get(at).copied() {
                        b[at] = x.wrapping_add(1);
                        assert!(!c.is(&b), "seed {seed}, step {id}: another byte at {at}");
                        b[at] = x;
                    }
                }
                let mut end = 0;
                let mut last = None;
                for run in &c.runs {
                    assert!(run.end > end && last != Some(run.word), "{:?}", c.runs);
                    (end, last) = (run.end, Some(run.word));
                }
            }
        }
    }
}
