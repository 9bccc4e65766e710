//! Commands of modules of Ceph's manager that this program does not have: telemetry, orchestrators.
//!
//! Queries get a true answer ("there is none") in the form scripts expect.

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, flag as cf, plain, refuse};
use crate::json::J;
use crate::obj;
use base::errno;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("orch status detail:Bool?", "mgr", "r", cf::MGR, orch, "show the state of the orchestrator"),
    cmd("telemetry status", "mgr", "r", cf::MGR, telemetry, "show that telemetry is off"),
];

fn orch(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::ENOENT, "No orchestrator configured (try `ceph orch set backend`)")
}

fn telemetry(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    plain(obj! { "enabled": false, "last_upload": J::Null }.pretty())
}
