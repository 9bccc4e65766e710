//! Searches for an order of an object's operations that explains every answer that clients got.
//!
//! The search is that of Wing, Gong and Lowe: operations are put in order one by one, each between its call and its
//! return, and the model must answer as the cluster did. An operation of unknown outcome may have happened at any
//! time after its call, or never. The cluster's object versions only decide which order is tried first.

use crate::coded::Code;
use crate::load::{Outcome, Record, What};
use crate::model::{Object, State, Step};
use crate::queue::Time;
use rustc_hash::{FxHashMap, FxHashSet};

/// Most states that a search visits before it gives up.
const STATES_MAX: usize = 500_000;

/// For each copy, by its id, the contents that its source may have had while the copy was made.
pub type Sources = FxHashMap<u64, Vec<Option<Object>>>;

/// The way in which an operation takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Plain,
    /// The write changes nothing. Its answer has the object's version, which no earlier answer had.
    Idle,
    /// The operation copies this element of the source's possible contents.
    Copy(usize),
}

/// The reason why a history is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No order explains the history.
    NotLinearizable {
        /// The operation that follows the longest explained prefix and that the model cannot explain.
        op: u64,
        /// The object's state before that operation.
        state: String,
    },
    /// The search was too long, so the history is undecided.
    GaveUp,
}

struct Search<'a> {
    ops: Vec<&'a Record>,
    sources: &'a Sources,
    /// Unplaced operations as a list in order of their calls: the one before and the one behind each. The last entry
    /// is the list's end.
    before: Vec<usize>,
    behind: Vec<usize>,
    /// Placed operations, in order.
    placed: Vec<usize>,
    /// Hash of the set of placed operations.
    set: u64,
    seen: FxHashSet<(u64, u64)>,
    /// The longest order so far, and the state it leads to.
    best: (Vec<usize>, State),
    steps: usize,
}

fn end(r: &Record) -> Time {
    match r.outcome {
        Some(_) => r.done.unwrap_or(Time::MAX),
        None => Time::MAX,
    }
}

/// True if the model shows the result of the read.
fn agrees(s: &State, r: &Record) -> bool {
    match (&r.what, &r.outcome) {
        (What::Read { snap, .. }, Some(Outcome::Read(seen, version))) => match (s.version_read(*snap), seen) {
            (Some((o, v)), Some(seen)) => v.is_none_or(|v| v == *version) && o.is(seen),
            (None, None) => true,
            _ => false,
        },
        _ => false,
    }
}

/// The state after `r`, if the model answers as the cluster did.
fn step(s: &State, r: &Record, how: How, sources: &Sources) -> Option<State> {
    let copied = match how {
        How::Copy(n) => sources.get(&r.id).and_then(|c| c.get(n)).and_then(Option::as_ref),
        How::Plain | How::Idle => None,
    };
    match (&r.what, &r.outcome) {
        (What::Write { steps, snapc }, Some(Outcome::Wrote(v))) if how == How::Idle => {
            let next = s.write(r.id, steps, snapc).ok()?;
            let mut same = s.clone();
            same.version = Some(*v);
            (next.head == s.head).then_some(same)
        }
        (What::Write { steps, snapc }, Some(Outcome::Wrote(v))) => {
            let mut next = s.write_copying(r.id, steps, snapc, copied).ok()?;
            if s.version == Some(*v) && next.head == s.head && !copies(steps) {
                // The version did not change: the cluster wrote nothing, and so made no clone for a snapshot.
                return Some(s.clone());
            }
            next.version = Some(*v);
            Some(next)
        }
        (What::Write { steps, snapc }, Some(Outcome::Errno(e))) => {
            (s.write_copying(r.id, steps, snapc, copied) == Err(*e)).then(|| s.clone())
        }
        (What::Write { steps, snapc }, None) => {
            let mut next = s.write_copying(r.id, steps, snapc, copied).ok()?;
            next.version = None;
            Some(next)
        }
        _ => None,
    }
}

fn copies(steps: &[Step]) -> bool {
    steps.iter().any(|s| matches!(s, Step::CopyFrom { .. }))
}

/// The contents that each source may have had while it was copied. A source is always written as a whole, so that
/// each write leaves one content.
#[must_use]
pub fn sources(all: &[Record], code: Option<Code>) -> Sources {
    let source_of = |steps: &[Step]| {
        steps.iter().find_map(|s| if let Step::CopyFrom { source } = s { Some(*source) } else { None })
    };
    let happened = |w: &Record| !matches!(w.outcome, Some(Outcome::Errno(_) | Outcome::Refused(_)));
    let mut found = Sources::default();
    for copy in all {
        let What::Write { steps, .. } = &copy.what else { continue };
        let Some(source) = source_of(steps) else { continue };
        let writes: Vec<(&Record, &[Step], &crate::model::SnapContext)> = all
            .iter()
            .filter(|w| w.object == source && happened(w) && w.call <= end(copy))
            .filter_map(
                |w| if let What::Write { steps, snapc } = &w.what { Some((w, &steps[..], snapc)) } else { None },
            )
            .collect();
        // A later write that ended before the copy began hides this one.
        let hidden = |ended: Time| writes.iter().any(|(w, ..)| w.call > ended && end(w) < copy.call);
        let mut contents: Vec<Option<Object>> = Vec::new();
        if !writes.iter().any(|(w, ..)| end(w) < copy.call) {
            contents.push(None);
        }
        for (w, steps, snapc) in writes.iter().filter(|(w, ..)| !hidden(end(w))) {
            let content = State::of(code).write(w.id, steps, snapc).ok().and_then(|s| s.head);
            let content = content.map(|k| k.object.clone());
            if !contents.contains(&content) {
                contents.push(content);
            }
        }
        found.insert(copy.id, contents);
    }
    found
}

/// Judges the history of one object. `code` is the pool's erasure code, if it has one.
pub fn object(history: &[&Record], code: Option<Code>, sources: &Sources) -> Result<(), Wrong> {
    let mut ops: Vec<&Record> = history
        .iter()
        .copied()
        // A read without an answer gives no information.
        .filter(|r| !(matches!(r.what, What::Read { .. }) && r.outcome.is_none()))
        // The cluster refused these for reasons other than the object, so they did not happen.
        .filter(|r| !matches!(r.outcome, Some(Outcome::Refused(_))))
        .collect();
    ops.sort_by_key(|r| (r.call, r.id));
    let mut s = Search::new(ops, sources);
    match s.go(State::of(code)) {
        Some(true) => Ok(()),
        Some(false) => {
            let (placed, state) = &s.best;
            let done: FxHashSet<usize> = placed.iter().copied().collect();
            let left = s.ops.iter().enumerate().filter(|(i, r)| !done.contains(i) && r.outcome.is_some());
            let op = left.map(|(_, r)| r).min_by_key(|r| end(r));
            Err(Wrong::NotLinearizable {
                op: op.map_or(0, |r| r.id),
                state: format!(
                    "{} (snapshot context {}, clones {:?})",
                    crate::model::describe(state.head.as_ref().map(|k| k.object.seen()).as_ref()),
                    state.snap_seq,
                    state.clones.iter().map(|(id, s, ..)| (*id, s.clone())).collect::<Vec<_>>()
                ),
            })
        }
        None => Err(Wrong::GaveUp),
    }
}

/// A random-looking number for an operation. The hash of a set is the exclusive or of its numbers.
fn mark(i: usize) -> u64 {
    let mut x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A state of the search: the candidates for the next place, and the number of placed operations on entry.
struct Frame {
    state: State,
    /// The candidates, each once for every way in which it may take effect.
    candidates: Vec<(usize, How)>,
    next: usize,
    placed: usize,
}

impl<'a> Search<'a> {
    fn new(ops: Vec<&'a Record>, sources: &'a Sources) -> Self {
        let n = ops.len();
        Self {
            // The list is a ring: its end is also before the first operation.
            before: (0..=n).map(|i| if i == 0 { n } else { i - 1 }).collect(),
            behind: (0..=n).map(|i| if i == n { 0 } else { i + 1 }).collect(),
            ops,
            sources,
            placed: Vec::new(),
            set: 0,
            seen: FxHashSet::default(),
            best: (Vec::new(), State::default()),
            steps: 0,
        }
    }

    fn place(&mut self, i: usize) {
        let (b, a) = (self.before[i], self.behind[i]);
        self.behind[b] = a;
        self.before[a] = b;
        self.placed.push(i);
        self.set ^= mark(i);
    }

    /// Removes placed operations until `n` are left, the last one first.
    fn unplace(&mut self, n: usize) {
        while self.placed.len() > n
            && let Some(i) = self.placed.pop()
        {
            let (b, a) = (self.before[i], self.behind[i]);
            self.behind[b] = i;
            self.before[a] = i;
            self.set ^= mark(i);
        }
    }

    /// Collects the operations that may be next: they were called before the first of the unplaced ones ended.
    /// Returns the time of that end.
    fn candidates(&self, into: &mut Vec<usize>) -> Time {
        into.clear();
        let mut limit = Time::MAX;
        let mut i = self.behind[self.ops.len()];
        while let Some(r) = self.ops.get(i).filter(|r| r.call <= limit) {
            limit = limit.min(end(r));
            into.push(i);
            i = self.behind[i];
        }
        into.retain(|i| self.ops[*i].call <= limit);
        limit
    }

    /// The writes among the candidates, with every way in which each may take effect; the likely ones first.
    fn ways(&self, state: &State, candidates: &[usize]) -> Vec<(usize, How)> {
        let mut next = Vec::new();
        for &i in candidates {
            let r = self.ops[i];
            match (&r.what, self.sources.get(&r.id)) {
                (What::Write { .. }, Some(contents)) => {
                    next.extend((0..contents.len()).map(|n| (i, How::Copy(n))));
                }
                (What::Write { .. }, None) => {
                    next.push((i, How::Plain));
                    if state.version.is_none() && matches!(r.outcome, Some(Outcome::Wrote(_))) {
                        next.push((i, How::Idle));
                    }
                }
                _ => {}
            }
        }
        next.sort_by_key(|(i, how)| match self.ops[*i].outcome {
            Some(Outcome::Errno(_)) => (0, 0, *i, *how),
            Some(Outcome::Wrote(v)) => (1, v, *i, *how),
            _ => (2, 0, *i, *how),
        });
        next
    }

    /// Runs the search. `Some(true)`: an order was found; `Some(false)`: there is none; `None`: gave up.
    fn go(&mut self, mut state: State) -> Option<bool> {
        // The stack is explicit, because histories can be long.
        let mut stack: Vec<Frame> = Vec::new();
        let mut entered = 0;
        let mut candidates = Vec::new();
        loop {
            // Enter: reads that agree are placed at once, since they change nothing.
            loop {
                let limit = self.candidates(&mut candidates);
                if limit == Time::MAX {
                    // Only operations of unknown outcome are left, if any.
                    return Some(true);
                }
                let n = self.placed.len();
                for &i in &candidates {
                    if agrees(&state, self.ops[i]) {
                        self.place(i);
                    }
                }
                if self.placed.len() == n {
                    break;
                }
            }
            if self.placed.len() > self.best.0.len() {
                self.best = (self.placed.clone(), state.clone());
            }
            let fresh = self.seen.insert((self.set, state.digest()));
            self.steps += 1;
            if self.steps > STATES_MAX {
                return None;
            }
            let next = if fresh { self.ways(&state, &candidates) } else { Vec::new() };
            stack.push(Frame { state, candidates: next, next: 0, placed: entered });
            // Advance: take the next candidate of the deepest frame that has one.
            let here = self.placed.len();
            let mut at = here;
            state = loop {
                let Some(f) = stack.last_mut() else { return Some(false) };
                let Some(&(i, how)) = f.candidates.get(f.next) else {
                    at = f.placed;
                    stack.pop();
                    continue;
                };
                f.next += 1;
                if let Some(s) = step(&f.state, self.ops[i], how, self.sources) {
                    self.unplace(at);
                    entered = at;
                    self.place(i);
                    break s;
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SnapContext, Step};
    use std::rc::Rc;

    fn write(id: u64, call: Time, done: Option<Time>, steps: Vec<Step>) -> Record {
        let what = What::Write { steps, snapc: SnapContext::default() };
        Record { id, client: 0, object: 0, call, done, what, outcome: done.map(|_| Outcome::Wrote(id)) }
    }

    fn read(id: u64, call: Time, done: Time, of: Option<&State>) -> Record {
        let seen = of.and_then(|s| s.head.clone()).map(|h| Rc::new(h.object.seen()));
        Record {
            id,
            client: 1,
            object: 0,
            call,
            done: Some(done),
            what: What::Read { snap: 0, anywhere: false, notify: false },
            outcome: Some(Outcome::Read(seen, of.and_then(|s| s.version).unwrap_or(0))),
        }
    }

    fn state(ids: &[u64]) -> State {
        let mut written = ids.iter().fold(State::default(), |s, i| {
            s.write(*i, &[Step::WriteFull { len: 8 }], &SnapContext::default()).unwrap_or_default()
        });
        written.version = ids.last().copied();
        written
    }

    /// Judges the operations of the first object.
    fn judge(h: &[Record]) -> Result<(), Wrong> {
        object(&h.iter().filter(|r| r.object == 0).collect::<Vec<_>>(), None, &sources(h, None))
    }

    fn full() -> Vec<Step> {
        vec![Step::WriteFull { len: 8 }]
    }

    #[test]
    fn a_lost_write_is_found() {
        let h = [write(1, 0, Some(1), full()), read(2, 2, 3, None)];
        assert!(matches!(judge(&h), Err(Wrong::NotLinearizable { op: 2, .. })));
    }

    #[test]
    fn a_stale_read_is_found() {
        let h = [write(1, 0, Some(1), full()), write(2, 2, Some(3), full()), read(3, 4, 5, Some(&state(&[1])))];
        assert!(judge(&h).is_err());
    }

    #[test]
    fn overlapping_operations_may_take_effect_in_either_order() {
        for order in [[1, 2], [2, 1]] {
            let h =
                [write(1, 0, Some(10), full()), write(2, 0, Some(10), full()), read(3, 11, 12, Some(&state(&order)))];
            assert_eq!(judge(&h), Ok(()));
        }
    }

    #[test]
    fn an_unknown_write_may_happen_late_or_never_but_not_twice() {
        let (one, two) = (state(&[1]), state(&[2]));
        let late = [
            write(1, 0, Some(1), full()),
            write(2, 0, None, full()),
            read(3, 4, 5, Some(&one)),
            read(4, 6, 7, Some(&two)),
        ];
        assert_eq!(judge(&late), Ok(()));
        let never = [write(1, 0, Some(1), full()), write(2, 0, None, full()), read(3, 4, 5, Some(&one))];
        assert_eq!(judge(&never), Ok(()));
        let back = [
            write(1, 0, Some(1), full()),
            write(2, 0, None, full()),
            read(3, 4, 5, Some(&two)),
            read(4, 6, 7, Some(&one)),
        ];
        assert!(judge(&back).is_err());
    }

    /// A write that changes nothing makes no clone, although its snapshot context is newer than that of a later
    /// write.
    #[test]
    fn a_write_that_changes_nothing_is_recognised_by_its_version() {
        let newer = SnapContext { seq: 3, snaps: vec![3] };
        let what = What::Write { steps: vec![Step::AssertExists], snapc: newer };
        let look = Record { what, outcome: Some(Outcome::Wrote(1)), ..write(2, 2, Some(3), Vec::new()) };
        let seen = |id, call, of: &State, snap| Record {
            what: What::Read { snap, anywhere: false, notify: false },
            ..read(id, call, call + 1, Some(of))
        };
        let h = [
            write(1, 0, Some(1), full()),
            look,
            write(3, 2, Some(10), full()),
            seen(4, 4, &state(&[1]), 0),
            seen(5, 11, &state(&[3]), 3),
        ];
        assert_eq!(judge(&h), Ok(()));
    }

    /// Seed 80013326: a write that changes nothing may answer with a version unknown to all clients, that of an
    /// unanswered write.
    #[test]
    fn a_write_that_changes_nothing_may_have_a_version_nobody_knows() {
        let newer = SnapContext { seq: 3, snaps: vec![3] };
        let look = |outcome| Record {
            what: What::Write { steps: vec![Step::AssertExists], snapc: newer.clone() },
            outcome: Some(outcome),
            ..write(4, 4, Some(5), Vec::new())
        };
        let h = |asks| {
            [
                write(1, 0, Some(1), full()),
                write(2, 2, None, full()),
                asks,
                write(5, 6, Some(10), full()),
                Record {
                    what: What::Read { snap: 3, anywhere: false, notify: false },
                    ..read(6, 11, 12, Some(&state(&[5])))
                },
            ]
        };
        assert_eq!(judge(&h(look(Outcome::Wrote(2)))), Ok(()));
        // A write with changes must have cloned the earlier content for the snapshot.
        let mut changes = look(Outcome::Wrote(4));
        changes.what = What::Write { steps: full(), snapc: newer.clone() };
        assert!(judge(&h(changes)).is_err());
    }

    #[test]
    fn snapshots_show_the_past() {
        let c = |seq: u64| SnapContext { seq, snaps: (1..=seq).rev().collect() };
        let s = State::default().write(1, &full(), &c(0)).unwrap_or_default();
        let s = s.write(2, &full(), &c(3)).unwrap_or_default();
        let s = s.write(3, &[Step::Remove], &c(4)).unwrap_or_default();
        assert_eq!(s.read(0), None);
        for (snap, id) in [(1, 1), (3, 1), (4, 2)] {
            assert_eq!(s.read(snap).map(|o| o.data.bytes()), Some(crate::content::fill(id, 8)), "snapshot {snap}");
        }
        assert_eq!(s.read(5), None);
    }

    /// A copy shows a content that its source had while the copy was made, and no other.
    #[test]
    fn a_copy_has_a_content_of_its_source_at_the_time_of_the_copy() {
        let source = |id, call, done| Record { object: 7, ..write(id, call, done, full()) };
        let copy = |id, call, done| write(id, call, done, vec![Step::CopyFrom { source: 7 }]);
        let shows = |of: u64, version| {
            let mut s = state(&[of]);
            s.version = Some(version);
            read(9, 20, 21, Some(&s))
        };
        let h = |of| {
            [source(1, 0, Some(1)), source(2, 2, Some(3)), source(3, 4, Some(9)), copy(4, 5, Some(10)), shows(of, 4)]
        };
        assert!(judge(&h(1)).is_err(), "what was overwritten before");
        assert_eq!((judge(&h(2)), judge(&h(3))), (Ok(()), Ok(())));
        assert!(judge(&h(4)).is_err());
        let nothing = |outcome| [source(1, 5, Some(9)), Record { outcome: Some(outcome), ..copy(4, 2, Some(6)) }];
        assert_eq!(judge(&nothing(Outcome::Errno(base::errno::ENOENT))), Ok(()), "it came before its source");
        let late = [
            source(1, 0, Some(1)),
            Record { outcome: Some(Outcome::Errno(base::errno::ENOENT)), ..copy(4, 2, Some(6)) },
        ];
        assert!(judge(&late).is_err(), "its source was there");
    }
}
