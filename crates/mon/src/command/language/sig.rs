//! Command signatures: the small language of the tables, matching, argument checks and `get_command_descriptions`.
//!
//! A signature is written as words and arguments, `osd pool get pool:Poolname var:Choices(size|min_size)`. An
//! argument is `name:Type`, then `(choices)` or `[range]`, then `*` for one or more values, `~` for a secret value
//! and `?` for an optional argument. The `ceph` program reads the descriptions first in every run and checks its
//! command line against them.

use super::args::{self, Args, Given, Value};
use crate::json::J;
use crate::obj;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The type of an argument, with Ceph's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Int,
    /// A floating-point number.
    Float,
    /// Any text.
    String,
    /// One of the words in [`Arg::choices`].
    Choices,
    /// A boolean flag.
    Bool,
    /// A pool name.
    Poolname,
    /// A PG id.
    Pgid,
    /// An OSD number, with or without `osd.`.
    OsdName,
    /// An address with optional nonce.
    EntityAddr,
    /// An address.
    IPAddr,
    /// A UUID.
    Uuid,
    /// An object name.
    Objectname,
    /// An entity name `type.id`.
    Name,
}

impl Kind {
    fn parse(s: &str) -> Option<Self> {
        Some(match s {
            "Int" => Self::Int,
            "Float" => Self::Float,
            "String" => Self::String,
            "Choices" => Self::Choices,
            "Bool" => Self::Bool,
            "Poolname" => Self::Poolname,
            "Pgid" => Self::Pgid,
            "OsdName" => Self::OsdName,
            "EntityAddr" => Self::EntityAddr,
            "IPAddr" => Self::IPAddr,
            "UUID" => Self::Uuid,
            "Objectname" => Self::Objectname,
            "Name" => Self::Name,
            _ => return None,
        })
    }

    /// The Python class of the type in descriptions.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Int => "CephInt",
            Self::Float => "CephFloat",
            Self::String => "CephString",
            Self::Choices => "CephChoices",
            Self::Bool => "CephBool",
            Self::Poolname => "CephPoolname",
            Self::Pgid => "CephPgid",
            Self::OsdName => "CephOsdName",
            Self::EntityAddr => "CephEntityAddr",
            Self::IPAddr => "CephIPAddr",
            Self::Uuid => "CephUUID",
            Self::Objectname => "CephObjectname",
            Self::Name => "CephName",
        }
    }
}

/// One argument of a signature.
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// The key in the command's JSON.
    pub name: &'static str,
    /// The type of the value.
    pub kind: Kind,
    /// The words of a [`Kind::Choices`].
    pub choices: Vec<&'static str>,
    /// The range `low` or `low|high`, as written.
    pub range: Option<&'static str>,
    /// True if the argument takes one or more values.
    pub many: bool,
    /// True if the argument may be left out.
    pub optional: bool,
    /// Characters allowed, as a regular-expression class.
    pub goodchars: Option<&'static str>,
    /// True if the value stays out of logs.
    pub secret: bool,
}

impl Arg {
    /// A JSON value converted to the argument's type; `None` if it does not fit.
    fn value(&self, v: &Json) -> Option<Value> {
        if self.many {
            return match v {
                Json::Array(a) => Some(Value::List(a.iter().filter_map(args::text).collect())),
                Json::Object(_) => None,
                v => Some(Value::List(args::text(v).into_iter().collect())),
            };
        }
        match (self.kind, v) {
            (Kind::Int, Json::Number(n)) => n.as_i64().map(Value::Int),
            (Kind::Float, Json::Number(n)) => n.as_f64().map(Value::Float),
            (Kind::OsdName, Json::Number(n)) => (n.is_i64() || n.is_u64()).then(|| Value::Text(n.to_string())),
            (Kind::Bool, Json::Bool(b)) => Some(Value::Bool(*b)),
            (Kind::Bool, Json::String(s)) => Some(Value::Bool(args::sets_flag(self.name, s))),
            (Kind::Bool, Json::Array(a)) => {
                Some(Value::Bool(a.iter().any(|v| v.as_str().is_some_and(|s| args::sets_flag(self.name, s)))))
            }
            (Kind::Int | Kind::Float | Kind::Bool, _) => None,
            (_, Json::String(s)) => Some(Value::Text(s.clone())),
            _ => None,
        }
    }
}

/// A parsed signature.
#[derive(Clone, Debug, PartialEq)]
pub struct Sig {
    /// The words before and between arguments, joined by a space.
    pub prefix: String,
    /// The arguments in order.
    pub args: Vec<Arg>,
}

impl Sig {
    /// Parses the language above; `None` if the text is malformed (a test parses every table entry).
    #[must_use]
    pub fn parse(text: &'static str) -> Option<Self> {
        let (mut words, mut args) = (Vec::new(), Vec::new());
        for token in text.split(' ').filter(|t| !t.is_empty()) {
            let Some((name, spec)) = token.split_once(':') else {
                // Words such as `--force` stand only in choices, so this word belongs to the prefix.
                words.push(token);
                continue;
            };
            let (spec, optional) = spec.strip_suffix('?').map_or((spec, false), |s| (s, true));
            let (spec, secret) = spec.strip_suffix('~').map_or((spec, false), |s| (s, true));
            let (spec, many) = spec.strip_suffix('*').map_or((spec, false), |s| (s, true));
            let (mut choices, mut range, mut goodchars) = (Vec::new(), None, None);
            let kind = if let Some((k, rest)) = spec.split_once('(') {
                choices = rest.strip_suffix(')')?.split('|').collect();
                k
            } else if let Some((k, rest)) = spec.split_once('{') {
                goodchars = Some(rest.strip_suffix('}')?);
                k
            } else if let Some((k, rest)) = spec.split_once('[') {
                range = Some(rest.strip_suffix(']')?);
                k
            } else {
                spec
            };
            args.push(Arg { name, kind: Kind::parse(kind)?, choices, range, many, optional, goodchars, secret });
        }
        if words.is_empty() {
            return None;
        }
        Some(Self { prefix: words.join(" "), args })
    }

    /// The description of the signature, field `sig` of `get_command_descriptions`.
    #[must_use]
    pub fn describe(&self) -> J {
        let mut out: Vec<J> = self.prefix.split(' ').map(J::from).collect();
        for a in &self.args {
            let mut d = J::object();
            if a.many {
                d.put("n", "N");
            }
            d.put("name", a.name);
            if let Some(r) = a.range {
                d.put("range", r);
            }
            if let Some(g) = a.goodchars {
                d.put("goodchars", g);
            }
            if a.optional {
                // Pacific writes text here, and every release reads it.
                d.put("req", "false");
            }
            if !a.choices.is_empty() {
                d.put("strings", a.choices.join("|"));
            }
            d.put("type", a.kind.class());
            out.push(d);
        }
        J::Arr(out)
    }

    /// Converts the given arguments to their declared types; undeclared ones are left out. The function checks for
    /// missing ones, as in Ceph. Error: the text for a value of the wrong type.
    pub fn take(&self, given: &Given) -> Result<Args, String> {
        let mut out = BTreeMap::new();
        for a in &self.args {
            if let Some(v) = given.get(a.name) {
                out.insert(a.name, a.value(v).ok_or_else(|| format!("bad or missing field '{}'", a.name))?);
            }
        }
        Ok(Args::new(out))
    }

    /// The arguments in the form of a command line, for documents.
    #[must_use]
    pub fn usage(&self) -> String {
        let args: Vec<String> = self
            .args
            .iter()
            .map(|a| {
                let inner = if a.choices.is_empty() { a.name.to_owned() } else { a.choices.join("/") };
                let inner = if a.many { format!("{inner}…") } else { inner };
                if a.optional { format!("[{inner}]") } else { format!("<{inner}>") }
            })
            .collect();
        args.join(" ")
    }
}

/// The descriptions of many commands: the answer of `get_command_descriptions`.
#[must_use]
pub fn descriptions<'a>(cmds: impl Iterator<Item = (&'a Sig, crate::command::Cmd)>) -> J {
    let mut out = J::object();
    for (i, (sig, c)) in cmds.enumerate() {
        out.put(
            format!("cmd{i:03}"),
            obj! { "sig": sig.describe(), "help": c.help, "module": c.module, "perm": c.perm, "flags": c.flags },
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_all_forms() {
        let s = Sig::parse("osd x set id:OsdName w:Float[0.0|1.0] who:String*? mode:Choices(a|b)? n:String{[a-z]}")
            .unwrap();
        assert_eq!(s.prefix, "osd x set");
        assert_eq!(
            s.describe().compact(),
            r#"["osd","x","set",{"name":"id","type":"CephOsdName"},{"name":"w","range":"0.0|1.0","type":"CephFloat"},{"n":"N","name":"who","req":"false","type":"CephString"},{"name":"mode","req":"false","strings":"a|b","type":"CephChoices"},{"name":"n","goodchars":"[a-z]","type":"CephString"}]"#
        );
        assert_eq!(s.usage(), "<id> <w> [who…] [a/b] <n>");
        assert!(Sig::parse("a b:Nope").is_none());
        assert!(Sig::parse("a:Int").is_none());
    }

    #[test]
    fn wrong_types_are_named() {
        let s = Sig::parse("p pg_num:Int? pool:Poolname").unwrap();
        let m = |t: &str| s.take(&Given::parse(t).unwrap());
        assert_eq!(m(r#"{"pg_num":"8"}"#).unwrap_err(), "bad or missing field 'pg_num'");
        assert_eq!(m(r#"{"pg_num":18446744073709551615}"#).unwrap_err(), "bad or missing field 'pg_num'");
        assert!(m(r#"{"pg_num":8,"pool":"x","other":{}}"#).is_ok());
        assert!(m("{}").is_ok());
    }
}
