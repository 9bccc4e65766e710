//! Rules for documents: valid links, index pages that list every page, and banned terms.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Files with an extension below a directory of the project, in order.
fn files_below(dir: &str, extension: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, extension: &str, out: &mut Vec<PathBuf>) {
        for e in std::fs::read_dir(dir).unwrap() {
            let p = e.unwrap().path();
            if p.is_dir() {
                walk(&p, extension, out);
            } else if p.extension().is_some_and(|x| x == extension) {
                out.push(p);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root().join(dir), extension, &mut paths);
    paths.sort();
    paths
}

/// Paths from the root, with the texts of the files.
fn texts(paths: &[PathBuf]) -> Vec<(String, String)> {
    let name = |p: &PathBuf| p.strip_prefix(root()).unwrap().display().to_string();
    paths.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).collect()
}

/// All documents by path from the root.
fn documents() -> Vec<(String, String)> {
    let mut paths = files_below("docs", "md");
    for e in std::fs::read_dir(root()).unwrap() {
        let p = e.unwrap().path();
        if p.extension().is_some_and(|x| x == "md") {
            paths.push(p);
        }
    }
    paths.sort();
    texts(&paths)
}

/// Lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |l| {
        if l.trim_start().starts_with("```") {
            fenced = !fenced;
            return false;
        }
        !fenced && !l.starts_with("    ")
    })
}

/// Targets of `[text](target)`.
fn links(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// The anchor of a heading: lower case, words joined by `-`, punctuation removed.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    prose(text).filter(|l| l.starts_with('#')).map(|l| anchor(l.trim_start_matches('#'))).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut dead = Vec::new();
    for (name, text) in documents() {
        let dir = root().join(&name).parent().unwrap().to_path_buf();
        for link in prose(&text).flat_map(links).filter(|l| !l.contains("://") && !l.starts_with("mailto:")) {
            let (file, part) = link.split_once('#').map_or((link, None), |(f, p)| (f, Some(p)));
            let path = if file.is_empty() { root().join(&name) } else { dir.join(file) };
            let has_part = |p: &str| std::fs::read_to_string(&path).is_ok_and(|t| anchors(&t).contains(p));
            if !path.exists() || part.is_some_and(|p| !has_part(p)) {
                dead.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}

#[test]
fn every_page_is_in_an_index() {
    let all = documents();
    let linked: BTreeSet<PathBuf> = all
        .iter()
        .filter(|(name, _)| name.ends_with("README.md") || name == "ARCHITECTURE.md")
        .flat_map(|(name, text)| {
            let dir = root().join(name).parent().unwrap().to_path_buf();
            let targets: Vec<PathBuf> = prose(text)
                .flat_map(links)
                .filter_map(|l| dir.join(l.split('#').next()?).canonicalize().ok())
                .collect();
            targets
        })
        .collect();
    // Architecture decisions are found by their folder.
    let left_out = |n: &str| n.ends_with("README.md") || n.starts_with("docs/adr/") || !n.starts_with("docs/");
    let missing: Vec<&str> = all
        .iter()
        .map(|(n, _)| n.as_str())
        .filter(|n| !left_out(n) && !linked.contains(&root().join(n).canonicalize().unwrap()))
        .collect();
    assert!(missing.is_empty(), "pages that no index names: {}", missing.join(", "));
}

/// Longest line of prose. Tables, headings, code and single long words may be longer.
const WIDTH: usize = 100;

#[test]
fn prose_wraps() {
    let mut long = Vec::new();
    for (name, text) in documents() {
        for line in prose(&text).filter(|l| l.chars().count() > WIDTH) {
            let free = line.trim_start().starts_with(['|', '#', '<', '`']) || !line.trim().contains(' ');
            if !free {
                long.push(format!("{name}: {line}"));
            }
        }
    }
    assert!(long.is_empty(), "lines of more than {WIDTH} columns:\n{}", long.join("\n"));
}

/// Banned terms: ambiguous ones, and those about how the work was done. PGs are merged, not joined; a monitor that does
/// not lead is a front monitor.
const STAY_AWAY: [&str; 12] = [
    "berth",
    "luggage",
    "neighbours of the machine",
    "noisier neighbours",
    "monitor in front",
    "monitors in front",
    "in front of the leader",
    "pgs are joined",
    "pgs that are joined",
    "joined pg",
    "joins of pgs",
    "joining pgs",
];

/// Terms that are banned in documents only.
const NOT_IN_DOCUMENTS: [&str; 1] = ["sitting"];

/// Rust sources below `crates`, by path from the root.
fn sources() -> Vec<(String, String)> {
    texts(&files_below("crates", "rs"))
}

#[test]
fn terms_that_went_stay_away() {
    let mut found = Vec::new();
    let mut look = |terms: &[&str], name: &str, n: usize, line: &str| {
        let low = line.to_lowercase();
        found.extend(terms.iter().filter(|t| low.contains(**t)).map(|t| format!("{name}:{}: {t}", n + 1)));
    };
    for (name, text) in documents() {
        for (n, line) in prose(&text).enumerate() {
            look(&STAY_AWAY, &name, n, line);
            look(&NOT_IN_DOCUMENTS, &name, n, line);
        }
    }
    for (name, text) in sources() {
        text.lines().enumerate().for_each(|(n, line)| look(&STAY_AWAY, &name, n, line));
    }
    assert!(found.is_empty(), "terms that must not come back:\n{}", found.join("\n"));
}

#[test]
fn how_documents_are_read_here() {
    assert_eq!(links("see [a](b.md#c) and [d](e)"), ["b.md#c", "e"]);
    assert_eq!(anchor(" A store that fails: `EIO`"), "a-store-that-fails-eio");
    assert_eq!(prose("a\n```\nb\n```\n    c\nd").collect::<Vec<_>>(), ["a", "d"]);
}
