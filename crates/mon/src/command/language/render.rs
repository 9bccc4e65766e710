//! Output of commands in the requested format: plain text, JSON, indented JSON, XML. Only this file looks at the
//! format.
//!
//! A command's function gives its answer independently of the format:
//!  * [`Ctx::tree`] with [`Answer::text`]: a tree for programs and a text for people, of which only the requested one
//!    is made. [`Answer::line_each`] is the text of a plain list.
//!  * [`Ctx::show`] and the functions like it: a tree only. Without a format it is indented JSON, as in Ceph.
//!  * [`plain`]: a text only, whatever the format.
//!
//! A status line is put beside any of them: `CommandOutcome { rs, ..c.tree(…).text(…)? }`. Where Ceph's answers
//! differ between formats in more than their form (line breaks, an errno), the difference has a function here.

use super::listing::{HOLE, Keep, Listing, Part};
use crate::command::{CommandOutcome, Ctx, Res};
use crate::json::{self, Element, J};
use base::PgId;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::types::PgStat;

/// The requested format. Its value is visible in this file only.
#[derive(Clone, Copy, Debug)]
pub struct Format(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Text for people.
    Plain,
    /// JSON on one line.
    Json,
    /// JSON, indented.
    JsonPretty,
    /// XML.
    Xml,
}

impl Format {
    /// The format that a command's argument `format` names; unknown names are plain, as in Ceph.
    pub(in crate::command) fn from_word(w: Option<&str>) -> Self {
        Self(match w {
            Some("json") => Kind::Json,
            Some("json-pretty") => Kind::JsonPretty,
            Some("xml" | "xml-pretty") => Kind::Xml,
            _ => Kind::Plain,
        })
    }

    /// The form of a list's elements, after the text before the list.
    fn element(self, before: &str) -> Element {
        match self.0 {
            Kind::Json => Element::Compact,
            Kind::JsonPretty | Kind::Plain => {
                let line = before.rsplit('\n').next().unwrap_or_default();
                Element::Pretty((line.len() - line.trim_start_matches(' ').len()) / 4 + 1)
            }
            Kind::Xml => {
                let list = before.rsplit('<').next().unwrap_or_default().trim_end_matches('>');
                Element::Xml(json::item_name(list).to_owned())
            }
        }
    }

    /// Renders a tree; plain means indented JSON.
    fn render(self, root: &str, j: &J) -> String {
        match self.0 {
            Kind::Json => j.compact(),
            Kind::JsonPretty | Kind::Plain => j.pretty(),
            Kind::Xml => j.xml(root),
        }
    }
}

impl Ctx<'_> {
    /// The arguments as text, and the format that was asked for unless it is the plain one, for answers made elsewhere.
    pub(in crate::command) fn texts_with_format(&self) -> BTreeMap<String, String> {
        let mut args = self.args.texts();
        let word = match self.format.0 {
            Kind::Plain => return args,
            Kind::Json => "json",
            Kind::JsonPretty => "json-pretty",
            Kind::Xml => "xml",
        };
        args.insert("format".to_owned(), word.to_owned());
        args
    }
}

/// The plain form of an answer: a text, or a whole outcome where people get a status line or an errno instead.
pub(in crate::command) trait Plain {
    fn outcome(self) -> Res<CommandOutcome>;
}

impl Plain for String {
    fn outcome(self) -> Res<CommandOutcome> {
        Ok(CommandOutcome::output(self))
    }
}

impl Plain for Res<CommandOutcome> {
    fn outcome(self) -> Res<CommandOutcome> {
        self
    }
}

/// An answer that has its tree and still needs its text.
#[must_use = "an answer is complete with its text"]
pub(in crate::command) struct Answer<'r, F> {
    format: Format,
    root: &'r str,
    tree: F,
    line: bool,
    elements: Option<&'r str>,
    written: Option<fn(&J) -> String>,
}

impl<'r, B: Borrow<J>, F: FnOnce() -> B> Answer<'r, F> {
    /// Adds a line break after the tree, as many of Ceph's commands do.
    pub(in crate::command) fn line(self) -> Self {
        Self { line: true, ..self }
    }

    /// Sets the XML name of a list's elements, where it does not follow from the list's name.
    pub(in crate::command) fn elements(self, name: &'r str) -> Self {
        Self { elements: Some(name), ..self }
    }

    /// Writes the tree with `how` in every structured format, as some modules of Ceph's manager do.
    pub(in crate::command) fn written(self, how: fn(&J) -> String) -> Self {
        Self { written: Some(how), ..self }
    }

    /// Completes the answer with its plain form.
    pub(in crate::command) fn text<P: Plain>(self, text: impl FnOnce() -> P) -> Res<CommandOutcome> {
        if self.format.0 == Kind::Plain {
            return text().outcome();
        }
        let tree = (self.tree)();
        let j = tree.borrow();
        let mut out = match (self.written, self.elements, j) {
            (Some(how), ..) => how(j),
            (None, Some(name), J::Arr(list)) if self.format.0 == Kind::Xml => {
                let all = list.iter().map(|e| (name.to_owned().into(), e.clone())).collect();
                J::Obj(all).xml(self.root)
            }
            _ => self.format.render(self.root, j),
        };
        if self.line {
            out.push('\n');
        }
        Ok(CommandOutcome::output(out))
    }

    /// Completes the answer with a plain form that has each element of the tree on a line.
    pub(in crate::command) fn line_each(self) -> Res<CommandOutcome> {
        if self.format.0 != Kind::Plain {
            return self.text(String::new);
        }
        let tree = (self.tree)();
        let J::Arr(list) = tree.borrow() else { return plain("") };
        let word = |e: &J| match e {
            J::Str(s) => format!("{s}\n"),
            e => e.compact() + "\n",
        };
        plain(list.iter().map(word).collect::<String>())
    }
}

impl Ctx<'_> {
    /// Begins an answer that is a tree for programs, named `root` in XML, and a text for people.
    pub(in crate::command) fn tree<'r, B: Borrow<J>, F: FnOnce() -> B>(&self, root: &'r str, tree: F) -> Answer<'r, F> {
        Answer { format: self.format, root, tree, line: false, elements: None, written: None }
    }

    /// Answers with lists of PGs that are made in pieces: for programs a tree with a [`HOLE`] for each list of
    /// `rows`, for people a text in parts.
    pub(in crate::command) fn pg_lists(
        &self,
        root: &str,
        tree: impl FnOnce() -> J,
        rows: &[fn(PgId, &PgStat) -> J],
        keep: &Keep,
        text: impl FnOnce() -> Vec<Part>,
    ) -> CommandOutcome {
        let parts = if self.format.0 == Kind::Plain {
            text()
        } else {
            let text = self.format.render(root, &tree());
            let mut parts = Vec::new();
            let mut rows = rows.iter();
            for piece in text.split_inclusive(HOLE) {
                let Some(before) = piece.strip_suffix(HOLE) else {
                    parts.push(Part::Text(piece.to_owned()));
                    continue;
                };
                parts.push(Part::Text(before.to_owned()));
                parts.extend(rows.next().map(|r| Part::Elements(self.format.element(before), *r, Rc::clone(keep))));
            }
            parts
        };
        CommandOutcome { listing: Some(Box::new(Listing::new(parts))), ..CommandOutcome::done("") }
    }

    /// Answers with a tree.
    pub(in crate::command) fn show(&self, root: &str, j: &J) -> Res<CommandOutcome> {
        plain(self.format.render(root, j))
    }

    /// Answers with a tree and a line break after it.
    pub(in crate::command) fn show_line(&self, root: &str, j: &J) -> Res<CommandOutcome> {
        plain(self.format.render(root, j) + "\n")
    }

    /// Answers with a tree, and a line break after it if the command names a format.
    pub(in crate::command) fn show_line_if_asked(&self, root: &str, j: &J) -> Res<CommandOutcome> {
        self.tree(root, || j).line().text(|| j.pretty())
    }

    /// Answers with JSON on one line, unless the command asks for the indented form.
    pub(in crate::command) fn show_flat(&self, j: &J) -> Res<CommandOutcome> {
        plain(if self.format.0 == Kind::JsonPretty { j.pretty() } else { j.compact() } + "\n")
    }

    /// Answers with a JSON value of another crate: indented unless the command asks for the short form.
    pub(in crate::command) fn show_value(&self, v: &serde_json::Value) -> Res<CommandOutcome> {
        plain(if self.format.0 == Kind::Json { v.to_string() } else { format!("{v:#}") })
    }

    /// Makes JSON on one line the default format, for commands whose name promises JSON.
    pub(in crate::command) fn json_unless_asked(&mut self) {
        if self.format.0 == Kind::Plain {
            self.format.0 = Kind::Json;
        }
    }
}

/// Success with plain text.
pub(in crate::command) fn plain(out: impl Into<String>) -> Res<CommandOutcome> {
    Ok(CommandOutcome::output(out.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(format: &str, list: &'static [&'static str]) -> Answer<'static, impl FnOnce() -> J> {
        let format = Format::from_word(Some(format));
        let tree = move || list.iter().copied().collect::<J>();
        Answer { format, root: "names", tree, line: false, elements: None, written: None }
    }

    fn out(r: Res<CommandOutcome>) -> String {
        String::from_utf8(r.expect("nothing is refused").out.to_vec()).expect("text")
    }

    #[test]
    fn each_format_has_its_view() {
        let shown = |format| out(answer(format, &["a"]).line().text(|| "text".to_owned()));
        assert_eq!(shown("json"), "[\"a\"]\n");
        assert_eq!(shown("json-pretty"), "[\n    \"a\"\n]\n\n");
        assert_eq!(shown("xml"), "<names><name>a</name></names>\n");
        // An unknown format is plain, and the line break belongs to the tree.
        assert_eq!([shown("plain"), shown("yaml")], ["text", "text"]);
    }

    #[test]
    fn only_the_view_asked_for_is_made() {
        let never = || -> String { panic!("a text nobody asked for") };
        assert_eq!(out(answer("json", &[]).text(never)), "[]");
        let refused = || Err(crate::command::Refused::new(-1, "for people only"));
        assert_eq!(out(answer("json", &[]).text(refused)), "[]");
        assert_eq!(
            answer("plain", &[]).text(refused).map(|o| o.rc),
            Err(crate::command::Refused::new(-1, "for people only"))
        );
    }

    #[test]
    fn lists_elements_and_fixed_forms() {
        assert_eq!(out(answer("plain", &["a", "b"]).line().line_each()), "a\nb\n");
        assert_eq!(out(answer("json", &["a", "b"]).line().line_each()), "[\"a\",\"b\"]\n");
        assert_eq!(out(answer("xml", &["a"]).elements("who").line_each()), "<names><who>a</who></names>");
        assert_eq!(out(answer("json", &["a"]).elements("who").line_each()), "[\"a\"]");
        assert_eq!(out(answer("xml", &["a"]).written(J::compact).line_each()), "[\"a\"]");
    }
}
