//! Do the files and functions that docs/design/tour.md names exist?

use std::fs;
use std::path::Path;

#[test]
fn the_tour_leads_to_what_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tour = fs::read_to_string(root.join("docs/design/tour.md")).unwrap();
    let rows: Vec<Vec<&str>> = tour
        .lines()
        .filter(|l| l.starts_with('|') && l.contains("crates/"))
        .map(|l| l.split('|').map(|c| c.trim().trim_matches('`')).collect())
        .collect();
    assert_eq!(rows.len(), 12, "twelve questions");
    for row in rows {
        let (question, file, function) = (row[1], row[2], row[3]);
        assert!(tour.contains(&format!("\n## {question}\n")), "no answer to: {question}");
        let text = fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(text.contains(&format!("fn {function}")), "{file} has no function {function}");
    }
    // Words of the form `name` after a file are functions, types or fields, and must occur in the crates.
    let mut all = String::new();
    collect(&root.join("crates"), &mut all);
    let missing: Vec<&str> = tour
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|w| w.len() > 3 && w.chars().all(|c| c.is_alphanumeric() || c == '_'))
        .filter(|w| !all.contains(*w))
        .collect();
    assert!(missing.is_empty(), "named and not there: {missing:?}");
    // Paths in answers start with the crate's name.
    let paths = tour.split('`').skip(1).step_by(2).filter(|w| w.contains('/') && w.ends_with(".rs"));
    let lost: Vec<&str> = paths.filter(|p| !exists(&root, p)).collect();
    assert!(lost.is_empty(), "paths that lead nowhere: {lost:?}");
}

fn exists(root: &Path, p: &str) -> bool {
    let Some((name, rest)) = p.split_once('/') else { return false };
    let inside = root.join("crates").join(name).join("src");
    // The folders of `pg` are in its module `pg`; those of an answer are in its crate or in that folder.
    root.join(p).exists()
        || inside.join(rest).exists()
        || inside.join(name).join(rest).exists()
        || root.join("crates/pg/src/pg").join(p).exists()
        || root.join("crates/store/src").join(p).exists()
}

fn collect(dir: &Path, out: &mut String) {
    for e in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = e.path();
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|x| x == "rs") {
            *out += &fs::read_to_string(&path).unwrap_or_default();
        }
    }
}
