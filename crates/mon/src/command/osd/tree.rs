//! Commands that show the CRUSH hierarchy as a tree: `osd tree`, `osd tree-from`, `osd crush tree`, `osd ls-tree`.

use super::show::{Wanted, wanted};
use crate::command::language::text::{Align, Left, Right, Table};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, invalid, refuse};
use crate::json::J;
use crate::obj;
use base::{OsdId, PoolId, errno};
use cluster::OsdMap;
use cluster::crush::{CHOOSE_ARGS_COMPAT, CrushMap, MAX_DEPTH, WEIGHT_ONE};
use cluster::osdmap::{WEIGHT_IN, osd_state};
use std::collections::BTreeSet;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd tree epoch:Int[0]? states:Choices(up|down|in|out|destroyed)*?",
        "osd",
        "r",
        0,
        tree,
        "show OSDs in the hierarchy",
    ),
    cmd(
        "osd tree-from epoch:Int[0]? bucket:String states:Choices(up|down|in|out|destroyed)*?",
        "osd",
        "r",
        0,
        tree_from,
        "show OSDs below a bucket",
    ),
    cmd("osd ls-tree epoch:Int[0]? name:String", "osd", "r", 0, ls_tree, "list OSDs below a bucket"),
    cmd("osd crush tree shadow:Choices(--show-shadow)?", "osd", "r", 0, crush_tree, "show the CRUSH hierarchy"),
];

/// One line of a tree.
#[derive(Clone, Debug)]
pub(in crate::command) struct Node {
    /// CRUSH id: an OSD if not negative, else a bucket.
    pub id: i32,
    /// Number of levels below the root.
    pub depth: usize,
    /// The bucket that holds the item on this path; `None` for a root.
    pub parent: Option<i32>,
    /// Position of the item in its parent.
    pub pos: usize,
    /// CRUSH weight of the item in its parent.
    pub weight: u32,
}

/// The key that orders siblings: buckets by name, devices by class and number.
fn sort_key(crush: &CrushMap, id: i32) -> String {
    if id >= 0 {
        format!("{}_osd.{id:08}", crush.class_of(id).unwrap_or_default())
    } else {
        format!("_{}", crush.name_of(id).unwrap_or_default())
    }
}

/// Children of a bucket in the order shown, with their positions.
fn children(crush: &CrushMap, id: i32) -> Vec<(i32, usize)> {
    let Some(b) = crush.bucket(id) else { return Vec::new() };
    let mut v: Vec<(i32, usize)> = b.items.iter().enumerate().map(|(i, c)| (*c, i)).collect();
    v.sort_by_key(|(c, _)| sort_key(crush, *c));
    v
}

/// The nodes below `root` (or below all roots), parents first. `keep` selects devices; a bucket stays while it holds
/// a kept device, or if nothing is filtered.
pub(in crate::command) fn nodes(
    crush: &CrushMap,
    root: Option<i32>,
    shadow: bool,
    keep: Option<&dyn Fn(OsdId) -> bool>,
) -> Vec<Node> {
    let roots = match root {
        Some(r) => vec![r],
        None if shadow => crush.all_roots(),
        None => crush.roots(),
    };
    let mut out = Vec::new();
    for id in roots {
        let weight = crush.bucket(id).map_or(0, |b| b.weight);
        visit(crush, Node { id, depth: 0, parent: None, pos: 0, weight }, keep, &mut out);
    }
    out
}

fn visit(crush: &CrushMap, n: Node, keep: Option<&dyn Fn(OsdId) -> bool>, out: &mut Vec<Node>) {
    let (id, depth) = (n.id, n.depth);
    if id >= 0 {
        if keep.is_none_or(|k| k(OsdId(id))) {
            out.push(n);
        }
        return;
    }
    if depth >= MAX_DEPTH {
        return;
    }
    let at = out.len();
    out.push(n);
    for (child, pos) in children(crush, id) {
        let weight = crush.bucket(id).map_or(0, |b| b.item_weight(pos));
        visit(crush, Node { id: child, depth: depth + 1, parent: Some(id), pos, weight }, keep, out);
    }
    if keep.is_some() && out.len() == at + 1 {
        out.truncate(at);
    }
}

/// A weight as trees show it.
pub(in crate::command) fn weight_text(w: f64) -> String {
    if w < -0.01 {
        "-".into()
    } else if w < 0.000_001 {
        "0".into()
    } else {
        format!("{w:.5}")
    }
}

/// A CRUSH weight as a number.
pub(in crate::command) fn crush_weight(w: u32) -> f64 {
    f64::from(w) / f64::from(WEIGHT_ONE)
}

/// `    host node0`, `        osd.0`.
pub(in crate::command) fn type_name(crush: &CrushMap, n: &Node) -> String {
    let indent = "    ".repeat(n.depth);
    if n.id >= 0 {
        return format!("{indent}osd.{}", n.id);
    }
    let t = crush.type_of(n.id).and_then(|t| crush.type_name(t)).unwrap_or("?");
    format!("{indent}{t} {}", crush.name_of(n.id).unwrap_or_default())
}

/// Class of a device, or of a shadow bucket.
pub(in crate::command) fn class(crush: &CrushMap, id: i32) -> Option<&str> {
    if id >= 0 { crush.class_of(id) } else { crush.name_of(id)?.split_once('~').map(|(_, c)| c) }
}

/// Name of a weight set.
fn set_name(map: &OsdMap, key: i64) -> String {
    if key == CHOOSE_ARGS_COMPAT {
        "(compat)".into()
    } else {
        map.pool_name(PoolId(key)).map_or_else(|| key.to_string(), str::to_owned)
    }
}

fn set_weights(map: &OsdMap, key: i64, n: &Node) -> Vec<f64> {
    let slot = n.parent.map(|p| (-1 - i64::from(p)) as usize);
    let arg = slot.and_then(|s| map.crush.choose_args.get(&key)?.get(&s));
    arg.map(|a| a.weight_sets.iter().filter_map(|w| w.get(n.pos)).map(|w| crush_weight(*w)).collect())
        .unwrap_or_default()
}

/// The fields that all trees share.
pub(in crate::command) fn node_tree(map: &OsdMap, n: &Node) -> J {
    let crush = &map.crush;
    let mut j = obj! { "id": n.id };
    if let Some(c) = class(crush, n.id) {
        j.put("device_class", c);
    }
    if n.id < 0 {
        let t = crush.type_of(n.id).unwrap_or(0);
        j.put("name", crush.name_of(n.id).unwrap_or_default())
            .put("type", crush.type_name(t).unwrap_or_default())
            .put("type_id", t);
    } else {
        j.put("name", format!("osd.{}", n.id))
            .put("type", crush.type_name(0).unwrap_or("osd"))
            .put("type_id", 0)
            .put("crush_weight", crush_weight(n.weight))
            .put("depth", n.depth);
    }
    if n.parent.is_some() {
        let sets = crush
            .choose_args
            .keys()
            .map(|k| (set_name(map, *k).into(), set_weights(map, *k, n).into_iter().collect::<J>()))
            .collect();
        j.put("pool_weights", J::Obj(sets));
    }
    j
}

/// Adds the children to a bucket's entry, the last child first.
pub(in crate::command) fn put_children(map: &OsdMap, n: &Node, shown: &BTreeSet<i32>, j: &mut J) {
    if n.id < 0 {
        let v: Vec<i32> =
            children(&map.crush, n.id).into_iter().rev().map(|(c, _)| c).filter(|c| shown.contains(c)).collect();
        j.put("children", v);
    }
}

/// OSDs of the map that are in no bucket.
pub(in crate::command) fn stray(map: &OsdMap) -> Vec<OsdId> {
    let held: BTreeSet<i32> =
        map.crush.iter_buckets().flat_map(|b| b.items.iter().copied().filter(|i| *i >= 0)).collect();
    map.osds().filter(|o| !held.contains(&o.0)).collect()
}

fn state_word(map: &OsdMap, o: OsdId) -> &'static str {
    if map.is_up(o) {
        "up"
    } else if map.state(o) & osd_state::DESTROYED != 0 {
        "destroyed"
    } else {
        "down"
    }
}

fn put_osd(map: &OsdMap, o: OsdId, j: &mut J) {
    let exists = map.exists(o);
    j.put("exists", i32::from(exists))
        .put("status", if exists { state_word(map, o) } else { "DNE" })
        .put("reweight", f64::from(map.weight(o)) / f64::from(WEIGHT_IN))
        .put("primary_affinity", f64::from(map.affinity(o)) / f64::from(WEIGHT_IN));
}

fn osd_cells(map: &OsdMap, o: OsdId) -> [String; 3] {
    if !map.exists(o) {
        return ["DNE".into(), "0".into(), String::new()];
    }
    let f = |w: u32| weight_text(f64::from(w) / f64::from(WEIGHT_IN));
    [state_word(map, o).into(), f(map.weight(o)), f(map.affinity(o))]
}

const HEAD: [(&str, Align, Align); 7] = [
    ("ID", Left, Right),
    ("CLASS", Left, Right),
    ("WEIGHT", Left, Right),
    ("TYPE NAME", Left, Left),
    ("STATUS", Left, Right),
    ("REWEIGHT", Left, Right),
    ("PRI-AFF", Left, Right),
];

fn states(c: &Ctx<'_>) -> Res<Vec<String>> {
    let s = c.args.list("states");
    for w in &s {
        if !matches!(w.as_str(), "up" | "down" | "in" | "out" | "destroyed") {
            return invalid(format!("unrecognized state '{w}'"));
        }
    }
    let has = |w: &str| s.iter().any(|x| x == w);
    for (a, b) in [("in", "out"), ("up", "down"), ("up", "destroyed"), ("down", "destroyed")] {
        if has(a) && has(b) {
            return invalid(format!("cannot specify both '{a}' and '{b}'"));
        }
    }
    Ok(s)
}

fn matches_states(map: &OsdMap, o: OsdId, states: &[String]) -> bool {
    let destroyed = map.state(o) & osd_state::DESTROYED != 0;
    states.iter().all(|s| match s.as_str() {
        "up" => map.is_up(o),
        "down" => map.is_down(o) && !destroyed,
        "in" => map.is_in(o),
        "out" => map.is_out(o),
        _ => destroyed,
    })
}

fn tree(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    show(c, None)
}

fn tree_from(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("bucket")?;
    show(c, Some(name))
}

fn show(c: &mut Ctx<'_>, from: Option<String>) -> Res<CommandOutcome> {
    let states = states(c)?;
    let map = match wanted(c)? {
        Wanted::Map(m) => m,
        Wanted::Later(o) => return Ok(o),
    };
    let root = match &from {
        Some(n) => match map.crush.id_of(n) {
            None => return refuse(errno::ENOENT, format!("bucket '{n}' does not exist")),
            Some(id) if id >= 0 => return invalid(format!("\"{n}\" is not a bucket")),
            Some(id) => Some(id),
        },
        None => None,
    };
    let keep = |o: OsdId| matches_states(&map, o, &states);
    let filter: Option<&dyn Fn(OsdId) -> bool> = if states.is_empty() { None } else { Some(&keep) };
    let list = nodes(&map.crush, root, false, filter);
    let strays: Vec<OsdId> =
        if root.is_some() { Vec::new() } else { stray(&map).into_iter().filter(|o| keep(*o)).collect() };
    let tree = || {
        let shown: BTreeSet<i32> = list.iter().map(|n| n.id).collect();
        let items: J = list
            .iter()
            .map(|n| {
                let mut j = node_tree(&map, n);
                if n.id >= 0 {
                    put_osd(&map, OsdId(n.id), &mut j);
                }
                put_children(&map, n, &shown, &mut j);
                j
            })
            .collect();
        let mut out = obj! { "nodes": items };
        if root.is_none() {
            let strays: J = strays
                .iter()
                .map(|o| {
                    let mut j = node_tree(&map, &Node { id: o.0, depth: 0, parent: None, pos: 0, weight: 0 });
                    put_osd(&map, *o, &mut j);
                    j
                })
                .collect();
            out.put("stray", strays);
        }
        out
    };
    let text = || {
        let mut t = Table::new(&HEAD);
        let blank = Vec::new;
        for n in &list {
            let mut row = vec![
                n.id.to_string(),
                class(&map.crush, n.id).unwrap_or_default().to_owned(),
                weight_text(crush_weight(n.weight)),
                type_name(&map.crush, n),
            ];
            row.extend(if n.id >= 0 { osd_cells(&map, OsdId(n.id)).to_vec() } else { blank() });
            t.row(row);
        }
        for o in &strays {
            let mut row = vec![o.0.to_string(), String::new(), "0".into(), o.to_string()];
            row.extend(osd_cells(&map, *o));
            t.row(row);
        }
        t.render()
    };
    c.tree("tree", tree).line().text(text)
}

fn ls_tree(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    let map = match wanted(c)? {
        Wanted::Map(m) => m,
        Wanted::Later(o) => return Ok(o),
    };
    let Some(id) = map.crush.id_of(&name) else {
        return refuse(errno::ENOENT, format!("node {name} does not exist"));
    };
    let osds: BTreeSet<i32> = map.crush.leaves(id).into_iter().filter(|o| map.exists(OsdId(*o))).collect();
    c.tree("osds", || osds.into_iter().collect::<J>()).line().line_each()
}

fn crush_tree(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let shadow = c.args.opt("shadow").is_some_and(|s| s == "--show-shadow") || c.args.flag("show_shadow");
    let list = nodes(&map.crush, None, shadow, None);
    let tree = || {
        let shown: BTreeSet<i32> = list.iter().map(|n| n.id).collect();
        let items: J = list
            .iter()
            .map(|n| {
                let mut j = node_tree(&map, n);
                put_children(&map, n, &shown, &mut j);
                j
            })
            .collect();
        obj! { "nodes": items, "stray": Vec::<J>::new() }
    };
    let text = || {
        let sets: Vec<i64> = map.crush.choose_args.keys().copied().collect();
        let names: Vec<String> = sets.iter().map(|k| set_name(&map, *k)).collect();
        let mut head: Vec<(&str, Align, Align)> =
            vec![("ID", Left, Right), ("CLASS", Left, Right), ("WEIGHT", Left, Right)];
        head.extend(names.iter().map(|n| (n.as_str(), Left, Right)));
        head.push(("TYPE NAME", Left, Left));
        let mut t = Table::new(&head);
        for n in &list {
            let mut row = vec![
                n.id.to_string(),
                class(&map.crush, n.id).unwrap_or_default().to_owned(),
                weight_text(crush_weight(n.weight)),
            ];
            for k in &sets {
                row.push(set_weights(&map, *k, n).first().map(|w| weight_text(*w)).unwrap_or_default());
            }
            row.push(type_name(&map.crush, n));
            t.row(row);
        }
        t.render()
    };
    c.tree("tree", tree).line().text(text)
}
