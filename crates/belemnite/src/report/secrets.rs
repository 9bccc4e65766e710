//! Removes secrets from texts.
//!
//! Three rules, each by itself sufficient for the keys of a cluster: known secrets (keys of entities, values of the
//! config-key store, keyrings) are removed wherever they stand; so is each word that decodes as a key of cephx, known or
//! not; so are the values of options whose name tells a secret, and private keys in PEM.

use auth::CryptoKey;
use serde_json::Value;
use std::collections::BTreeSet;

/// The text in place of a secret.
pub(super) const REMOVED: &str = "(removed)";
/// Shortest value that is searched for. Shorter ones, such as `true`, are in every text.
const SHORTEST: usize = 6;
/// Most values that are searched for.
const VALUES_MAX: usize = 20_000;
/// Shortest and longest word that can be a key of cephx in base64.
const KEY_WORD: std::ops::RangeInclusive<usize> = 38..=64;
/// Words in the names of options whose values are secrets.
const NAMES: [&str; 6] = ["secret", "password", "passwd", "token", "passphrase", "credential"];

/// Known secrets.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets {
    values: BTreeSet<String>,
}

/// True if an option of this name has a secret as its value.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_key =
        ["key", "private_key", "api_key", "access_key"].iter().any(|k| name.rsplit(['/', '.', ' ']).next() == Some(*k));
    is_key || NAMES.iter().any(|n| name.contains(n)) && !name.ends_with("_file")
}

fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')
}

impl Secrets {
    /// Adds a secret. Of a text of several lines each line is one.
    pub(super) fn add(&mut self, value: &str) {
        for line in value.lines().map(str::trim).filter(|l| l.len() >= SHORTEST) {
            // In JSON a quoted form stands for the value.
            let quoted = Value::from(line).to_string();
            let quoted = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or(line);
            for form in [line, quoted] {
                if self.values.len() < VALUES_MAX {
                    self.values.insert(form.to_owned());
                }
            }
        }
    }

    /// Adds the strings in a JSON value.
    pub(super) fn add_all(&mut self, v: &Value) {
        match v {
            Value::String(s) => {
                self.add(s);
                // A value may be JSON itself.
                if let Ok(inner @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(s) {
                    self.add_all(&inner);
                }
            }
            Value::Array(a) => a.iter().for_each(|v| self.add_all(v)),
            Value::Object(o) => o.values().for_each(|v| self.add_all(v)),
            _ => {}
        }
    }

    /// Adds the keys of a keyring's text.
    pub(super) fn add_keyring(&mut self, text: &str) {
        let keys = text.lines().filter_map(|l| l.split_once('=').filter(|(k, _)| k.trim() == "key"));
        keys.for_each(|(_, v)| self.add(v));
    }

    /// The text without known secrets, keys of cephx, and private keys.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut out = without_keys(text);
        for v in &self.values {
            if out.contains(v.as_str()) {
                out = out.replace(v.as_str(), REMOVED);
            }
        }
        without_pem(&out)
    }

    /// The same for the text of a configuration file, whose secret options lose their values.
    pub(super) fn clean_conf(&self, text: &str) -> String {
        let line = |l: &str| match l.split_once('=') {
            Some((k, _)) if is_secret(k.trim()) => format!("{k}= {REMOVED}\n"),
            _ => format!("{l}\n"),
        };
        self.clean(&text.lines().map(line).collect::<String>())
    }

    /// The same for JSON: also the values of members, and of pairs of `name` and `value`, whose name tells a secret.
    pub(super) fn clean_json(&self, v: &Value) -> String {
        let mut v = v.clone();
        self.clean_strings(&mut v);
        self.clean(&format!("{v:#}\n"))
    }

    /// Cleans strings before they are quoted, which changes those with quotes and backslashes.
    fn clean_strings(&self, v: &mut Value) {
        match v {
            Value::Array(a) => a.iter_mut().for_each(|v| self.clean_strings(v)),
            Value::Object(o) => {
                let is_pair = o.get("name").and_then(Value::as_str).is_some_and(is_secret);
                for (k, v) in o.iter_mut() {
                    if v.as_str().is_some_and(|s| !s.is_empty()) && (is_secret(k) || is_pair && k == "value") {
                        *v = REMOVED.into();
                    } else {
                        self.clean_strings(v);
                    }
                }
            }
            Value::String(s) => *s = self.clean(s),
            _ => {}
        }
    }
}

/// The text without words that decode as a key of cephx.
fn without_keys(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let start = rest.find(is_base64).unwrap_or(rest.len());
        let (before, word) = rest.split_at(start);
        let end = word.find(|c| !is_base64(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        out.push_str(before);
        // `key=AQ…` is one word of these characters.
        let (name, value) = match word.find("=A") {
            Some(at) => word.split_at(at + 1),
            None => ("", word),
        };
        let is_key = |w: &str| KEY_WORD.contains(&w.len()) && CryptoKey::from_base64(w).is_ok();
        if is_key(value) {
            out.push_str(name);
            out.push_str(REMOVED);
        } else {
            out.push_str(word);
        }
        rest = after;
    }
    out
}

/// The text without private keys in PEM, also in JSON, where `\n` stands for the ends of lines.
fn without_pem(text: &str) -> String {
    const END: &str = "PRIVATE KEY-----";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("-----BEGIN ") {
        let (before, block) = rest.split_at(at);
        out.push_str(before);
        let head = block.find(END).filter(|i| *i < 40);
        let Some(head) = head else {
            let (word, after) = block.split_at("-----BEGIN ".len());
            out.push_str(word);
            rest = after;
            continue;
        };
        out.push_str(REMOVED);
        // A block that was cut off ends with the text.
        let body = block.split_at(head + END.len()).1;
        rest = body.find(END).map_or("", |i| body.split_at(i + END.len()).1);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEY: &str = "AQBJnMNnAAAAABAAq83vASNFZ4mrze8BI0VniQ==";

    #[test]
    fn keys_are_known_by_their_form() {
        assert!(CryptoKey::from_base64(KEY).is_ok(), "the sample is a key");
        let none = Secrets::default();
        for text in [format!("key = {KEY}"), format!("key={KEY}"), format!("\"{KEY}\","), format!("x{{{KEY}}}")] {
            let out = none.clean(&text);
            assert!(!out.contains(&KEY[2..20]) && out.contains(REMOVED), "{text}: {out}");
        }
        let plain = "a/b=c 0123456789abcdef0123456789abcdef01234567 é=";
        assert_eq!(none.clean(plain), plain);
    }

    #[test]
    fn known_values_go_wherever_they_stand() {
        let mut s = Secrets::default();
        s.add_all(&json!({"mgr/x/password": "hunter22", "flag": "true", "y": "{\"inner\": [\"deep-secret\"]}"}));
        s.add_keyring("[client.x]\n\tkey = not-base64-but-a-key\n\tcaps mon = \"allow r\"\n");
        let out = s.clean("logged hunter22 and deep-secret, true, not-base64-but-a-key, allow r");
        assert_eq!(out, "logged (removed) and (removed), true, (removed), allow r");
    }

    #[test]
    fn names_tell_secrets() {
        let s = Secrets::default();
        let conf =
            s.clean_conf("[client.rgw]\nrgw_ldap_secret = abc\nkeyring = /x\nmon_state_etcd_password_file = /p\n");
        assert_eq!(
            conf,
            "[client.rgw]\nrgw_ldap_secret = (removed)\nkeyring = /x\nmon_state_etcd_password_file = /p\n"
        );
        let v = json!([{"section": "mgr", "name": "mgr/x/password", "value": "abc"},
            {"name": "osd_max_backfills", "value": "3"}, {"api_token": "abc", "key": "abc", "keys": ["abcd"]}]);
        let out = s.clean_json(&v);
        assert_eq!(out.matches("abc").count(), 1, "{out}");
        assert!(out.contains("osd_max_backfills") && out.contains("\"3\""), "{out}");
        let mut s = Secrets::default();
        s.add("with \"quotes\" and \\");
        assert!(!s.clean_json(&json!({"a": "b with \"quotes\" and \\"})).contains("quotes"));
        assert_eq!(s.clean("{\"val\": \"with \\\"quotes\\\" and \\\\\"}"), "{\"val\": \"(removed)\"}");
    }

    #[test]
    fn private_keys_are_removed_whole() {
        let s = Secrets::default();
        let pem =
            "a\n-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\nb -----BEGIN CERTIFICATE-----\nMIIC";
        assert_eq!(s.clean(pem), "a\n(removed)\nb -----BEGIN CERTIFICATE-----\nMIIC");
        assert_eq!(s.clean("-----BEGIN EC PRIVATE KEY-----\\nMIIB"), "(removed)");
        assert_eq!(s.clean("-----BEGIN -----BEGIN "), "-----BEGIN -----BEGIN ");
    }

    #[test]
    fn many_values_are_bounded() {
        let mut s = Secrets::default();
        (0..2 * VALUES_MAX).for_each(|i| s.add(&format!("secret-{i}")));
        assert_eq!(s.values.len(), VALUES_MAX);
    }
}
