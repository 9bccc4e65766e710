//! `osd df`, `osd perf`, `osd status`, `osd blocked-by`: what each OSD uses and how it does.

use super::json::J;
use super::osd_tree::{Node, class, crush_weight, node_tree, nodes, put_children, stray, type_name, weight_text};
use super::text::{Left, Right, Table};
use super::units::{bytes, unsigned};
use super::{Cmd, Ctx, Res, cmd, flag, invalid, plain};
use crate::core::cluster_state::CommandOutcome;
use crate::obj;
use base::OsdId;
use cluster::OsdMap;
use cluster::osdmap::WEIGHT_IN;
use mgr::stats::PgStats;
use std::collections::{BTreeMap, BTreeSet};

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
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

/// Space of a node.
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
        [self.kb, self.used, self.data, self.omap, self.meta, self.avail].map(|v| bytes(unsigned(v) << 10))
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
        // An OSD that is out counts for nothing: its space is not the cluster's.
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
    let tree = || {
        let ids: BTreeSet<i32> = list.iter().map(|n| n.id).collect();
        let entry = |n: &Node| {
            let u = view.node(n.id);
            let mut j = node_tree(&map, n);
            let o = OsdId(n.id);
            let rw = if n.id >= 0 { f64::from(map.weight(o)) / f64::from(WEIGHT_IN) } else { -1.0 };
            j.put("reweight", rw);
            u.put("", &mut j);
            j.put("utilization", u.ratio()).put("var", view.var(&u));
            j.put("pgs", if n.id >= 0 { view.pgs.get(&o).copied().unwrap_or(0) } else { 0 });
            if n.id >= 0 {
                j.put("status", status_word(&map, o));
            }
            put_children(&map, n, &ids, &mut j);
            j
        };
        let mut sum = J::object();
        total.put("total_", &mut sum);
        sum.put("average_utilization", view.average).put("min_var", min).put("max_var", max).put("dev", dev);
        let j = obj! {
            "nodes": list.iter().map(entry).collect::<J>(),
            "stray": strays.iter().map(entry).collect::<J>(),
            "summary": sum,
        };
        j
    };
    let text = || {
        let mut head = vec![
            ("ID", Left, Right),
            ("CLASS", Left, Right),
            ("WEIGHT", Left, Right),
            ("REWEIGHT", Left, Right),
            ("SIZE", Left, Right),
            ("RAW USE", Left, Right),
            ("DATA", Left, Right),
            ("OMAP", Left, Right),
            ("META", Left, Right),
            ("AVAIL", Left, Right),
            ("%USE", Left, Right),
            ("VAR", Left, Right),
            ("PGS", Left, Right),
            ("STATUS", Left, Right),
        ];
        if as_tree {
            head.push(("TYPE NAME", Left, Left));
        }
        let mut t = Table::new(&head);
        for n in list.iter().chain(&strays) {
            let (u, o) = (view.node(n.id), OsdId(n.id));
            let osd = n.id >= 0;
            let mut row = vec![
                n.id.to_string(),
                class(&map.crush, n.id).unwrap_or_default().to_owned(),
                weight_text(crush_weight(n.weight)),
                if osd { weight_text(f64::from(map.weight(o)) / f64::from(WEIGHT_IN)) } else { "-".into() },
            ];
            row.extend(u.cells());
            row.push(format!("{:.2}", u.ratio()));
            row.push(format!("{:.2}", view.var(&u)));
            row.push(if osd { view.pgs.get(&o).copied().unwrap_or(0).to_string() } else { "-".into() });
            row.push(if osd { status_word(&map, o).into() } else { String::new() });
            if as_tree {
                row.push(type_name(&map.crush, n));
            }
            t.row(row);
        }
        let mut row = vec![String::new(), String::new(), String::new(), "TOTAL".into()];
        row.extend(total.cells());
        row.push(format!("{:.2}", view.average));
        t.row(row);
        format!(
            "{}MIN/MAX VAR: {min:.2}/{max:.2}  STDDEV: {}\n",
            t.render(),
            if dev == 0.0 { "0".into() } else { format!("{dev:.2}") }
        )
    };
    c.tree("osd_df", tree).text(text)
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
    let rows: Vec<(i32, u64, u64)> = c
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
    let text = || {
        let mut t = Table::new(&[
            ("osd", Left, Right),
            ("commit_latency(ms)", Left, Right),
            ("apply_latency(ms)", Left, Right),
        ]);
        for (o, commit, apply) in &rows {
            t.row([o.to_string(), (commit / NS_PER_MS).to_string(), (apply / NS_PER_MS).to_string()]);
        }
        t.render()
    };
    c.tree("perf", tree).line().text(text)
}

/// A number as Ceph's manager modules print it: four digits and a unit, which is blank for plain numbers.
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
    for o in map.osds().filter(|o| only.as_ref().is_none_or(|s| s.contains(&o.0))) {
        let host = c.state.osd_metadata.get(&o).and_then(|m| m.get("hostname")).cloned().unwrap_or_default();
        let s = c.state.mgr.stats.osd(o);
        t.row([
            o.0.to_string(),
            host,
            five(unsigned(s.map_or(0, |s| s.kb_used)) << 10, 1024.0),
            five(unsigned(s.map_or(0, |s| s.kb_avail)) << 10, 1024.0),
            // Rates are known by pool and PG, not by OSD.
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            super::osd_show::state_names(map.state(o)).join(","),
        ]);
    }
    // Each line ends in the padding of the last column.
    plain(t.render().lines().map(|l| format!("{l}  \n")).collect::<String>())
}

fn blocked_by(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut n: BTreeMap<OsdId, u64> = BTreeMap::new();
    for (_, s) in c.state.mgr.stats.pgs() {
        for o in &s.blocked_by {
            *n.entry(*o).or_default() += 1;
        }
    }
    let tree = || {
        let list: J = n.iter().map(|(o, k)| obj! { "id": o.0, "num_blocked": *k }).collect();
        obj! { "pg_ready": true, "osd_blocked_by": obj! { "osd_blocked_by_infos": list } }
    };
    let text = || {
        let mut t = Table::new(&[("osd", Left, Right), ("num_blocked", Left, Right)]);
        for (o, k) in &n {
            t.row([o.0.to_string(), k.to_string()]);
        }
        t.render()
    };
    c.tree("blocked", tree).text(text)
}
