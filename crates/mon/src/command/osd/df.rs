//! `osd df`, `osd perf`, `osd status`, `osd blocked-by`: space, latencies, load and peering of each OSD.

use super::tree::{Node, class, crush_weight, node_tree, nodes, put_children, stray, type_name, weight_text};
use crate::command::language::text::{Column, Left, Right, Table, objects};
use crate::command::units::{bytes, unsigned};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, flag, invalid, plain};
use crate::json::J;
use crate::obj;
use base::OsdId;
use cluster::OsdMap;
use cluster::osdmap::WEIGHT_IN;
use mgr::stats::PgStats;
use std::collections::{BTreeMap, BTreeSet};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd df output_method:Choices(plain|tree)? filter_by:Choices(class|name)? filter:String?",
        "osd",
        "r",
        flag::MGR,
        df,
        "show the space OSDs use",
    ),
    cmd("osd perf", "osd", "r", flag::MGR, perf, "show the latencies of the OSDs' stores"),
    cmd("osd status bucket:String?", "mgr", "r", flag::MGR, status, "show OSDs with their load"),
    cmd("osd blocked-by", "osd", "r", flag::MGR, blocked_by, "show which OSDs block peering"),
];

/// Space of an OSD or bucket, in KiB.
#[derive(Clone, Copy, Default)]
struct Use {
    kb: i64,
    used: i64,
    data: i64,
    omap: i64,
    meta: i64,
    avail: i64,
}

impl Use {
    fn add(&mut self, o: &Self) {
        self.kb += o.kb;
        self.used += o.used;
        self.data += o.data;
        self.omap += o.omap;
        self.meta += o.meta;
        self.avail += o.avail;
    }

    fn ratio(&self) -> f64 {
        if self.kb > 0 { 100.0 * self.used as f64 / self.kb as f64 } else { 0.0 }
    }

    fn cells(&self) -> [String; 6] {
        [self.kb, self.used, self.data, self.omap, self.meta, self.avail].map(kibibytes)
    }

    fn put(&self, prefix: &str, j: &mut J) {
        for (k, v) in [
            ("kb", self.kb),
            ("kb_used", self.used),
            ("kb_used_data", self.data),
            ("kb_used_omap", self.omap),
            ("kb_used_meta", self.meta),
            ("kb_avail", self.avail),
        ] {
            j.put(format!("{prefix}{k}"), v);
        }
    }
}

struct View<'a> {
    st: &'a PgStats,
    map: &'a OsdMap,
    pgs: BTreeMap<OsdId, i32>,
    average: f64,
}

impl View<'_> {
    fn osd(&self, o: OsdId) -> Use {
        // The space of an OSD that is out is not part of the cluster's.
        let Some(s) = self.st.osd(o).filter(|_| self.map.is_in(o)) else { return Use::default() };
        let f = &s.statfs;
        Use {
            kb: f.total >> 10,
            used: (f.total - f.available) >> 10,
            data: f.allocated >> 10,
            omap: f.omap_allocated >> 10,
            meta: f.internal_metadata >> 10,
            avail: f.available >> 10,
        }
    }

    fn node(&self, id: i32) -> Use {
        if id >= 0 {
            return self.osd(OsdId(id));
        }
        let mut u = Use::default();
        let leaves: BTreeSet<i32> = self.map.crush.leaves(id).into_iter().collect();
        leaves.into_iter().for_each(|o| u.add(&self.osd(OsdId(o))));
        u
    }

    fn var(&self, u: &Use) -> f64 {
        if self.average > 0.0 { u.ratio() / self.average } else { 0.0 }
    }
}

fn status_word(map: &OsdMap, o: OsdId) -> &'static str {
    if map.is_up(o) {
        "up"
    } else if map.state(o) & cluster::osdmap::osd_state::DESTROYED != 0 {
        "destroyed"
    } else {
        "down"
    }
}

fn kibibytes(v: i64) -> String {
    bytes(unsigned(v) << 10)
}

/// One line of `osd df`.
struct Row<'a> {
    view: &'a View<'a>,
    node: &'a Node,
    used: Use,
}

impl Row<'_> {
    /// The OSD of this line; `None` for a bucket.
    fn osd(&self) -> Option<OsdId> {
        (self.node.id >= 0).then_some(OsdId(self.node.id))
    }

    fn reweight(&self) -> Option<f64> {
        self.osd().map(|o| f64::from(self.view.map.weight(o)) / f64::from(WEIGHT_IN))
    }

    fn pgs(&self) -> Option<i32> {
        self.osd().map(|o| self.view.pgs.get(&o).copied().unwrap_or(0))
    }

    fn status(&self) -> Option<&'static str> {
        self.osd().map(|o| status_word(self.view.map, o))
    }

    fn tree(&self, shown: &BTreeSet<i32>) -> J {
        let map = self.view.map;
        let mut j = node_tree(map, self.node);
        j.put("reweight", self.reweight().unwrap_or(-1.0));
        self.used.put("", &mut j);
        j.put("utilization", self.used.ratio())
            .put("var", self.view.var(&self.used))
            .put("pgs", self.pgs().unwrap_or(0));
        if let Some(word) = self.status() {
            j.put("status", word);
        }
        put_children(map, self.node, shown, &mut j);
        j
    }
}

/// Columns of `osd df`; with `types`, the name of each node follows.
fn columns<'a>(types: bool) -> Vec<Column<Row<'a>>> {
    let mut v: Vec<Column<Row<'a>>> = vec![
        Column::number("ID", |r| r.node.id.to_string()),
        Column::number("CLASS", |r| class(&r.view.map.crush, r.node.id).unwrap_or_default().to_owned()),
        Column::number("WEIGHT", |r| weight_text(crush_weight(r.node.weight))),
        Column::number("REWEIGHT", |r| r.reweight().map_or_else(|| "-".into(), weight_text)),
        Column::number("SIZE", |r| kibibytes(r.used.kb)),
        Column::number("RAW USE", |r| kibibytes(r.used.used)),
        Column::number("DATA", |r| kibibytes(r.used.data)),
        Column::number("OMAP", |r| kibibytes(r.used.omap)),
        Column::number("META", |r| kibibytes(r.used.meta)),
        Column::number("AVAIL", |r| kibibytes(r.used.avail)),
        Column::number("%USE", |r| format!("{:.2}", r.used.ratio())),
        Column::number("VAR", |r| format!("{:.2}", r.view.var(&r.used))),
        Column::number("PGS", |r| r.pgs().map_or_else(|| "-".into(), |n| n.to_string())),
        Column::number("STATUS", |r| r.status().unwrap_or_default().to_owned()),
    ];
    if types {
        v.push(Column::left("TYPE NAME", |r| type_name(&r.view.map.crush, r.node)));
    }
    v
}

/// The data of `osd df`.
struct Report<'a> {
    view: View<'a>,
    list: Vec<Node>,
    strays: Vec<Node>,
    total: Use,
    min: f64,
    max: f64,
    dev: f64,
}

impl Report<'_> {
    fn rows<'a>(&'a self, nodes: &'a [Node]) -> impl Iterator<Item = Row<'a>> {
        nodes.iter().map(|node| Row { view: &self.view, node, used: self.view.node(node.id) })
    }

    fn tree(&self) -> J {
        let shown: BTreeSet<i32> = self.list.iter().map(|n| n.id).collect();
        let list = |nodes| self.rows(nodes).map(|r| r.tree(&shown)).collect::<J>();
        let mut sum = J::object();
        self.total.put("total_", &mut sum);
        sum.put("average_utilization", self.view.average);
        sum.put("min_var", self.min).put("max_var", self.max).put("dev", self.dev);
        obj! { "nodes": list(&self.list), "stray": list(&self.strays), "summary": sum }
    }

    fn text(&self, types: bool) -> String {
        let rows: Vec<Row<'_>> = self.rows(&self.list).chain(self.rows(&self.strays)).collect();
        let mut t = Table::of(&columns(types), &rows);
        let mut row = vec![String::new(), String::new(), String::new(), "TOTAL".into()];
        row.extend(self.total.cells());
        row.push(format!("{:.2}", self.view.average));
        t.row(row);
        let dev = if self.dev == 0.0 { "0".into() } else { format!("{:.2}", self.dev) };
        format!("{}MIN/MAX VAR: {:.2}/{:.2}  STDDEV: {dev}\n", t.render(), self.min, self.max)
    }
}

fn df(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let as_tree = c.args.opt("output_method").is_some_and(|m| m == "tree");
    let map = c.state.osdmap.clone();
    let st = &c.state.mgr.stats;
    let chosen: Option<BTreeSet<i32>> = match (c.args.opt("filter_by").as_deref(), c.args.opt("filter")) {
        (Some(_), None) => return invalid("'filter' is missing"),
        (_, None) => None,
        (_, Some(f)) => Some(filter(&map, &f)?),
    };
    let shown = |o: OsdId| chosen.as_ref().is_none_or(|s| s.contains(&o.0));
    let mut view = View { st, map: &map, pgs: BTreeMap::new(), average: 0.0 };
    for s in st.by_osd() {
        view.pgs.insert(s.0, s.1.acting + s.1.up_not_acting);
    }
    let mut total = Use::default();
    map.osds().filter(|o| shown(*o)).for_each(|o| total.add(&view.osd(o)));
    view.average = total.ratio();
    let keep: Option<&dyn Fn(OsdId) -> bool> = if chosen.is_some() { Some(&shown) } else { None };
    let mut list = nodes(&map.crush, None, false, keep);
    let strays: Vec<Node> = stray(&map)
        .into_iter()
        .filter(|o| shown(*o))
        .map(|o| Node { id: o.0, depth: 0, parent: None, pos: 0, weight: 0 })
        .collect();
    if !as_tree {
        list.retain(|n| n.id >= 0);
        list.sort_by_key(|n| n.id);
        list.dedup_by_key(|n| n.id);
    }
    let (mut min, mut max, mut dev, mut weight) = (f64::MAX, 0.0f64, 0.0f64, 0.0f64);
    let mut seen = BTreeSet::new();
    for n in list.iter().chain(&strays).filter(|n| n.id >= 0 && seen.insert(n.id)) {
        let (u, w) = (view.osd(OsdId(n.id)), crush_weight(n.weight));
        if u.kb > 0 && map.is_in(OsdId(n.id)) {
            min = min.min(view.var(&u));
            max = max.max(view.var(&u));
            dev += w * (u.ratio() - view.average).powi(2);
            weight += w;
        }
    }
    let dev = if weight > 0.0 { (dev / weight).sqrt() } else { 0.0 };
    if min > max {
        min = 0.0;
    }
    let report = Report { view, list, strays, total, min, max, dev };
    c.tree("osd_df", || report.tree()).text(|| report.text(as_tree))
}

fn filter(map: &OsdMap, f: &str) -> Res<BTreeSet<i32>> {
    if let Some(id) = map.pool_by_name(f)
        && let Some(p) = map.pool(id)
    {
        return Ok(mgr::stats::space::rule_weights(&map.crush, i32::from(p.crush_rule)).keys().map(|o| o.0).collect());
    }
    if let Some(id) = map.crush.id_of(f) {
        return Ok(map.crush.leaves(id).into_iter().collect());
    }
    if map.crush.class_id(f).is_some() {
        return Ok(map.osds().filter(|o| map.crush.class_of(o.0) == Some(f)).map(|o| o.0).collect());
    }
    invalid(format!("'{f}' not a pool, crush node or device class name"))
}

fn perf(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    const NS_PER_MS: u64 = 1_000_000;
    type Row = (i32, u64, u64);
    const COLUMNS: &[Column<Row>] = &[
        Column::number("osd", |r: &Row| r.0.to_string()),
        Column::number("commit_latency(ms)", |r: &Row| (r.1 / NS_PER_MS).to_string()),
        Column::number("apply_latency(ms)", |r: &Row| (r.2 / NS_PER_MS).to_string()),
    ];
    let rows: Vec<Row> = c
        .state
        .mgr
        .stats
        .osds()
        .rev()
        .map(|(o, s)| (o.0, s.os_perf_stat.commit_latency_ns, s.os_perf_stat.apply_latency_ns))
        .collect();
    let tree = || {
        let list: J = rows
            .iter()
            .map(|(o, commit, apply)| {
                obj! { "id": *o, "perf_stats": obj! {
                    "commit_latency_ms": commit / NS_PER_MS,
                    "apply_latency_ms": apply / NS_PER_MS,
                    "commit_latency_ns": *commit,
                    "apply_latency_ns": *apply,
                } }
            })
            .collect();
        obj! { "pg_ready": true, "osdstats": obj! { "osd_perf_infos": list } }
    };
    c.tree("perf", tree).line().text(|| Table::of(COLUMNS, &rows).render())
}

/// A number as Ceph's manager modules print it: four digits and a unit, blank for plain numbers.
fn five(v: u64, base: f64) -> String {
    let (mut v, mut unit) = (v as f64, 0);
    while v >= 10_000.0 && unit < 6 {
        v /= base;
        unit += 1;
    }
    format!("{:>4}{}", v as u64, [" ", "k", "M", "G", "T", "P", "E"].get(unit).copied().unwrap_or(""))
}

fn status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let only: Option<BTreeSet<i32>> = match c.args.opt("bucket") {
        None => None,
        Some(b) => match map.crush.id_of(&b) {
            Some(id) => Some(map.crush.leaves(id).into_iter().collect()),
            None => return invalid(format!("Bucket '{b}' not found")),
        },
    };
    let mut t = Table::new(&[
        ("ID", Left, Right),
        ("HOST", Left, Left),
        ("USED", Right, Right),
        ("AVAIL", Right, Right),
        ("WR OPS", Right, Right),
        ("WR DATA", Right, Right),
        ("RD OPS", Right, Right),
        ("RD DATA", Right, Right),
        ("STATE", Left, Left),
    ]);
    let rate = |o: OsdId, path: &str, base: f64| match c.state.mgr.counters().rate(&o.to_string(), path) {
        Some(n) if map.is_up(o) => five(n, base),
        _ => "-".to_owned(),
    };
    for o in map.osds().filter(|o| only.as_ref().is_none_or(|s| s.contains(&o.0))) {
        let host = c.state.osds.metadata.get(&o).and_then(|m| m.get("hostname")).cloned().unwrap_or_default();
        let s = c.state.mgr.stats.osd(o);
        t.row([
            o.0.to_string(),
            host,
            five(unsigned(s.map_or(0, |s| s.kb_used)) << 10, 1024.0),
            five(unsigned(s.map_or(0, |s| s.kb_avail)) << 10, 1024.0),
            rate(o, "osd.op_w", 1000.0),
            rate(o, "osd.op_in_bytes", 1024.0),
            rate(o, "osd.op_r", 1000.0),
            rate(o, "osd.op_out_bytes", 1024.0),
            super::dump::state_names(map.state(o)).join(","),
        ]);
    }
    // Ceph ends each line with the padding of the last column.
    plain(t.render().lines().map(|l| format!("{l}  \n")).collect::<String>())
}

fn blocked_by(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    const COLUMNS: &[Column<(OsdId, u64)>] = &[
        Column::number("osd", |r: &(OsdId, u64)| r.0.0.to_string()).field("id", |r| r.0.0.into()),
        Column::number("num_blocked", |r: &(OsdId, u64)| r.1.to_string()).field("num_blocked", |r| r.1.into()),
    ];
    let rows: Vec<(OsdId, u64)> = c.state.mgr.stats.blocked().iter().map(|(o, n)| (*o, *n)).collect();
    let infos = || obj! { "osd_blocked_by_infos": objects(COLUMNS, &rows) };
    c.tree("blocked", || obj! { "pg_ready": true, "osd_blocked_by": infos() })
        .text(|| Table::of(COLUMNS, &rows).render())
}
