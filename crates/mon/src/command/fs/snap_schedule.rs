//! Commands on scheduled snapshots. The manager role's client serves them ([`mgr::host`]).

use crate::command::mgr::rbd::host;
use crate::command::{Cmd, CommandOutcome, Ctx, HostJob, Res, cmd, flag as cf};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "fs snap-schedule status path:String? fs:String? subvol:String? group:String?",
        "mgr",
        "r",
        cf::MGR,
        shown,
        "show the snapshot schedules of a directory",
    ),
    cmd(
        "fs snap-schedule list path:String recursive:Bool? fs:String? subvol:String? group:String?",
        "mgr",
        "r",
        cf::MGR,
        shown,
        "list snapshot schedules and retentions",
    ),
    cmd(
        "fs snap-schedule add path:String snap_schedule:String start:String? fs:String? subvol:String? group:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "make snapshots of a directory at intervals",
    ),
    cmd(
        "fs snap-schedule remove path:String repeat:String? start:String? fs:String? subvol:String? group:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "remove snapshot schedules of a directory",
    ),
    cmd(
        "fs snap-schedule retention add path:String retention_spec_or_period:String retention_count:String? fs:String? subvol:String? group:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "say how many scheduled snapshots stay",
    ),
    cmd(
        "fs snap-schedule retention remove path:String retention_spec_or_period:String retention_count:String? fs:String? subvol:String? group:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "take back how many scheduled snapshots stay",
    ),
    cmd(
        "fs snap-schedule activate path:String repeat:String? start:String? fs:String? subvol:String? group:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "switch snapshot schedules on",
    ),
    cmd(
        "fs snap-schedule deactivate path:String repeat:String? start:String? fs:String? subvol:String? group:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "switch snapshot schedules off",
    ),
];

/// Hands a command to the host, with the form of its answer.
fn shown(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let args = c.texts_with_format();
    Ok(CommandOutcome::host(HostJob { prefix: c.prefix, args, session: c.session.clone() }))
}
