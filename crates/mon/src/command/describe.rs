//! `get_command_descriptions` and the few commands that describe the program itself.

use super::{Cmd, Ctx, Res, cmd, commands, flag, plain, sig};
use crate::core::cluster_state::{CommandOutcome, Role};
use crate::obj;

/// The command that needs no caps.
pub(super) const DESCRIPTIONS: &str = "get_command_descriptions";

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
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
    plain(sig::descriptions(list).compact())
}

fn fsid(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.state.fsid;
    c.tree("fsid", || obj! { "fsid": id.to_string() }).text(|| format!("{id}\n"))
}
