//! Typed access to a command's JSON arguments, tolerant where Ceph is: numbers as text for ids, flags as text or lists,
//! one value where a list is meant.

use super::{Refused, Res};
use base::{OsdId, PgId, errno};
use serde_json::{Map, Value};

/// Arguments of one command.
#[derive(Clone, Debug, Default)]
pub struct Args(pub Map<String, Value>);

fn text(v: &Value) -> Option<String> {
    match v {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

/// Number of an OSD written as `3` or `osd.3`.
#[must_use]
pub fn parse_osd(s: &str) -> Option<OsdId> {
    let n: i32 = s.strip_prefix("osd.").unwrap_or(s).parse().ok()?;
    (n >= 0).then_some(OsdId(n))
}

impl Args {
    /// Text; numbers count as text.
    #[must_use]
    pub fn opt(&self, key: &str) -> Option<String> {
        self.0.get(key).and_then(text)
    }

    /// Text that must be there.
    pub fn str(&self, key: &str) -> Res<String> {
        self.opt(key).ok_or_else(|| Refused::new(errno::EINVAL, ""))
    }

    /// Text, or `default`.
    #[must_use]
    pub fn str_or(&self, key: &str, default: &str) -> String {
        self.opt(key).unwrap_or_else(|| default.to_owned())
    }

    /// An integer, also one written as text.
    #[must_use]
    pub fn int(&self, key: &str) -> Option<i64> {
        match self.0.get(key)? {
            Value::Number(n) => n.as_i64(),
            Value::String(s) => s.parse().ok(),
            _ => None,
        }
    }

    /// A number, also one written as text.
    #[must_use]
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.0.get(key)? {
            Value::Number(n) => n.as_f64(),
            Value::String(s) => s.parse().ok(),
            _ => None,
        }
    }

    /// A number that must be there.
    pub fn need_float(&self, key: &str) -> Res<f64> {
        self.float(key)
            .filter(|v| v.is_finite())
            .ok_or_else(|| Refused::new(errno::EINVAL, format!("unable to parse value of '{key}'")))
    }

    /// A flag: `true`, `"true"`, `"--yes-i-really-mean-it"`, or such a word in a list.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        let dashed = format!("--{}", key.replace('_', "-"));
        let word = |s: &str| s == "true" || s == "1" || s == "yes" || s == dashed;
        match self.0.get(key) {
            Some(Value::Bool(b)) => *b,
            Some(Value::String(s)) => word(s),
            Some(Value::Array(a)) => a.iter().any(|v| v.as_str().is_some_and(word)),
            _ => false,
        }
    }

    /// A list of words; a single value counts as a list of one.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<String> {
        match self.0.get(key) {
            Some(Value::Array(a)) => a.iter().filter_map(text).collect(),
            Some(v) => text(v).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// An OSD that must be named.
    pub fn osd(&self, key: &str) -> Res<OsdId> {
        let s = self.str(key)?;
        parse_osd(&s).ok_or_else(|| Refused::new(errno::EINVAL, format!("invalid osd id '{s}'")))
    }

    /// A PG that must be named.
    pub fn pgid(&self, key: &str) -> Res<PgId> {
        let s = self.str(key)?;
        PgId::parse(&s).ok_or_else(|| Refused::new(errno::EINVAL, format!("invalid pgid '{s}'")))
    }

    /// Pairs of a `key=value` list.
    pub fn pairs(&self, key: &str) -> Res<Vec<(String, String)>> {
        self.list(key)
            .into_iter()
            .map(|s| match s.split_once('=') {
                Some((k, v)) if !k.is_empty() && !v.is_empty() => Ok((k.to_owned(), v.to_owned())),
                _ => Err(Refused::new(errno::EINVAL, format!("couldn't parse '{s}': expected key=value"))),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(t: &str) -> Args {
        Args(serde_json::from_str(t).unwrap())
    }

    #[test]
    fn tolerant_forms() {
        let a = args(
            r#"{"id":3,"name":"osd.4","f":["--yes-i"],"l":"one","n":"2.5","yes_i_really_mean_it":"--yes-i-really-mean-it"}"#,
        );
        assert_eq!(a.osd("id").unwrap(), OsdId(3));
        assert_eq!(a.osd("name").unwrap(), OsdId(4));
        assert_eq!(a.list("l"), ["one"]);
        assert_eq!(a.float("n"), Some(2.5));
        assert!(a.flag("yes_i_really_mean_it"));
        assert!(!a.flag("f"));
        assert!(a.osd("missing").is_err());
        assert_eq!(parse_osd("-1"), None);
    }
}
