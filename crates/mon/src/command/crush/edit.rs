//! Changing the CRUSH hierarchy, its weights, classes, tunables and weight sets.

use crate::command::language::args::parse_osd;
use crate::command::units::short;
use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed, done, flag as cf, invalid, refuse};
use base::{OsdId, errno};
use cluster::crush::{BucketAlg, CHOOSE_ARGS_COMPAT, CrushError, CrushMap, Tunables, WEIGHT_ONE};
use std::collections::BTreeMap;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd crush add-bucket name:String{[A-Za-z0-9-_.]} type:String args:String*?",
        "osd",
        "rw",
        0,
        add_bucket,
        "make a bucket",
    ),
    cmd("osd crush rename-bucket srcname:String dstname:String", "osd", "rw", 0, rename_bucket, "rename a bucket"),
    cmd(
        "osd crush set id:OsdName weight:Float[0.0] args:String*",
        "osd",
        "rw",
        0,
        |c| place(c, "set"),
        "place an OSD with a weight",
    ),
    cmd(
        "osd crush add id:OsdName weight:Float[0.0] args:String*",
        "osd",
        "rw",
        0,
        |c| place(c, "add"),
        "place an OSD with a weight",
    ),
    cmd(
        "osd crush create-or-move id:OsdName weight:Float[0.0] args:String*",
        "osd",
        "rw",
        0,
        create_or_move,
        "place an OSD at a location, unless it is there",
    ),
    cmd("osd crush move name:String args:String*", "osd", "rw", 0, move_item, "move a bucket or OSD"),
    cmd(
        "osd crush swap-bucket source:String dest:String yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        swap,
        "exchange the contents of two buckets",
    ),
    cmd("osd crush link name:String args:String*", "osd", "rw", 0, link, "link a bucket below another location"),
    cmd("osd crush rm name:String ancestor:String?", "osd", "rw", 0, |c| remove(c, false), "remove a bucket or OSD"),
    cmd(
        "osd crush remove name:String ancestor:String?",
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| remove(c, false),
        "remove a bucket or OSD",
    ),
    cmd("osd crush unlink name:String ancestor:String?", "osd", "rw", 0, |c| remove(c, true), "unlink a bucket"),
    cmd("osd crush reweight-all", "osd", "rw", 0, reweight_all, "recalculate the weights of all buckets"),
    cmd("osd crush reweight name:String weight:Float[0.0]", "osd", "rw", 0, reweight, "set the weight of an OSD"),
    cmd(
        "osd crush reweight-subtree name:String weight:Float[0.0]",
        "osd",
        "rw",
        0,
        reweight_subtree,
        "set the weight of all OSDs below a bucket",
    ),
    cmd(
        "osd crush set-device-class class:String ids:String*",
        "osd",
        "rw",
        0,
        set_class,
        "set the device class of OSDs",
    ),
    cmd("osd crush rm-device-class ids:String*", "osd", "rw", 0, rm_class, "remove the device class of OSDs"),
    cmd("osd crush class create class:String{[A-Za-z0-9-_]}", "osd", "rw", 0, class_create, "make a device class"),
    cmd("osd crush class rm class:String{[A-Za-z0-9-_]}", "osd", "rw", 0, class_rm, "remove a device class"),
    cmd("osd crush class rename srcname:String dstname:String", "osd", "rw", 0, class_rename, "rename a device class"),
    cmd(
        "osd crush tunables profile:Choices(legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default)",
        "osd",
        "rw",
        0,
        tunables,
        "set a profile of tunables",
    ),
    cmd(
        "osd crush set-tunable tunable:Choices(straw_calc_version) value:Int",
        "osd",
        "rw",
        0,
        set_tunable,
        "set one tunable",
    ),
    cmd("osd crush set-all-straw-buckets-to-straw2", "osd", "rw", 0, straw2, "turn straw buckets into straw2 buckets"),
    cmd(
        "osd crush weight-set create-compat",
        "osd",
        "rw",
        0,
        |c| set_create(c, true),
        "make the weight set for old clients",
    ),
    cmd(
        "osd crush weight-set create pool:Poolname mode:Choices(flat|positional)",
        "osd",
        "rw",
        0,
        |c| set_create(c, false),
        "make a pool's weight set",
    ),
    cmd("osd crush weight-set rm-compat", "osd", "rw", 0, |c| set_rm(c, true), "remove the weight set for old clients"),
    cmd("osd crush weight-set rm pool:Poolname", "osd", "rw", 0, |c| set_rm(c, false), "remove a pool's weight set"),
    cmd(
        "osd crush weight-set reweight-compat item:String weight:Float[0.0]*",
        "osd",
        "rw",
        0,
        |c| set_reweight(c, true),
        "set a weight in the set for old clients",
    ),
    cmd(
        "osd crush weight-set reweight pool:Poolname item:String weight:Float[0.0]*",
        "osd",
        "rw",
        0,
        |c| set_reweight(c, false),
        "set weights in a pool's set",
    ),
];

/// The refusal of a command whose change the CRUSH map refused.
pub(in crate::command) fn refused(e: CrushError) -> Refused {
    Refused::new(e.errno(), e.to_string())
}

/// Puts the encoded CRUSH map into the pending map change.
pub(in crate::command) fn put(c: &mut Ctx<'_>, crush: &CrushMap) {
    let mut w = wire::Writer::new(wire::Features::PACIFIC);
    w.put(crush);
    c.inc().crush = w.into_bytes();
}

fn current(c: &mut Ctx<'_>) -> CrushMap {
    (*c.map().crush).clone()
}

type Location = BTreeMap<String, String>;

fn location(c: &Ctx<'_>) -> Res<Location> {
    Ok(c.args.pairs("args")?.into_iter().collect())
}

fn loc_text(l: &Location) -> String {
    let v: Vec<String> = l.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", v.join(","))
}

fn fixed(w: f64) -> Res<u32> {
    if (0.0..=10_000_000.0).contains(&w) {
        Ok((w * f64::from(WEIGHT_ONE)).min(f64::from(u32::MAX)) as u32)
    } else {
        invalid("weight must be >= 0")
    }
}

fn add_bucket(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (name, kind, loc) = (c.args.str("name")?, c.args.str("type")?, location(c)?);
    let mut crush = current(c);
    if crush.id_of(&name).is_some() {
        return done(format!("bucket '{name}' already exists"));
    }
    if crush.type_id(&kind).is_none() {
        return invalid(format!("type '{kind}' does not exist"));
    }
    if !CrushMap::is_valid_name(&name) {
        return invalid(format!("error setting bucket name to '{name}'"));
    }
    let id = crush.add_bucket(&name, &kind).map_err(refused)?;
    if loc.is_empty() {
        put(c, &crush);
        return committed(format!("added bucket {name} type {kind} to crush map"));
    }
    crush.move_item(id, &loc).map_err(|_| {
        Refused::new(errno::EINVAL, format!("error moving bucket '{name}' to location {}", loc_text(&loc)))
    })?;
    put(c, &crush);
    committed(format!("added bucket {name} type {kind} to location {}", loc_text(&loc)))
}

fn rename_bucket(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (src, dst) = (c.args.str("srcname")?, c.args.str("dstname")?);
    let mut crush = current(c);
    match (crush.id_of(&src), crush.id_of(&dst)) {
        (None, Some(_)) => {
            return done(format!("srcname = '{src}' does not exist and dstname = '{dst}' already exists"));
        }
        (None, None) => {
            return refuse(
                errno::ENOENT,
                format!("srcname = '{src}' does not exist and dstname = '{dst}' does not exist"),
            );
        }
        (Some(_), Some(_)) => return refuse(errno::EEXIST, format!("dstname = '{dst}' already exists")),
        (Some(id), None) if id >= 0 => {
            return refuse(errno::ENOTDIR, format!("srcname = '{src}' is not a bucket because its id = {id} is >= 0"));
        }
        (Some(_), None) => {}
    }
    crush.rename_bucket(&src, &dst).map_err(refused)?;
    put(c, &crush);
    committed(format!("renamed bucket {src} into {dst}"))
}

fn place(c: &mut Ctx<'_>, action: &str) -> Res<CommandOutcome> {
    let (o, weight, loc) = (c.args.osd("id")?, c.args.need_float("weight")?, location(c)?);
    if !c.map().exists(o) {
        return refuse(errno::ENOENT, format!("{o} does not exist. Create it before updating the crush map"));
    }
    let w = fixed(weight)?;
    let mut crush = current(c);
    if action == "set" && !crush.item_exists(o.0) {
        return refuse(
            errno::ENOENT,
            format!(
                "unable to set item id {} name '{o}' weight {} at location {}: does not exist",
                o.0,
                short(weight),
                loc_text(&loc)
            ),
        );
    }
    let changed = crush.update_item(o.0, w, &o.to_string(), &loc).map_err(refused)?;
    let head = format!("item id {} name '{o}' weight {} at location {}", o.0, short(weight), loc_text(&loc));
    if !changed {
        return done(format!("set {head}: no change"));
    }
    put(c, &crush);
    committed(format!("{action} {head} to crush map"))
}

fn create_or_move(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (o, weight, loc) = (c.args.osd("id")?, c.args.need_float("weight")?, location(c)?);
    if !c.map().exists(o) {
        return refuse(errno::ENOENT, format!("{o} does not exist.  create it before updating the crush map"));
    }
    let w = fixed(weight)?;
    let mut crush = current(c);
    let changed = crush.create_or_move_item(o.0, w, &o.to_string(), &loc).map_err(refused)?;
    let tail = format!("item name '{o}' weight {} at location {} to crush map", short(weight), loc_text(&loc));
    if !changed {
        return done(format!("create-or-move updated {tail}"));
    }
    put(c, &crush);
    committed(format!("create-or-move updating {tail}"))
}

fn move_item(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    relocate(c, "moved", " in crush map", "", CrushMap::move_item)
}

fn link(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    relocate(c, "linked", "", " in crush map", CrushMap::link_bucket)
}

/// Puts a named item below a location with `f`, unless the item is already there. The status line of a change begins
/// with `done_word`. `ending` ends the status line in both cases; in that of a change `ending_done` follows it.
fn relocate(
    c: &mut Ctx<'_>,
    done_word: &str,
    ending: &str,
    ending_done: &str,
    f: impl FnOnce(&mut CrushMap, i32, &Location) -> Result<(), CrushError>,
) -> Res<CommandOutcome> {
    let (name, loc) = (c.args.str("name")?, location(c)?);
    let mut crush = current(c);
    let Some(id) = crush.id_of(&name) else { return refuse(errno::ENOENT, format!("item {name} does not exist")) };
    let tail = format!("item id {id} name '{name}' to location {}{ending}", loc_text(&loc));
    if crush.is_at(id, &loc) {
        return done(format!("no need to move {tail}"));
    }
    f(&mut crush, id, &loc).map_err(refused)?;
    put(c, &crush);
    committed(format!("{done_word} {tail}{ending_done}"))
}

fn swap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (a, b) = (c.args.str("source")?, c.args.str("dest")?);
    let mut crush = current(c);
    let id = |crush: &CrushMap, n: &str, what: &str| {
        crush.id_of(n).ok_or_else(|| Refused::new(errno::ENOENT, format!("{what} item {n} does not exist")))
    };
    let (ia, ib) = (id(&crush, &a, "source")?, id(&crush, &b, "dest")?);
    if !c.args.flag("yes_i_really_mean_it") {
        if crush.parent_of(ia).is_some() {
            return refuse(
                errno::EPERM,
                format!("source item {a} is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway"),
            );
        }
        if crush.item_weight(ia) != crush.item_weight(ib) {
            return refuse(
                errno::EPERM,
                format!(
                    "source item {a} and dest item {b} weights differ; pass --yes-i-really-mean-it to proceed anyway"
                ),
            );
        }
    }
    crush.swap_buckets(ia, ib).map_err(refused)?;
    put(c, &crush);
    committed(format!("swapped bucket of {a} to {b}"))
}

fn remove(c: &mut Ctx<'_>, unlink: bool) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    let mut crush = current(c);
    let gone = format!("device '{name}' does not appear in the crush map");
    let Some(id) = crush.id_of(&name).filter(|id| crush.item_exists(*id)) else { return done(gone) };
    let r = match c.args.opt("ancestor") {
        Some(a) => {
            let Some(above) = crush.id_of(&a) else {
                return refuse(errno::ENOENT, format!("ancestor item '{a}' does not appear in the crush map"));
            };
            crush.remove_item_under(id, above, unlink)
        }
        None if unlink => crush.unlink_item(id),
        None => crush.remove_item(id),
    };
    match r {
        Ok(()) => {}
        Err(CrushError::NotEmpty(_)) => return refuse(errno::ENOTEMPTY, "(39) Directory not empty"),
        Err(CrushError::NoSuchItem(_)) => return done(format!("item {id} does not appear in that position")),
        Err(e) => return Err(refused(e)),
    }
    put(c, &crush);
    committed(format!("removed item id {id} name '{name}' from crush map"))
}

fn reweight_all(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut crush = current(c);
    crush.reweight_all().map_err(refused)?;
    put(c, &crush);
    committed("reweighted crush hierarchy")
}

fn named(crush: &CrushMap, name: &str) -> Res<i32> {
    crush
        .id_of(name)
        .filter(|id| crush.item_exists(*id))
        .ok_or_else(|| Refused::new(errno::ENOENT, format!("device '{name}' does not appear in the crush map")))
}

fn reweight(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (name, weight) = (c.args.str("name")?, c.args.need_float("weight")?);
    let mut crush = current(c);
    let id = named(&crush, &name)?;
    if id < 0 {
        return invalid(format!("device '{name}' is not a leaf in the crush map"));
    }
    crush.reweight_item(id, fixed(weight)?).map_err(refused)?;
    put(c, &crush);
    committed(format!("reweighted item id {id} name '{name}' to {} in crush map", short(weight)))
}

fn reweight_subtree(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (name, weight) = (c.args.str("name")?, c.args.need_float("weight")?);
    let mut crush = current(c);
    let id = named(&crush, &name)?;
    if id >= 0 {
        return invalid(format!("device '{name}' is not a subtree in the crush map"));
    }
    crush.reweight_subtree(id, fixed(weight)?).map_err(refused)?;
    put(c, &crush);
    committed(format!("reweighted subtree id {id} name '{name}' to {} in crush map", short(weight)))
}

fn osds(c: &mut Ctx<'_>) -> Res<Vec<OsdId>> {
    let map = c.map();
    let mut v = Vec::new();
    for w in c.args.list("ids") {
        if matches!(w.as_str(), "all" | "any" | "*") {
            return Ok(map.osds().collect());
        }
        match parse_osd(&w) {
            Some(o) => v.push(o),
            None => return invalid(format!("unable to parse osd id:\"{w}\"")),
        }
    }
    Ok(v)
}

fn numbers(v: &[OsdId]) -> String {
    v.iter().map(|o| o.0.to_string()).collect::<Vec<_>>().join(",")
}

fn set_class(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let class = c.args.str("class")?;
    let list = osds(c)?;
    let map = c.map();
    let mut crush = current(c);
    let (mut text, mut updated) = (String::new(), Vec::new());
    for o in list {
        if !map.exists(o) {
            // A booting OSD sends this command before the map has it. On ENOENT it creates its id (`osd create`) and
            // repeats the command (`OSD::mon_cmd_maybe_osd_create`).
            if c.session.principal.who.name.kind == base::EntityKind::OSD {
                return refuse(errno::ENOENT, format!("{o} does not exist. "));
            }
            text += &format!("{o} does not exist. ");
            continue;
        }
        match crush.class_of(o.0) {
            Some(have) if have == class => {
                text += &format!(
                    "{o} already set to class {class}. set-device-class item id {} name '{o}' device_class '{class}': no change. ",
                    o.0
                );
            }
            Some(have) => {
                return refuse(
                    errno::EBUSY,
                    format!(
                        "{o} has already bound to class '{have}', can not reset class to '{class}'; use 'ceph osd crush rm-device-class <id>' to remove old class first"
                    ),
                );
            }
            None => {
                crush.set_device_class(o.0, &class).map_err(refused)?;
                updated.push(o);
            }
        }
    }
    text += &format!("set osd(s) {} to class '{class}'", numbers(&updated));
    if updated.is_empty() {
        return done(text);
    }
    put(c, &crush);
    committed(text)
}

fn rm_class(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let list = osds(c)?;
    let map = c.map();
    let mut crush = current(c);
    let (mut text, mut updated) = (String::new(), Vec::new());
    for o in list {
        if !map.exists(o) {
            text += &format!("{o} does not exist. ");
        } else if crush.remove_device_class(o.0).map_err(refused)? {
            updated.push(o);
        } else {
            text += &format!("{o} belongs to no class, ");
        }
    }
    text += &format!("done removing class of osd(s): {}", numbers(&updated));
    if updated.is_empty() {
        return done(text);
    }
    put(c, &crush);
    committed(text)
}

fn class_create(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let class = c.args.str("class")?;
    let mut crush = current(c);
    if crush.class_id(&class).is_some() {
        return done(format!("class '{class}' already exists"));
    }
    let id = crush.create_class(&class).map_err(refused)?;
    put(c, &crush);
    committed(format!("created class {class} with id {id} to crush map"))
}

fn class_rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let class = c.args.str("class")?;
    let mut crush = current(c);
    let Some(id) = crush.class_id(&class) else { return done("") };
    if !crush.rules_of_class(id).is_empty() {
        return refuse(errno::EBUSY, format!("class '{class}' still referenced by one or more rules"));
    }
    crush.remove_class(&class).map_err(refused)?;
    put(c, &crush);
    committed(format!("removed class {class} with id {id} from crush map"))
}

fn class_rename(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (src, dst) = (c.args.str("srcname")?, c.args.str("dstname")?);
    let mut crush = current(c);
    match (crush.class_id(&src), crush.class_id(&dst)) {
        (None, Some(_)) => return done(format!("already renamed to '{dst}'")),
        (None, None) => {
            return refuse(errno::ENOENT, format!("fail to rename '{src}' to '{dst}' : (2) No such file or directory"));
        }
        (Some(_), Some(_)) => return refuse(errno::EEXIST, format!("class '{dst}' already exists")),
        (Some(_), None) => {}
    }
    crush.rename_class(&src, &dst).map_err(refused)?;
    put(c, &crush);
    committed(format!("rename class '{src}' to '{dst}'"))
}

fn tunables(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let profile = c.args.str("profile")?;
    let Some(t) = Tunables::profile(&profile) else { return invalid(format!("unrecognized profile '{profile}'")) };
    let mut crush = current(c);
    let straw = if profile == "legacy" || profile == "argonaut" { 0 } else { crush.tunables.straw_calc_version.max(1) };
    crush.tunables = Tunables { straw_calc_version: straw, ..t };
    put(c, &crush);
    committed(format!("adjusted tunables profile to {profile}"))
}

fn set_tunable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let v = c.args.int("value").and_then(|v| u8::try_from(v).ok()).filter(|v| *v <= 2);
    let Some(v) = v else { return invalid("value must be 0, 1, or 2; got a different one") };
    if c.args.str("tunable")? != "straw_calc_version" {
        return invalid("unrecognized tunable");
    }
    let mut crush = current(c);
    crush.tunables.straw_calc_version = v;
    put(c, &crush);
    committed(format!("adjusted tunable straw_calc_version to {v}"))
}

fn straw2(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut crush = current(c);
    let ids: Vec<i32> = crush.iter_buckets().filter(|b| b.alg() == BucketAlg::Straw).map(|b| b.id).collect();
    for id in ids {
        if let Some(b) = crush.bucket_mut(id) {
            let item_weights = b.weights();
            b.data = cluster::crush::BucketData::Straw2 { item_weights };
        }
    }
    put(c, &crush);
    committed("")
}

fn set_key(c: &mut Ctx<'_>, compat: bool) -> Res<(i64, usize)> {
    if compat {
        return Ok((CHOOSE_ARGS_COMPAT, 1));
    }
    let id = c.pool_id("pool")?;
    let positional = c.args.opt("mode").is_some_and(|m| m == "positional");
    let size = c.map().pool(id).map_or(1, |p| usize::from(p.size));
    Ok((id.0, if positional { size.max(1) } else { 1 }))
}

fn set_create(c: &mut Ctx<'_>, compat: bool) -> Res<CommandOutcome> {
    let (key, positions) = set_key(c, compat)?;
    let mut crush = current(c);
    if !crush.create_weight_set(key, positions).map_err(refused)? {
        let have = crush.choose_args.get(&key).and_then(|a| a.values().next()).map_or(0, |a| a.weight_sets.len());
        return if have == positions {
            done("")
        } else {
            refuse(errno::EEXIST, "weight-set already exists with a different number of positions")
        };
    }
    put(c, &crush);
    committed("")
}

fn set_rm(c: &mut Ctx<'_>, compat: bool) -> Res<CommandOutcome> {
    let (key, _) = set_key(c, compat)?;
    let mut crush = current(c);
    if !crush.remove_weight_set(key) {
        return done("");
    }
    put(c, &crush);
    committed("")
}

fn set_reweight(c: &mut Ctx<'_>, compat: bool) -> Res<CommandOutcome> {
    let (key, _) = set_key(c, compat)?;
    let item = c.args.str("item")?;
    let mut crush = current(c);
    if !crush.choose_args.contains_key(&key) {
        let what = if compat { "no backward-compatible weight-set" } else { "no weight-set for pool" };
        return refuse(errno::ENOENT, what);
    }
    let Some(id) = crush.id_of(&item) else { return refuse(errno::ENOENT, format!("item '{item}' does not exist")) };
    let weights: Vec<u32> = c
        .args
        .list("weight")
        .iter()
        .map(|w| w.parse::<f64>().map_err(|_| Refused::new(errno::EINVAL, format!("bad weight '{w}'"))).and_then(fixed))
        .collect::<Res<_>>()?;
    crush.reweight_in_set(key, id, &weights).map_err(refused)?;
    put(c, &crush);
    committed("")
}
