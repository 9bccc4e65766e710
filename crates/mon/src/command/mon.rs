//! Monitors. Every monitor serves from the same state store, so all in the map are in quorum and there is no election;
//! what would change the map is refused until several monitors can share a store.

use super::json::J;
use super::osd_show::addrvec;
use super::{Cmd, Ctx, Res, cmd, done, flag as cf, invalid, plain, refuse};
use crate::core::cluster_state::CommandOutcome;
use crate::obj;
use base::errno;
use cluster::{MonMap, release};

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("mon dump epoch:Int[0]?", "mon", "r", 0, dump, "show the map of monitors"),
    cmd("mon stat", "mon", "r", 0, stat, "show the monitors in one line"),
    cmd("mon getmap epoch:Int[0]?", "mon", "r", 0, getmap, "get the map of monitors, encoded"),
    cmd("mon feature ls with_value:Choices(--with-value)?", "mon", "r", 0, feature_ls, "list the features of monitors"),
    cmd("mon ok-to-stop ids:String*", "mon", "r", 0, ok_to_stop, "check whether monitors can stop"),
    cmd("mon ok-to-add-offline", "mon", "r", 0, ok_to_add, "check whether a monitor that is not running can be added"),
    cmd("mon ok-to-rm id:String", "mon", "r", 0, ok_to_rm, "check whether a monitor can be removed"),
    cmd("mon scrub", "mon", "rw", 0, |_| done(""), "check the monitors' stores"),
    cmd("scrub", "mon", "rw", cf::DEPRECATED, |_| done(""), "check the monitors' stores"),
    cmd("mon enable-msgr2", "mon", "rw", 0, |_| done(""), "switch on the second messenger protocol (always on)"),
    cmd("mon rm name:String", "mon", "rw", 0, rm, "remove a monitor"),
    cmd("mon remove name:String", "mon", "rw", cf::DEPRECATED, rm, "remove a monitor"),
    cmd("mon add name:String addr:IPAddr location:String*?", "mon", "rw", 0, several, "add a monitor (not supported)"),
];

const FEATURES: [&str; 8] =
    ["kraken", "luminous", "mimic", "osdmap-prune", "nautilus", "octopus", "pacific", "elector-pinging"];

/// Names of monitor feature bits.
pub(super) fn feature_names(bits: u64) -> Vec<&'static str> {
    FEATURES.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|(_, n)| *n).collect()
}

fn zulu(t: base::Utime) -> String {
    t.iso().replace("+0000", "Z")
}

/// The map of monitors.
pub(super) fn monmap_tree(m: &MonMap) -> J {
    let mons: J = m
        .ranks
        .iter()
        .enumerate()
        .filter_map(|(rank, name)| {
            let i = m.mons.get(name)?;
            let loc: Vec<String> = i.crush_loc.iter().map(|(k, v)| format!("{k}={v}")).collect();
            Some(obj! {
                "rank": rank,
                "name": name,
                "public_addrs": addrvec(Some(&i.public_addrs)),
                "addr": super::osd_show::legacy_addr(Some(&i.public_addrs)),
                "public_addr": super::osd_show::legacy_addr(Some(&i.public_addrs)),
                "priority": i.priority,
                "weight": i.weight,
                "crush_location": format!("{{{}}}", loc.join(",")),
            })
        })
        .collect();
    let set = |v: Vec<String>| v.join(",");
    obj! {
        "epoch": m.epoch.0,
        "fsid": m.fsid.to_string(),
        "modified": zulu(m.last_changed),
        "created": zulu(m.created),
        "min_mon_release": m.min_mon_release,
        "min_mon_release_name": release::name(m.min_mon_release),
        "election_strategy": m.strategy,
        "disallowed_leaders: ": set(m.disallowed_leaders.iter().cloned().collect()),
        "stretch_mode": m.stretch_mode_enabled,
        "tiebreaker_mon": &m.tiebreaker_mon,
        "removed_ranks: ": set(m.removed_ranks.iter().map(u32::to_string).collect()),
        "features": obj! {
            "persistent": feature_names(m.persistent_features),
            "optional": feature_names(m.optional_features),
        },
        "mons": mons,
    }
}

fn known_epoch(c: &Ctx<'_>) -> Res<()> {
    match c.args.int("epoch") {
        None | Some(0) => Ok(()),
        Some(n) if n == i64::from(c.state.monmap.epoch.0) => Ok(()),
        // Only the newest map of monitors is kept.
        Some(n) => refuse(errno::ENOENT, format!("there is no map for epoch {n}")),
    }
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    known_epoch(c)?;
    let m = &c.state.monmap;
    let rs = format!("dumped monmap epoch {}", m.epoch);
    let out = if c.structured() {
        let mut j = monmap_tree(m);
        j.put("quorum", (0..m.ranks.len()).collect::<J>());
        c.render("monmap", &j)
    } else {
        let mut s = format!(
            "epoch {}\nfsid {}\nlast_changed {}\ncreated {}\nmin_mon_release {} ({})\nelection_strategy: {}\n",
            m.epoch,
            m.fsid,
            m.last_changed.iso(),
            m.created.iso(),
            m.min_mon_release,
            release::name(m.min_mon_release),
            m.strategy
        );
        for (rank, name) in m.ranks.iter().enumerate() {
            let addrs = m.mons.get(name).map(|i| i.public_addrs.to_string()).unwrap_or_default();
            s += &format!("{rank}: {addrs} mon.{name}\n");
        }
        s
    };
    Ok(CommandOutcome { rs, ..CommandOutcome::output(out) })
}

fn stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let m = &c.state.monmap;
    let leader = m.ranks.first().cloned().unwrap_or_default();
    if c.structured() {
        let quorum: J = m.ranks.iter().enumerate().map(|(r, n)| obj! { "rank": r, "name": n }).collect();
        return c.show_line(
            "mon_stat",
            &obj! {
                "epoch": m.epoch.0,
                "min_mon_release_name": release::name(m.min_mon_release),
                "num_mons": m.mons.len(),
                "leader": leader,
                "quorum": quorum,
            },
        );
    }
    let list: Vec<String> = m.mons.values().map(|i| format!("{}={}", i.name, i.public_addrs)).collect();
    let ranks: Vec<String> = (0..m.ranks.len()).map(|r| r.to_string()).collect();
    plain(format!(
        "e{}: {} mons at {{{}}} removed_ranks: {{}}, election epoch 3, leader 0 {leader}, quorum {} {}\n",
        m.epoch,
        m.mons.len(),
        list.join(","),
        ranks.join(","),
        m.ranks.join(",")
    ))
}

fn getmap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    known_epoch(c)?;
    let mut w = wire::Writer::new(c.session.features);
    w.put(&c.state.monmap);
    let rs = format!("got monmap epoch {}", c.state.monmap.epoch);
    Ok(CommandOutcome { rs, ..CommandOutcome::output(w.into_bytes()) })
}

fn feature_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let m = &c.state.monmap;
    let all: Vec<&str> = FEATURES.to_vec();
    let (persistent, optional) = (feature_names(m.persistent_features), feature_names(m.optional_features));
    if c.structured() {
        return c.show(
            "features",
            &obj! {
                "all": obj! { "supported": all.clone(), "persistent": all },
                "monmap": obj! { "persistent": persistent.clone(), "optional": optional, "required": persistent },
            },
        );
    }
    let set = |v: &[&str]| format!("[{}]", v.join(","));
    plain(format!(
        "all features\n\tsupported: {0}\n\tpersistent: {0}\non current monmap (epoch {1})\n\tpersistent: {2}\n\trequired: {2}\n",
        set(&all),
        m.epoch,
        set(&persistent)
    ))
}

fn ok_to_stop(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let ids = c.args.list("ids");
    if ids.is_empty() {
        return invalid("must specify at least one mon ids");
    }
    let left: Vec<&String> = c.state.monmap.ranks.iter().filter(|n| !ids.contains(n)).collect();
    let text: Vec<&str> = left.iter().map(|n| n.as_str()).collect();
    if left.is_empty() {
        return refuse(
            errno::EBUSY,
            format!(
                "not enough monitors would be available ({}) after stopping mons [{}]",
                text.join(","),
                ids.join(",")
            ),
        );
    }
    done(format!("quorum should be preserved ({}) after stopping [{}]", text.join(","), ids.join(",")))
}

fn ok_to_add(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::EBUSY, "adding a monitor may break quorum (until that monitor starts)")
}

fn ok_to_rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.args.str("id")?;
    if !c.state.monmap.mons.contains_key(&id) {
        return done(format!("mon.{id} does not exist"));
    }
    if c.state.monmap.mons.len() == 1 {
        return refuse(errno::EBUSY, format!("removing mon.{id} would break quorum"));
    }
    done(format!("safe to remove mon.{id}"))
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    if !c.state.monmap.mons.contains_key(&name) {
        return done(format!("mon.{name} does not exist or has already been removed"));
    }
    if c.state.monmap.mons.len() == 1 {
        return invalid(format!("error: refusing removal of last monitor {name}"));
    }
    several(c)
}

fn several(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(
        errno::EOPNOTSUPP,
        "changing the set of monitors is not supported yet: one monitor serves from its own state store",
    )
}
