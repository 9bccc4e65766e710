//! `ceph.conf`: the options that the daemons and commands use, and the file that `up` writes.
//!
//! The file has `[section]` headers and `key = value` lines; blanks, dashes and underscores in keys are equivalent. A
//! daemon looks up a key in `[type.id]`, then `[type]`, then `[global]`.

use std::collections::BTreeMap;
use std::path::Path;

/// A parsed configuration file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conf {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

/// Error in a configuration file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A line is neither a header, a comment nor `key = value`.
    #[error("{path}:{line}: expected `key = value`")]
    Syntax {
        /// Path of the file.
        path: String,
        /// Line number, from 1.
        line: usize,
    },
}

fn normal(key: &str) -> String {
    key.trim().chars().map(|c| if c == ' ' || c == '-' { '_' } else { c }).collect()
}

impl Conf {
    /// Reads a file.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfError::Read { path: shown.clone(), source })?;
        Self::parse(&text).map_err(|line| ConfError::Syntax { path: shown, line })
    }

    /// Parses a text; the error is the number of the invalid line.
    pub(crate) fn parse(text: &str) -> Result<Self, usize> {
        let mut out = Self::default();
        let mut section = "global".to_owned();
        for (i, raw) in text.lines().enumerate() {
            // A comment begins at the start of a line or after a blank; other `#` and `;` are part of a value.
            let cut = raw
                .char_indices()
                .find(|(at, c)| {
                    matches!(c, '#' | ';') && (*at == 0 || raw[..*at].ends_with(|p: char| p.is_whitespace()))
                })
                .map_or(raw.len(), |(at, _)| at);
            let line = raw[..cut].trim();
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.trim().to_owned();
                continue;
            }
            let (k, v) = line.split_once('=').ok_or(i + 1)?;
            let v = v.trim().trim_matches('"');
            out.sections.entry(section.clone()).or_default().insert(normal(k), v.to_owned());
        }
        Ok(out)
    }

    /// The value of `key` for entity `kind.id`, from the most specific section, with `$id`, `$type`, `$name` and
    /// `$cluster` expanded.
    #[must_use]
    pub(crate) fn get(&self, kind: &str, id: &str, key: &str) -> Option<String> {
        let key = normal(key);
        let name = format!("{kind}.{id}");
        [name.as_str(), kind, "global"]
            .iter()
            .find_map(|s| self.sections.get(*s)?.get(&key))
            .map(|v| v.replace("$name", &name).replace("$id", id).replace("$type", kind).replace("$cluster", "ceph"))
    }

    /// All effective values for entity `kind.id`.
    #[must_use]
    pub(crate) fn all(&self, kind: &str, id: &str) -> Vec<(String, String)> {
        let name = format!("{kind}.{id}");
        let keys: std::collections::BTreeSet<&String> = [name.as_str(), kind, "global"]
            .iter()
            .filter_map(|s| self.sections.get(*s))
            .flat_map(|m| m.keys())
            .collect();
        keys.into_iter().filter_map(|k| Some((k.clone(), self.get(kind, id, k)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specific_sections_win() {
        let c = Conf::parse(
            "# head\nfsid = x\n[global]\nmon host = [v2:127.0.0.1:3300/0] ; comment\n[osd]\npublic-addr = a\n[osd.1]\npublic_addr=b\nkeyring = /x/$name.keyring\n",
        )
        .unwrap();
        assert_eq!(c.get("osd", "0", "public addr").as_deref(), Some("a"));
        assert_eq!(c.get("osd", "1", "public_addr").as_deref(), Some("b"));
        assert_eq!(c.get("osd", "1", "keyring").as_deref(), Some("/x/osd.1.keyring"));
        assert_eq!(c.get("client", "admin", "mon_host").as_deref(), Some("[v2:127.0.0.1:3300/0]"));
        assert_eq!(c.get("client", "admin", "fsid").as_deref(), Some("x"));
        assert_eq!(Conf::parse("[a]\nnonsense\n").unwrap_err(), 2);
    }
}
