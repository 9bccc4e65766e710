//! Reads ranges of the state store as they were at one revision. No I/O.
//!
//! The revision of the first answer is used for all further ranges. If it is compacted before the last range is read,
//! the reading starts again.

use bytes::Bytes;
use state::{Entry, Op, Outcome, Range, Reply, Request, StateError, Token};

/// A reading of several ranges; see the module. One request is in flight at a time.
#[derive(Debug)]
pub struct Reading {
    ranges: Vec<Range>,
    /// Index of the range that is being read.
    next: usize,
    /// Requested revision; 0: the newest.
    from: u64,
    at: u64,
    token: Token,
    got: Vec<(Bytes, Entry)>,
}

/// The next step after an answer.
#[derive(Debug)]
pub enum Step {
    /// The next request.
    Ask(Request),
    /// All entries, and their revision.
    Done(Vec<(Bytes, Entry)>, u64),
    /// The store can't be read now.
    Failed(StateError),
    /// The answer belongs to another request.
    NotMine,
}

impl Reading {
    /// Starts a reading of `ranges` (at least one) at the revision `at` (0: the newest); returns it with its first
    /// request. Requests carry `token`.
    #[must_use]
    pub fn new(ranges: Vec<Range>, at: u64, token: Token) -> (Self, Request) {
        let me = Self { ranges, next: 0, from: at, at, token, got: Vec::new() };
        let first = me.request();
        (me, first)
    }

    fn request(&self) -> Request {
        let range = self.ranges.get(self.next).cloned().unwrap_or_else(|| Range::key(b""));
        Request { token: self.token, op: Op::Range { range, limit: 0, reverse: false, at: self.at } }
    }

    /// Handles an answer of the store.
    pub fn reply(&mut self, r: Reply) -> Step {
        if r.token != self.token {
            return Step::NotMine;
        }
        match r.result {
            Ok(Outcome::Entries { entries, .. }) => {
                self.at = r.revision;
                self.got.extend(entries);
                self.next += 1;
                if self.next >= self.ranges.len() {
                    return Step::Done(std::mem::take(&mut self.got), self.at);
                }
            }
            Err(StateError::Compacted(_)) if self.from == 0 && self.next > 0 => {
                (self.next, self.at) = (0, 0);
                self.got.clear();
            }
            Err(e) => return Step::Failed(e),
            Ok(_) => return Step::Failed(StateError::Unknown("an answer of another kind".into())),
        }
        Step::Ask(self.request())
    }
}
