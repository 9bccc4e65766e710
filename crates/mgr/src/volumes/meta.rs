//! The file `.meta` of a subvolume: sections of keys and values, in the form of Python's `configparser`.

use super::Fail;
use base::errno::{EINVAL, ENOENT};

/// Largest file that is read.
pub const SIZE_MAX: u64 = 4 << 20;
/// Section of the subvolume itself.
pub const GLOBAL: &str = "GLOBAL";
/// Section of the users' keys.
pub const USER: &str = "USER_METADATA";
/// Section of clones that are made from this subvolume: identities in the index, and snapshots.
pub const CLONE_SNAPS: &str = "clone snaps";
/// Section of a clone's source.
pub const SOURCE: &str = "source";
/// Section of the reason why a clone failed.
pub const FAILURE: &str = "CLONE_FAILURE";
/// Prefix of the sections of the users' keys of snapshots.
pub const SNAP: &str = "SNAP_METADATA_";

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    sections: Vec<(String, Vec<(String, String)>)>,
}

/// True if Python's interpolation takes the value.
fn interpolates(v: &str) -> bool {
    let mut rest = v;
    while let Some(at) = rest.find('%') {
        let after = rest.get(at + 1..).unwrap_or_default();
        let Some(next) = after.strip_prefix('%') else { return false };
        rest = next;
    }
    true
}

impl Meta {
    /// Parses a file.
    ///
    /// # Errors
    /// `EINVAL` if it is not of this form.
    pub fn parse(text: &str) -> Result<Self, Fail> {
        let bad = || (EINVAL, "failed to parse, erroneous metadata config".to_owned());
        let mut me = Self::default();
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
                continue;
            }
            let indented = line.starts_with([' ', '\t']);
            if indented && let Some((_, v)) = me.sections.last_mut().and_then(|(_, keys)| keys.last_mut()) {
                // The value goes on.
                v.push('\n');
                v.push_str(trimmed);
                continue;
            }
            if let Some(name) = trimmed.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
                if me.section(name).is_some() {
                    return Err(bad());
                }
                me.sections.push((name.to_owned(), Vec::new()));
                continue;
            }
            let (_, keys) = me.sections.last_mut().ok_or_else(bad)?;
            let (k, v) = trimmed.split_once(['=', ':']).ok_or_else(bad)?;
            keys.push((k.trim().to_lowercase(), v.trim().to_owned()));
        }
        Ok(me)
    }

    /// The file's text. Empty sections are left out.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, keys) in self.sections.iter().filter(|(_, k)| !k.is_empty()) {
            out += &format!("[{name}]\n");
            for (k, v) in keys {
                out += &format!("{k} = {}\n", v.replace('\n', "\n\t"));
            }
            out.push('\n');
        }
        out
    }

    /// Keys and values of a section.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&[(String, String)]> {
        self.sections.iter().find(|(n, _)| n == name).map(|(_, keys)| &keys[..])
    }

    /// A value.
    #[must_use]
    pub fn get(&self, section: &str, key: &str) -> Option<String> {
        let key = key.to_lowercase();
        let v = self.section(section)?.iter().find(|(k, _)| *k == key).map(|(_, v)| v)?;
        Some(v.replace("%%", "%"))
    }

    /// A value of the subvolume itself; empty if it is missing.
    #[must_use]
    pub fn global(&self, key: &str) -> String {
        self.get(GLOBAL, key).unwrap_or_default()
    }

    /// Sets a value.
    ///
    /// # Errors
    /// `EINVAL` for a key or value that the file cannot hold.
    pub fn set(&mut self, section: &str, key: &str, value: &str) -> Result<(), Fail> {
        let plain = |s: &str| !s.chars().any(|c| c.is_control());
        let key = key.to_lowercase();
        let odd = key.is_empty() || key.trim() != key || key.contains(['=', ':']) || key.starts_with(['[', '#', ';']);
        if odd || !plain(&key) || !plain(section) || section.contains([']', '[']) {
            return Err((EINVAL, format!("invalid key '{key}'")));
        }
        if !interpolates(value) {
            return Err((EINVAL, format!("invalid interpolation syntax in '{value}'")));
        }
        if value.chars().any(|c| c.is_control() && c != '\n') || value.contains("\n\n") {
            return Err((EINVAL, "invalid value".to_owned()));
        }
        if self.section(section).is_none() {
            self.sections.push((section.to_owned(), Vec::new()));
        }
        let Some((_, keys)) = self.sections.iter_mut().find(|(n, _)| n == section) else { return Ok(()) };
        match keys.iter_mut().find(|(k, _)| *k == key) {
            Some((_, v)) => value.trim().clone_into(v),
            None => keys.push((key, value.trim().to_owned())),
        }
        Ok(())
    }

    /// Removes a key; true if it was there.
    ///
    /// # Errors
    /// `ENOENT` if the section does not exist.
    pub fn remove(&mut self, section: &str, key: &str) -> Result<bool, Fail> {
        let missing = || (ENOENT, format!("section '{section}' does not exist"));
        let (_, keys) = self.sections.iter_mut().find(|(n, _)| n == section).ok_or_else(missing)?;
        let (before, key) = (keys.len(), key.to_lowercase());
        keys.retain(|(k, _)| *k != key);
        Ok(keys.len() != before)
    }

    /// Removes a section; true if it was there.
    pub fn remove_section(&mut self, name: &str) -> bool {
        let before = self.sections.len();
        self.sections.retain(|(n, _)| n != name);
        self.sections.len() != before
    }

    /// Snapshots with keys of users.
    #[must_use]
    pub fn described_snaps(&self) -> Vec<String> {
        self.sections.iter().filter_map(|(n, _)| n.strip_prefix(SNAP).map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_cephs_manager_is_read_and_written_as_it_is() {
        let text =
            "[GLOBAL]\nversion = 2\ntype = clone\npath = /volumes/g/s/u\nstate = pending\n\n[source]\nvolume = a\n\n";
        let m = Meta::parse(text).unwrap();
        assert_eq!((m.global("state"), m.get(SOURCE, "volume")), ("pending".into(), Some("a".into())));
        assert_eq!(m.text(), text);
        assert_eq!(m.get(SOURCE, "group"), None);
    }

    #[test]
    fn keys_are_in_lower_case_and_empty_sections_vanish() {
        let mut m = Meta::parse("[A]\nx=1\n  2\n[B]\n# no\ny: \n").unwrap();
        assert_eq!((m.get("A", "X"), m.get("B", "y")), (Some("1\n2".into()), Some(String::new())));
        m.set("B", "Key", "v").unwrap();
        assert_eq!(m.get("B", "kEY"), Some("v".into()));
        assert!(m.remove("B", "KEY").unwrap() && !m.remove("B", "key").unwrap());
        assert_eq!(m.remove("C", "x").unwrap_err().0, ENOENT);
        assert!(m.remove("B", "y").unwrap());
        assert_eq!(m.text(), "[A]\nx = 1\n\t2\n\n");
        assert_eq!(Meta::parse(&m.text()).unwrap().get("A", "x"), Some("1\n2".into()));
    }

    #[test]
    fn values_that_the_file_cannot_hold_are_refused() {
        let mut m = Meta::default();
        for (k, v) in [("", "v"), ("a=b", "v"), ("[a", "v"), (" a", "v"), ("a\nb", "v"), ("a", "5%"), ("a", "x\n\ny")] {
            assert_eq!(m.set(USER, k, v).unwrap_err().0, EINVAL, "{k:?} {v:?}");
        }
        m.set(USER, "a", "50%%").unwrap();
        assert_eq!(m.get(USER, "a"), Some("50%".into()));
        for bad in ["x = 1\n", "[A]\nx\n", "[A]\n[A]\n"] {
            assert_eq!(Meta::parse(bad).unwrap_err().0, EINVAL, "{bad:?}");
        }
    }
}
