//! Commands about which monitors may lead, and about the features of the monmap.
//!
//! A monitor leads that holds the lease in the shared state, so one that is cut off from the state never does. That is
//! what the strategy `connectivity` asks for; it differs from `disallow` in its name only. With both, a monitor among
//! the disallowed leaders does not stand for election, and gives the lead up if it has it.

use super::{FEATURES, next};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, invalid, refuse};
use base::errno;
use cluster::MonMap;
use cluster::monmap::election;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "mon feature set feature_name:String yes_i_really_mean_it:Bool?",
        "mon",
        "rw",
        0,
        feature_set,
        "require a feature of all monitors",
    ),
    cmd(
        "mon set election_strategy strategy:String",
        "mon",
        "rw",
        0,
        strategy,
        "set which monitors may lead: classic, or all but the disallowed leaders: disallow, connectivity",
    ),
    cmd("mon add disallowed_leader name:String", "mon", "rw", 0, disallow, "keep a monitor from leading"),
    cmd("mon rm disallowed_leader name:String", "mon", "rw", 0, allow, "let a monitor lead again"),
];

fn feature_set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("feature_name")?;
    let Some(i) = FEATURES.iter().position(|f| *f == name) else {
        return refuse(errno::ENOENT, format!("unknown feature '{name}'"));
    };
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            format!(
                "please specify '--yes-i-really-mean-it' if you really, **really** want to set feature 'mon_feature_t([{name}])' in the monmap."
            ),
        );
    }
    let mut m = pending(c);
    let rs = format!("setting feature 'mon_feature_t([{name}])'");
    if m.persistent_features & 1 << i != 0 {
        return done(format!("{rs} feature 'mon_feature_t([{name}])' already set on monmap"));
    }
    m.persistent_features |= 1 << i;
    c.pending.set_monmap(m);
    committed(rs)
}

/// The monmap of the proposal under construction.
fn pending(c: &Ctx<'_>) -> MonMap {
    c.pending.monmap.clone().unwrap_or_else(|| next(c))
}

fn strategy(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let word = c.args.str("strategy")?;
    let wanted = match word.as_str() {
        "classic" => election::CLASSIC,
        "disallow" => election::DISALLOW,
        "connectivity" => election::CONNECTIVITY,
        _ => return invalid(format!("{word} is not a valid election strategy")),
    };
    let mut m = pending(c);
    if m.strategy == wanted {
        return done(format!("You are already in {word} election strategy"));
    }
    m.strategy = wanted;
    if !m.may_be_led() {
        return invalid("all monitors are disallowed leaders: allow one first");
    }
    c.pending.set_monmap(m);
    committed("")
}

/// The monmap and the monitor of a command about disallowed leaders.
fn about(c: &Ctx<'_>) -> Res<(MonMap, String)> {
    let (m, name) = (pending(c), c.args.str("name")?);
    if m.strategy == election::CLASSIC {
        return invalid("You cannot disallow monitors in your current election mode");
    }
    if !m.mons.contains_key(&name) {
        return refuse(errno::ENOENT, format!("mon.{name} does not exist"));
    }
    Ok((m, name))
}

fn disallow(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (mut m, name) = about(c)?;
    if m.disallowed_leaders.contains(&name) {
        return done(format!("mon.{name} is already disallowed"));
    }
    m.disallowed_leaders.insert(name.clone());
    if !m.may_be_led() {
        return invalid(format!("mon.{name} is the only remaining allowed leader!"));
    }
    c.pending.set_monmap(m);
    committed("")
}

fn allow(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (mut m, name) = about(c)?;
    if !m.disallowed_leaders.remove(&name) {
        return done(format!("mon.{name} is already allowed"));
    }
    c.pending.set_monmap(m);
    committed("")
}
