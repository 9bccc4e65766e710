//! Commands on monitors. Several monitors share a state in etcd: the running ones are the quorum, and one is enough.
//! The monmap of a monitor that does not share its state never changes.
//!
//! | module | contents |
//! | --- | --- |
//! | `elect` | commands about which monitors may lead, and about the features of the monmap |
//! | `log` | the cluster log |
//! | `pgmap` | the statistics of PGs in `status` and in the commands that show only these: sums, rates, recovery |
//! | `quorum` | the monitors in commands: the quorum, and the clocks of its members |
//! | `status` | `status` (the text of `ceph -s`), quorum and monitor status, `report` |
//! | `tell` | `ceph tell mon.x …` and `ceph tell mgr.x …`: commands to one process rather than to the cluster |
//! | `versions` | versions and features of daemons and clients, and the metadata that daemons report |

pub(super) mod elect;
pub(super) mod log;
pub(crate) mod pgmap;
pub(super) mod quorum;
pub(crate) mod status;
pub(super) mod tell;
pub(crate) mod versions;

use super::osd::dump::addrvec;
use super::{Cmd, CommandEffect, CommandOutcome, Ctx, Res, cmd, committed, done, flag as cf, invalid, refuse};
use crate::json::J;
use crate::obj;
use base::{AddrKind, AddrVec, EntityAddr, errno};
use cluster::{MonInfo, MonMap, release};
use std::net::{IpAddr, SocketAddr};

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("mon dump epoch:Int[0]?", "mon", "r", 0, dump, "show the monitor map"),
    cmd("mon stat", "mon", "r", 0, stat, "show the monitors in one line"),
    cmd("mon getmap epoch:Int[0]?", "mon", "r", 0, getmap, "get the monitor map, encoded"),
    cmd("mon feature ls with_value:Choices(--with-value)?", "mon", "r", 0, feature_ls, "list the features of monitors"),
    cmd("mon ok-to-stop ids:String*", "mon", "r", 0, ok_to_stop, "check whether monitors can stop"),
    cmd("mon ok-to-add-offline", "mon", "r", 0, ok_to_add, "check whether a monitor that is not running can be added"),
    cmd("mon ok-to-rm id:String", "mon", "r", 0, ok_to_rm, "check whether a monitor can be removed"),
    cmd("mon scrub", "mon", "rw", 0, scrub, "compare the stored state with the state in memory"),
    cmd("scrub", "mon", "rw", cf::DEPRECATED, scrub, "compare the stored state with the state in memory"),
    cmd(
        "mon enable-msgr2",
        "mon",
        "rw",
        0,
        enable_msgr2,
        "check that all monitors speak the second messenger protocol",
    ),
    cmd("mon rm name:String", "mon", "rw", 0, rm, "remove a monitor"),
    cmd("mon remove name:String", "mon", "rw", cf::DEPRECATED, rm, "remove a monitor"),
    cmd(
        "mon add name:String addr:IPAddr location:String*?",
        "mon",
        "rw",
        0,
        add,
        "add a monitor, which is started afterwards",
    ),
    cmd("mon set-addrs name:String addrs:String", "mon", "rw", 0, set_addrs, "set the addresses of a monitor"),
];

/// Names of the feature bits of monitors, lowest first.
pub(super) const FEATURES: [&str; 8] =
    ["kraken", "luminous", "mimic", "osdmap-prune", "nautilus", "octopus", "pacific", "elector-pinging"];

/// Names of monitor feature bits.
pub(super) fn feature_names(bits: u64) -> Vec<&'static str> {
    FEATURES.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|(_, n)| *n).collect()
}

fn zulu(t: base::Utime) -> String {
    t.iso().replace("+0000", "Z")
}

/// The monmap as a tree.
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
                "addr": super::osd::dump::legacy_addr(Some(&i.public_addrs)),
                "public_addr": super::osd::dump::legacy_addr(Some(&i.public_addrs)),
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
        // Only the newest monmap is kept.
        Some(n) => refuse(errno::ENOENT, format!("there is no map for epoch {n}")),
    }
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    known_epoch(c)?;
    let m = &c.state.monmap;
    let rs = format!("dumped monmap epoch {}", m.epoch);
    let tree = || {
        let mut j = monmap_tree(m);
        j.put("quorum", c.state.quorum_ranks().into_iter().collect::<J>());
        j
    };
    let text = || {
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
    Ok(CommandOutcome { rs, ..c.tree("monmap", tree).text(text)? })
}

fn stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let m = &c.state.monmap;
    let (leader, there, ranks) = (c.state.leader(), c.state.quorum(), c.state.quorum_ranks());
    let tree = || {
        let quorum: J = ranks.iter().zip(&there).map(|(r, n)| obj! { "rank": *r, "name": n }).collect();
        obj! {
            "epoch": m.epoch.0,
            "min_mon_release_name": release::name(m.min_mon_release),
            "num_mons": m.mons.len(),
            "leader": &leader,
            "quorum": quorum,
        }
    };
    let text = || {
        let list: Vec<String> = m.mons.values().map(|i| format!("{}={}", i.name, i.public_addrs)).collect();
        let rank = m.rank_of(&leader).unwrap_or(0);
        let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        format!(
            "e{}: {} mons at {{{}}} removed_ranks: {{}}, election epoch {}, leader {rank} {leader}, quorum {} {}\n",
            m.epoch,
            m.mons.len(),
            list.join(","),
            c.state.election_epoch(),
            ranks.join(","),
            there.join(",")
        )
    };
    c.tree("mon_stat", tree).line().text(text)
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
    let tree = || {
        obj! {
            "all": obj! { "supported": all.clone(), "persistent": all.clone() },
            "monmap": obj! { "persistent": persistent.clone(), "optional": optional, "required": persistent.clone() },
        }
    };
    let text = || {
        let with_value = c.args.has("with_value");
        let bit = |n: &str| FEATURES.iter().position(|f| *f == n).map_or(0, |i| 1u64 << i);
        let word = |n: &&str| if with_value { format!("{n}({})", bit(n)) } else { (*n).to_owned() };
        let set = |v: &[&str]| format!("[{}]", v.iter().map(word).collect::<Vec<_>>().join(","));
        format!(
            "all features\n\tsupported: {0}\n\tpersistent: {0}\non current monmap (epoch {1})\n\tpersistent: {2}\n\trequired: {2}\n",
            set(&all),
            m.epoch,
            set(&persistent)
        )
    };
    c.tree("features", tree).text(text)
}

fn ok_to_stop(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let ids = c.args.list("ids");
    if ids.is_empty() {
        return invalid("must specify at least one mon ids");
    }
    let there = c.state.quorum();
    let left: Vec<&String> = there.iter().filter(|n| !ids.contains(n)).collect();
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

fn ok_to_add(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.state.mons.up.is_some() {
        return done("adding another mon that is not yet in quorum does not risk breaking quorum");
    }
    refuse(errno::EBUSY, "adding a monitor may break quorum (until that monitor starts)")
}

fn ok_to_rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.args.str("id")?;
    if !c.state.monmap.mons.contains_key(&id) {
        return done(format!("mon.{id} does not exist"));
    }
    if c.state.quorum().iter().all(|n| *n == id) {
        return refuse(errno::EBUSY, format!("removing mon.{id} would break quorum"));
    }
    done(format!("safe to remove mon.{id}"))
}

/// `mon scrub`. Its result goes to the cluster log, as in Ceph.
fn scrub(_c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut out = CommandOutcome::done("");
    out.effects.push(CommandEffect::ScrubState);
    Ok(out)
}

fn enable_msgr2(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let v1 = c.state.monmap.mons.values().find(|m| !m.public_addrs.0.iter().any(|a| a.kind == AddrKind::MSGR2));
    match v1 {
        None => done(""),
        Some(m) => refuse(
            errno::EOPNOTSUPP,
            format!("mon.{} has no address of that protocol: remove it and add it with one", m.name),
        ),
    }
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    if !c.state.monmap.mons.contains_key(&name) {
        return done(format!("mon.{name} does not exist or has already been removed"));
    }
    if c.state.monmap.mons.len() == 1 {
        return invalid(format!("error: refusing removal of last monitor {name}"));
    }
    shared(c)?;
    let mut m = c.pending.monmap.clone().unwrap_or_else(|| next(c));
    m.remove(&name);
    if !m.may_be_led() {
        return invalid(format!("error: mon.{name} is the only remaining allowed leader; allow another one first"));
    }
    let left = m.mons.len();
    c.pending.set_monmap(m);
    committed(format!("removing mon.{name}, there will be {left} monitors"))
}

fn add(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (name, addr) = (c.args.str("name")?, c.args.str("addr")?);
    let is_msgr2 = addr.starts_with("v2:");
    let Some(sock) = EntityAddr::parse(&addr).and_then(|a| a.sock) else {
        return invalid(format!("{addr} is not an address"));
    };
    let crush_loc = c.args.pairs("location")?.into_iter().collect();
    shared(c)?;
    let mut m = c.pending.monmap.clone().unwrap_or_else(|| next(c));
    let public_addrs = addrs_at(sock, is_msgr2);
    if let Some(have) = m.mons.get(&name) {
        // An address without that for msgr1 names it as well.
        let alike = public_addrs.0.len() == 1 && have.public_addrs.msgr2() == public_addrs.msgr2();
        if alike || have.public_addrs == public_addrs {
            return done(format!("mon.{name} at {} already exists", have.public_addrs));
        }
        return refuse(errno::EEXIST, format!("mon.{name} already exists at address {}", have.public_addrs));
    }
    if let Some(o) = at_one_of(&m, &name, &public_addrs) {
        return refuse(errno::EEXIST, format!("mon.{} already exists at address {public_addrs}", o.name));
    }
    let rs = format!("adding mon.{name} at {public_addrs}");
    m.add(MonInfo { name, public_addrs, crush_loc, ..MonInfo::default() });
    c.pending.set_monmap(m);
    committed(rs)
}

/// Ceph's ports of a monitor for msgr2 and for msgr1.
const MON_PORT: u16 = 3300;
const MON_PORT_MSGR1: u16 = 6789;

/// Another monitor than `name` that has one of these addresses.
fn at_one_of<'a>(m: &'a MonMap, name: &str, addrs: &AddrVec) -> Option<&'a MonInfo> {
    let has = |o: &MonInfo| o.public_addrs.0.iter().any(|a| addrs.0.iter().any(|b| a.sock == b.sock));
    m.mons.values().find(|o| o.name != name && has(o))
}

/// Addresses of a new monitor at `at`: without a port, or with that of msgr1, at Ceph's ports for both protocols, as
/// Ceph has it. An address of type `v2` stands for itself.
fn addrs_at(at: SocketAddr, is_msgr2: bool) -> AddrVec {
    let v2 = |port| EntityAddr::msgr2(SocketAddr::new(at.ip(), port), 0);
    if at.port() != 0 && (is_msgr2 || at.port() != MON_PORT_MSGR1) {
        return v2(at.port()).into();
    }
    let legacy = SocketAddr::new(at.ip(), MON_PORT_MSGR1);
    AddrVec(vec![v2(MON_PORT), EntityAddr { kind: AddrKind::LEGACY, nonce: 0, sock: Some(legacy) }])
}

/// `mon set-addrs`. A monitor listens at a new msgr1 address at once, and at another msgr2 address when it is restarted.
fn set_addrs(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (name, text) = (c.args.str("name")?, c.args.str("addrs")?);
    let mut m = c.pending.monmap.clone().unwrap_or_else(|| next(c));
    if !m.mons.contains_key(&name) {
        return refuse(errno::ENOENT, format!("mon.{name} does not exist"));
    }
    let Some(mut addrs) = AddrVec::parse(&text) else {
        return invalid(format!("failed to parse addrs '{text}'"));
    };
    for a in &mut addrs.0 {
        a.nonce = 0;
        if a.sock.is_none_or(|s| s.port() == 0) {
            return invalid(format!("monitor must bind to a non-zero port, not {a}"));
        }
    }
    let of = |kind| addrs.0.iter().filter(|a| a.kind == kind).count();
    if of(AddrKind::MSGR2) != 1 || of(AddrKind::LEGACY) != addrs.0.len() - 1 || addrs.0.len() > 2 {
        return invalid(format!("'{text}': a monitor has one v2 address, and at most one v1 address"));
    }
    // A monitor listens on one address of its host, at two ports.
    let ips: Vec<IpAddr> = addrs.0.iter().filter_map(|a| Some(a.sock?.ip())).collect();
    let [first, rest @ ..] = ips.as_slice() else { return invalid(format!("failed to parse addrs '{text}'")) };
    if first.is_unspecified() || first.is_multicast() || rest.iter().any(|ip| ip != first) {
        return invalid(format!("'{text}': both addresses of a monitor have the same IP, which its clients reach"));
    }
    if addrs.msgr2().map(|a| a.sock) == addrs.legacy().map(|a| a.sock) {
        return invalid(format!("'{text}': v1 and v2 need a port each"));
    }
    if let Some(o) = at_one_of(&m, &name, &addrs) {
        return refuse(errno::EEXIST, format!("mon.{} already exists at address {}", o.name, o.public_addrs));
    }
    let Some(own) = m.mons.get_mut(&name) else { return refuse(errno::ENOENT, format!("mon.{name} does not exist")) };
    if own.public_addrs == addrs {
        return done("");
    }
    let moves = own.public_addrs.msgr2() != addrs.msgr2();
    own.public_addrs = addrs;
    c.pending.set_monmap(m);
    committed(if moves { format!("restart mon.{name}, which then listens at its new address") } else { String::new() })
}

/// A copy of the monmap with the next epoch, for a change.
pub(super) fn next(c: &Ctx<'_>) -> MonMap {
    let m = &c.state.monmap;
    MonMap { epoch: m.epoch.next(), last_changed: c.now.wall, ..m.clone() }
}

/// Refuses the command if the monitor's state cannot be shared with other monitors.
fn shared(c: &Ctx<'_>) -> Res<()> {
    if c.state.mons.up.is_some() {
        return Ok(());
    }
    refuse(
        errno::EOPNOTSUPP,
        "this monitor has its state in a file: move it to etcd first (`belemnite state export` and `import`)",
    )
}
