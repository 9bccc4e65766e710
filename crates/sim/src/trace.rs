//! The trace of a run: a hash over all events, and the last lines as text if requested.

use crate::queue::Time;
use std::collections::{BTreeMap, VecDeque};

/// Most lines kept.
const LINES_MAX: usize = 2_000_000;

/// The trace of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    lines: Option<VecDeque<String>>,
    counts: BTreeMap<u16, (u64, u64)>,
}

impl Trace {
    /// An empty trace; with `words`, lines are kept.
    #[must_use]
    pub fn new(words: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, lines: words.then(VecDeque::new), counts: BTreeMap::new() }
    }

    /// Mixes numbers into the hash.
    pub fn mix(&mut self, parts: &[u64]) {
        self.events += 1;
        for p in parts {
            self.hash = (self.hash ^ p).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }

    /// Mixes bytes into the hash.
    pub fn mix_bytes(&mut self, b: &[u8]) {
        self.mix(&[u64::from(base::crc::crc32c(0, b)), b.len() as u64]);
    }

    /// Counts a delivered message.
    pub fn count(&mut self, kind: u16, bytes: usize) {
        let c = self.counts.entry(kind).or_default();
        *c = (c.0 + 1, c.1 + bytes as u64);
    }

    /// Takes the number of messages and bytes by kind since the last call.
    pub fn take_counts(&mut self) -> BTreeMap<u16, (u64, u64)> {
        std::mem::take(&mut self.counts)
    }

    /// Adds a line, if lines are kept.
    pub fn line(&mut self, at: Time, text: impl FnOnce() -> String) {
        if let Some(l) = &mut self.lines {
            if l.len() >= LINES_MAX {
                l.pop_front();
            }
            l.push_back(format!("{:>12.6} {}", at as f64 / 1e9, text()));
        }
    }

    /// True if lines are kept.
    #[must_use]
    pub fn has_words(&self) -> bool {
        self.lines.is_some()
    }

    /// The hash so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The lines kept.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().flatten().map(String::as_str)
    }
}
