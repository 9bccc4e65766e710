//! Do the commands that documents print exist, with their options, and are the limits in documents those of the code?
//!
//! | module | contents |
//! | --- | --- |
//! | `ceph` | commands of the `ceph` program against the descriptions of our monitor and OSD |
//! | `limits` | the table of docs/reference/limits.md against the constants of the code |

mod ceph;
mod limits;

use crate::Belemnite;
use clap::Parser as _;
use clap::error::ErrorKind::{
    DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand, ValueValidation,
};
use std::path::{Path, PathBuf};

/// All documents of the project.
fn documents() -> Vec<PathBuf> {
    fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
        for e in std::fs::read_dir(dir).unwrap() {
            let p = e.unwrap().path();
            if p.is_dir() {
                walk(&p, out);
            } else if p.extension().is_some_and(|x| x == "md") {
                out.push(p);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut out = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|n| root.join(n)).to_vec();
    walk(&root.join("docs"), &mut out);
    out
}

/// A command that a document prints.
struct Printed {
    /// The command without comments and variables before it.
    text: String,
    /// True for an indented line, which a reader copies; false for a span of code, which may name a command without
    /// its arguments.
    is_line: bool,
}

/// Commands of a program in a text: indented lines and spans of code that begin with its name.
fn commands(text: &str, program: &str) -> Vec<Printed> {
    let lines = text.lines().filter_map(|l| l.strip_prefix("    ")).map(|l| (l.to_owned(), true));
    let spans = text.split('`').skip(1).step_by(2).map(|s| (s.split_whitespace().collect::<Vec<_>>().join(" "), false));
    let own = |(text, is_line): (String, bool)| {
        let mut c = text.split(" #").next().unwrap_or_default().trim();
        while let Some((first, rest)) = c.split_once(' ')
            && first.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        {
            c = rest.trim_start();
        }
        let is_own = c.strip_prefix(program).is_some_and(|rest| rest.starts_with(' '));
        is_own.then(|| Printed { text: c.to_owned(), is_line })
    };
    lines.chain(spans).filter_map(own).collect()
}

/// Looks at all commands of a program in all documents; returns their number. Fails with those that are wrong.
#[track_caller]
fn look_at_all(program: &str, wrong: impl Fn(&Printed) -> Option<String>) -> usize {
    let (mut found, mut all) = (0, Vec::new());
    for path in documents() {
        for c in commands(&std::fs::read_to_string(&path).unwrap(), program) {
            found += 1;
            all.extend(wrong(&c).map(|why| format!("{}: {}: {why}", path.display(), c.text)));
        }
    }
    assert!(all.is_empty(), "commands that do not exist:\n{}", all.join("\n"));
    found
}

#[test]
fn printed_commands_and_options_exist() {
    let wrong = |c: &Printed| {
        // Placeholders for several words, and choices.
        if c.text.contains(['[', '…', '|', '(']) || c.text.contains(" COMMAND") {
            return None;
        }
        let e = Belemnite::try_parse_from(c.text.split_whitespace()).err()?;
        // Names stand for values, and a command may be named without its arguments.
        let unfinished = [
            DisplayHelp,
            DisplayHelpOnMissingArgumentOrSubcommand,
            MissingRequiredArgument,
            MissingSubcommand,
            ValueValidation,
        ];
        (!unfinished.contains(&e.kind())).then(|| e.kind().to_string())
    };
    let found = look_at_all("belemnite", wrong);
    assert!(found > 40, "{found} commands");
}
