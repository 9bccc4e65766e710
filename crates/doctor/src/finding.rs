//! Findings, and their texts.

use super::facts::clean;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Longest text of a finding that comes from a host, in characters.
const WORD_MAX: usize = 200;

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// The host does not tell.
    Unknown,
    /// Worth knowing; may be intended.
    Note,
    /// Costs speed or safety.
    Warning,
}

impl Severity {
    /// Its name in texts and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Unknown => "unknown",
            Self::Note => "note",
            Self::Warning => "warning",
        }
    }

    /// The weight with this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Fine, Self::Unknown, Self::Note, Self::Warning].into_iter().find(|s| s.word() == word)
    }
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Weight.
    pub severity: Severity,
    /// The state that was found.
    pub what: String,
    /// Cost of the state; empty if it is fine.
    pub cost: &'static str,
    /// How to change it; empty if it is fine.
    pub change: String,
}

impl Finding {
    fn new(check: &'static str, severity: Severity, what: impl Into<String>) -> Self {
        let what: String = what.into();
        let what =
            if what.chars().count() > WORD_MAX { what.chars().take(WORD_MAX).chain(['…']).collect() } else { what };
        Self { check, severity, what, cost: "", change: String::new() }
    }

    /// Nothing to change.
    pub fn fine(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Severity::Fine, what)
    }

    /// Nothing to be read.
    pub fn unknown(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Severity::Unknown, what)
    }

    /// A state that may be intended.
    pub fn note(check: &'static str, what: impl Into<String>, cost: &'static str, change: impl Into<String>) -> Self {
        Self { cost, change: change.into(), ..Self::new(check, Severity::Note, what) }
    }

    /// A state to change.
    pub fn warn(check: &'static str, what: impl Into<String>, cost: &'static str, change: impl Into<String>) -> Self {
        Self { cost, change: change.into(), ..Self::new(check, Severity::Warning, what) }
    }

    fn json(&self) -> Value {
        json!({
            "check": self.check,
            "severity": self.severity.word(),
            "what": self.what,
            "cost": self.cost,
            "change": self.change,
        })
    }
}

/// A host with its findings, or the reason why there are none.
#[derive(Clone, Debug)]
pub struct HostReport {
    /// Name, as given to ssh, or that of this host.
    pub host: String,
    /// One line about the machine.
    pub machine: String,
    /// Findings in the order of the checks.
    pub findings: Vec<Finding>,
    /// Why the host could not be looked at.
    pub error: Option<String>,
}

impl HostReport {
    /// The most serious weight; a host that could not be looked at is a warning.
    pub fn worst(&self) -> Severity {
        let worst = self.findings.iter().map(|f| f.severity).max().unwrap_or(Severity::Fine);
        if self.error.is_some() { Severity::Warning } else { worst }
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        json!({
            "host": self.host,
            "machine": self.machine,
            "error": self.error,
            "findings": self.findings.iter().map(Finding::json).collect::<Vec<_>>(),
        })
    }

    /// The report as text, the most serious findings first.
    pub fn text(&self) -> String {
        let mut out = format!("{}: {}\n", clean(&self.host), self.machine);
        if let Some(e) = &self.error {
            let _ = writeln!(out, "  error    {}", clean(e));
            return out;
        }
        for severity in [Severity::Warning, Severity::Note] {
            for f in self.findings.iter().filter(|f| f.severity == severity) {
                let _ = writeln!(out, "  {:<8} {}: {}", severity.word(), f.check, f.what);
                let _ = writeln!(out, "           costs: {}", f.cost);
                let _ = writeln!(out, "           change: {}", f.change);
            }
        }
        for severity in [Severity::Unknown, Severity::Fine] {
            for f in self.findings.iter().filter(|f| f.severity == severity) {
                let _ = writeln!(out, "  {:<8} {}: {}", severity.word(), f.check, f.what);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_come_first_and_long_words_are_cut() {
        let r = HostReport {
            host: "a\x1b".into(),
            machine: "Linux".into(),
            findings: vec![
                Finding::fine("numa", "one node"),
                Finding::warn("mtu", "x".repeat(5000), "much", "less"),
                Finding::note("kernel", "old", "some", "new"),
            ],
            error: None,
        };
        let text = r.text();
        assert!(text.find("mtu").unwrap() < text.find("kernel").unwrap());
        assert!(text.find("kernel").unwrap() < text.find("numa").unwrap());
        assert!(text.len() < 1000 && !text.contains('\x1b'), "{text}");
        assert_eq!(r.worst(), Severity::Warning);
        assert_eq!(r.json()["findings"][1]["severity"], "warning");
        let broken = HostReport { findings: vec![], error: Some("no route".into()), ..r };
        assert_eq!(broken.worst(), Severity::Warning);
        assert!(broken.text().contains("no route"));
    }
}
