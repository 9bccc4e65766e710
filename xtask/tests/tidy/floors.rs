//! Order of the parts of the PG machine, and of the rooms of the monitor: each imports from those below it.

use super::{code, fail_if_any, sources};
use std::collections::BTreeSet;

/// Parts and shared types of the machine, from the bottom to the top. All of them import the machine itself.
const FLOORS: &[&str] = &[
    "seldom", "backend", "env", "idle", "journal", "keys", "ops", "mail", "peering", "life", "maps", "recovery",
    "resize", "relocate", "report", "scrub",
];

/// Imports that run back up, each with the reason.
const UPWARD: &[(&str, &str, &str)] = &[
    ("backend", "ops", "reads of other shards belong to a plan, and a plan keeps what it has read of them"),
    ("ops", "recovery", "the work of a plan holds the progress of a push"),
    ("ops", "scrub", "the work of a plan holds the progress of reading objects for a scrub"),
    ("peering", "recovery", "a member has the progress of its backfill, and a copy that of pushes to it"),
];

/// Modules of the machine that a file imports from.
fn imports(text: &str, is_root: bool) -> BTreeSet<&str> {
    let own = text.split("#[cfg(test)]").next().unwrap_or_default();
    let paths = own.lines().map(str::trim_start).filter_map(|l| {
        let l = l.strip_prefix("pub(crate) ").or_else(|| l.strip_prefix("pub ")).unwrap_or(l);
        let path = l.strip_prefix("use crate::pg::");
        path.or_else(|| l.strip_prefix("use super::").filter(|_| is_root))
    });
    paths.filter_map(|p| p.split_once("::")).map(|(module, _)| module).collect()
}

#[test]
fn parts_of_a_pg_import_downwards() {
    let floor = |m: &str| FLOORS.iter().position(|f| *f == m);
    let (mut up, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in sources() {
        let Some(inside) = path.strip_prefix("crates/pg/src/pg/") else { continue };
        let (from, is_root) = match inside.split_once('/') {
            Some((folder, _)) => (folder, false),
            None => (inside.trim_end_matches(".rs"), true),
        };
        if matches!(from, "mod" | "sizes") {
            continue;
        }
        let Some(at) = floor(from) else {
            unknown.insert(from.to_owned());
            continue;
        };
        for to in imports(&text, is_root) {
            if floor(to).is_some_and(|t| t > at) {
                up.insert((from.to_owned(), to.to_owned()));
            }
        }
    }
    fail_if_any("parts of the PG machine without a floor", unknown.into_iter().collect());
    let known: BTreeSet<_> = UPWARD.iter().map(|(a, b, _)| ((*a).to_owned(), (*b).to_owned())).collect();
    let shown = |(a, b): &(String, String)| format!("{a} imports {b}");
    fail_if_any("imports between parts of the PG machine that run back up", up.difference(&known).map(shown).collect());
    fail_if_any("exceptions that are needed no more", known.difference(&up).map(shown).collect());
}

#[test]
fn imports_are_found() {
    let text = "use crate::pg::ops::plan::Plan;\npub(crate) use super::mail::Mail;\nuse crate::pg::{Pg, State};\n";
    assert_eq!(imports(text, true), BTreeSet::from(["mail", "ops"]));
    assert_eq!(imports(text, false), BTreeSet::from(["ops"]));
}

/// Rooms of the monitor from the bottom to the top. Tests at the end of a file may look up.
const MON_ROOMS: &[&str] = &["state", "command", "core", "host"];

/// Rooms that the code of a file of the monitor names, and that are above its own. `path` begins with the room.
fn rooms_above(path: &str, text: &str) -> Vec<&'static str> {
    let (text, room) = (code(text), path.split('/').next().unwrap_or_default());
    let root = "super::".repeat(path.split('/').filter(|p| *p != "mod.rs").count());
    let names = |r: &&&str| {
        let paths = [format!("crate::{r}"), format!("{root}{r}")];
        let grouped = |l: &str| l.contains("use crate::{") && l.split(['{', ',', ' ', ':']).any(|w| w == **r);
        text.lines().any(|l| grouped(l) || paths.iter().any(|p| has_path(l, p)))
    };
    MON_ROOMS.iter().skip_while(|r| **r != room).skip(1).filter(names).copied().collect()
}

/// True if a line has a path, and not a longer word that begins with it.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(i, _)| {
        let next = line.get(i + path.len()..).and_then(|rest| rest.chars().next());
        !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn rooms_of_the_monitor_import_downwards() {
    let (mut up, mut files) = (Vec::new(), 0);
    for (path, text) in sources() {
        let Some(inside) = path.strip_prefix("crates/mon/src/").filter(|p| p.contains('/')) else { continue };
        files += 1;
        up.extend(rooms_above(inside, &text).into_iter().map(|above| format!("{path} uses {above}")));
    }
    assert!(files > 100, "the rooms were not found");
    fail_if_any("imports between rooms of the monitor that run up", up);
}

#[test]
fn rooms_above_are_found() {
    let found = |path, text| rooms_above(path, text);
    assert_eq!(found("state/a.rs", "use crate::command::Listing;\nlet a = crate::core::x();\n"), ["command", "core"]);
    assert_eq!(found("command/a.rs", "use crate::{core, state};\n"), ["core"]);
    assert_eq!(found("command/fs/a.rs", "use super::super::super::core::X;\nuse super::host;\n"), ["core"]);
    assert_eq!(found("command/fs/mod.rs", "use super::super::core::X;\n"), ["core"]);
    assert_eq!(found("core/mod.rs", "use crate::command::{self, Parsed};\n// crate::host\n"), [""; 0]);
    assert_eq!(found("state/a.rs", "use crate::core_of::X;\n#[cfg(test)]\nmod tests {\ncrate::core\n"), [""; 0]);
}
