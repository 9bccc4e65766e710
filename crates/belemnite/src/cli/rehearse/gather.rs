//! The facts for a rehearsal from the cluster: PGs with their sizes and copies, stores, rates.

use super::Error;
pub(super) use crate::cli::operate::must_json;
use base::{OsdId, PgId, PoolId};
use client::Client;
use cluster::OsdMap;
use mgr::balance::shard_share;
use mgr::rehearse::steps::{PgSeen, Seen};
use mgr::rehearse::{Facts, Hold, OsdFacts, PgFacts, Rate, overhead};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

fn osd(v: &Value) -> Option<OsdId> {
    i32::try_from(v.as_i64()?).ok().map(OsdId)
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or(0)
}

/// All facts. `asked` is the monitor's answer to `rehearse`.
pub(super) async fn facts(c: &Client, map: &OsdMap, asked: &Value) -> Result<Facts, Error> {
    let dump = must_json(c, json!({"prefix": "pg dump", "dumpcontents": ["pgs"]})).await?;
    let df = must_json(c, json!({"prefix": "osd df"})).await?;
    let pgs = pgs(map, &dump);
    let nodes = || list(&df["nodes"]).iter().chain(list(&df["stray"]));
    let bytes = |n: &Value, k: &str| number(&n[k]) << 10;
    let store = |n: &Value| Some((osd(&n["id"])?, OsdFacts { total: bytes(n, "kb"), used: bytes(n, "kb_used") }));
    let data: u64 = nodes().map(|n| bytes(n, "kb_used_data") + bytes(n, "kb_used_omap")).sum();
    let space: u64 = nodes().map(|n| bytes(n, "kb")).sum();
    let hold = asked["hold_growth"].as_bool().unwrap_or(false).then(|| Hold {
        pools: list(&asked["hold_pools"]).iter().filter_map(Value::as_i64).map(PoolId).collect(),
        at_once: asked["target_max_misplaced_ratio"].as_f64().unwrap_or(0.0),
    });
    let rate = match asked["recovery_bytes_per_sec"].as_u64() {
        Some(bytes) => Rate::Measured { bytes, age: number(&asked["recovery_measured_ago"]) },
        None => Rate::Assumed,
    };
    let overhead = overhead(data, in_copies(map, &pgs), space);
    Ok(Facts { pgs, osds: nodes().filter_map(store).filter(|(_, f)| f.total > 0).collect(), overhead, rate, hold })
}

/// The cluster as it is now, for a change in steps.
pub(super) async fn seen(c: &Client) -> Result<Seen, Error> {
    let map = Arc::new(super::map_at(c, &Value::Null).await?);
    let dump = must_json(c, json!({"prefix": "pg dump", "dumpcontents": ["pgs"]})).await?;
    let health = must_json(c, json!({"prefix": "health"})).await?;
    let osds = |v: &Value| list(v).iter().filter_map(osd).collect();
    let pg = |s: &Value| {
        let state = s["state"].as_str().unwrap_or_default().to_owned();
        let bytes = number(&s["stat_sum"]["num_bytes"]) + number(&s["stat_sum"]["num_omap_bytes"]);
        let seen = PgSeen { state, up: osds(&s["up"]), acting: osds(&s["acting"]), bytes };
        Some((PgId::parse(s["pgid"].as_str()?)?, seen))
    };
    let pgs = list(stats(&dump)).iter().filter_map(pg).collect();
    let checks = health["checks"].as_object().into_iter().flatten();
    let errors = checks.filter(|(_, v)| v["severity"] == "HEALTH_ERR").map(|(k, _)| k.clone()).collect();
    Ok(Seen { map, pgs, errors })
}

/// Bytes of all copies and shards of objects.
pub(super) fn in_copies(map: &OsdMap, pgs: &BTreeMap<PgId, PgFacts>) -> f64 {
    let of = |(pg, f): (&PgId, &PgFacts)| {
        let copies = f.holders.iter().filter(|o| **o != OsdId::NONE).count() as f64;
        map.pool(pg.pool).map_or(0.0, |p| f.bytes as f64 * shard_share(map, p) * copies)
    };
    pgs.iter().map(of).sum()
}

/// The list of PGs in an answer to `pg dump pgs`.
fn stats(dump: &Value) -> &Value {
    let stats = if dump.is_array() { dump } else { &dump["pg_stats"] };
    if stats.is_null() { &dump["pg_map"]["pg_stats"] } else { stats }
}

/// PGs that have reported.
fn pgs(map: &OsdMap, dump: &Value) -> BTreeMap<PgId, PgFacts> {
    list(stats(dump)).iter().filter_map(|s| Some((PgId::parse(s["pgid"].as_str()?)?, pg(map, s)?))).collect()
}

/// A PG's facts; `None` if it has not reported.
fn pg(map: &OsdMap, s: &Value) -> Option<PgFacts> {
    let state = s["state"].as_str().unwrap_or_default();
    let has = |word: &str| state.split('+').any(|w| w == word);
    if state.is_empty() || has("unknown") || has("creating") {
        return None;
    }
    let id = PgId::parse(s["pgid"].as_str()?)?;
    let coded = map.pool(id.pool)?.is_erasure();
    let reported = number(&s["reported_epoch"]);
    let lives = |o: OsdId| map.is_up(o) && u64::from(map.info(o).up_from.0) <= reported;
    let acting: Vec<OsdId> = list(&s["acting"]).iter().filter_map(osd).collect();
    let mut holders = if has("clean") {
        acting
    } else if coded {
        let mut at = vec![OsdId::NONE; acting.len()];
        for x in list(&s["avail_no_missing"]) {
            let place = x["shard"].as_u64().and_then(|i| at.get_mut(usize::try_from(i).ok()?));
            if let (Some(place), Some(o)) = (place, osd(&x["osd"])) {
                *place = o;
            }
        }
        at
    } else {
        list(&s["avail_no_missing"]).iter().filter_map(|x| osd(&x["osd"])).collect()
    };
    for o in holders.iter_mut().filter(|o| !lives(**o)) {
        *o = OsdId::NONE;
    }
    let sum = &s["stat_sum"];
    // A PG with objects counts as one with data, though they be empty.
    let bytes = (number(&sum["num_bytes"]) + number(&sum["num_omap_bytes"])).max(number(&sum["num_objects"]).min(1));
    Some(PgFacts { bytes, holders, active: has("active") && !has("stale") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Epoch;
    use cluster::osdmap::{Incremental, osd_state};

    fn map() -> OsdMap {
        let empty = OsdMap { epoch: Epoch(9), ..OsdMap::default() };
        let mut inc = Incremental::new(empty.fsid, empty.epoch.next(), empty.modified);
        inc.new_max_osd = 4;
        let pool = |kind| cluster::PgPool { kind, size: 3, pg_num: 8, pgp_num: 8, ..cluster::PgPool::default() };
        inc.new_pools.insert(PoolId(1), pool(cluster::pool::kind::REPLICATED));
        inc.new_pools.insert(PoolId(2), pool(cluster::pool::kind::ERASURE));
        let mut map = empty.apply(&inc).unwrap();
        map.osd_state = Arc::new(vec![osd_state::EXISTS | osd_state::UP; 4]);
        Arc::make_mut(&mut map.osd_state)[3] = osd_state::EXISTS;
        map
    }

    #[test]
    fn only_complete_copies_on_living_osds_count() {
        let stat = |id: &str, state: &str| {
            json!({"pgid": id, "state": state, "acting": [0, 1, 3], "reported_epoch": 10,
                "avail_no_missing": [{"osd": 0, "shard": 2}, {"osd": 3, "shard": 1}],
                "stat_sum": {"num_bytes": 100, "num_omap_bytes": 11}})
        };
        let none = OsdId::NONE;
        let f = pg(&map(), &stat("1.0", "active+clean")).unwrap();
        assert_eq!(f, PgFacts { bytes: 111, holders: vec![OsdId(0), OsdId(1), none], active: true });
        let f = pg(&map(), &stat("1.0", "active+undersized+degraded")).unwrap();
        assert_eq!(f.holders, [OsdId(0), none]);
        let f = pg(&map(), &stat("2.0", "undersized+degraded+peered")).unwrap();
        assert_eq!((f.holders, f.active), (vec![none, none, OsdId(0)], false));
        assert_eq!(pg(&map(), &stat("1.0", "unknown")), None);
        assert_eq!(pg(&map(), &stat("7.0", "active+clean")), None, "the pool is gone");
    }
}
