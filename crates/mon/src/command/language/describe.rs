//! `get_command_descriptions` and the few commands that describe the program itself.

use super::sig;
use crate::command::{Cmd, CommandOutcome, Ctx, Res, absent, cmd, commands, flag, plain};
use crate::json::J;
use crate::obj;
use crate::state::Role;
use std::collections::BTreeSet;

/// The command that needs no caps.
pub(in crate::command) const DESCRIPTIONS: &str = "get_command_descriptions";

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(DESCRIPTIONS, "mon", "r", flag::HIDDEN, descriptions, "describe all commands"),
    cmd("fsid", "mon", "r", 0, fsid, "show the id of the cluster"),
];

fn descriptions(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    // Each role describes the commands that are sent to it; the CLI asks the monitor for all commands but those of
    // `tell`.
    let tell = c.session.role == Role::Tell;
    let list = commands().filter(|(_, c)| {
        let told = c.flags & flag::TELL == flag::TELL;
        told == tell || (!told && c.module == "mon" && tell)
    });
    // `ceph tell mon.a help` lists what the process has; only the list of the cluster's commands leaves it out.
    let hidden = if tell { flag::HIDDEN } else { 0 };
    let mut all = sig::descriptions(list.map(|(s, c)| (s, Cmd { flags: c.flags & !hidden, ..*c })));
    if !tell && c.state.options.external_mgr {
        let known: BTreeSet<&str> = commands().map(|(s, _)| s.prefix.as_str()).collect();
        let more = c.state.separate_mgr.commands().iter().filter(|(words, _)| !known.contains(words.as_str()));
        for (i, (_, m)) in more.enumerate() {
            all.put(
                // After those of the program.
                format!("cmd{i:05}m"),
                obj! {
                    "sig": m.sig.clone(),
                    "help": m.help.clone(),
                    "module": m.module.clone(),
                    "perm": m.perm.clone(),
                    "flags": m.flags,
                },
            );
        }
    }
    if !tell {
        describe_absent(&mut all, c.state.options.external_mgr);
    }
    plain(all.compact())
}

/// Adds the commands that are refused: the `ceph` program sends only what is described, and then shows the refusal. A
/// separate manager describes those of its modules itself.
fn describe_absent(all: &mut J, external_mgr: bool) {
    let absent = absent::described().iter().filter(|d| !(external_mgr && d.of_manager));
    for (i, d) in absent.enumerate() {
        all.put(
            format!("cmd{i:05}x"),
            obj! {
                "sig": d.sig.describe(),
                "help": "not supported; the answer says what to use instead",
                "module": d.module,
                "perm": d.perm,
                "flags": if d.of_manager { flag::MGR } else { 0 },
            },
        );
    }
}

fn fsid(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.state.fsid;
    c.tree("fsid", || obj! { "fsid": id.to_string() }).text(|| format!("{id}\n"))
}
