//! `ceph tell mon.x …` and `ceph tell mgr.x …`: commands to one process rather than to the cluster.

use crate::command::{
    Cmd, CommandEffect, CommandOutcome, Ctx, HostJob, Res, cmd, done, flag as cf, invalid, option_table, refuse,
};
use crate::json::J;
use crate::obj;
use crate::state::options::MonOptions;
use base::errno;
use cluster::settings::Settings;

const SCORES: &str = "the scores by which monitors elect a leader (not supported: a lease decides)";
const PEERS: &str = "name other monitors to one that has no map (not supported: the shared state has the map)";

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("sessions", "mon", "r", cf::TELL, sessions, "list open sessions"),
    cmd("ops", "mon", "r", cf::TELL, ops, "show operations in flight"),
    cmd("dump_ops_in_flight", "mon", "r", cf::TELL, ops, "show operations in flight"),
    cmd("dump_historic_ops", "mon", "r", cf::TELL, historic, "show recent operations"),
    cmd(
        "dump_historic_ops_by_duration",
        "mon",
        "r",
        cf::TELL,
        longest,
        "show recent operations, those that took longest first",
    ),
    cmd("dump_historic_slow_ops", "mon", "r", cf::TELL, slow, "show recent slow operations"),
    cmd("config get var:String", "mon", "r", cf::TELL, config_get, "show an option of this process"),
    cmd("config diff", "mon", "r", cf::TELL, config_diff, "show options that differ from their defaults"),
    cmd(
        "config diff get var:String",
        "mon",
        "r",
        cf::TELL,
        config_diff,
        "show where the value of an option comes from",
    ),
    cmd("config unset var:String", "mon", "rw", cf::TELL, config_unset, "undo a change of an option"),
    cmd("config show", "mon", "r", cf::TELL, config_show, "show the options of this process"),
    cmd("config set var:String val:String*", "mon", "rw", cf::TELL, config_set, "set an option of this process"),
    cmd("injectargs injected_args:String*", "mon", "rw", cf::TELL, config_set, "set options of this process"),
    cmd(
        "messenger dump msgr:String? dumpcontents:Choices(all|listen_sockets|connections|anon_conns|accepting_conns|deleted_conns)*?",
        "mon",
        "r",
        cf::TELL,
        messengers,
        "list the messengers of this process, or show the sockets and connections of one",
    ),
    cmd("quorum enter", "mon", "rw", cf::TELL, enter, "tell that this monitor takes part"),
    cmd("quorum exit", "mon", "rw", cf::TELL, exit, "keep this monitor out of the quorum (not supported: stop it)"),
    cmd(
        "sync_force yes_i_really_mean_it:Bool?",
        "mon",
        "rw",
        cf::TELL,
        sync,
        "read the state from other monitors (not supported: monitors share it)",
    ),
    cmd("connection scores dump", "mon", "rwx", cf::TELL, scores, SCORES),
    cmd("connection scores reset", "mon", "rwx", cf::TELL, scores, SCORES),
    cmd("add_bootstrap_peer_hint addr:IPAddr", "mon", "rw", cf::TELL, peers, PEERS),
    cmd("add_bootstrap_peer_hintv addrv:String", "mon", "rw", cf::TELL, peers, PEERS),
    cmd("compact", "mon", "rw", cf::TELL, compact, "compact the state store (not supported: it does so by itself)"),
    cmd(
        "heap heapcmd:Choices(dump|start_profiler|stop_profiler|release|stats) value:String?",
        "mon",
        "rw",
        cf::TELL,
        heap,
        "profile the heap (not supported)",
    ),
    cmd(
        "smart devid:String?",
        "mon",
        "rw",
        cf::TELL,
        smart,
        "query the health of the device below the state store (not supported)",
    ),
];

fn sessions(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j: J = c
        .state
        .sessions
        .values()
        .filter(|s| s.by == c.session.by)
        .map(|s| {
            obj! {
                "name": s.entity.to_string(),
                "entity_name": s.name.to_string(),
                "addrs": crate::command::osd::dump::addrvec(Some(&s.addrs)),
                "socket_addr": crate::command::osd::dump::legacy_addr(Some(&s.addrs)),
                "con_type": s.name.kind.word(),
                "con_features": s.features.0,
                "con_features_hex": format!("{:x}", s.features.0),
                "con_features_release": if s.features.luminous() { "luminous" } else { "jewel" },
                // The list holds authenticated sessions only.
                "open": true,
                "authenticated": true,
                "global_id": s.global_id,
                "since": s.since.iso(),
            }
        })
        .collect();
    c.show("sessions", &j)
}

fn ops(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    show_ops(c, &c.ops.in_flight(c.now))
}

/// Shows the output of the op tracker: JSON in any format.
fn show_ops(c: &Ctx<'_>, v: &serde_json::Value) -> Res<CommandOutcome> {
    c.show_value(v)
}

fn slow(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    show_ops(c, &c.ops.slow(c.now))
}

fn longest(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    show_ops(c, &c.ops.by_duration(c.now))
}

fn scores(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(
        errno::EOPNOTSUPP,
        "monitors have no scores: the leader holds a lease in the shared state; 'ceph quorum_status' names it, and 'ceph mon \
         add disallowed_leader' keeps a monitor from leading",
    )
}

fn peers(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(
        errno::EOPNOTSUPP,
        "monitors need no hints: they read the map of monitors from the state that they share; 'ceph mon add' adds one",
    )
}

fn compact(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::EOPNOTSUPP, "compacting is not supported: the state store reuses and gives back its space by itself")
}

fn historic(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    show_ops(c, &c.ops.historic(c.now))
}

fn refused((errno, text): (errno::Errno, String)) -> crate::command::Refused {
    crate::command::Refused::new(errno, text)
}

/// Refuses a `tell` about options that a front monitor relayed. Such a command is about the process to which the client
/// is connected, so a front monitor answers it itself, unless the caps it knows do not allow the client. In that case
/// the leader must not show or set its own options instead.
fn of_this_process(c: &Ctx<'_>) -> Res<()> {
    match &c.session.by {
        None => Ok(()),
        Some(m) => {
            Err(crate::command::Refused::new(errno::EAGAIN, format!("mon.{m} does not know these caps yet: try again")))
        }
    }
}

fn var(c: &Ctx<'_>) -> Res<String> {
    of_this_process(c)?;
    Ok(c.args.str("var")?.replace([' ', '-'], "_"))
}

fn config_get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let var = var(c)?;
    let v = match c.state.options.all().remove(&var) {
        Some(v) => v,
        None => c.state.options.settings.get(&var).map_err(refused)?,
    };
    let mut j = J::object();
    j.put(var, v);
    c.show("config_get", &j)
}

fn config_show(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    of_this_process(c)?;
    let j = c.state.options.all().into_iter().map(|(k, v)| (k.into(), J::from(v))).collect();
    c.show("config_show", &J::Obj(j))
}

fn config_diff(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    of_this_process(c)?;
    let only = if c.prefix == "config diff" { None } else { Some(var(c)?) };
    let mut all = J::object();
    for (name, row) in c.state.options.settings.diff() {
        if only.as_ref().is_none_or(|o| *o == name) {
            let mut j = J::object();
            for (source, v) in row {
                j.put(
                    source,
                    option_table::find(&name)
                        .map_or_else(|| J::from(v.clone()), |o| crate::command::config::help::typed(o, &v)),
                );
            }
            all.put(name, j);
        }
    }
    c.show("config_diff", &obj! { "diff": all })
}

fn config_set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    of_this_process(c)?;
    let mut settings = c.state.options.settings.clone();
    let said = if c.prefix == "injectargs" {
        let words = c.args.list("injected_args");
        if words.is_empty() {
            return invalid("ignoring empty injectargs");
        }
        settings.inject(&words, MonOptions::observes).map_err(refused)?
    } else {
        let (name, value) = (c.args.str("var")?, c.args.list("val").join(" "));
        settings.set(&name, &value, MonOptions::observes).map_err(refused)?
    };
    changed(settings, c.show("config_set", &obj! { "success": said }))
}

/// Adds to the answer the effect that puts the changed settings in force.
fn changed(settings: Settings, answer: Res<CommandOutcome>) -> Res<CommandOutcome> {
    let mut o = answer?;
    o.effects.push(CommandEffect::Settings(Box::new(settings)));
    Ok(o)
}

fn config_unset(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let var = var(c)?;
    let mut settings = c.state.options.settings.clone();
    settings.get(&var).map_err(refused)?;
    settings.unset(&var);
    changed(settings, c.show("config_unset", &J::object()))
}

/// Hands the command to the host, which has the sockets.
fn messengers(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    of_this_process(c)?;
    let mut args = c.args.texts();
    let contents = c.args.list("dumpcontents");
    if !contents.is_empty() {
        args.insert("dumpcontents".into(), contents.join(" "));
    }
    Ok(CommandOutcome::host(HostJob { prefix: c.prefix, args, session: c.session.clone() }))
}

/// A monitor that answers takes part, so there is nothing to change.
fn enter(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let me = c.session.by.clone().unwrap_or_else(|| c.state.mon_name.clone());
    done(format!("mon.{me} takes part: no election is needed"))
}

fn exit(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::EOPNOTSUPP, "a monitor that runs takes part: stop its process to keep it out")
}

fn sync(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::EOPNOTSUPP, "monitors have no copies to bring up to date: they share one state")
}

fn heap(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::EOPNOTSUPP, "tcmalloc not enabled, can't use heap profiler commands")
}

fn smart(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::EOPNOTSUPP, "querying the health of devices is not supported: run smartctl on the host")
}
