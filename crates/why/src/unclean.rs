//! PGs that are not clean, and what each group of them waits for.

use crate::evidence::Check;
use crate::old_state;
use crate::placement::{Placement, names};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// A PG that is not clean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unclean {
    /// Name.
    pub pg: String,
    /// State.
    pub state: String,
    /// OSDs that CRUSH selects; very large numbers are holes.
    pub up: Vec<i32>,
    /// OSDs that serve.
    pub acting: Vec<i32>,
    /// All OSDs that are down.
    pub down: Vec<i32>,
    /// Places that CRUSH finds for it.
    pub placement: Placement,
}

/// The reason for which a group of PGs is not clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The reason.
    pub text: String,
    /// The step that helps.
    pub remedy: String,
    /// The PGs; none if it concerns the whole cluster.
    pub pgs: Vec<String>,
}

fn holes(osds: &[i32]) -> usize {
    osds.iter().filter(|o| **o < 0 || **o == i32::MAX).count()
}

/// Words of a state, the reason and the remedy; the first that fits decides.
const STATES: &[(&[&str], &str, &str)] = &[
    (
        &["toofull"],
        "their target OSDs have no space",
        "add OSDs, remove data, or raise `ceph osd set-backfillfull-ratio`",
    ),
    (
        &["incomplete"],
        "no reachable OSD has a complete copy",
        "start the OSDs that served them last; `ceph pg PGID query` names them",
    ),
    (
        &["down"],
        "an OSD that may have the newest writes is down",
        "start the OSDs that are down; `ceph pg PGID query` names them",
    ),
    (&["stale"], "their primary does not report", "start the OSDs that are down"),
    (
        &["unfound"],
        "objects have no copy that can be read",
        "start the OSDs that had them; `ceph pg PGID list_unfound`",
    ),
    (&["inconsistent"], "copies differ", "`ceph pg repair PGID`"),
    (
        &["unknown", "creating"],
        "no primary has reported them yet",
        "wait some seconds; then look at the OSDs of `ceph pg map PGID`",
    ),
    (
        &["peering", "activating", "peered"],
        "their OSDs agree on the history, or too few of them are there",
        "wait some seconds; then start OSDs, or see `ceph pg PGID query`",
    ),
    (&["backfilling", "recovering"], "copies are being made", "wait; `belemnite eta` says how long"),
    (
        &["backfill_wait", "recovery_wait"],
        "they wait for their turn to be recovered",
        "wait; `osd_max_backfills` sets how many go at once",
    ),
];

/// Words of states that a PG without enough places to serve keeps for good.
const WITHOUT_PLACES: &[&str] = &["incomplete", "unknown", "creating", "peering", "activating", "peered"];

/// True if a state has the word.
fn has(p: &Unclean, word: &str) -> bool {
    p.state.split('+').any(|w| w == word)
}

/// The OSDs that are down, as the end of a sentence.
fn and_down(p: &Unclean) -> String {
    match p.down.as_slice() {
        [] => String::new(),
        [one] => format!(", and osd.{one} is down"),
        some => format!(", and {} are down", names(some)),
    }
}

/// A PG for whose copies CRUSH finds too few places.
fn lacks_places(p: &Unclean) -> (String, String) {
    let remedy = p.placement.remedy();
    let start = p.down.iter().any(|o| !p.placement.out.contains(o));
    let remedy = if start { format!("start the OSDs that are down; if that is not enough, {remedy}") } else { remedy };
    (p.placement.text() + &and_down(p), remedy)
}

/// A PG with all its copies, some of which are not where CRUSH selects places.
fn remapped(p: &Unclean) -> (String, String) {
    if p.placement.is_short() {
        let text = p.placement.text() + "; no copy is missing: those without a place stay where they are (pg_temp)";
        return (text, format!("the data is safe as it is; to end the state, {}", p.placement.remedy()));
    }
    if !p.down.is_empty() {
        let text = format!("no copy is missing{}: other OSDs keep its copies (pg_temp)", and_down(p));
        return (text, "start the OSDs that are down, or mark them out".to_owned());
    }
    let text = "no copy is missing, but OSDs that CRUSH does not select keep some (pg_temp)".to_owned();
    (text, "wait some seconds; if it stays, `ceph osd in` the OSDs that are out, or add OSDs".to_owned())
}

fn reason(p: &Unclean) -> (String, String) {
    if has(p, "active") && has(p, "clean") {
        return remapped(p);
    }
    let found = STATES.iter().find(|(words, ..)| words.iter().any(|w| p.state.contains(w)));
    if let Some((words, text, remedy)) = found {
        if p.placement.stops() && words.iter().any(|w| WITHOUT_PLACES.contains(w)) {
            return lacks_places(p);
        }
        return ((*text).to_owned(), (*remedy).to_owned());
    }
    if p.state.contains("undersized") || holes(&p.up) > 0 {
        if p.placement.is_short() {
            return lacks_places(p);
        }
        let remedy = "start the OSDs that are down, mark them out, or add OSDs on other hosts".to_owned();
        return (format!("they lack copies{}", and_down(p)), remedy);
    }
    if p.up != p.acting {
        return ("they are to move to other OSDs".to_owned(), "wait; `belemnite eta` says how long".to_owned());
    }
    (format!("they are {}", p.state), "`ceph pg PGID query`".to_owned())
}

/// True if a PG may lack OSDs that the monitors refuse.
fn lacks_osds(p: &Unclean) -> bool {
    !has(p, "active") || has(p, "undersized") || has(p, "stale")
}

/// The reasons for which PGs are not clean, the one with the most PGs first. An old state of the monitors comes before
/// all, also if no PG shows it yet.
#[must_use]
pub fn explain(pgs: &[Unclean], health: &[Check]) -> Vec<Reason> {
    let mut old =
        old_state::found(health).map(|text| Reason { text, remedy: old_state::REMEDY.into(), pgs: Vec::new() });
    let mut groups: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for p in pgs {
        match &mut old {
            Some(r) if lacks_osds(p) => r.pgs.push(p.pg.clone()),
            _ => groups.entry(reason(p)).or_default().push(p.pg.clone()),
        }
    }
    let mut all: Vec<Reason> = groups.into_iter().map(|((text, remedy), pgs)| Reason { text, remedy, pgs }).collect();
    all.sort_by_key(|r| std::cmp::Reverse(r.pgs.len()));
    old.into_iter().chain(all).collect()
}

impl Reason {
    /// The reason as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"reason": self.text, "remedy": self.remedy, "pgs": self.pgs})
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pgs.is_empty() {
            writeln!(f, "the cluster: {}", self.text)?;
            return write!(f, "  remedy:   {}", self.remedy);
        }
        let first = self.pgs.iter().take(6).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if self.pgs.len() > 6 { ", …" } else { "" };
        let few = if self.pgs.len() == 1 { "PG" } else { "PGs" };
        writeln!(f, "{} {few} ({first}{more}): {}", self.pgs.len(), self.text)?;
        write!(f, "  remedy:   {}", self.remedy)
    }
}
