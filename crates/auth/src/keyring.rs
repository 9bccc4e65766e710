//! Keyring files: sections `[type.id]` with a key and caps per service, in the format of Ceph's tools.

use crate::{AuthError, CryptoKey};
use base::AuthName;
use std::collections::BTreeMap;
use std::fmt;

/// Caps by service name (`mon`, `osd`, `mgr`, `mds`).
pub type Caps = BTreeMap<String, String>;

/// One entity of a keyring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyringEntry {
    /// Secret.
    pub key: CryptoKey,
    /// Caps; usually only in files made for import.
    pub caps: Caps,
}

/// Entities by section name. The keys are text because Ceph uses the section `[mon.]`, whose id is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring {
    entries: BTreeMap<AuthName, KeyringEntry>,
}

/// Error in a keyring file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// A line that is neither a section nor `name = value`.
    #[error("line {0}: expected [entity] or name = value")]
    BadLine(usize),
    /// A section name is not an entity name.
    #[error("line {line}: no such kind of entity: {name}")]
    BadEntity {
        /// Line, from 1.
        line: usize,
        /// The section name.
        name: String,
    },
    /// A key cannot be parsed.
    #[error("line {line}: {error}")]
    BadKey {
        /// Line, from 1.
        line: usize,
        /// Cause.
        error: AuthError,
    },
    /// A section without a key.
    #[error("{0} has no key")]
    NoKey(AuthName),
}

impl Keyring {
    /// An empty keyring.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the text of a keyring file. Lines of old releases, such as `auid`, are ignored. Error: the first line
    /// that is malformed, or an entity without a key.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let mut me = Self::default();
        let mut section: Option<(AuthName, Option<CryptoKey>, Caps)> = None;
        for (i, raw) in text.lines().enumerate() {
            let line = i + 1;
            let l = raw.trim();
            if l.is_empty() || l.starts_with('#') || l.starts_with(';') {
                continue;
            }
            if let Some(name) = l.strip_prefix('[').and_then(|x| x.strip_suffix(']')) {
                me.finish(section.take())?;
                let name = name.trim();
                let entity =
                    AuthName::parse(name).ok_or_else(|| KeyringError::BadEntity { line, name: name.to_owned() })?;
                section = Some((entity, None, Caps::new()));
                continue;
            }
            let (Some((name, value)), Some((_, key, caps))) = (l.split_once('='), section.as_mut()) else {
                return Err(KeyringError::BadLine(line));
            };
            let value = unquote(value.trim());
            let mut words = name.split(|c: char| c.is_whitespace() || c == '_').filter(|w| !w.is_empty());
            match (words.next(), words.next(), words.next()) {
                (Some("key"), None, _) => {
                    *key = Some(CryptoKey::from_base64(&value).map_err(|error| KeyringError::BadKey { line, error })?);
                }
                (Some("caps"), Some(service), None) => {
                    caps.insert(service.to_owned(), value);
                }
                // `auid` and other lines of old releases are ignored.
                (Some(_), ..) => {}
                (None, ..) => return Err(KeyringError::BadLine(line)),
            }
        }
        me.finish(section)?;
        Ok(me)
    }

    fn finish(&mut self, section: Option<(AuthName, Option<CryptoKey>, Caps)>) -> Result<(), KeyringError> {
        if let Some((name, key, caps)) = section {
            let Some(key) = key else { return Err(KeyringError::NoKey(name)) };
            self.entries.insert(name, KeyringEntry { key, caps });
        }
        Ok(())
    }

    /// Adds or replaces an entity.
    pub fn insert(&mut self, name: AuthName, key: CryptoKey, caps: Caps) {
        self.entries.insert(name, KeyringEntry { key, caps });
    }

    /// The entry of an entity.
    #[must_use]
    pub fn get(&self, name: &AuthName) -> Option<&KeyringEntry> {
        self.entries.get(name)
    }

    /// The key of an entity.
    #[must_use]
    pub fn key(&self, name: &AuthName) -> Option<&CryptoKey> {
        self.entries.get(name).map(|e| &e.key)
    }

    /// All entities in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&AuthName, &KeyringEntry)> {
        self.entries.iter()
    }

    /// True if the keyring has no entity.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Removes one pair of double quotes and unescapes the text.
fn unquote(v: &str) -> String {
    match v.strip_prefix('"').and_then(|x| x.strip_suffix('"')) {
        Some(inner) => inner.replace("\\\"", "\""),
        None => v.to_owned(),
    }
}

impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, e) in &self.entries {
            writeln!(f, "[{name}]\n\tkey = {}", e.key.to_base64())?;
            for (service, caps) in &e.caps {
                writeln!(f, "\tcaps {service} = \"{}\"", caps.replace('"', "\\\""))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_keyrings_print_as_they_were_read() {
        for f in ["daemons/cephx.keyring", "msgr2/keyring-pacific", "msgr2/keyring-tentacle"] {
            let path = format!("{}/../../vectors/{f}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let k = Keyring::parse(&text).unwrap();
            assert!(k.key(&AuthName::parse("client.admin").unwrap()).is_some());
            assert_eq!(Keyring::parse(&k.to_string()).unwrap(), k);
            let sorted = |t: &str| {
                let mut v: Vec<String> = t.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect();
                v.sort();
                v
            };
            assert_eq!(sorted(&k.to_string()), sorted(&text), "{f}");
        }
    }

    #[test]
    fn quotes_comments_and_errors() {
        let key = "AQCDSQFrrCnoLhAA7DqkHzyE1GFyzXGYJNe5Iw==";
        let t =
            format!("# c\n[client.x]\nkey={key}\n caps_osd = \"allow \\\"x\\\"\"\n; c\ncaps mon=allow r\nauid = 0\n");
        let k = Keyring::parse(&t).unwrap();
        let e = k.get(&AuthName::parse("client.x").unwrap()).unwrap();
        assert_eq!(e.caps.get("osd").map(String::as_str), Some("allow \"x\""));
        assert_eq!(e.caps.get("mon").map(String::as_str), Some("allow r"));
        assert_eq!(Keyring::parse("key = x"), Err(KeyringError::BadLine(1)));
        assert!(matches!(Keyring::parse("[foo.x]"), Err(KeyringError::BadEntity { line: 1, .. })));
        assert!(matches!(Keyring::parse("[client.x]\nkey = !"), Err(KeyringError::BadKey { line: 2, .. })));
        assert!(matches!(Keyring::parse("[client.x]\n"), Err(KeyringError::NoKey(_))));
    }
}
