//! `osd pool application`: the applications that use a pool, with their metadata.

use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed, done, invalid, plain, refuse};
use crate::json::J;
use base::errno;
use std::collections::BTreeMap;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd pool application enable pool:Poolname app:String{[A-Za-z0-9-_.]} yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        enable,
        "enable an application on a pool",
    ),
    cmd(
        "osd pool application disable pool:Poolname app:String yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        disable,
        "disable an application on a pool",
    ),
    cmd(
        "osd pool application set pool:Poolname app:String key:String{[A-Za-z0-9-_.]} value:String{[A-Za-z0-9-_.=]}",
        "osd",
        "rw",
        0,
        set,
        "set a key of a pool's application",
    ),
    cmd(
        "osd pool application rm pool:Poolname app:String key:String",
        "osd",
        "rw",
        0,
        rm,
        "remove a key of a pool's application",
    ),
    cmd(
        "osd pool application get pool:Poolname? app:String? key:String?",
        "osd",
        "r",
        0,
        get,
        "show the applications of pools",
    ),
];

/// Most applications of a pool.
const APPS_MAX: usize = 4;
/// Longest application name, key or value, in bytes.
const LEN_MAX: usize = 128;
/// Most keys of an application.
const KEYS_MAX: usize = 64;

type Apps = BTreeMap<String, BTreeMap<String, String>>;

fn tree(kv: &BTreeMap<String, String>) -> J {
    J::Obj(kv.iter().map(|(k, v)| (k.clone().into(), v.into())).collect())
}

fn apps_tree(a: &Apps) -> J {
    J::Obj(a.iter().map(|(k, v)| (k.clone().into(), tree(v))).collect())
}

fn apps(c: &mut Ctx<'_>) -> Res<(base::PoolId, String, Apps)> {
    let id = c.pool_id("pool")?;
    let name = c.args.str("pool")?;
    let a = c.map().pool(id).map(|p| p.application_metadata.clone()).unwrap_or_default();
    Ok((id, name, a))
}

fn store(c: &mut Ctx<'_>, id: base::PoolId, a: Apps) {
    if let Some(p) = c.pending.pool_mut(c.state, id) {
        p.application_metadata = a;
    }
}

fn enable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, pool, mut a) = apps(c)?;
    let app = c.args.str_or("app", "");
    if app.is_empty() {
        return invalid("application name must be provided");
    }
    if a.contains_key(&app) {
        return done(format!("enabled application '{app}' on pool '{pool}'"));
    }
    if !a.is_empty() && !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            format!(
                "Are you SURE? Pool '{pool}' already has an enabled application; pass --yes-i-really-mean-it to proceed anyway"
            ),
        );
    }
    if a.len() >= APPS_MAX {
        return invalid(format!("too many enabled applications on pool '{pool}'; max {APPS_MAX}"));
    }
    if app.len() > LEN_MAX {
        return invalid(format!("application name '{app}' too long; max length {LEN_MAX}"));
    }
    a.insert(app.clone(), BTreeMap::new());
    store(c, id, a);
    committed(format!("enabled application '{app}' on pool '{pool}'"))
}

fn disable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, pool, mut a) = apps(c)?;
    let app = c.args.str("app")?;
    if !a.contains_key(&app) {
        return done(format!("application '{app}' is not enabled on pool '{pool}'"));
    }
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "Are you SURE? Disabling an application within a pool might result in loss of application functionality; pass --yes-i-really-mean-it to proceed anyway",
        );
    }
    a.remove(&app);
    store(c, id, a);
    committed(format!("disable application '{app}' on pool '{pool}'"))
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, pool, mut a) = apps(c)?;
    let (app, key, value) = (c.args.str("app")?, c.args.str("key")?, c.args.str("value")?);
    let Some(kv) = a.get_mut(&app) else {
        return refuse(errno::ENOENT, format!("application '{app}' is not enabled on pool '{pool}'"));
    };
    if key.is_empty() {
        return invalid("key must be provided");
    }
    if !kv.contains_key(&key) && kv.len() >= KEYS_MAX {
        return invalid(format!("too many keys set for application '{app}' on pool '{pool}'; max {KEYS_MAX}"));
    }
    if key.len() > LEN_MAX || value.len() > LEN_MAX {
        return invalid(format!("key or value too long; max length {LEN_MAX}"));
    }
    kv.insert(key.clone(), value.clone());
    store(c, id, a);
    committed(format!("set application '{app}' key '{key}' to '{value}' on pool '{pool}'"))
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, pool, mut a) = apps(c)?;
    let (app, key) = (c.args.str("app")?, c.args.str("key")?);
    let Some(kv) = a.get_mut(&app) else {
        return refuse(errno::ENOENT, format!("application '{app}' is not enabled on pool '{pool}'"));
    };
    if kv.remove(&key).is_none() {
        return done(format!("application '{app}' on pool '{pool}' does not have key '{key}'"));
    }
    store(c, id, a);
    committed(format!("removed application '{app}' key '{key}' on pool '{pool}'"))
}

fn get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let Some(pool) = c.args.opt("pool").filter(|p| !p.is_empty()) else {
        let all = map
            .pools
            .iter()
            .map(|(id, p)| {
                (map.pool_name(*id).unwrap_or_default().to_owned().into(), apps_tree(&p.application_metadata))
            })
            .collect();
        return c.show("pools", &J::Obj(all));
    };
    let p = map
        .pool_by_name(&pool)
        .and_then(|id| map.pool(id))
        .ok_or_else(|| Refused::new(errno::ENOENT, format!("unrecognized pool '{pool}'")))?;
    let Some(app) = c.args.opt("app").filter(|a| !a.is_empty()) else {
        return c.show("applications", &apps_tree(&p.application_metadata));
    };
    let Some(kv) = p.application_metadata.get(&app) else {
        return refuse(errno::ENOENT, format!("pool '{pool}' has no application '{app}'"));
    };
    let Some(key) = c.args.opt("key").filter(|k| !k.is_empty()) else {
        return c.show("application", &tree(kv));
    };
    match kv.get(&key) {
        Some(v) => plain(format!("{v}\n")),
        None => refuse(errno::ENOENT, format!("application '{app}' on pool '{pool}' does not have key '{key}'")),
    }
}
