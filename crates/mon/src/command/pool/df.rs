//! `df`: space of the cluster, of device classes and of pools.

use crate::command::language::text::{Align, Left, Right, Table};
use crate::command::units::{bytes, count, unsigned};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd};
use crate::json::J;
use crate::obj;
use base::PoolId;
use cluster::PgPool;
use mgr::stats::space::{self, PoolUsage};
use std::sync::Arc;
use wire::types::{OsdStat, StoreStatfs};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] =
    &[cmd("df detail:Choices(detail)?", "mon", "r", 0, df, "show the space of the cluster and of pools")];

/// A share in percent, as tables show it.
fn percent(ratio: f64) -> String {
    let p = ratio * 100.0;
    if p < 0.01 { "0".into() } else { format!("{p:.2}") }
}

fn raw_ratio(s: &StoreStatfs) -> f64 {
    if s.total > 0 { space::used_raw(s) as f64 / s.total as f64 } else { 0.0 }
}

fn raw_tree(s: &StoreStatfs) -> J {
    obj! {
        "total_bytes": s.total,
        "total_avail_bytes": s.available,
        "total_used_bytes": space::used(s),
        "total_used_raw_bytes": space::used_raw(s),
        // Ceph computes this ratio in single precision.
        "total_used_raw_ratio": f64::from(raw_ratio(s) as f32),
    }
}

fn df(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let detail = c.args.opt("detail").is_some();
    let map = c.state.osdmap.clone();
    let st = &c.state.mgr.stats;
    let total = st.osd_sum();
    let classes = space::by_class(st, &map);
    let mut usages = space::Usages::new(st, &map);
    let pools: Vec<(PoolId, Arc<PgPool>, PoolUsage)> =
        map.pools.iter().map(|(id, p)| (*id, p.clone(), usages.of(*id, p))).collect();
    let tree = || {
        let mut stats = raw_tree(&total.statfs);
        stats
            .put("num_osds", total.num_osds)
            .put("num_per_pool_osds", total.num_per_pool_osds)
            .put("num_per_pool_omap_osds", total.num_per_pool_omap_osds);
        let by_class = classes.iter().map(|(n, s)| (n.clone().into(), raw_tree(&s.statfs))).collect();
        let list: J = pools
            .iter()
            .map(|(id, p, u)| {
                obj! {
                    "name": map.pool_name(*id).unwrap_or_default(),
                    "id": id.0,
                    "stats": pool_tree(c, *id, p, u, detail),
                }
            })
            .collect();
        obj! { "stats": stats, "stats_by_class": J::Obj(by_class), "pools": list }
    };
    let text = || {
        let mut t = Table::new(&[
            ("CLASS", Left, Left),
            ("SIZE", Right, Right),
            ("AVAIL", Right, Right),
            ("USED", Right, Right),
            ("RAW USED", Right, Right),
            ("%RAW USED", Right, Right),
        ]);
        for (name, s) in &classes {
            t.row(raw_row(name, s));
        }
        t.row(raw_row("TOTAL", &total));
        let mut s = format!("--- RAW STORAGE ---\n{} \n--- POOLS ---\n", t.render());
        s += &pool_table(c, &pools, detail);
        s
    };
    c.tree("stats", tree).text(text)
}

fn raw_row(name: &str, s: &OsdStat) -> [String; 6] {
    let f = &s.statfs;
    [
        name.to_owned(),
        bytes(unsigned(f.total)),
        bytes(unsigned(f.available)),
        bytes(space::used(f)),
        bytes(space::used_raw(f)),
        percent(raw_ratio(f)),
    ]
}

fn pool_tree(c: &Ctx<'_>, id: PoolId, p: &PgPool, u: &PoolUsage, detail: bool) -> J {
    let stat = c.state.mgr.stats.pool(id);
    let sum = &stat.stats.sum;
    let mut j = obj! { "stored": u.stored };
    if detail {
        j.put("stored_data", u.stored_data).put("stored_omap", u.stored_omap);
    }
    j.put("objects", sum.num_objects).put("kb_used", u.used.div_ceil(1024)).put("bytes_used", u.used);
    if detail {
        j.put("data_bytes_used", u.used_data).put("omap_bytes_used", u.used_omap);
    }
    j.put("percent_used", f64::from(u.used_ratio as f32)).put("max_avail", u.max_avail);
    if detail {
        j.put("quota_objects", p.quota_max_objects)
            .put("quota_bytes", p.quota_max_bytes)
            .put("dirty", if p.is_tier() { sum.num_objects_dirty } else { 0 })
            .put("rd", sum.num_rd)
            .put("rd_bytes", sum.num_rd_kb << 10)
            .put("wr", sum.num_wr)
            .put("wr_bytes", sum.num_wr_kb << 10)
            .put("compress_bytes_used", stat.store_stats.data_compressed_allocated)
            .put("compress_under_bytes", stat.store_stats.data_compressed_original)
            .put("stored_raw", u.stored_raw)
            .put("avail_raw", u.avail_raw);
    }
    j
}

fn pool_table(c: &Ctx<'_>, pools: &[(PoolId, Arc<PgPool>, PoolUsage)], detail: bool) -> String {
    let mut head: Vec<(&str, Align, Align)> =
        vec![("POOL", Left, Left), ("ID", Right, Right), ("PGS", Right, Right), ("STORED", Right, Right)];
    let r = |n: &'static str| (n, Right, Right);
    if detail {
        head.extend([r("(DATA)"), r("(OMAP)")]);
    }
    head.extend([r("OBJECTS"), r("USED")]);
    if detail {
        head.extend([r("(DATA)"), r("(OMAP)")]);
    }
    head.extend([r("%USED"), r("MAX AVAIL")]);
    if detail {
        head.extend([r("QUOTA OBJECTS"), r("QUOTA BYTES"), r("DIRTY"), r("USED COMPR"), r("UNDER COMPR")]);
    }
    let mut t = Table::new(&head);
    for (id, p, u) in pools {
        let stat = c.state.mgr.stats.pool(*id);
        let sum = &stat.stats.sum;
        let name = c.state.osdmap.pool_name(*id).unwrap_or_default();
        let mut row = vec![name.to_owned(), id.0.to_string(), p.pg_num.to_string(), bytes(u.stored)];
        if detail {
            row.extend([bytes(u.stored_data), bytes(u.stored_omap)]);
        }
        row.extend([count(unsigned(sum.num_objects)), bytes(u.used)]);
        if detail {
            row.extend([bytes(u.used_data), bytes(u.used_omap)]);
        }
        row.extend([percent(u.used_ratio), bytes(u.max_avail)]);
        if detail {
            let quota = |v: u64, f: fn(u64) -> String| if v == 0 { "N/A".to_owned() } else { f(v) };
            row.extend([
                quota(p.quota_max_objects, count),
                quota(p.quota_max_bytes, bytes),
                if p.is_tier() { count(unsigned(sum.num_objects_dirty)) } else { "N/A".into() },
                bytes(unsigned(stat.store_stats.data_compressed_allocated)),
                bytes(unsigned(stat.store_stats.data_compressed_original)),
            ]);
        }
        t.row(row);
    }
    t.render()
}
