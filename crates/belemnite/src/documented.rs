//! Do the commands that documents print exist, with their options?

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

/// Commands of this program in a text: indented lines and spans of code that begin with its name.
fn commands(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|l| l.strip_prefix("    ")).map(str::to_owned);
    let spans = text.split('`').skip(1).step_by(2).map(|s| s.split_whitespace().collect::<Vec<_>>().join(" "));
    let all = lines.chain(spans).map(|c| c.split(" #").next().unwrap_or_default().trim().to_owned());
    // Placeholders for several words, choices, and the program's name in another sense.
    let plain =
        |c: &String| c.starts_with("belemnite ") && !c.contains(['[', '…', '|', '(']) && !c.contains(" COMMAND");
    all.filter(plain).collect()
}

#[test]
fn printed_commands_and_options_exist() {
    let (mut found, mut wrong) = (0, Vec::new());
    for path in documents() {
        for c in commands(&std::fs::read_to_string(&path).unwrap()) {
            found += 1;
            let Err(e) = Belemnite::try_parse_from(c.split_whitespace()) else { continue };
            // Names stand for values, and a command may be named without its arguments.
            let unfinished = [
                DisplayHelp,
                DisplayHelpOnMissingArgumentOrSubcommand,
                MissingRequiredArgument,
                MissingSubcommand,
                ValueValidation,
            ];
            if !unfinished.contains(&e.kind()) {
                wrong.push(format!("{}: {c}: {}", path.display(), e.kind()));
            }
        }
    }
    assert!(found > 40, "{found} commands");
    assert!(wrong.is_empty(), "commands that do not exist:\n{}", wrong.join("\n"));
}
