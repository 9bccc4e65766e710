//! Commands of modules of Ceph's manager that this program does not have: the balancer, telemetry, orchestrators.
//!
//! Queries get a true answer ("there is none") in the form scripts expect. Changes are refused with the errno of a
//! module that is not enabled. A change that is already in effect succeeds, and the status line says why.

use super::json::J;
use super::{Cmd, Ctx, Res, cmd, done, flag as cf, plain, refuse};
use crate::core::cluster_state::CommandOutcome;
use crate::obj;
use base::errno;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("balancer status", "mgr", "r", cf::MGR, balancer, "show that there is no balancer"),
    cmd(
        "balancer mode mode:Choices(none|crush-compat|upmap)",
        "mgr",
        "rw",
        cf::MGR,
        absent,
        "set the balancer's mode (module absent)",
    ),
    cmd("balancer on", "mgr", "rw", cf::MGR, absent, "switch the balancer on (module absent)"),
    cmd("balancer off", "mgr", "rw", cf::MGR, |_| done(NO_BALANCER), "switch the balancer off: there is none"),
    cmd("balancer ls", "mgr", "r", cf::MGR, |_| plain("[]\n"), "list the balancer's plans: there are none"),
    cmd("balancer eval option:String?", "mgr", "r", cf::MGR, absent, "judge how evenly data is spread (module absent)"),
    cmd("orch status detail:Bool?", "mgr", "r", cf::MGR, orch, "show the state of the orchestrator"),
    cmd("telemetry status", "mgr", "r", cf::MGR, telemetry, "show that telemetry is off"),
];

const NO_BALANCER: &str = "there is no balancer in this manager";

/// Refuses a command of a module that the built-in manager does not have.
fn absent(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let module = c.prefix.split(' ').next().unwrap_or_default();
    refuse(
        errno::EOPNOTSUPP,
        format!(
            "Module '{module}' is not enabled (required by command '{}'): the built-in manager does not have it",
            c.prefix
        ),
    )
}

fn balancer(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j = obj! {
        "active": false,
        "last_optimize_duration": "",
        "last_optimize_started": "",
        "mode": "none",
        // False, because no optimizer ran.
        "no_optimization_needed": false,
        "optimize_result": NO_BALANCER,
        "plans": Vec::<J>::new(),
    };
    plain(j.pretty())
}

fn orch(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::ENOENT, "No orchestrator configured (try `ceph orch set backend`)")
}

fn telemetry(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    plain(obj! { "enabled": false, "last_upload": J::Null }.pretty())
}
