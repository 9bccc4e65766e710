//! The text format of Prometheus' exposition (version 0.0.4).

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that grows and falls.
    Gauge,
    /// A value without a type.
    Untyped,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Untyped => "untyped",
        }
    }
}

/// A text under construction.
#[derive(Debug, Default)]
pub(super) struct Text {
    out: String,
    families: BTreeSet<String>,
}

/// The name of a family in the text.
fn full(name: &str) -> String {
    format!("ceph_{}", name.replace(['-', '.', ' '], "_"))
}

impl Text {
    /// Begins the family `ceph_NAME`; its samples follow.
    pub(super) fn family(&mut self, kind: Kind, name: &str, help: &str) -> Family<'_> {
        let name = full(name);
        self.families.insert(name.clone());
        // Writing to a string does not fail.
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
        Family { text: self, name }
    }

    /// True if the text has this family.
    pub(super) fn has(&self, name: &str) -> bool {
        self.families.contains(&full(name))
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// A family whose samples are being written.
#[derive(Debug)]
pub(super) struct Family<'a> {
    text: &'a mut Text,
    name: String,
}

impl Family<'_> {
    /// Adds a sample.
    pub(super) fn put(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        let out = &mut self.text.out;
        out.push_str(&self.name);
        for (i, (k, v)) in labels.iter().enumerate() {
            let _ = write!(out, "{}{k}=\"", if i == 0 { '{' } else { ',' });
            for c in v.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '"' => out.push_str("\\\""),
                    '\n' => out.push_str("\\n"),
                    c => out.push(c),
                }
            }
            out.push('"');
        }
        if !labels.is_empty() {
            out.push('}');
        }
        let _ = if value == f64::INFINITY {
            writeln!(out, " +Inf")
        } else if value == f64::NEG_INFINITY {
            writeln!(out, " -Inf")
        } else if value.is_nan() {
            writeln!(out, " NaN")
        } else {
            writeln!(out, " {value:?}")
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_numbers_have_the_format() {
        let mut t = Text::default();
        t.family(Kind::Gauge, "osd_flag_nodeep-scrub", "a flag").put(&[], 1.0);
        t.family(Kind::Untyped, "x", "labels").put(&[("a", "q\"\\\n"), ("b", "")], f64::INFINITY).put(&[], 0.25);
        assert_eq!(
            t.finish(),
            "# HELP ceph_osd_flag_nodeep_scrub a flag\n# TYPE ceph_osd_flag_nodeep_scrub gauge\n\
             ceph_osd_flag_nodeep_scrub 1.0\n# HELP ceph_x labels\n# TYPE ceph_x untyped\n\
             ceph_x{a=\"q\\\"\\\\\\n\",b=\"\"} +Inf\nceph_x 0.25\n"
        );
    }
}
