//! Versions and features of daemons and clients, and the metadata that daemons report.

use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, refuse};
use crate::json::J;
use crate::obj;
use crate::state::{Role, primaries};
use base::{EntityKind, errno};
use std::collections::BTreeMap;

/// Version text of this program's daemons, in the form Ceph's tools parse.
pub(crate) const VERSION: &str =
    concat!("ceph version 16.2.15 (belemnite ", env!("CARGO_PKG_VERSION"), ") pacific (stable)");
/// The version number alone.
pub(in crate::command) const VERSION_SHORT: &str = "16.2.15";

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("version", "mon", "r", 0, version, "show version"),
    cmd("versions", "mon", "r", 0, versions, "count daemons by version"),
    cmd("features", "mon", "r", 0, features, "count clients and daemons by feature mask"),
    cmd("osd versions", "osd", "r", 0, |c| counted(c, "osd", "ceph_version"), "count OSDs by version"),
    cmd("mon versions", "mon", "r", 0, |c| counted_line(c, "mon", "ceph_version"), "count monitors by version"),
    cmd("mgr versions", "mgr", "r", 0, |c| counted(c, "mgr", "ceph_version"), "count managers by version"),
    cmd("mds versions", "mds", "r", 0, |c| counted_line(c, "mds", "ceph_version"), "count metadata servers by version"),
    cmd(
        "osd count-metadata property:String",
        "osd",
        "r",
        0,
        |c| by_property(c, "osd"),
        "count OSDs by a metadata field",
    ),
    cmd(
        "mon count-metadata property:String",
        "mon",
        "r",
        0,
        |c| by_property(c, "mon"),
        "count monitors by a metadata field",
    ),
    cmd(
        "mgr count-metadata property:String",
        "mgr",
        "r",
        0,
        |c| by_property(c, "mgr"),
        "count managers by a metadata field",
    ),
    cmd(
        "mds count-metadata property:String",
        "mds",
        "r",
        0,
        |c| by_property(c, "mds"),
        "count metadata servers by a metadata field",
    ),
    cmd("osd metadata id:OsdName?", "osd", "r", 0, osd_metadata, "show the metadata that an OSD, or all, report"),
    cmd("mon metadata id:String?", "mon", "r", 0, mon_metadata, "show the metadata of a monitor, or of all"),
    cmd("mgr metadata who:String?", "mgr", "r", 0, mgr_metadata, "show the metadata of a manager, or of all"),
    cmd("node ls type:Choices(all|osd|mon|mds|mgr)?", "mon", "r", 0, node_ls, "list daemons by host"),
];

fn version(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.session.role == Role::Tell {
        // `tell` gives the answer of the admin socket: JSON in any format.
        let j = obj! { "version": VERSION_SHORT, "release": "pacific", "release_type": "stable" };
        return c.show("version", &j);
    }
    c.tree("version", || obj! { "version": VERSION }).line().text(|| VERSION.to_owned() + "\n")
}

type Meta = BTreeMap<String, String>;

/// Adds version and host of this process.
pub(crate) fn put_own(m: &mut Meta) {
    m.insert("ceph_release".into(), "pacific".into());
    m.insert("ceph_version".into(), VERSION.into());
    m.insert("ceph_version_short".into(), VERSION_SHORT.into());
    m.entry("hostname".into()).or_insert_with(|| "localhost".into());
}

/// Metadata of the running daemons of a kind, by name.
pub(in crate::command) fn metadata(c: &Ctx<'_>, kind: &str) -> Vec<(String, Meta)> {
    let own = || {
        let mut m: Meta = c.state.options.host_metadata.clone();
        put_own(&mut m);
        m
    };
    match kind {
        "osd" => c
            .state
            .osds
            .metadata
            .iter()
            .filter(|(o, _)| c.state.osdmap.exists(**o))
            .map(|(o, m)| (o.0.to_string(), m.clone()))
            .collect(),
        "mds" => c
            .state
            .fs
            .map
            .daemons()
            .filter_map(|i| Some((i.name.clone(), c.state.fs.metadata.get(&i.global_id)?.clone())))
            .collect(),
        "mon" => c
            .state
            .monmap
            .mons
            .iter()
            .map(|(n, i)| {
                let other = || c.state.mons.metadata.get(n).cloned().unwrap_or_default();
                let mut m = if *n == c.state.mon_name { own() } else { other() };
                m.insert("addrs".into(), i.public_addrs.to_string());
                (n.clone(), m)
            })
            .collect(),
        "mgr" if !c.state.mgrmap.active_name.is_empty() => {
            let mut m = if c.state.options.external_mgr { c.state.separate_mgr.metadata().clone() } else { own() };
            m.insert("addrs".into(), c.state.mgrmap.active_addrs.to_string());
            vec![(c.state.mgrmap.active_name.clone(), m)]
        }
        _ => Vec::new(),
    }
}

fn count(c: &Ctx<'_>, kind: &str, property: &str) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for (_, m) in metadata(c, kind) {
        *out.entry(m.get(property).cloned().unwrap_or_else(|| "unknown".into())).or_default() += 1;
    }
    out
}

fn tree(m: BTreeMap<String, u64>) -> J {
    J::Obj(m.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
}

fn counted(c: &mut Ctx<'_>, kind: &str, property: &str) -> Res<CommandOutcome> {
    c.show("versions", &tree(count(c, kind, property)))
}

fn counted_line(c: &mut Ctx<'_>, kind: &str, property: &str) -> Res<CommandOutcome> {
    let j = tree(count(c, kind, property));
    c.show_line_if_asked("versions", &j)
}

fn by_property(c: &mut Ctx<'_>, kind: &str) -> Res<CommandOutcome> {
    let p = c.args.str("property")?;
    counted(c, kind, &p)
}

fn versions(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (mut out, mut all) = (J::object(), BTreeMap::new());
    for kind in ["mon", "mgr", "osd", "mds"] {
        let n = count(c, kind, "ceph_version");
        for (v, k) in &n {
            *all.entry(v.clone()).or_default() += k;
        }
        out.put(kind, tree(n));
    }
    out.put("overall", tree(all));
    c.show("versions", &out)
}

fn features(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut by: BTreeMap<(&'static str, u64), u64> = BTreeMap::new();
    *by.entry(("mon", wire::Features::PACIFIC.0)).or_default() += c.state.monmap.mons.len() as u64;
    for s in c.state.sessions.values() {
        let kind = match s.name.kind {
            EntityKind::OSD => "osd",
            EntityKind::MDS => "mds",
            EntityKind::MGR => "mgr",
            EntityKind::MON => continue,
            _ => "client",
        };
        *by.entry((kind, s.features.0)).or_default() += 1;
    }
    if c.state.mgrmap.available && !by.keys().any(|(k, _)| *k == "mgr") {
        by.insert(("mgr", wire::Features::PACIFIC.0), 1);
    }
    let mut out = J::object();
    for kind in ["mon", "mds", "osd", "client", "mgr"] {
        let list: Vec<J> = by
            .iter()
            .filter(|((k, _), _)| *k == kind)
            .map(|((_, f), n)| {
                let release = primaries::release_name(wire::Features(*f));
                obj! { "features": format!("0x{f:x}"), "release": release, "num": *n }
            })
            .collect();
        if !list.is_empty() {
            out.put(kind, J::Arr(list));
        }
    }
    c.show("features", &out)
}

fn fields(m: &Meta) -> J {
    J::Obj(m.iter().map(|(k, v)| (k.clone().into(), v.into())).collect())
}

fn osd_metadata(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let one = |id: i32, m: &Meta| {
        let mut j = obj! { "id": id };
        j.merge(fields(m));
        j
    };
    if c.args.has("id") {
        let id = c.args.osd("id")?;
        if !c.state.osdmap.exists(id) {
            return refuse(errno::ENOENT, format!("{id} does not exist"));
        }
        let m = c.state.osds.metadata.get(&id).ok_or_else(|| Refused::new(errno::ENOENT, ""))?;
        return c.show("osd_metadata", &one(id.0, m));
    }
    let map = &c.state.osdmap;
    let none = Meta::new();
    let list: J = map.osds().map(|o| one(o.0, c.state.osds.metadata.get(&o).unwrap_or(&none))).collect();
    c.show("osd_metadata", &list)
}

fn named(c: &mut Ctx<'_>, kind: &str, key: &str, missing: &str, line: bool) -> Res<CommandOutcome> {
    let all = metadata(c, kind);
    let j = match c.args.opt(key) {
        Some(n) => match all.iter().find(|(name, _)| *name == n) {
            Some((_, m)) => fields(m),
            None => return refuse(errno::ENOENT, missing),
        },
        None => all
            .iter()
            .map(|(n, m)| {
                let mut j = obj! { "name": n };
                j.merge(fields(m));
                j
            })
            .collect(),
    };
    if line { c.show_line_if_asked("metadata", &j) } else { c.show("metadata", &j) }
}

fn mon_metadata(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    named(c, "mon", "id", "requested mon not found", false)
}

fn mgr_metadata(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    named(c, "mgr", "who", "mgr not found", false)
}

fn node_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let hosts = |kind: &str| {
        let mut by: BTreeMap<String, Vec<J>> = BTreeMap::new();
        for (n, m) in metadata(c, kind) {
            let name = n.parse::<i64>().ok().filter(|_| kind == "osd").map_or_else(|| J::from(n), J::from);
            by.entry(m.get("hostname").cloned().unwrap_or_default()).or_default().push(name);
        }
        J::Obj(by.into_iter().map(|(k, v)| (k.into(), J::Arr(v))).collect())
    };
    let which = c.args.str_or("type", "all");
    let j = if which == "all" {
        let mut j = J::object();
        for kind in ["mon", "osd", "mds", "mgr"] {
            let h = hosts(kind);
            if h != J::object() {
                j.put(kind, h);
            }
        }
        j
    } else {
        hosts(&which)
    };
    c.show_line_if_asked("node_ls", &j)
}
