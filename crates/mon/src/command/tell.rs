//! `ceph tell mon.x …` and `ceph tell mgr.x …`: commands to the process rather than to the cluster.

use super::json::J;
use super::{Cmd, Ctx, Res, cmd, done, flag as cf, invalid, option_table, plain, refuse};
use crate::core::cluster_state::CommandOutcome;
use crate::obj;
use base::errno;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("sessions", "mon", "r", cf::TELL, sessions, "list open sessions"),
    cmd("ops", "mon", "r", cf::TELL, ops, "show operations that are under way"),
    cmd("dump_ops_in_flight", "mon", "r", cf::TELL, ops, "show operations that are under way"),
    cmd("dump_historic_ops", "mon", "r", cf::TELL, historic, "show operations that ended"),
    cmd("dump_historic_slow_ops", "mon", "r", cf::TELL, historic, "show operations that took long"),
    cmd("config get var:String", "mon", "r", cf::TELL, config_get, "show an option of this process"),
    cmd("config show", "mon", "r", cf::TELL, config_show, "show the options of this process"),
    cmd("config set var:String val:String*", "mon", "rw", cf::TELL, config_set, "set an option of this process"),
    cmd("injectargs injected_args:String*", "mon", "rw", cf::TELL, config_set, "set options of this process"),
    cmd("compact", "mon", "rw", cf::TELL, |_| done(""), "compact the state store (it does so by itself)"),
    cmd(
        "heap heapcmd:Choices(dump|start_profiler|stop_profiler|release|stats) value:String?",
        "mon",
        "rw",
        cf::TELL,
        heap,
        "look at the heap (not supported)",
    ),
    cmd("smart devid:String?", "mon", "rw", cf::TELL, smart, "query the health of the device below the state store"),
];

fn sessions(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j: J = c
        .state
        .sessions
        .values()
        .map(|s| {
            obj! {
                "name": s.entity.to_string(),
                "entity_name": s.name.to_string(),
                "addrs": super::osd_show::addrvec(Some(&s.addrs)),
                "socket_addr": super::osd_show::legacy_addr(Some(&s.addrs)),
                "con_type": s.name.kind.word(),
                "con_features": s.features.0,
                "con_features_hex": format!("{:x}", s.features.0),
                "con_features_release": if s.features.luminous() { "luminous" } else { "jewel" },
                "open": true,
                "authenticated": true,
                "global_id": s.global_id,
                "global_id_status": "new_ok",
                "osd_epoch": 0,
                "remote_host": "",
                "since": s.since.iso(),
            }
        })
        .collect();
    c.show("sessions", &j)
}

fn ops(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    // Commands are answered when they arrive or with the commit they wait for; none stays in between.
    c.show("ops", &obj! { "ops": Vec::<J>::new(), "num_ops": 0 })
}

fn historic(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    c.show("op_history", &obj! { "size": 0, "duration": 0, "ops": Vec::<J>::new() })
}

fn config_get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let var = c.args.str("var")?.replace([' ', '-'], "_");
    let shown = c.state.options.shown();
    let v = match shown.get(&var) {
        Some(v) => v.clone(),
        None if option_table::find(&var).is_some() => super::config::mon_option(c.state, &var),
        None => return refuse(errno::ENOENT, format!("error getting '{var}': (2) No such file or directory")),
    };
    let mut j = J::object();
    j.put(var, v);
    c.show("config_get", &j)
}

fn config_show(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j = c.state.options.shown().into_iter().map(|(k, v)| (k.into(), J::from(v))).collect();
    c.show("config_show", &J::Obj(j))
}

fn config_set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let me = &c.state.mon_name;
    if c.prefix == "injectargs" && c.args.list("injected_args").is_empty() {
        return invalid("ignoring empty injectargs");
    }
    // Two places for one setting would disagree; the central one is durable, seen by `config dump` and takes effect at
    // once too.
    refuse(
        errno::EOPNOTSUPP,
        format!(
            "options of a running monitor are set in the central configuration: ceph config set mon.{me} NAME VALUE"
        ),
    )
}

fn heap(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::EOPNOTSUPP, "tcmalloc not enabled, can't use heap profiler commands")
}

fn smart(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    plain("{}\n")
}
