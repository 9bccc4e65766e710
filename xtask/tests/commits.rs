//! Rules for commit subjects: at most 72 characters, `area: what`. They hold for commits after the one that added this
//! file.

use std::process::Command;

/// Longest subject, in characters.
const SUBJECT: usize = 72;

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Why a subject is refused.
fn fault(subject: &str) -> Option<&'static str> {
    if subject.chars().count() > SUBJECT {
        return Some("longer than 72 characters");
    }
    let what = subject.split_once(": ").map(|(area, what)| !area.is_empty() && !what.trim().is_empty());
    (what != Some(true) && !subject.starts_with("Revert ")).then_some("not of the form `area: what`")
}

#[test]
fn subjects_of_commits_are_short() {
    // An archive of the sources has no history, and nothing to check.
    let Some(added) = git(&["log", "--diff-filter=A", "--format=%H", "--", "tests/commits.rs"]) else { return };
    let Some(first) = added.lines().last() else { return };
    let log = git(&["log", "--no-merges", "--format=%h %s", &format!("{first}..HEAD")]).expect("git log");
    let bad: Vec<String> = log
        .lines()
        .filter_map(|l| {
            let (hash, subject) = l.split_once(' ')?;
            Some(format!("{hash} {subject}: {}", fault(subject)?))
        })
        .collect();
    assert!(bad.is_empty(), "commit subjects:\n{}", bad.join("\n"));
}

#[test]
fn long_and_formless_subjects_are_refused() {
    assert_eq!(fault("pg: split at once"), None);
    assert_eq!(fault(&format!("pg: {}", "x".repeat(68))), None);
    assert_eq!(fault(&format!("pg: {}", "x".repeat(69))), Some("longer than 72 characters"));
    assert_eq!(fault("split at once"), Some("not of the form `area: what`"));
    assert_eq!(fault("pg: "), Some("not of the form `area: what`"));
}
