//! Output of commands in the format that was asked for: plain text, JSON, XML.

use super::json::J;
use super::{Ctx, Res};
use crate::core::cluster_state::CommandOutcome;

/// How to render output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
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
    pub(super) fn from_word(w: Option<&str>) -> Self {
        match w {
            Some("json") => Self::Json,
            Some("json-pretty") => Self::JsonPretty,
            Some("xml" | "xml-pretty") => Self::Xml,
            _ => Self::Plain,
        }
    }
}

impl Ctx<'_> {
    /// True unless plain text is wanted.
    pub(super) fn structured(&self) -> bool {
        self.format != Format::Plain
    }

    /// Renders a tree; plain means indented JSON.
    pub(super) fn render(&self, root: &str, j: &J) -> String {
        match self.format {
            Format::Json => j.compact(),
            Format::JsonPretty | Format::Plain => j.pretty(),
            Format::Xml => j.xml(root),
        }
    }

    /// Answers with a tree.
    pub(super) fn show(&self, root: &str, j: &J) -> Res<CommandOutcome> {
        Ok(CommandOutcome::output(self.render(root, j)))
    }

    /// Answers with a tree and a line break after it, as commands that also have a plain form do.
    pub(super) fn show_line(&self, root: &str, j: &J) -> Res<CommandOutcome> {
        Ok(CommandOutcome::output(self.render(root, j) + "\n"))
    }
}

/// Success with plain text.
pub(super) fn plain(out: impl Into<String>) -> Res<CommandOutcome> {
    Ok(CommandOutcome::output(out.into()))
}
