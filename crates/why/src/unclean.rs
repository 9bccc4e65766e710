//! PGs that are not clean, and what each group of them waits for.

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
}

/// The reason for which a group of PGs is not clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The reason.
    pub text: String,
    /// The step that helps.
    pub remedy: String,
    /// The PGs.
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

fn reason(p: &Unclean) -> (String, String) {
    let found = STATES.iter().find(|(words, ..)| words.iter().any(|w| p.state.contains(w)));
    if let Some((_, text, remedy)) = found {
        return ((*text).to_owned(), (*remedy).to_owned());
    }
    let down: Vec<String> = p.down.iter().map(|o| format!("osd.{o}")).collect();
    if p.state.contains("undersized") || holes(&p.up) > 0 {
        let text = match down.as_slice() {
            [] => "CRUSH finds too few OSDs for all copies".to_owned(),
            [one] => format!("they lack copies, and {one} is down"),
            _ => format!("they lack copies, and {} are down", down.join(", ")),
        };
        return (text, "start the OSDs that are down, mark them out, or add OSDs on other hosts".to_owned());
    }
    if p.up != p.acting {
        return ("they are to move to other OSDs".to_owned(), "wait; `belemnite eta` says how long".to_owned());
    }
    (format!("they are {}", p.state), "`ceph pg PGID query`".to_owned())
}

/// The reasons for which PGs are not clean, the one with the most PGs first.
#[must_use]
pub fn explain(pgs: &[Unclean]) -> Vec<Reason> {
    let mut groups: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for p in pgs {
        groups.entry(reason(p)).or_default().push(p.pg.clone());
    }
    let mut all: Vec<Reason> = groups.into_iter().map(|((text, remedy), pgs)| Reason { text, remedy, pgs }).collect();
    all.sort_by_key(|r| std::cmp::Reverse(r.pgs.len()));
    all
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
        let first = self.pgs.iter().take(6).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if self.pgs.len() > 6 { ", …" } else { "" };
        writeln!(f, "{} PGs ({first}{more}): {}", self.pgs.len(), self.text)?;
        write!(f, "  remedy:   {}", self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pg(pg: &str, state: &str, up: &[i32], acting: &[i32], down: &[i32]) -> Unclean {
        Unclean { pg: pg.into(), state: state.into(), up: up.to_vec(), acting: acting.to_vec(), down: down.to_vec() }
    }

    #[test]
    fn pgs_are_grouped_by_the_reason() {
        let all = [
            pg("1.0", "active+undersized+degraded", &[0, 1], &[0, 1], &[2]),
            pg("1.1", "active+undersized+degraded", &[1, 0], &[1, 0], &[2]),
            pg("1.2", "active+undersized+degraded+remapped+backfilling", &[1, 3], &[1, 0], &[2]),
            pg("1.3", "active+remapped+backfill_toofull", &[1, 3], &[1, 0], &[]),
            pg("1.4", "down", &[1], &[1], &[2]),
        ];
        let r = explain(&all);
        assert_eq!(r.len(), 4);
        assert_eq!(r[0].pgs, ["1.0", "1.1"]);
        assert!(r[0].text.contains("osd.2 is down"), "{}", r[0]);
        let of = |pg: &str| r.iter().find(|r| r.pgs.iter().any(|p| p == pg)).unwrap().text.as_str();
        assert_eq!(of("1.2"), "copies are being made");
        assert_eq!(of("1.3"), "their target OSDs have no space");
        assert!(of("1.4").contains("newest writes"));
        assert!(explain(&[]).is_empty());
    }
}
