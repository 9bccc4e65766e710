//! Output with a row for each PG, made in pieces over several turns of the core, because a million rows take longer
//! than a leader's lease.
//!
//! A row shows its PG at the time at which the row is made. The text around the rows (sums, pools, OSDs) shows the time
//! of the command.

use super::text::Table;
use crate::json::{Element, J};
use crate::state::ClusterState;
use base::{OsdId, PgId, PoolId};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use wire::types::PgStat;

/// Most rows that one turn of the core makes: some 15 ms of work.
pub(crate) const ROWS_A_TURN: usize = 1024;

/// Placeholder in a tree for the rows of a list. Strings of a tree never contain it unescaped.
pub(in crate::command) const HOLE: &str = "\0";

/// Selects the PGs of a list.
pub(in crate::command) type Keep = Rc<dyn Fn(PgId, &PgStat) -> bool>;
/// Makes the cells of a PG's row.
pub(in crate::command) type Cells = Rc<dyn Fn(PgId, &PgStat) -> Vec<String>>;

/// A part of the output; parts are made in order.
#[derive(Clone)]
pub(in crate::command) enum Part {
    /// A finished text.
    Text(String),
    /// PGs as elements of a list in a tree.
    Elements(Element, fn(PgId, &PgStat) -> J, Keep),
    /// PGs as rows of a table. If the flag is set, a table without rows has no heading line.
    Rows(Table, Cells, Keep, bool),
    /// The lines of a table whose rows are complete.
    Lines(Table, usize),
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(_) => "Text",
            Self::Elements(..) => "Elements",
            Self::Rows(..) => "Rows",
            Self::Lines(..) => "Lines",
        })
    }
}

/// An output under way.
#[derive(Clone, Debug)]
pub struct Listing {
    parts: VecDeque<Part>,
    /// The next PG of the first part.
    next: PgId,
    /// Elements of the first part that were written.
    written: usize,
    out: String,
}

/// The statistics of a PG; one that no OSD reported has blank ones, and the state "unknown".
fn stat_of(state: &ClusterState, id: PgId, created: base::Utime) -> Cow<'_, PgStat> {
    if let Some(s) = state.mgr.stats.pg(id) {
        return Cow::Borrowed(s);
    }
    let (none, t) = (OsdId(-1), created);
    Cow::Owned(PgStat {
        up_primary: none,
        acting_primary: none,
        last_fresh: t,
        last_change: t,
        last_active: t,
        last_peered: t,
        last_clean: t,
        last_unstale: t,
        last_undegraded: t,
        last_fullsized: t,
        ..PgStat::default()
    })
}

impl Listing {
    pub(in crate::command) fn new(parts: Vec<Part>) -> Self {
        Self { parts: parts.into(), next: first_pg(), written: 0, out: String::new() }
    }

    /// Makes at most `most` rows; returns their number and whether the output is complete.
    pub fn step(&mut self, state: &ClusterState, most: usize) -> (usize, bool) {
        let mut n = 0;
        while let Some(part) = self.parts.pop_front() {
            if n >= most && !matches!(part, Part::Text(_)) {
                self.parts.push_front(part);
                return (n, false);
            }
            let left = most.saturating_sub(n);
            let (made, rest) = match part {
                Part::Text(t) => {
                    self.out.push_str(&t);
                    (0, None)
                }
                Part::Elements(how, row, keep) => self.elements(state, (how, row, keep), left),
                Part::Rows(table, cells, keep, bare) => self.rows(state, (table, cells, keep, bare), left),
                Part::Lines(table, at) => {
                    let to = table.len().min(at + left);
                    table.lines(&mut self.out, at..to);
                    (to - at, (to < table.len()).then_some(Part::Lines(table, to)))
                }
            };
            n += made;
            match rest {
                Some(p) => self.parts.push_front(p),
                None => (self.next, self.written) = (first_pg(), 0),
            }
        }
        (n, true)
    }

    /// The complete output.
    #[must_use]
    pub fn finish(self) -> String {
        self.out
    }

    /// Calls `row` for the next PGs, at most `most`; returns their number and whether none is left.
    fn pgs(
        &mut self,
        state: &ClusterState,
        most: usize,
        mut row: impl FnMut(&mut Self, PgId, &PgStat),
    ) -> (usize, bool) {
        let mut n = 0;
        for (pool, p) in state.osdmap.pools.range(self.next.pool..) {
            let first = if *pool == self.next.pool { self.next.seed } else { 0 };
            for seed in first..p.pg_num {
                let id = PgId { pool: *pool, seed };
                if n == most {
                    self.next = id;
                    return (n, false);
                }
                n += 1;
                row(self, id, &stat_of(state, id, p.create_time));
            }
        }
        (n, true)
    }

    fn elements(
        &mut self,
        state: &ClusterState,
        (how, row, keep): (Element, fn(PgId, &PgStat) -> J, Keep),
        most: usize,
    ) -> (usize, Option<Part>) {
        if self.written == 0 && self.next == first_pg() && !matches!(how, Element::Xml(_)) {
            self.out.push('[');
        }
        let (n, last) = self.pgs(state, most, |me, id, s| {
            if keep(id, s) {
                row(id, s).write_element(&mut me.out, &how, me.written == 0);
                me.written += 1;
            }
        });
        if !last {
            return (n, Some(Part::Elements(how, row, keep)));
        }
        if let (Element::Pretty(depth), true) = (&how, self.written > 0) {
            crate::json::indent(&mut self.out, depth.saturating_sub(1));
        }
        if !matches!(how, Element::Xml(_)) {
            self.out.push(']');
        }
        (n, None)
    }

    fn rows(
        &mut self,
        state: &ClusterState,
        (mut table, cells, keep, bare): (Table, Cells, Keep, bool),
        most: usize,
    ) -> (usize, Option<Part>) {
        let (n, last) = self.pgs(state, most, |_, id, s| {
            if keep(id, s) {
                table.row(cells(id, s));
            }
        });
        if !last {
            return (n, Some(Part::Rows(table, cells, keep, bare)));
        }
        if bare && table.is_empty() {
            return (n, None);
        }
        table.heading(&mut self.out);
        (n, Some(Part::Lines(table, 0)))
    }
}

fn first_pg() -> PgId {
    PgId { pool: PoolId(i64::MIN), seed: 0 }
}
