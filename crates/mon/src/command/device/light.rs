//! Lights of drives, as the module `orchestrator` of Ceph's manager has them: the commands, and alerts while one is on.
//!
//! An OSD on the drive switches its light (`mgr::host::devices`), and what is on is kept in the `config-key` entry [`LIGHTS`].

use super::devices;
use crate::command::health::Severity::{self, Warn};
use crate::command::mgr::rbd::host;
use crate::command::{Cmd, CommandEffect, CommandOutcome, Ctx, Res, cmd, flag as cf, plain, refuse};
use crate::obj;
use crate::state::ClusterState;
use base::{OsdId, errno};
use mgr::host::LIGHTS;
use serde_json::Value;
use std::collections::BTreeSet;

/// Longest value of it that is read, in bytes.
const VALUE_MAX: usize = 64 << 10;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("device ls-lights", "mgr", "r", cf::MGR, ls, "list the lights of drives that are on"),
    cmd(
        "device light enable:Choices(on|off) devid:String light_type:Choices(ident|fault)? force:Bool?",
        "mgr",
        "rw",
        cf::MGR,
        light,
        "switch the light of a drive: that which identifies it, or that of a fault",
    ),
];

/// The devices with a light of a kind that is on. Any client with the right to `config-key` may write there.
fn lit(state: &ClusterState, kind: &str) -> BTreeSet<String> {
    let text = state.kv.get(LIGHTS).filter(|v| v.len() <= VALUE_MAX);
    let all: Value = text.and_then(|t| serde_json::from_slice(t).ok()).unwrap_or_default();
    all[kind].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let list = |kind: &str| lit(c.state, kind).into_iter().collect::<crate::json::J>();
    plain(obj! { "fault": list("fault"), "ident": list("ident") }.pretty())
}

fn light(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.args.str("devid")?;
    let forced = c.args.flag("force") && c.args.str("enable")? == "off";
    let daemons = devices(c).remove(&id).map(|d| d.daemons);
    let osd = |d: &String| d.strip_prefix("osd.")?.parse().ok().map(OsdId).filter(|o| c.state.osdmap.is_up(*o));
    let who = match daemons {
        None if !forced => return refuse(errno::ENOENT, format!("device {id} not found")),
        None => None,
        Some(all) => all.iter().find_map(osd),
    };
    if who.is_none() && !forced {
        return refuse(errno::EAGAIN, format!("device {id} not claimed by any active daemons"));
    }
    let mut o = host(c)?;
    for e in &mut o.effects {
        if let CommandEffect::Job(job) = e {
            job.args.insert("who".into(), who.map_or_else(String::new, |o| o.to_string()));
            job.args.entry("light_type".into()).or_insert_with(|| "ident".into());
            job.args.insert("forced".into(), forced.to_string());
        }
    }
    Ok(o)
}

/// Adds the alerts by `add`: code, severity, count, summary and details.
pub(in crate::command) fn alerts(
    state: &ClusterState,
    mut add: impl FnMut(&str, Severity, usize, String, Vec<String>),
) {
    if state.options.external_mgr {
        return;
    }
    for (code, kind) in [("DEVICE_IDENT_ON", "ident"), ("DEVICE_FAULT_ON", "fault")] {
        let on = lit(state, kind);
        if !on.is_empty() {
            let lines = on.iter().map(|d| format!("{d} {kind} light enabled")).collect();
            add(code, Warn, on.len(), format!("{} devices have {kind} light turned on", on.len()), lines);
        }
    }
}
