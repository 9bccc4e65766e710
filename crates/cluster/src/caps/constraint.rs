//! Conditions on the arguments of a command.

use regex_lite::Regex;
use std::collections::BTreeMap;

/// Arguments of a command, by name.
pub trait CommandArgs {
    /// The value of an argument, as text.
    fn arg(&self, key: &str) -> Option<&str>;
}

impl CommandArgs for BTreeMap<String, String> {
    fn arg(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl CommandArgs for [(&str, &str)] {
    fn arg(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }
}

impl<const N: usize> CommandArgs for [(&str, &str); N] {
    fn arg(&self, key: &str) -> Option<&str> {
        self.as_slice().arg(key)
    }
}

/// Condition on a value.
#[derive(Clone, Debug)]
pub(super) enum Match {
    /// The value equals this text.
    Equal(String),
    /// The value begins with this text.
    Prefix(String),
    /// The whole value matches. `None` is an invalid expression, which matches nothing.
    Regex(Option<Regex>),
    /// The argument is absent.
    Absent,
}

/// Most bytes of memory for a compiled expression.
const REGEX_SIZE_MAX: usize = 64 * 1024;

impl Match {
    pub(super) fn regex(s: &str) -> Self {
        let whole = format!("^(?:{s})$");
        Self::Regex(regex_lite::RegexBuilder::new(&whole).size_limit(REGEX_SIZE_MAX).build().ok())
    }
}

/// A condition on one argument.
#[derive(Clone, Debug)]
pub(super) struct Constraint {
    pub(super) key: String,
    pub(super) matching: Match,
}

impl Constraint {
    pub(super) fn equal(key: &str, v: &str) -> Self {
        Self { key: key.to_owned(), matching: Match::Equal(v.to_owned()) }
    }

    pub(super) fn prefix(key: &str, v: &str) -> Self {
        Self { key: key.to_owned(), matching: Match::Prefix(v.to_owned()) }
    }

    pub(super) fn regex(key: &str, v: &str) -> Self {
        Self { key: key.to_owned(), matching: Match::regex(v) }
    }

    pub(super) fn absent(key: &str) -> Self {
        Self { key: key.to_owned(), matching: Match::Absent }
    }

    /// True if the argument meets the condition. Except for [`Match::Absent`], an absent argument does not.
    fn holds(&self, args: &(impl CommandArgs + ?Sized)) -> bool {
        let Some(v) = args.arg(&self.key) else { return matches!(self.matching, Match::Absent) };
        match &self.matching {
            Match::Equal(s) => v == s,
            Match::Prefix(s) => v.starts_with(s.as_str()),
            Match::Absent => false,
            Match::Regex(r) => r.as_ref().is_some_and(|r| r.is_match(v)),
        }
    }
}

/// True if every condition holds.
pub(super) fn all_hold(cs: &[Constraint], args: &(impl CommandArgs + ?Sized)) -> bool {
    cs.iter().all(|c| c.holds(args))
}
