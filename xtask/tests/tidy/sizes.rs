//! Limits of sizes: lines of files and functions, fields of structs. Items above a limit are listed in `exceptions.rs`
//! with the reason; an unneeded exception fails, too.

use super::exceptions::{LARGE_STRUCTS, LONG_FILES, LONG_FUNCTIONS, OPEN_STRUCTS};
use super::{fail_if_any, is_test, sources};
use std::collections::BTreeSet;

/// Most lines of a file, with its own tests. A file near the limit usually has a second concept.
const LINES_MAX: usize = 600;
/// Most lines of a file of tests, and of an exception.
const LINES_ALWAYS_MAX: usize = 1_200;
/// Most lines of a function, of tests and examples too.
const FUNCTION_MAX: usize = 70;
/// Most functions that are exceptions.
const LONG_FUNCTIONS_MAX: usize = 30;
/// Most lines of a function that is an exception.
const FUNCTION_ALWAYS_MAX: usize = 200;
/// Most fields of a struct.
const FIELDS_MAX: usize = 25;
/// Most fields that other modules can write.
const OPEN_FIELDS_MAX: usize = 20;

/// The PG machine, by its file. Each of its fields is a part.
const PG_MACHINE: (&str, &str) = ("crates/pg/src/pg/mod.rs", "Pg");
/// Methods of the parts of a PG that give out something to change. It is the caller's own state, which the part keeps for
/// it.
const LENT: &[&str] = &["backfill_of", "push_of", "reads_of"];
/// The machine of a store, by its file.
const STORE_MACHINE: (&str, &str) = ("crates/store/src/engine/mod.rs", "Store");
/// Machines of an OSD, by the file of the struct; their parts are in the folder of the same name.
const OSD_MACHINES: [(&str, &str); 2] =
    [("crates/osd/src/core/pgs.rs", "Pgs"), ("crates/osd/src/core/control.rs", "Control")];
/// Most fields of the machines, and of the monitor's state and options; `exceptions.rs` cannot raise these limits.
const FIELDS_ALWAYS_MAX: [((&str, &str), usize); 6] = [
    (PG_MACHINE, 15),
    (OSD_MACHINES[0], 20),
    (OSD_MACHINES[1], 20),
    (("crates/mon/src/core/mod.rs", "MonCore"), 20),
    (("crates/mon/src/state/cluster_state.rs", "StateView"), FIELDS_MAX),
    (("crates/mon/src/state/options.rs", "MonOptions"), FIELDS_MAX),
];

/// A function or struct, by name, with its size.
type Item = (String, usize);

/// Functions of a file with their lines, from the signature to the closing brace. In formatted code the closing brace
/// is at the column of the signature.
fn functions(text: &str) -> Vec<Item> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let body = line.trim_start();
        let indent = &line[..line.len() - body.len()];
        let Some(name) = function_name(body) else { continue };
        if body.ends_with(['}', ';']) {
            continue;
        }
        let close = format!("{indent}}}");
        // A signature of several lines may end without a body.
        let end = lines.iter().skip(i + 1).position(|l| *l == close || *l == format!("{indent});"));
        if let Some(n) = end {
            out.push((name.to_owned(), n + 2));
        }
    }
    out
}

fn function_name(body: &str) -> Option<&str> {
    let mut rest = body;
    loop {
        if let Some(f) = rest.strip_prefix("fn ") {
            return f.split(['(', '<']).next();
        }
        let word = ["pub ", "const ", "async ", "unsafe "].iter().find_map(|w| rest.strip_prefix(w));
        let scoped = || rest.strip_prefix("pub(").and_then(|r| r.split_once(") ")).map(|(_, r)| r);
        rest = word.or_else(scoped)?;
    }
}

/// Structs of a file, with the number of all fields and of those that other modules can write.
fn structs(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let body = line.trim_start();
        let indent = &line[..line.len() - body.len()];
        let Some((_, rest)) = body.split_once("struct ").filter(|(p, _)| p.is_empty() || p.starts_with("pub")) else {
            continue;
        };
        if !body.ends_with('{') {
            continue;
        }
        let close = format!("{indent}}}");
        let field = format!("{indent}    ");
        let fields = lines.iter().skip(i + 1).take_while(|l| **l != close);
        let named: Vec<&str> = fields
            .filter_map(|l| l.strip_prefix(&field))
            .filter(|l| !l.starts_with([' ', '/', '#']) && l.contains(": "))
            .collect();
        let open = named.iter().filter(|l| l.starts_with("pub")).count();
        let name = rest.split([' ', '<', '{']).next().unwrap_or_default();
        out.push((name.to_owned(), named.len(), open));
    }
    out
}

/// Compares the items above a limit with the listed exceptions, as `(file, name)`.
fn compare(what: &str, above: &BTreeSet<(String, String)>, listed: &[(&str, &str, &str)]) {
    let known: BTreeSet<(String, String)> = listed.iter().map(|(f, n, _)| ((*f).to_owned(), (*n).to_owned())).collect();
    let shown = |s: &(String, String)| format!("{} {}", s.0, s.1);
    fail_if_any(&format!("{what} above the limit"), above.difference(&known).map(shown).collect());
    fail_if_any(
        &format!("exceptions for {what} that are needed no more"),
        known.difference(above).map(shown).collect(),
    );
    let silent = listed.iter().filter(|(.., why)| why.len() < 20).map(|(f, n, _)| format!("{f} {n}")).collect();
    fail_if_any(&format!("exceptions for {what} without a reason"), silent);
}

#[test]
fn files_are_short() {
    let (mut above, mut far) = (BTreeSet::new(), Vec::new());
    for (path, text) in sources() {
        let n = text.lines().count();
        if n > LINES_ALWAYS_MAX {
            far.push(format!("{path}: {n} lines"));
        } else if n > LINES_MAX && !is_test(&path) && path != "xtask/tests/tidy/exceptions.rs" {
            above.insert((path, String::new()));
        }
    }
    fail_if_any("files far above the limit", far);
    let listed: Vec<_> = LONG_FILES.iter().map(|(f, why)| (*f, "", *why)).collect();
    compare("files", &above, &listed);
}

#[test]
fn functions_are_short() {
    let (mut above, mut far) = (BTreeSet::new(), Vec::new());
    for (path, text) in sources() {
        for (name, n) in functions(&text) {
            if n > FUNCTION_ALWAYS_MAX {
                far.push(format!("{path} {name}: {n} lines"));
            } else if n > FUNCTION_MAX {
                above.insert((path.clone(), name));
            }
        }
    }
    fail_if_any("functions far above the limit", far);
    compare("functions", &above, LONG_FUNCTIONS);
    assert!(above.len() <= LONG_FUNCTIONS_MAX, "{} functions above the limit", above.len());
}

#[test]
fn structs_have_few_fields() {
    let (mut large, mut open) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in sources().into_iter().filter(|(p, _)| !is_test(p) && p.starts_with("crates/")) {
        for (name, all, written) in structs(&text) {
            if all > FIELDS_MAX {
                large.insert((path.clone(), name.clone()));
            }
            if written > OPEN_FIELDS_MAX {
                open.insert((path.clone(), name));
            }
        }
    }
    compare("structs", &large, LARGE_STRUCTS);
    compare("structs with open fields", &open, OPEN_STRUCTS);
}

/// Names of the types of a struct's fields, each without what wraps it.
fn types_of_fields(text: &str, name: &str) -> Vec<String> {
    let body =
        text.split(&format!("struct {name} {{\n")).nth(1).and_then(|t| t.split("\n}").next()).unwrap_or_default();
    let fields = body.lines().map(str::trim).filter(|l| !l.starts_with(['/', '#'])).filter_map(|l| l.split_once(": "));
    let inner = |t: &str| t.trim_end_matches([',', '>']).rsplit(['<', ':']).next().unwrap_or_default().to_owned();
    fields.map(|(_, t)| inner(t)).collect()
}

#[test]
fn parts_of_a_pg_own_their_fields() {
    let pg: Vec<(String, String)> = sources().into_iter().filter(|(p, _)| p.starts_with("crates/pg/src/")).collect();
    let (file, machine) = PG_MACHINE;
    let root = pg.iter().find(|(p, _)| p == file).map(|(_, t)| t.as_str()).unwrap_or_default();
    let parts = types_of_fields(root, machine);
    let mut bad = Vec::new();
    for part in parts {
        let found: Vec<_> = pg
            .iter()
            .flat_map(|(path, text)| structs(text).into_iter().map(move |s| (path, s)))
            .filter(|(_, s)| s.0 == part)
            .collect();
        match found.as_slice() {
            [(_, (_, _, 0))] => {}
            [(path, (_, _, open))] => bad.push(format!("{path} {part}: {open} fields that other modules can use")),
            [] => bad.push(format!("{part}: not a struct of crates/pg")),
            several => bad.push(format!("{part}: {} structs of this name in crates/pg", several.len())),
        }
    }
    fail_if_any("parts of the PG machine that do not own their fields", bad);
}

/// Names of the methods that other modules can call and that return something to change.
fn lenders(text: &str) -> Vec<&str> {
    let changes = |l: &&str| l.starts_with("pub") && l.contains("&mut self") && l.contains(") -> ");
    let lends = |l: &&str| l.split(") -> ").nth(1).is_some_and(|r| r.contains("&mut "));
    let heads = text.lines().map(str::trim_start).filter(|l| changes(l) && lends(l));
    heads.filter_map(|l| l.split("fn ").nth(1)?.split(['(', '<']).next()).collect()
}

#[test]
fn parts_of_a_pg_give_out_no_field_to_change() {
    let mut bad = Vec::new();
    for (path, text) in sources().into_iter().filter(|(p, _)| p.starts_with("crates/pg/src/pg/")) {
        let open = lenders(&text).into_iter().filter(|n| !LENT.contains(n) && path != "crates/pg/src/pg/seldom.rs");
        bad.extend(open.map(|n| format!("{path} {n}")));
    }
    fail_if_any("methods of parts of the PG machine that give out a field to change", bad);
    let text = "    pub(in crate::pg) fn a(&mut self, id: u64) -> Option<&mut Plan> {\n    fn b(&mut self) -> &mut A {\n    pub fn c(&mut self, x: &mut B) -> u8 {\n";
    assert_eq!(lenders(text), ["a"]);
}

#[test]
fn parts_of_a_store_own_their_fields() {
    let all = sources();
    let (file, machine) = STORE_MACHINE;
    let root = all.get(file).map(String::as_str).unwrap_or_default();
    let parts = types_of_fields(root, machine);
    assert!(parts.len() > 10, "the store's parts were not found");
    let mut bad = Vec::new();
    for (path, text) in all.iter().filter(|(p, _)| p.starts_with("crates/store/src/engine/")) {
        // The configuration is a record, and so are what the store counts and has replayed.
        let records = ["Config", "Counters", "Replayed", "Superblock"];
        let open = structs(text).into_iter().filter(|(n, _, open)| *open > 0 && parts.contains(n));
        let open = open.filter(|(n, ..)| !records.contains(&n.as_str()));
        bad.extend(open.map(|(name, _, n)| format!("{path} {name}: {n} fields that other modules can use")));
    }
    fail_if_any("parts of a store that do not own their fields", bad);
}

#[test]
fn parts_of_an_osd_own_their_fields() {
    let all = sources();
    let mut bad = Vec::new();
    for (file, machine) in OSD_MACHINES {
        let root = all.get(file).map(String::as_str).unwrap_or_default();
        let parts = types_of_fields(root, machine);
        let folder = file.replace(".rs", "/");
        for (path, text) in all.iter().filter(|(p, _)| p.starts_with(&folder)) {
            let open = structs(text).into_iter().filter(|(name, _, open)| *open > 0 && parts.contains(name));
            bad.extend(open.map(|(name, _, n)| format!("{path} {name}: {n} fields that other modules can use")));
        }
    }
    fail_if_any("parts of the machines of an OSD that do not own their fields", bad);
}

#[test]
fn machines_and_states_have_few_fields() {
    let all = sources();
    let mut bad = Vec::new();
    for ((path, name), max) in FIELDS_ALWAYS_MAX {
        let text = all.get(path).map(String::as_str).unwrap_or_default();
        let n = types_of_fields(text, name).len();
        if !(2..=max).contains(&n) {
            bad.push(format!("{path} {name}: {n} fields"));
        }
    }
    fail_if_any("machines and states with too many fields", bad);
}

#[test]
fn sizes_are_counted_rightly() {
    let text = "pub struct A {\n    /// Doc.\n    pub a: u8,\n    b: Vec<(u8, u8)>,\n}\nimpl A {\n    pub(super) async fn long(\n        &self,\n    ) {\n        f();\n    }\n    fn one() {}\n}\ntrait T {\n    fn none(\n        a: u8,\n    );\n}\n";
    assert_eq!(structs(text), [("A".to_owned(), 2, 1)]);
    assert_eq!(functions(text), [("long".to_owned(), 5), ("none".to_owned(), 3)]);
    assert_eq!(types_of_fields("struct P {\n    /// A: b.\n    a: Seldom<x::Y>,\n    b: Z,\n}\n", "P"), ["Y", "Z"]);
}
