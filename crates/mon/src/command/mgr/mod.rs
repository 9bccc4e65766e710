//! Commands on the manager map. The monitor's own process serves the manager role; a separate `ceph-mgr` may take it
//! over.
//!
//! | module | contents |
//! | --- | --- |
//! | `balancer` | commands of the balancer |
//! | `crash` | crash reports of daemons |
//! | `dashboard` | commands of the console (`dashboard`): its certificate |
//! | `modules` | commands of modules of Ceph's manager that this program does not have: telemetry, orchestrators |
//! | `rbd` | commands of the modules `rbd_support` and `progress`: background work on images |
//! | `tell` | commands to the manager role as a process: `ceph tell mgr.X …` and its admin socket |

pub(super) mod balancer;
pub(super) mod crash;
pub(super) mod dashboard;
pub(super) mod modules;
pub(super) mod rbd;
pub(super) mod tell;

use super::mon::status;
use super::osd::dump::{addrvec, legacy_addr};
use super::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, flag as cf, invalid, refuse};
use crate::json::J;
use crate::obj;
use crate::state::ClusterState;
use crate::state::modules::{ALWAYS_ON_BUILT_IN, CONSOLE, METRICS, MODULES_RELEASES};
use base::errno;
use wire::types::{ModuleInfo, ModuleOption};

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("mgr dump epoch:Int[0]?", "mgr", "r", 0, dump, "show the manager map"),
    cmd("mgr stat", "mgr", "r", 0, stat, "show the active manager"),
    cmd("mgr fail who:String?", "mgr", "rw", 0, fail, "fail the active manager: a standby takes over"),
    cmd("mgr module ls", "mgr", "r", 0, module_ls, "list manager modules"),
    cmd("mgr module enable module:String force:Choices(--force)?", "mgr", "rw", 0, enable, "switch a module on"),
    cmd("mgr module disable module:String", "mgr", "rw", 0, disable, "switch a module off"),
    cmd("mgr services", "mgr", "r", 0, services, "list the services that modules offer"),
    cmd("service dump", "service", "r", cf::MGR, service_dump, "show the service map"),
    cmd("service status", "service", "r", cf::MGR, service_status, "show the state of services"),
];

fn option_tree(o: &ModuleOption) -> J {
    let kinds = ["uint", "int", "str", "float", "bool", "addr", "addrvec", "uuid", "size", "secs", "millisecs"];
    let levels = ["basic", "advanced", "dev", "unknown"];
    obj! {
        "name": &o.name,
        "type": kinds.get(usize::from(o.kind)).copied().unwrap_or("str"),
        "level": levels.get(usize::from(o.level)).copied().unwrap_or("unknown"),
        "flags": o.flags,
        "default_value": &o.default_value,
        "min": &o.min,
        "max": &o.max,
        "enum_allowed": o.enum_allowed.clone(),
        "desc": &o.desc,
        "long_desc": &o.long_desc,
        "tags": o.tags.clone(),
        "see_also": o.see_also.clone(),
    }
}

fn module_tree(m: &ModuleInfo) -> J {
    let options = m.module_options.iter().map(|(k, o)| (k.clone().into(), option_tree(o))).collect();
    obj! { "name": &m.name, "can_run": m.can_run, "error_string": &m.error_string, "module_options": J::Obj(options) }
}

fn services_tree(c: &Ctx<'_>) -> J {
    J::Obj(c.state.mgrmap.services.iter().map(|(k, v)| (k.clone().into(), v.into())).collect())
}

/// Modules that the active manager always runs.
fn always_on(c: &Ctx<'_>) -> Vec<String> {
    if !c.state.options.external_mgr {
        return ALWAYS_ON_BUILT_IN.iter().map(|n| (*n).to_owned()).collect();
    }
    c.state.mgrmap.always_on_modules.get(MODULES_RELEASES.start()).cloned().unwrap_or_default()
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let m = &c.state.mgrmap;
    if let Some(n) = c.args.int("epoch").filter(|n| *n > 0 && *n != i64::from(m.epoch.0)) {
        return refuse(errno::ENOENT, format!("there is no map for epoch {n}"));
    }
    let standbys: J = m
        .standbys
        .values()
        .map(|s| {
            obj! {
                "gid": s.gid,
                "name": &s.name,
                "mgr_features": s.mgr_features,
                "available_modules": s.available_modules.iter().map(module_tree).collect::<J>(),
            }
        })
        .collect();
    let always = m
        .always_on_modules
        .iter()
        .map(|(r, v)| {
            let name = u8::try_from(*r).map(cluster::release::name).unwrap_or("unknown");
            (name.into(), J::from(v.clone()))
        })
        .collect();
    let clients: J = m
        .clients
        .iter()
        .enumerate()
        .map(|(i, a)| {
            let mut j = obj! { "name": m.client_names.get(i).cloned().unwrap_or_default() };
            j.merge(addrvec(Some(a)));
            j
        })
        .collect();
    let j = obj! {
        "epoch": m.epoch.0,
        "active_gid": m.active_gid,
        "active_name": &m.active_name,
        "active_addrs": addrvec(Some(&m.active_addrs)),
        "active_addr": legacy_addr(Some(&m.active_addrs)),
        "active_change": super::osd::dump::stamp(m.active_change),
        "active_mgr_features": m.active_mgr_features,
        "available": m.available,
        "standbys": standbys,
        "modules": m.modules.clone(),
        "available_modules": m.available_modules.iter().map(module_tree).collect::<J>(),
        "services": services_tree(c),
        "always_on_modules": J::Obj(always),
        "last_failure_osd_epoch": m.last_failure_osd_epoch.0,
        "active_clients": clients,
    };
    c.show("mgrmap", &j)
}

fn stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let m = &c.state.mgrmap;
    let j = obj! {
        "epoch": m.epoch.0, "available": m.available, "active_name": &m.active_name, "num_standby": m.standbys.len(),
    };
    c.show("mgr_stat", &j)
}

fn fail(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let m = c.pending.mgrmap(c.state);
    let (active, gid) = (m.active_name.clone(), m.active_gid);
    let who = c.args.opt("who").unwrap_or_else(|| active.clone());
    if who.is_empty() || active.is_empty() {
        return done("Currently no active mgr");
    }
    if let Some(g) = m.standbys.values().find(|s| s.name == who || s.gid.to_string() == who).map(|s| s.gid) {
        c.pending.mgrmap_mut(c.state).standbys.remove(&g);
        return committed("");
    }
    if who != active && who != gid.to_string() {
        return done(format!("Daemon not found '{who}', already failed?"));
    }
    if !c.state.options.external_mgr {
        return refuse(
            errno::EOPNOTSUPP,
            format!("manager {who} is served by this monitor's own process; restart that instead"),
        );
    }
    c.pending.end_manager(c.state, c.now.wall);
    committed("")
}

/// Modules that Ceph's manager runs when they are enabled and whose work the built-in manager always does. Programs
/// look for them: `cephfs-top` for `stats`.
const ENABLED: [&str; 3] = ["iostat", "snap_schedule", "stats"];

/// True if the built-in manager is active, and `name` is one of [`ENABLED`].
fn is_part_of_manager(c: &Ctx<'_>, name: &str) -> bool {
    ENABLED.contains(&name) && !c.state.options.external_mgr
}

/// The modules of the built-in manager that can be switched on and off.
const BUILT_IN: [&str; 2] = [CONSOLE, METRICS];

/// A module of the built-in manager for `module ls`.
fn built_in(name: &str) -> J {
    let options = ["server_addr", if name == CONSOLE { "ssl_server_port" } else { "server_port" }];
    let options = options.map(|n| (n.into(), obj! { "name": n, "type": "str", "level": "advanced" })).into_iter();
    obj! { "name": name, "can_run": true, "error_string": "", "module_options": J::Obj(options.collect()) }
}

fn module_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let m = &c.state.mgrmap;
    let always = always_on(c);
    let is_off = |n: &str| !always.iter().any(|a| a == n) && !m.modules.iter().any(|a| a == n);
    let off = m.available_modules.iter().filter(|i| is_off(&i.name)).map(module_tree);
    let own = BUILT_IN.into_iter().filter(|n| !c.state.options.external_mgr && is_off(n)).map(built_in);
    let off: J = off.chain(own).collect();
    let mut enabled: Vec<String> = m.modules.iter().filter(|n| !always.contains(n)).cloned().collect();
    enabled.extend(ENABLED.into_iter().filter(|n| is_part_of_manager(c, n)).map(str::to_owned));
    enabled.sort();
    enabled.dedup();
    c.show("modules", &obj! { "always_on_modules": always, "enabled_modules": enabled, "disabled_modules": off })
}

fn enable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("module")?;
    let m = c.pending.mgrmap(c.state);
    if always_on(c).contains(&name) {
        return done(format!("module '{name}' is already enabled (always-on)"));
    }
    if m.modules.contains(&name) || is_part_of_manager(c, &name) {
        return done(format!("module '{name}' is already enabled"));
    }
    if !c.state.options.external_mgr && BUILT_IN.contains(&name.as_str()) {
        let m = c.pending.mgrmap_mut(c.state);
        m.modules.push(name);
        m.modules.sort();
        return committed("");
    }
    let force = c.args.opt("force").is_some_and(|f| f == "--force") || c.args.flag("force");
    match m.available_modules.iter().find(|i| i.name == name) {
        None if !force => {
            return refuse(
                errno::ENOENT,
                format!("all mgr daemons do not support module '{name}', pass --force to force enablement"),
            );
        }
        Some(i) if !i.can_run && !force => {
            return refuse(
                errno::ENOENT,
                format!(
                    "module '{name}' reports that it cannot run on the active manager daemon: {} (pass --force to force enablement)",
                    i.error_string
                ),
            );
        }
        _ => {}
    }
    let own = !c.state.options.external_mgr;
    let m = c.pending.mgrmap_mut(c.state);
    m.modules.push(name.clone());
    m.modules.sort();
    if own {
        return committed(format!(
            "module '{name}' is enabled for a ceph-mgr that may have the role later; the built-in manager does not have it"
        ));
    }
    committed("")
}

/// Enabled modules that the active manager cannot run: with the built-in one, all that it does not have.
pub(super) fn modules_without_manager(state: &ClusterState) -> Vec<&str> {
    if state.options.external_mgr {
        return Vec::new();
    }
    let has = |n: &str| ALWAYS_ON_BUILT_IN.contains(&n) || ENABLED.contains(&n) || BUILT_IN.contains(&n);
    state.mgrmap.modules.iter().map(String::as_str).filter(|n| !has(n)).collect()
}

fn disable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("module")?;
    if always_on(c).contains(&name) {
        return invalid(format!("module '{name}' cannot be disabled (always-on)"));
    }
    if is_part_of_manager(c, &name) {
        return refuse(
            errno::EOPNOTSUPP,
            format!("module '{name}' cannot be disabled: it is part of the built-in manager"),
        );
    }
    if !c.pending.mgrmap(c.state).modules.contains(&name) {
        return done(format!("module '{name}' is already disabled"));
    }
    c.pending.mgrmap_mut(c.state).modules.retain(|n| *n != name);
    committed("")
}

fn services(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j = services_tree(c);
    c.show("services", &j)
}

fn service_dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j = status::servicemap_tree(c);
    c.show("service_map", &j)
}

fn service_status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut j = J::object();
    for (name, s) in &c.state.mgr.services.services {
        let mut daemons = J::object();
        for (id, d) in &s.daemons {
            let tasks = d.task_status.iter().map(|(k, v)| (k.clone().into(), v.into())).collect();
            daemons.put(
                id.clone(),
                obj! { "status_stamp": super::osd::dump::stamp(d.start_stamp), "status": J::Obj(tasks) },
            );
        }
        j.put(name.clone(), daemons);
    }
    c.show("service_status", &j)
}
