//! Making, renaming and removing CRUSH rules.

use super::edit::{put, refused};
use crate::command::pool::profile::{Profile, Shape};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, invalid, refuse};
use base::errno;
use cluster::crush::{CrushError, CrushMap, RuleSpec};
use cluster::pool::kind;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd crush rule create-simple name:String{[A-Za-z0-9-_.]} root:String type:String mode:Choices(firstn|indep)?",
        "osd",
        "rw",
        0,
        simple,
        "make a rule that spreads over buckets of a type",
    ),
    cmd(
        "osd crush rule create-replicated name:String{[A-Za-z0-9-_.]} root:String type:String class:String?",
        "osd",
        "rw",
        0,
        replicated,
        "make a rule for replicated pools",
    ),
    cmd(
        "osd crush rule create-erasure name:String{[A-Za-z0-9-_.]} profile:String?",
        "osd",
        "rw",
        0,
        erasure,
        "make a rule for erasure-coded pools",
    ),
    cmd("osd crush rule rm name:String{[A-Za-z0-9-_.]}", "osd", "rw", 0, remove, "remove a rule"),
    cmd("osd crush rule rename srcname:String dstname:String", "osd", "rw", 0, rename, "rename a rule"),
];

fn crush(c: &mut Ctx<'_>) -> CrushMap {
    (*c.map().crush).clone()
}

fn add_to(crush: &mut CrushMap, spec: &RuleSpec<'_>) -> Res<i32> {
    match crush.add_simple_rule(spec) {
        Ok(id) => Ok(id),
        Err(CrushError::NoSuchItem(_)) => refuse(errno::ENOENT, format!("root item {} does not exist", spec.root)),
        Err(e) => Err(refused(e)),
    }
}

fn add(c: &mut Ctx<'_>, spec: &RuleSpec<'_>) -> Res<i32> {
    let mut crush = crush(c);
    let id = add_to(&mut crush, spec)?;
    put(c, &crush);
    Ok(id)
}

/// True if a rule of that name exists, so that the command has nothing to do.
fn there(c: &mut Ctx<'_>, name: &str) -> bool {
    c.map().crush.rule_id(name).is_some()
}

fn simple(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (name, root, domain) = (c.args.str("name")?, c.args.str("root")?, c.args.str("type")?);
    if there(c, &name) {
        return done(format!("rule {name} already exists"));
    }
    let indep = c.args.opt("mode").is_some_and(|m| m == "indep");
    // The rule is for replicated pools whatever the mode, as in Ceph.
    add(c, &RuleSpec { name: &name, root: &root, failure_domain: &domain, indep, ..RuleSpec::default() })?;
    committed("")
}

fn replicated(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (name, root, domain) = (c.args.str("name")?, c.args.str("root")?, c.args.str("type")?);
    let class = c.args.str_or("class", "");
    if there(c, &name) {
        return done(format!("rule {name} already exists"));
    }
    if !class.is_empty() && c.map().crush.class_id(&class).is_none() {
        return invalid(format!("device class {class} does not exist"));
    }
    let spec = RuleSpec { name: &name, root: &root, failure_domain: &domain, class: &class, ..RuleSpec::default() };
    add(c, &spec)?;
    committed("")
}

fn erasure(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    let profile = c.args.str_or("profile", "default");
    if there(c, &name) {
        return done(format!("rule {name} already exists"));
    }
    let (p, shape) = crate::command::pool::profile::find(&c.map(), &profile)?;
    let mut crush = crush(c);
    let id = add_erasure(&mut crush, &name, &p, shape)?;
    put(c, &crush);
    committed(format!("created rule {name} at {id}"))
}

/// Adds the rule that a profile describes.
pub(in crate::command) fn add_erasure(crush: &mut CrushMap, name: &str, p: &Profile, shape: Shape) -> Res<i32> {
    let get = |k: &str| p.get(k).map_or("", String::as_str);
    let class = get("crush-device-class");
    if !class.is_empty() && crush.class_id(class).is_none() {
        return invalid(format!("device class {class} does not exist"));
    }
    let spec = RuleSpec {
        name,
        root: get("crush-root"),
        failure_domain: get("crush-failure-domain"),
        class,
        indep: true,
        kind: kind::ERASURE,
        size_max: shape.size(),
    };
    add_to(crush, &spec)
}

fn remove(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    let mut crush = crush(c);
    let Some(id) = crush.rule_id(&name) else { return done(format!("rule {name} does not exist")) };
    if c.map().pools.values().any(|p| i32::from(p.crush_rule) == id) {
        return refuse(errno::EBUSY, format!("crush ruleset {name} {id} is in use"));
    }
    crush.remove_rule(id).map_err(refused)?;
    put(c, &crush);
    committed("")
}

fn rename(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (src, dst) = (c.args.str("srcname")?, c.args.str("dstname")?);
    let mut crush = crush(c);
    match (crush.rule_id(&src), crush.rule_id(&dst)) {
        (None, Some(_)) => return done(format!("already renamed to '{dst}'")),
        (None, None) => return refuse(errno::ENOENT, format!("source rule name '{src}' does not exist")),
        (Some(_), Some(_)) => return refuse(errno::EEXIST, format!("destination rule name '{dst}' already exists")),
        (Some(_), None) => {}
    }
    crush.rename_rule(&src, &dst).map_err(refused)?;
    put(c, &crush);
    committed("")
}
