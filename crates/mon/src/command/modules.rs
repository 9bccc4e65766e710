//! Commands of Ceph's manager modules. None of these modules exists here; where the honest answer is "nothing", it is
//! given in the form scripts expect, and everything else is refused as Ceph refuses a module that is not enabled.

use super::json::J;
use super::text::{Left, Right, Table};
use super::{Cmd, Ctx, Res, cmd, done, flag as cf, plain, refuse};
use crate::core::cluster_state::CommandOutcome;
use crate::obj;
use base::errno;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("balancer status", "mgr", "r", cf::MGR, balancer, "show the state of the balancer"),
    cmd(
        "balancer mode mode:Choices(none|crush-compat|upmap)",
        "mgr",
        "rw",
        cf::MGR,
        absent,
        "set how the balancer works (module absent)",
    ),
    cmd("balancer on", "mgr", "rw", cf::MGR, absent, "switch the balancer on (module absent)"),
    cmd("balancer off", "mgr", "rw", cf::MGR, |_| done(""), "switch the balancer off"),
    cmd("balancer ls", "mgr", "r", cf::MGR, |_| plain("[]\n"), "list the balancer's plans"),
    cmd("balancer eval option:String?", "mgr", "r", cf::MGR, absent, "judge how evenly data is spread (module absent)"),
    cmd("crash ls", "mgr", "r", cf::MGR, crash_ls, "list crashes"),
    cmd("crash ls-new", "mgr", "r", cf::MGR, crash_ls, "list new crashes"),
    cmd("crash stat", "mgr", "r", cf::MGR, |_| plain("0 crashes recorded\n"), "count crashes"),
    cmd("crash info id:String", "mgr", "r", cf::MGR, crash_info, "show a crash"),
    cmd("crash archive id:String", "mgr", "w", cf::MGR, crash_info, "set a crash aside"),
    cmd("crash archive-all", "mgr", "w", cf::MGR, |_| done(""), "set all crashes aside"),
    cmd("device ls", "mgr", "r", cf::MGR, device_ls, "list devices"),
    cmd("device info devid:String", "mgr", "r", cf::MGR, device_info, "show a device"),
    cmd("device ls-by-daemon who:String", "mgr", "r", cf::MGR, device_ls, "list the devices of a daemon"),
    cmd("device ls-by-host host:String", "mgr", "r", cf::MGR, device_ls, "list the devices of a host"),
    cmd("orch status detail:Bool?", "mgr", "r", cf::MGR, orch, "show the state of the orchestrator"),
    cmd("telemetry status", "mgr", "r", cf::MGR, telemetry, "show the state of telemetry"),
];

/// What Ceph's manager answers for a command whose module is not enabled.
fn not_enabled(c: &Ctx<'_>, module: &str) -> Res<CommandOutcome> {
    refuse(
        errno::EOPNOTSUPP,
        format!(
            "Module '{module}' is not enabled (required by command '{}'): use `ceph mgr module enable {module}` to enable it",
            c.prefix
        ),
    )
}

fn absent(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let module = c.prefix.split(' ').next().unwrap_or_default().to_owned();
    not_enabled(c, &module)
}

fn balancer(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j = obj! {
        "active": false,
        "last_optimize_duration": "",
        "last_optimize_started": "",
        "mode": "none",
        "no_optimization_needed": true,
        "optimize_result": "",
        "plans": Vec::<J>::new(),
    };
    plain(j.pretty())
}

fn crash_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.structured() { plain("[]\n") } else { plain("") }
}

fn crash_info(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.args.str("id")?;
    refuse(errno::EINVAL, format!("{}: {id} not found", c.prefix))
}

fn device_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.structured() {
        return c.show("devices", &J::Arr(Vec::new()));
    }
    plain(
        Table::new(&[
            ("DEVICE", Left, Left),
            ("HOST:DEV", Left, Left),
            ("DAEMONS", Left, Left),
            ("WEAR", Right, Right),
            ("LIFE EXPECTANCY", Left, Left),
        ])
        .render(),
    )
}

fn device_info(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::ENOENT, format!("device {} not found", c.args.str("devid")?))
}

fn orch(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::ENOENT, "No orchestrator configured (try `ceph orch set backend`)")
}

fn telemetry(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    plain(obj! { "enabled": false, "last_upload": J::Null }.pretty())
}
