//! Command output as a tree, and its renderings: `json`, `json-pretty` (four spaces, Ceph's line breaks) and `xml`.
//!
//! This type replaces `serde_json::Value` because clients and scripts see the text: fields keep their order, doubles
//! are printed with 17 significant digits and without a forced fraction, empty containers stay on one line.

use cluster::units::general;
use std::borrow::Cow;
use std::fmt::Write;

/// A node of the output tree.
#[derive(Clone, Debug, PartialEq)]
pub enum J {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A double, printed with 17 significant digits.
    Float(f64),
    /// A number that is already formatted.
    Raw(String),
    /// A string.
    Str(String),
    /// An array.
    Arr(Vec<J>),
    /// An object whose fields keep their order.
    Obj(Vec<(Cow<'static, str>, J)>),
}

/// Format of the elements of a list in a tree.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    /// JSON on one line.
    Compact,
    /// JSON, indented by this many steps.
    Pretty(usize),
    /// XML with this name.
    Xml(String),
}

/// An object written as `obj! { "a": 1, "b": x }`.
#[macro_export]
macro_rules! obj {
    ($($k:literal : $v:expr),* $(,)?) => {
        $crate::json::J::Obj(vec![$((std::borrow::Cow::Borrowed($k), $crate::json::J::from($v))),*])
    };
}

impl J {
    /// An empty object.
    #[must_use]
    pub fn object() -> Self {
        Self::Obj(Vec::new())
    }

    /// Adds a field to an object; a no-op on any other value.
    pub fn put(&mut self, key: impl Into<Cow<'static, str>>, v: impl Into<J>) -> &mut Self {
        if let Self::Obj(f) = self {
            f.push((key.into(), v.into()));
        }
        self
    }

    /// Adds the fields of another object.
    pub fn merge(&mut self, other: J) -> &mut Self {
        if let (Self::Obj(f), Self::Obj(o)) = (&mut *self, other) {
            f.extend(o);
        }
        self
    }

    /// The field `key` of an object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&J> {
        match self {
            Self::Obj(f) => f.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Renders on one line without spaces.
    #[must_use]
    pub fn compact(&self) -> String {
        let mut s = String::new();
        self.write_compact(&mut s);
        s
    }

    /// Renders with indentation and a line break at the end.
    #[must_use]
    pub fn pretty(&self) -> String {
        let mut s = String::new();
        self.write_pretty(&mut s, 0);
        s.push('\n');
        s
    }

    /// Renders as XML inside an element `root`.
    #[must_use]
    pub fn xml(&self, root: &str) -> String {
        let mut s = String::new();
        self.write_xml(&mut s, root);
        s
    }

    fn scalar(&self, s: &mut String) {
        let r = match self {
            Self::Null => write!(s, "null"),
            Self::Bool(b) => write!(s, "{b}"),
            Self::Int(v) => write!(s, "{v}"),
            Self::Uint(v) => write!(s, "{v}"),
            Self::Float(v) if v.is_finite() => write!(s, "{}", general(*v, 17)),
            Self::Float(_) => write!(s, "0"),
            Self::Raw(t) => write!(s, "{t}"),
            Self::Str(t) => {
                escape(s, t);
                Ok(())
            }
            Self::Arr(_) | Self::Obj(_) => Ok(()),
        };
        debug_assert!(r.is_ok(), "writing to a String");
    }

    fn write_compact(&self, s: &mut String) {
        match self {
            Self::Arr(v) => {
                s.push('[');
                for (i, e) in v.iter().enumerate() {
                    if i > 0 {
                        s.push(',');
                    }
                    e.write_compact(s);
                }
                s.push(']');
            }
            Self::Obj(f) => {
                s.push('{');
                for (i, (k, e)) in f.iter().enumerate() {
                    if i > 0 {
                        s.push(',');
                    }
                    escape(s, k);
                    s.push(':');
                    e.write_compact(s);
                }
                s.push('}');
            }
            _ => self.scalar(s),
        }
    }

    /// Writes an element of a list that is written one by one.
    pub(crate) fn write_element(&self, s: &mut String, how: &Element, first: bool) {
        if let Element::Xml(name) = how {
            return self.write_xml(s, name);
        }
        if !first {
            s.push(',');
        }
        match how {
            Element::Pretty(depth) => {
                indent(s, *depth);
                self.write_pretty(s, *depth);
            }
            _ => self.write_compact(s),
        }
    }

    fn write_pretty(&self, s: &mut String, depth: usize) {
        match self {
            Self::Arr(v) if v.is_empty() => s.push_str("[]"),
            Self::Obj(f) if f.is_empty() => s.push_str("{}"),
            Self::Arr(v) => {
                s.push('[');
                for (i, e) in v.iter().enumerate() {
                    if i > 0 {
                        s.push(',');
                    }
                    indent(s, depth + 1);
                    e.write_pretty(s, depth + 1);
                }
                indent(s, depth);
                s.push(']');
            }
            Self::Obj(f) => {
                s.push('{');
                for (i, (k, e)) in f.iter().enumerate() {
                    if i > 0 {
                        s.push(',');
                    }
                    indent(s, depth + 1);
                    escape(s, k);
                    s.push_str(": ");
                    e.write_pretty(s, depth + 1);
                }
                indent(s, depth);
                s.push('}');
            }
            _ => self.scalar(s),
        }
    }

    fn write_xml(&self, s: &mut String, tag: &str) {
        let tag: String =
            tag.chars().map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' }).collect();
        s.push('<');
        s.push_str(&tag);
        s.push('>');
        match self {
            Self::Arr(v) => {
                let item = item_name(&tag).to_owned();
                v.iter().for_each(|e| e.write_xml(s, &item));
            }
            Self::Obj(f) => f.iter().for_each(|(k, e)| e.write_xml(s, k)),
            Self::Str(t) => {
                for c in t.chars() {
                    match c {
                        '<' => s.push_str("&lt;"),
                        '>' => s.push_str("&gt;"),
                        '&' => s.push_str("&amp;"),
                        '"' => s.push_str("&quot;"),
                        '\'' => s.push_str("&apos;"),
                        c => s.push(c),
                    }
                }
            }
            _ => self.scalar(s),
        }
        s.push_str("</");
        s.push_str(&tag);
        s.push('>');
    }
}

/// Begins a line at a depth.
pub(crate) fn indent(s: &mut String, depth: usize) {
    s.push('\n');
    for _ in 0..depth {
        s.push_str("    ");
    }
}

/// XML name of the elements of a list.
pub(crate) fn item_name(list: &str) -> &str {
    list.strip_suffix('s').filter(|t| !t.is_empty()).unwrap_or("item")
}

fn escape(s: &mut String, t: &str) {
    s.push('"');
    for c in t.chars() {
        match c {
            '"' => s.push_str("\\\""),
            '\\' => s.push_str("\\\\"),
            '\n' => s.push_str("\\n"),
            '\t' => s.push_str("\\t"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                let r = write!(s, "\\u{:04x}", u32::from(c));
                debug_assert!(r.is_ok(), "writing to a String");
            }
            c => s.push(c),
        }
    }
    s.push('"');
}

macro_rules! from {
    ($($t:ty => $v:ident as $c:ty),* $(,)?) => {$(
        impl From<$t> for J { fn from(v: $t) -> Self { Self::$v(<$c>::from(v)) } }
    )*};
}
from! {
    bool => Bool as bool, i8 => Int as i64, i32 => Int as i64, i64 => Int as i64, u8 => Uint as u64, u16 => Uint as u64,
    u32 => Uint as u64, u64 => Uint as u64, f32 => Float as f64, f64 => Float as f64, String => Str as String,
    &str => Str as String,
}
impl From<&String> for J {
    fn from(v: &String) -> Self {
        Self::Str(v.clone())
    }
}
impl From<usize> for J {
    fn from(v: usize) -> Self {
        Self::Uint(v as u64)
    }
}
impl<T: Into<J>> From<Vec<T>> for J {
    fn from(v: Vec<T>) -> Self {
        Self::Arr(v.into_iter().map(Into::into).collect())
    }
}
impl<T: Into<J>> FromIterator<T> for J {
    fn from_iter<I: IntoIterator<Item = T>>(it: I) -> Self {
        Self::Arr(it.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_and_pretty() {
        let j = obj! { "a": 1, "b": vec![1.0, 0.5], "c": J::object(), "d": Vec::<i64>::new(), "e": "x\"\n" };
        assert_eq!(j.compact(), r#"{"a":1,"b":[1,0.5],"c":{},"d":[],"e":"x\"\n"}"#);
        assert_eq!(
            j.pretty(),
            "{\n    \"a\": 1,\n    \"b\": [\n        1,\n        0.5\n    ],\n    \"c\": {},\n    \"d\": [],\n    \"e\": \"x\\\"\\n\"\n}\n"
        );
    }

    #[test]
    fn xml_escapes_text_and_tags() {
        assert_eq!(
            obj! { "names": vec!["<a>"], "n o": 1 }.xml("r"),
            "<r><names><name>&lt;a&gt;</name></names><n_o>1</n_o></r>"
        );
    }

    #[test]
    fn valid_json() {
        let j = obj! { "t": "a\u{1}\u{7f}/é\\", "f": f64::NAN };
        assert!(serde_json::from_str::<serde_json::Value>(&j.compact()).is_ok());
    }
}
