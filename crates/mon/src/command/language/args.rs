//! The arguments of a command: its JSON, parsed into the types that the command's signature declares.
//!
//! [`Given::parse`] reads the text; [`Sig::take`](super::sig::Sig::take) makes [`Args`] of it. Capability checks, the
//! command's function and the audit log all work with `Args`. Arguments that a signature does not declare are left
//! out: clients of newer releases send more, and a grant's conditions must not see arguments that the function does
//! not. Types are read tolerantly where Ceph does so: numbers as text for ids, flags as text or lists, one value
//! where a list is meant.

use crate::command::{Refused, Res};
use base::{OsdId, PgId, errno};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A command as it was sent: one JSON object, no key twice.
#[derive(Clone, Debug, Default)]
pub struct Given {
    values: BTreeMap<String, Json>,
    twice: Option<String>,
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Given;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Given, A::Error> {
        let mut g = Given::default();
        while let Some((k, v)) = map.next_entry::<String, Json>()? {
            match g.values.entry(k) {
                Entry::Occupied(e) => g.twice = Some(e.key().clone()),
                Entry::Vacant(e) => {
                    e.insert(v);
                }
            }
        }
        Ok(g)
    }
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(Object)
    }
}

impl Given {
    /// Reads the first JSON value of `text`, and ignores the rest, as Ceph does: `rbd perf image iostat` of 16.2
    /// sends a quote too many. Error: EINVAL if it is not a JSON object, or gives an argument twice.
    pub fn parse(text: &str) -> Res<Self> {
        let bad =
            || Refused::new(errno::EINVAL, format!("unparseable JSON {}", text.chars().take(256).collect::<String>()));
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Self>();
        let g = values.next().ok_or_else(bad)?.map_err(|_| bad())?;
        match g.twice {
            Some(k) => Err(Refused::new(errno::EINVAL, format!("argument '{k}' is given twice"))),
            None => Ok(g),
        }
    }

    /// The words of the command, for example `osd pool create`.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.values.get("prefix")?.as_str()
    }

    /// The value of `key` as the client sent it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.values.get(key)
    }
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The value of an `Int` argument.
    Int(i64),
    /// The value of a `Float` argument.
    Float(f64),
    /// The value of a `Bool` argument.
    Bool(bool),
    /// The value of an argument of any other type.
    Text(String),
    /// The values of an argument that takes several.
    List(Vec<String>),
}

/// The declared arguments that a client gave with a command.
#[derive(Clone, Debug, Default)]
pub struct Args(BTreeMap<&'static str, Value>);

/// The text of a JSON value that stands for one word: a string, number or boolean.
pub(in crate::command) fn text(v: &Json) -> Option<String> {
    match v {
        Json::String(s) => Some(s.clone()),
        Json::Number(n) => Some(n.to_string()),
        Json::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

/// Number of an OSD written as `3` or `osd.3`.
#[must_use]
pub fn parse_osd(s: &str) -> Option<OsdId> {
    let n: i32 = s.strip_prefix("osd.").unwrap_or(s).parse().ok()?;
    (n >= 0).then_some(OsdId(n))
}

/// True for the words that set the flag `key`.
pub(in crate::command) fn sets_flag(key: &str, word: &str) -> bool {
    matches!(word, "true" | "1" | "yes") || word == format!("--{}", key.replace('_', "-"))
}

impl Args {
    /// Arguments from values by name.
    pub(in crate::command) fn new(values: BTreeMap<&'static str, Value>) -> Self {
        Self(values)
    }

    /// True if the argument was given.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The arguments by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(k, v)| (*k, v))
    }

    /// The arguments that have a text form, as text.
    #[must_use]
    pub fn texts(&self) -> BTreeMap<String, String> {
        self.0.keys().filter_map(|k| Some(((*k).to_owned(), self.opt(k)?))).collect()
    }

    /// The values that the conditions of a grant are compared with: every argument as text, and `caps` as one
    /// `caps_SERVICE` for each service in it. If `caps` names a service twice, its last text counts, as it does for
    /// the key that the command makes.
    #[must_use]
    pub fn for_caps(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for (k, v) in &self.0 {
            match v {
                Value::List(l) if *k == "caps" && l.len() % 2 == 0 => {
                    for pair in l.chunks_exact(2) {
                        if let [service, text] = pair {
                            out.insert(format!("caps_{service}"), text.clone());
                        }
                    }
                }
                Value::List(l) => {
                    out.insert((*k).to_owned(), format!("[{}]", l.join(",")));
                }
                Value::Bool(b) => {
                    out.insert((*k).to_owned(), u8::from(*b).to_string());
                }
                v => {
                    out.insert((*k).to_owned(), v.text().unwrap_or_default());
                }
            }
        }
        out
    }

    /// The argument as text; a number counts as text.
    #[must_use]
    pub fn opt(&self, key: &str) -> Option<String> {
        self.0.get(key).and_then(Value::text)
    }

    /// The argument as text. Error: EINVAL if it is missing.
    pub fn str(&self, key: &str) -> Res<String> {
        self.opt(key).ok_or_else(|| Refused::new(errno::EINVAL, ""))
    }

    /// The argument as text, or `default`.
    #[must_use]
    pub fn str_or(&self, key: &str, default: &str) -> String {
        self.opt(key).unwrap_or_else(|| default.to_owned())
    }

    /// The argument as an integer, also if it was written as text.
    #[must_use]
    pub fn int(&self, key: &str) -> Option<i64> {
        match self.0.get(key)? {
            Value::Int(n) => Some(*n),
            Value::Text(s) => s.parse().ok(),
            _ => None,
        }
    }

    /// The argument as a number, also if it was written as text.
    #[must_use]
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.0.get(key)? {
            Value::Int(n) => Some(*n as f64),
            Value::Float(n) => Some(*n),
            Value::Text(s) => s.parse().ok(),
            _ => None,
        }
    }

    /// The argument as a number. Error: EINVAL if it is missing.
    pub fn need_float(&self, key: &str) -> Res<f64> {
        self.float(key)
            .filter(|v| v.is_finite())
            .ok_or_else(|| Refused::new(errno::EINVAL, format!("unable to parse value of '{key}'")))
    }

    /// The argument as a flag: `true`, `"true"`, `"--yes-i-really-mean-it"`, or such a word in a list.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        match self.0.get(key) {
            Some(Value::Bool(b)) => *b,
            Some(Value::Text(s)) => sets_flag(key, s),
            Some(Value::List(l)) => l.iter().any(|s| sets_flag(key, s)),
            _ => false,
        }
    }

    /// The argument as a list of words; a single value counts as a list of one.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<String> {
        match self.0.get(key) {
            Some(Value::List(l)) => l.clone(),
            Some(v) => v.text().into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// The argument as an OSD number. Error: EINVAL if it is missing or names no OSD.
    pub fn osd(&self, key: &str) -> Res<OsdId> {
        let s = self.str(key)?;
        parse_osd(&s).ok_or_else(|| Refused::new(errno::EINVAL, format!("invalid osd id '{s}'")))
    }

    /// The argument as a PG id. Error: EINVAL if it is missing or malformed.
    pub fn pgid(&self, key: &str) -> Res<PgId> {
        let s = self.str(key)?;
        PgId::parse(&s).ok_or_else(|| Refused::new(errno::EINVAL, format!("invalid pgid '{s}'")))
    }

    /// The pairs of a list of `key=value` words. Error: EINVAL for a word without `=`.
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

impl Value {
    fn text(&self) -> Option<String> {
        match self {
            Self::Int(n) => Some(n.to_string()),
            Self::Float(n) => Some(n.to_string()),
            Self::Bool(b) => Some(b.to_string()),
            Self::Text(s) => Some(s.clone()),
            Self::List(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sig::Sig;
    use super::*;

    fn args(sig: &'static str, t: &str) -> Args {
        Sig::parse(sig).unwrap().take(&Given::parse(t).unwrap()).unwrap()
    }

    #[test]
    fn tolerant_forms() {
        let a = args(
            "p id:OsdName name:OsdName f:Bool l:String* n:String yes_i_really_mean_it:Bool",
            r#"{"prefix":"p","id":3,"name":"osd.4","f":["--yes-i"],"l":"one","n":"2.5","yes_i_really_mean_it":"--yes-i-really-mean-it","x":1}"#,
        );
        assert_eq!(a.osd("id").unwrap(), OsdId(3));
        assert_eq!(a.osd("name").unwrap(), OsdId(4));
        assert_eq!(a.list("l"), ["one"]);
        assert_eq!(a.float("n"), Some(2.5));
        assert!(a.flag("yes_i_really_mean_it"));
        assert!(!a.flag("f"));
        assert!(a.osd("missing").is_err());
        assert!(!a.has("x") && !a.has("prefix"));
        assert_eq!(parse_osd("-1"), None);
    }

    #[test]
    fn conditions_see_caps_by_service() {
        let a = args(
            "p entity:String caps:String*",
            r#"{"entity":"e","caps":["mon","a","osd","b","mon","c"],"caps_mgr":"x"}"#,
        );
        let t: Vec<_> = a.for_caps().into_iter().collect();
        let t: Vec<_> = t.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(t, [("caps_mon", "c"), ("caps_osd", "b"), ("entity", "e")]);
        let a = args("p caps:String* many:Int n:Bool", r#"{"caps":["mon"],"many":7,"n":true}"#);
        let t: Vec<_> = a.for_caps().into_iter().collect();
        let t: Vec<_> = t.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(t, [("caps", "[mon]"), ("many", "7"), ("n", "1")]);
    }

    #[test]
    fn text_that_is_no_command() {
        for t in ["", "{", "[]", "7", "\"x\"", "{\"a\":1,\"b\":2,\"a\":3}"] {
            assert_eq!(Given::parse(t).unwrap_err().rc, errno::EINVAL, "{t}");
        }
        assert!(Given::parse("{\"a\":1}\"").is_ok());
    }
}
