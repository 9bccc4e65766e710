//! Drift: checks of a host that became worse than they once were.
//!
//! A check's grade is that of its most serious finding. The best grade that a host had in a check is kept, so what was
//! amiss when the host was first looked at is no drift, and what was put right counts from then on.

use crate::facts::clean;
use crate::finding::Severity;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most checks of a host that are read.
pub const CHECKS_MAX: usize = 64;
/// Longest name of a host or check, in bytes. Longer ones are no names.
const NAME_MAX: usize = 64;
/// Checks that follow the load: how a host does now says nothing about how it is set up.
const OF_LOAD: [&str; 2] = ["processor time", "memory"];
/// Checks of counters and means since the boot, of which only warnings are told: a note comes and goes with time.
const SINCE_BOOT: [&str; 4] = ["temperature", "network errors", "drives", "write cache"];
/// Longest text that is read, in characters.
const TEXT_MAX: usize = 300;

/// Grades of a host by check.
pub type Grades = BTreeMap<String, Severity>;

/// A check's grade, with the finding that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grade {
    /// The grade.
    pub severity: Severity,
    /// The state that was found.
    pub what: String,
    /// How to change it.
    pub change: String,
}

/// A check whose grade became worse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worse {
    /// Name of the check.
    pub check: String,
    /// Its best grade so far.
    pub was: Severity,
    /// Its grade now.
    pub now: Grade,
}

/// A text of another host.
fn text(v: &Value) -> String {
    clean(&v.as_str().unwrap_or_default().chars().take(TEXT_MAX).collect::<String>())
}

/// Name of a host and the grades of its checks, from the JSON of a [`crate::HostReport`], which another host may have
/// written. `None` if it is none.
#[must_use]
pub fn graded(report: &Value) -> Option<(String, BTreeMap<String, Grade>)> {
    let host = text(report.get("host")?);
    let mut all: BTreeMap<String, Grade> = BTreeMap::new();
    for f in report.get("findings")?.as_array()? {
        let check = text(&f["check"]);
        let Some(severity) = f["severity"].as_str().and_then(Severity::from_word) else { continue };
        if check.is_empty()
            || check.len() > NAME_MAX
            || OF_LOAD.contains(&check.as_str())
            || all.len() >= CHECKS_MAX && !all.contains_key(&check)
        {
            continue;
        }
        if all.get(&check).is_none_or(|g| g.severity < severity) {
            all.insert(check, Grade { severity, what: text(&f["what"]), change: text(&f["change"]) });
        }
    }
    (!host.is_empty() && host.len() <= NAME_MAX && !all.is_empty()).then_some((host, all))
}

/// Checks that are worse now than the best grades of the host, which are brought up to date. Checks without a grade get
/// their present one. A check of which the host tells nothing keeps its grade, and is not worse.
pub fn worse(best: &mut Grades, now: &BTreeMap<String, Grade>) -> Vec<Worse> {
    best.retain(|check, _| now.contains_key(check));
    let mut out = Vec::new();
    for (check, grade) in now.iter().filter(|(_, g)| g.severity != Severity::Unknown) {
        let was = best.entry(check.clone()).or_insert(grade.severity);
        let is_told = grade.severity == Severity::Warning || !SINCE_BOOT.contains(&check.as_str());
        if grade.severity > *was && is_told {
            out.push(Worse { check: check.clone(), was: *was, now: grade.clone() });
        }
        *was = grade.severity.min(*was);
    }
    out
}

/// Grades as JSON: an object of words.
#[must_use]
pub fn grades_to_json(g: &Grades) -> Value {
    Value::Object(g.iter().map(|(check, s)| (check.clone(), s.word().into())).collect::<Map<_, _>>())
}

/// Grades from JSON; what is none is left out.
#[must_use]
pub fn grades_from_json(v: &Value) -> Grades {
    let all = v.as_object().into_iter().flatten().take(CHECKS_MAX);
    all.filter_map(|(check, s)| Some((check.clone(), Severity::from_word(s.as_str()?)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Finding, HostReport};

    fn report(findings: Vec<Finding>) -> Value {
        HostReport { host: "h".into(), machine: "Linux".into(), findings, error: None }.json()
    }

    fn look(best: &mut Grades, findings: Vec<Finding>) -> Vec<(String, Severity, Severity)> {
        let (host, now) = graded(&report(findings)).unwrap();
        assert_eq!(host, "h");
        worse(best, &now).into_iter().map(|w| (w.check, w.was, w.now.severity)).collect()
    }

    #[test]
    fn only_what_became_worse_is_told_and_what_was_mended_counts() {
        use Severity::{Fine, Note, Warning};
        let warn = |check| Finding::warn(check, "bad", "much", "mend it");
        let note = |check| Finding::note(check, "odd", "little", "look");
        let fine = |check| Finding::fine(check, "good");
        let mut best = Grades::new();
        let none: Vec<(String, Severity, Severity)> = Vec::new();
        assert_eq!(look(&mut best, vec![warn("governor"), fine("mtu"), note("scheduler")]), none);
        assert_eq!(look(&mut best, vec![warn("governor"), fine("mtu"), note("scheduler")]), none);
        let (mtu, scheduler) = (("mtu".to_owned(), Fine, Note), ("scheduler".to_owned(), Note, Warning));
        assert_eq!(look(&mut best, vec![warn("governor"), note("mtu"), warn("scheduler")]), [mtu, scheduler]);
        // Mended, and bad again.
        assert_eq!(look(&mut best, vec![fine("governor"), fine("mtu"), note("scheduler")]), none);
        assert_eq!(look(&mut best, vec![warn("governor"), fine("mtu")]), [("governor".to_owned(), Fine, Warning)]);
        // A check that is new with a release.
        assert_eq!(look(&mut best, vec![warn("new"), fine("governor")]), none);
        assert_eq!(grades_from_json(&grades_to_json(&best)), best);
    }

    #[test]
    fn silence_of_a_host_is_no_drift() {
        let mut best = Grades::new();
        look(
            &mut best,
            vec![Finding::fine("clock", "good"), Finding::warn("write cache", "volatile", "much", "mend it")],
        );
        let silent = || vec![Finding::unknown("clock", "silent"), Finding::unknown("write cache", "too early to tell")];
        assert!(look(&mut best, silent()).is_empty());
        assert_eq!((best["clock"], best["write cache"]), (Severity::Fine, Severity::Warning));
        // What was known before a restart is known after it.
        let again = vec![Finding::fine("clock", "good"), Finding::warn("write cache", "volatile", "much", "mend it")];
        assert!(look(&mut best, again).is_empty());
        let mut new = Grades::new();
        look(&mut new, silent());
        assert!(new.is_empty());
    }

    #[test]
    fn load_and_notes_about_counters_are_not_told() {
        let mut best = Grades::new();
        let of = |s: fn(&'static str) -> Finding| ["memory", "processor time", "temperature"].map(s).to_vec();
        look(&mut best, of(|c| Finding::fine(c, "good")));
        assert!(look(&mut best, of(|c| Finding::note(c, "odd", "little", "look"))).is_empty());
        let told = look(&mut best, of(|c| Finding::warn(c, "bad", "much", "mend it")));
        assert_eq!(told, [("temperature".to_owned(), Severity::Fine, Severity::Warning)]);
    }

    #[test]
    fn the_most_serious_finding_of_a_check_counts() {
        let all = vec![
            Finding::fine("mtu", "a"),
            Finding::warn("mtu", "b", "much", "c"),
            Finding::note("mtu", "d", "e", "f"),
        ];
        let (_, now) = graded(&report(all)).unwrap();
        assert_eq!((now["mtu"].severity, now["mtu"].what.as_str()), (Severity::Warning, "b"));
    }

    #[test]
    fn hostile_reports_are_bounded() {
        for bad in [Value::Null, serde_json::json!({"host": "h"}), serde_json::json!({"host": "", "findings": [1]})] {
            assert!(graded(&bad).is_none(), "{bad}");
        }
        let many: Vec<Value> = (0..10_000)
            .map(|i| serde_json::json!({"check": format!("c{i}"), "severity": "warning", "what": "x\u{1b}".repeat(5000)}))
            .collect();
        let (host, all) = graded(&serde_json::json!({"host": "h\u{7}", "findings": many})).unwrap();
        assert_eq!((host.as_str(), all.len()), ("h?", CHECKS_MAX));
        assert!(graded(&serde_json::json!({"host": "h".repeat(65), "findings": many})).is_none());
        assert!(all.values().all(|g| g.what.chars().count() <= TEXT_MAX && !g.what.contains('\u{1b}')));
    }
}
