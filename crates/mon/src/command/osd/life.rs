//! The life of an OSD id: create, in, out, down, lost, destroy, purge; and its weights.

use super::flags::set_state;
use crate::command::auth::lockbox::{self, Lockbox};
use crate::command::language::args::parse_osd;
use crate::command::units::short;
use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, When, cmd, committed, done, flag as cf, invalid, refuse};
use crate::obj;
use crate::state::AuthEntry;
use crate::state::log::Prio;
use base::id::Uuid;
use base::{AuthName, EntityKind, OsdId, errno};
use cluster::OsdMap;
use cluster::osdmap::{MAX_OSD_LIMIT, WEIGHT_IN, osd_state};
use std::collections::BTreeMap;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("osd in ids:String*", "osd", "rw", 0, |c| each(c, Mark::In), "mark OSDs in"),
    cmd("osd out ids:String*", "osd", "rw", 0, |c| each(c, Mark::Out), "mark OSDs out"),
    cmd("osd down ids:String* definitely_dead:Bool?", "osd", "rw", 0, |c| each(c, Mark::Down), "mark OSDs down"),
    cmd("osd stop ids:String*", "osd", "rw", 0, |c| each(c, Mark::Stop), "stop OSDs"),
    cmd("osd rm ids:String*", "osd", "rw", cf::DEPRECATED, |c| each(c, Mark::Remove), "remove OSDs from the map"),
    cmd("osd lost id:OsdName yes_i_really_mean_it:Bool?", "osd", "rw", 0, lost, "declare the data of an OSD lost"),
    cmd("osd create uuid:UUID? id:OsdName?", "osd", "rw", cf::DEPRECATED, create, "create an OSD id"),
    cmd("osd new uuid:UUID id:OsdName?", "osd", "rw", 0, new, "create an OSD id, with a key if one is given as input"),
    cmd("osd setmaxosd newmax:Int[0]", "osd", "rw", 0, setmaxosd, "set the number of OSD slots"),
    cmd("osd reweight id:OsdName weight:Float[0.0|1.0]", "osd", "rw", 0, reweight, "set the share of PGs an OSD takes"),
    cmd("osd reweightn weights:String", "osd", "rw", 0, reweightn, "set the share of PGs of several OSDs"),
    cmd(
        "osd primary-affinity id:OsdName weight:Float[0.0|1.0]",
        "osd",
        "rw",
        0,
        affinity,
        "set an OSD's affinity for the role of primary",
    ),
    cmd(
        "osd destroy-actual id:OsdName yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        cf::HIDDEN,
        |c| destroy(c, yes(c)),
        "destroy an OSD, keep its id",
    ),
    cmd(
        "osd purge-actual id:OsdName yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        cf::HIDDEN,
        |c| purge(c, yes(c)),
        "purge an OSD",
    ),
    cmd(
        "osd purge-new id:OsdName yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        |c| purge(c, yes(c)),
        "purge an OSD that was just created",
    ),
    cmd(
        "osd destroy id:OsdName force:Bool? yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        cf::MGR,
        |c| safely(c, destroy),
        "destroy an OSD, keep its id",
    ),
    cmd(
        "osd purge id:OsdName force:Bool? yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        cf::MGR,
        |c| safely(c, purge),
        "remove an OSD and all traces of it",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    In,
    Out,
    Down,
    Stop,
    Remove,
}

fn each(c: &mut Ctx<'_>, mark: Mark) -> Res<CommandOutcome> {
    let map = c.map();
    let list = named_osds(c, &map, mark)?;
    let (mut text, mut changed, mut failed) = (String::new(), false, 0);
    for o in list {
        if !map.exists(o) {
            text += &format!("{o} does not exist. ");
            continue;
        }
        match mark {
            Mark::In if map.is_in(o) => text += &format!("{o} is already in. "),
            Mark::In => {
                mark_in(c, &map, o);
                text += &format!("marked in {o}. ");
                changed = true;
            }
            Mark::Out if map.is_out(o) => text += &format!("{o} is already out. "),
            Mark::Out => {
                mark_out(c, &map, o);
                text += &format!("marked out {o}. ");
                changed = true;
            }
            Mark::Down if map.is_down(o) => text += &format!("{o} is already down. "),
            Mark::Down => {
                set_state(c, o, osd_state::UP, false);
                if c.args.flag("definitely_dead") {
                    let mut x = map.xinfo(o);
                    x.dead_epoch = map.epoch;
                    c.inc().new_xinfo.insert(o, x);
                }
                text += &format!("marked down {o}. ");
                changed = true;
            }
            Mark::Stop if map.is_down(o) => text += &format!("{o} is already down. "),
            Mark::Stop => {
                set_state(c, o, osd_state::UP, false);
                set_state(c, o, osd_state::STOP, true);
                text += &format!("stop down {o}. ");
                changed = true;
            }
            Mark::Remove if map.is_up(o) => {
                text += &format!("{o} is still up; must be down before removal. ");
                failed = errno::EBUSY;
            }
            Mark::Remove => {
                forget(c, o);
                text += if text.is_empty() { "removed " } else { ", " };
                text += &o.to_string();
                changed = true;
            }
        }
    }
    let out = if changed { CommandOutcome::committed(text) } else { CommandOutcome::done(text) };
    Ok(CommandOutcome { rc: failed, ..out })
}

/// The OSDs that the command names. `all` stands for those that the mark would change.
fn named_osds(c: &Ctx<'_>, map: &OsdMap, mark: Mark) -> Res<Vec<OsdId>> {
    let mut list: Vec<OsdId> = Vec::new();
    let ids = c.args.list("ids");
    for w in &ids {
        if matches!(w.as_str(), "all" | "any" | "*") {
            if mark == Mark::Stop || mark == Mark::Remove {
                return invalid(format!("'{w}' is not allowed here, name the OSDs"));
            }
            list.extend(match mark {
                Mark::In => map.osds().filter(|o| map.is_out(*o)).collect::<Vec<_>>(),
                Mark::Out => map.osds().filter(|o| map.is_in(*o)).collect(),
                _ => map.osds().filter(|o| map.is_up(*o)).collect(),
            });
            continue;
        }
        match parse_osd(w) {
            Some(o) => list.push(o),
            None => return invalid(format!("Expected option value to be integer, got '{w}'invalid osd id-1")),
        }
    }
    Ok(list)
}

/// Marks an OSD in, with the weight that it had before it was marked out.
fn mark_in(c: &mut Ctx<'_>, map: &OsdMap, o: OsdId) {
    let old = map.xinfo(o).old_weight;
    c.inc().new_weight.insert(o, if old > 0 { old } else { WEIGHT_IN });
    if old > 0 {
        let mut x = map.xinfo(o);
        x.old_weight = 0;
        c.inc().new_xinfo.insert(o, x);
    }
}

/// Marks an OSD out, keeps its weight for its return, and logs who did it.
fn mark_out(c: &mut Ctx<'_>, map: &OsdMap, o: OsdId) {
    c.inc().new_weight.insert(o, 0);
    let x = cluster::osdmap::OsdXinfo { old_weight: map.weight(o), ..map.xinfo(o) };
    c.inc().new_xinfo.insert(o, x);
    let who = &c.session.principal.who.name;
    let since = map.xinfo(o).down_stamp;
    let line = if map.is_up(o) {
        format!("Client {who} marked {o} out, while it was still marked up")
    } else if since == base::Utime::ZERO {
        format!("Client {who} marked {o} out, while it was down")
    } else {
        let down = c.now.wall.to_unix().saturating_sub(since.to_unix()).as_secs();
        format!("Client {who} marked {o} out, after it was down for {down} seconds")
    };
    c.pending.log(c.state, c.now, Prio::INFO, "cluster", line);
}

/// Removes an OSD from the map and frees its id.
fn forget(c: &mut Ctx<'_>, o: OsdId) {
    c.inc().new_weight.remove(&o);
    let bits = c.map().state(o);
    set_state(c, o, bits, false);
    c.inc().new_uuid.insert(o, Uuid::ZERO);
    c.pending.set_osd_metadata(o, None);
}

pub(in crate::command) fn existing(c: &mut Ctx<'_>) -> Res<OsdId> {
    let o = c.args.osd("id")?;
    if c.map().exists(o) { Ok(o) } else { refuse(errno::ENOENT, format!("{o} does not exist")) }
}

fn lost(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = c.args.osd("id")?;
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.",
        );
    }
    let o = existing(c).map_err(|e| Refused { rs: format!("{o} does not exist"), ..e })?;
    let map = c.map();
    if map.is_up(o) {
        return refuse(errno::EBUSY, format!("{o} is not down"));
    }
    let e = map.info(o).down_at;
    c.inc().new_lost.insert(o, e);
    committed(format!("marked osd lost in epoch {e}"))
}

fn uuid(c: &Ctx<'_>) -> Res<Option<Uuid>> {
    match c.args.opt("uuid") {
        None => Ok(None),
        Some(t) => match Uuid::parse(&t) {
            Some(u) if t.len() == 36 => Ok(Some(u)),
            _ => invalid(format!("invalid UUID value '{t}'.")),
        },
    }
}

/// The lowest free OSD id.
fn free_number(c: &mut Ctx<'_>) -> Res<OsdId> {
    let map = c.map();
    let free = (0..map.max_osd).map(OsdId).find(|o| map.state(*o) == 0).unwrap_or(OsdId(map.max_osd));
    if free.0 >= MAX_OSD_LIMIT {
        return refuse(errno::ERANGE, "no OSD number left");
    }
    Ok(free)
}

fn make(c: &mut Ctx<'_>, o: OsdId, u: Uuid) -> Res<()> {
    if o.0 < 0 || o.0 >= MAX_OSD_LIMIT {
        return refuse(errno::ERANGE, format!("osd id {} is out of range", o.0));
    }
    if o.0 >= c.map().max_osd {
        c.inc().new_max_osd = o.0 + 1;
    }
    let map = c.map();
    if map.state(o) & osd_state::DESTROYED != 0 {
        set_state(c, o, osd_state::DESTROYED, false);
    }
    if !map.exists(o) {
        // A weight alone makes the OSD exist when the increment is applied; toggling EXISTS as well would undo that.
        c.inc().new_weight.insert(o, WEIGHT_IN);
    }
    set_state(c, o, osd_state::NEW, true);
    if u != Uuid::ZERO {
        c.inc().new_uuid.insert(o, u);
    }
    Ok(())
}

fn answer_id(c: &Ctx<'_>, o: OsdId, when: When) -> Res<CommandOutcome> {
    let out = c.tree("created_osd", || obj! { "osdid": o.0 }).text(|| format!("{}\n", o.0))?;
    Ok(CommandOutcome { when, ..out })
}

fn by_uuid(c: &mut Ctx<'_>, u: Uuid) -> Option<OsdId> {
    let map = c.map();
    map.osds().find(|o| map.uuid(*o) == u)
}

fn create(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let u = uuid(c)?;
    let id = if c.args.has("id") { Some(c.args.osd("id")?) } else { None };
    if id.is_some() && u.is_none() {
        return invalid("specifying an id requires a uuid");
    }
    if let Some(have) = u.and_then(|u| by_uuid(c, u)) {
        return match id {
            Some(i) if i != have => {
                let u = u.unwrap_or_default();
                refuse(errno::EEXIST, format!("uuid {u} already in use for different id {}", have.0))
            }
            // The OSD may come from a command that is not committed yet; then the answer waits for the commit.
            _ => answer_id(c, have, if c.state.osdmap.exists(have) { When::Now } else { When::Committed }),
        };
    }
    let o = match id {
        Some(i) if c.map().exists(i) => {
            return invalid(format!("id {} already in use and does not match uuid {}", i.0, u.unwrap_or_default()));
        }
        Some(i) => i,
        None => free_number(c)?,
    };
    make(c, o, u.unwrap_or_default())?;
    answer_id(c, o, When::Committed)
}

fn new(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let u = uuid(c)?.ok_or_else(|| Refused::new(errno::EINVAL, "uuid is needed"))?;
    let id = if c.args.has("id") { Some(c.args.osd("id")?) } else { None };
    let (key, class, lockbox) = secrets(c)?;
    let (o, fresh) = match (by_uuid(c, u), id) {
        (Some(have), Some(i)) if have != i => {
            return refuse(errno::EEXIST, format!("uuid {u} already in use for different id {}", have.0));
        }
        (Some(have), _) => (have, false),
        (None, Some(i)) => {
            let map = c.map();
            if map.exists(i) && map.state(i) & osd_state::DESTROYED == 0 {
                return invalid(format!("id {} already in use and does not match uuid {u}", i.0));
            }
            (i, true)
        }
        (None, None) => (free_number(c)?, true),
    };
    let name = AuthName { kind: EntityKind::OSD, id: o.0.to_string() };
    let mut changed = fresh;
    let lockbox = match lockbox {
        Some(l) if lockbox::check(c, u, &l)? => Some(l),
        _ => None,
    };
    if lockbox.is_some() && !fresh {
        return refuse(errno::EEXIST, format!("{o} exists but secrets do not match"));
    }
    if let Some(key) = key {
        match c.pending.auth(c.state, &name) {
            Some(e) if e.key != key => {
                return refuse(errno::EEXIST, format!("entity {name} exists but key does not match"));
            }
            Some(_) => {}
            None => {
                let caps = [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];
                let caps: BTreeMap<String, String> = caps.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
                c.pending.set_auth(name, Some(AuthEntry { key, pending_key: None, caps }));
                changed = true;
            }
        }
    }
    if fresh {
        make(c, o, u)?;
    }
    if let Some(l) = lockbox {
        lockbox::put(c, u, l);
    }
    if let Some(class) = class {
        let mut crush = (*c.map().crush).clone();
        if crush.class_of(o.0) != Some(class.as_str()) {
            crush
                .remove_device_class(o.0)
                .and_then(|_| crush.set_device_class(o.0, &class))
                .map_err(crate::command::crush::edit::refused)?;
            crate::command::crush::edit::put(c, &crush);
            changed = true;
        }
    }
    let committed = changed || !c.state.osdmap.exists(o);
    answer_id(c, o, if committed { When::Committed } else { When::Now })
}

/// Key of the OSD, its device class, and its secrets of dm-crypt.
type Secrets = (Option<::auth::CryptoKey>, Option<String>, Option<Lockbox>);

/// Secrets in the JSON that `osd new` may get as input.
fn secrets(c: &Ctx<'_>) -> Res<Secrets> {
    if c.input.is_empty() {
        return Ok((None, None, None));
    }
    let bad = || Refused::new(errno::EINVAL, "invalid JSON with secrets");
    let v: serde_json::Value = serde_json::from_slice(c.input).map_err(|_| bad())?;
    let get = |k: &str| v.get(k).and_then(|s| s.as_str()).map(str::to_owned);
    let key = match get("cephx_secret") {
        None => None,
        Some(t) => {
            Some(::auth::CryptoKey::from_base64(&t).map_err(|_| Refused::new(errno::EINVAL, "invalid cephx secret."))?)
        }
    };
    Ok((key, get("crush_device_class"), lockbox::of(&v)?))
}

fn setmaxosd(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = c.args.int("newmax").ok_or_else(|| Refused::new(errno::EINVAL, "unable to parse 'newmax' value"))?;
    let n = i32::try_from(n).ok().filter(|n| (0..=MAX_OSD_LIMIT).contains(n));
    let Some(n) = n else { return refuse(errno::ERANGE, format!("max_osd must be at most {MAX_OSD_LIMIT}")) };
    if let Some(o) = c.map().osds().find(|o| o.0 >= n) {
        return refuse(
            errno::EBUSY,
            format!("cannot shrink max_osd to {n} because {o} (and possibly others) still in use"),
        );
    }
    c.inc().new_max_osd = n;
    committed(format!("set new max_osd = {n}"))
}

fn fixed(w: f64) -> Res<u32> {
    if (0.0..=65_535.0).contains(&w) { Ok((w * f64::from(WEIGHT_IN)) as u32) } else { invalid("weight must be >= 0") }
}

fn reweight(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = existing(c)?;
    let w = c.args.need_float("weight")?;
    let v = fixed(w)?;
    c.inc().new_weight.insert(o, v);
    committed(format!("reweighted {o} to {} ({v:x})", short(w)))
}

fn reweightn(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let text = c.args.str("weights")?;
    let bad = || Refused::new(errno::EINVAL, format!("unable to parse 'weights' value '{text}'"));
    let v: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).map_err(|_| bad())?;
    let mut list = Vec::new();
    for (k, v) in v {
        let o = parse_osd(&k).ok_or_else(bad)?;
        let w = v.as_u64().or_else(|| v.as_str().and_then(|s| s.parse().ok())).ok_or_else(bad)?;
        let w = u32::try_from(w).ok().filter(|w| *w <= WEIGHT_IN).ok_or_else(bad)?;
        if c.map().exists(o) {
            list.push((o, w));
        }
    }
    c.inc().new_weight.extend(list);
    committed("")
}

fn affinity(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = existing(c)?;
    let w = c.args.need_float("weight")?;
    if w < 0.0 {
        return invalid("weight must be >= 0");
    }
    let v = fixed(w.min(1.0))?;
    c.inc().new_primary_affinity.insert(o, v);
    // Ceph shows the fixed-point value with a separator in the wrong place, which no script can depend on. Here it is
    // hexadecimal, as in `osd reweight`.
    committed(format!("set {o} primary-affinity to {} ({v:x})", short(w)))
}

/// The OSD of a command that destroys it. Error: EPERM without the confirmation, EBUSY while the OSD is up.
fn doom_check(c: &mut Ctx<'_>, confirmed: bool) -> Res<OsdId> {
    let o = c.args.osd("id")?;
    if !confirmed {
        return refuse(
            errno::EPERM,
            "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy'?  This will mean real, permanent data loss, as well as deletion of cephx and lockbox keys. Pass --yes-i-really-mean-it if you really do.",
        );
    }
    let map = c.map();
    if map.exists(o) && map.is_up(o) {
        return refuse(errno::EBUSY, format!("{o} is not `down`."));
    }
    Ok(o)
}

/// Removes the keys of an OSD.
fn drop_keys(c: &mut Ctx<'_>, o: OsdId) {
    let u = c.map().uuid(o);
    if u != Uuid::ZERO {
        lockbox::remove(c, u);
    }
    c.pending.set_auth(AuthName { kind: EntityKind::OSD, id: o.0.to_string() }, None);
}

fn destroy(c: &mut Ctx<'_>, confirmed: bool) -> Res<CommandOutcome> {
    let o = doom_check(c, confirmed)?;
    let map = c.map();
    if !map.exists(o) {
        return done(format!("{o} does not exist"));
    }
    if map.state(o) & osd_state::DESTROYED != 0 {
        return done(format!("destroyed {o}"));
    }
    let e = map.info(o).down_at;
    drop_keys(c, o);
    set_state(c, o, osd_state::DESTROYED, true);
    let inc = c.inc();
    inc.new_uuid.insert(o, Uuid::ZERO);
    inc.new_lost.insert(o, e);
    committed(format!("destroyed {o}"))
}

fn purge(c: &mut Ctx<'_>, confirmed: bool) -> Res<CommandOutcome> {
    let o = doom_check(c, confirmed)?;
    let map = c.map();
    if !map.exists(o) {
        return done(format!("{o} does not exist"));
    }
    drop_keys(c, o);
    forget(c, o);
    if map.crush.item_exists(o.0) {
        let mut crush = (*map.crush).clone();
        crush.remove_item(o.0).map_err(crate::command::crush::edit::refused)?;
        crate::command::crush::edit::put(c, &crush);
    }
    committed(format!("purged {o}"))
}

fn yes(c: &Ctx<'_>) -> bool {
    c.args.flag("yes_i_really_mean_it")
}

/// Runs a command that destroys an OSD if it is safe to destroy, or if the operator insists.
fn safely(c: &mut Ctx<'_>, run: fn(&mut Ctx<'_>, bool) -> Res<CommandOutcome>) -> Res<CommandOutcome> {
    let o = c.args.osd("id")?;
    let insists = c.args.flag("force") || yes(c);
    if !insists && let Err(e) = super::safe::check_destroy(c.state, o) {
        let text =
            "You can proceed by passing --force, but be warned that this will likely mean real, permanent data loss.";
        return refuse(e.rc, format!("{}\n{text}", e.rs));
    }
    run(c, true)
}
