//! Does docs/protocol-coverage.md list the commands that are served? `UPDATE_EXPECT=1` rewrites the section.

use mon::command::{Cmd, commands, flag};
use std::collections::BTreeMap;
use std::fmt::Write;

const BEGIN: &str =
    "<!-- commands: begin, written by crates/mon/tests/is_the_list_of_commands_in_the_docs_right.rs -->";
const END: &str = "<!-- commands: end -->";

fn how(c: &Cmd) -> &'static str {
    if c.help.contains("not supported") || c.help.contains("module absent") {
        "refused"
    } else if c.flags & flag::TELL == flag::TELL {
        "tell"
    } else if c.flags & flag::MGR != 0 {
        "mgr"
    } else {
        "mon"
    }
}

fn section() -> String {
    let mut by: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (sig, c) in commands() {
        *counts.entry(how(c)).or_default() += 1;
        let words: Vec<&str> = sig.prefix.split(' ').collect();
        let family = match words.as_slice() {
            ["osd", second @ ("crush" | "pool" | "erasure-code-profile" | "tier"), ..] => format!("osd {second}"),
            [
                first @ ("osd" | "pg" | "auth" | "config" | "config-key" | "mon" | "mgr" | "fs" | "mds" | "rbd"),
                _,
                ..,
            ] => (*first).to_owned(),
            _ => "other".to_owned(),
        };
        let usage = sig.usage().replace('|', "/");
        let usage =
            if usage.len() > 160 { format!("{}…", usage.chars().take(160).collect::<String>()) } else { usage };
        let usage = if usage.is_empty() { usage } else { format!("`{usage}`") };
        let old = if c.flags & flag::DEPRECATED != 0 { " (old name)" } else { "" };
        by.entry(family).or_default().push(format!("| `{}` | {usage} | {} | {}{old} |", sig.prefix, how(c), c.help));
    }
    let mut s = format!("{BEGIN}\n\n## Commands\n\n");
    let n = |k: &str| counts.get(k).copied().unwrap_or(0);
    let r = writeln!(
        s,
        "{} commands: {} of the monitor, {} of the manager role (the same process), {} by `ceph tell`, {}\nthat exist to refuse \
         with a reason. Texts and errnos are compared with transcripts of a real 16.2 in\n`crates/mon/tests/transcripts`.",
        commands().count(),
        n("mon"),
        n("mgr"),
        n("tell"),
        n("refused"),
    );
    assert!(r.is_ok());
    for (family, mut lines) in by {
        lines.sort();
        s += &format!(
            "\n### {family}\n\n| command | arguments | served by | |\n|---|---|---|---|\n{}\n",
            lines.join("\n")
        );
    }
    s + "\n" + END + "\n"
}

#[test]
fn the_list_is_current() {
    let path = format!("{}/../../docs/protocol-coverage.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let want = section();
    let (before, after) = match (text.find(BEGIN), text.find(END)) {
        (Some(b), Some(e)) if b < e => (&text[..b], text[e + END.len()..].trim_start_matches('\n')),
        _ => (text.as_str(), ""),
    };
    let mut next = before.to_owned();
    if next.is_empty() {
        next = "# Protocol coverage\n\n".to_owned();
    }
    next += &want;
    if !after.is_empty() {
        next += "\n";
        next += after;
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &next).unwrap();
    }
    assert!(
        text == next || std::env::var_os("UPDATE_EXPECT").is_some(),
        "run with UPDATE_EXPECT=1 and look at the change"
    );
}
