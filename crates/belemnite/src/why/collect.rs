//! Collects the evidence: ledgers of all OSDs, health, maps, states of PGs, clocks of the monitors.

use super::{Error, placement};
use crate::cli::operate::must_json;
use base::{EntityAddr, EntityKind, OsdId};
use client::Client;
use cluster::OsdMap;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use why::eta::{Sample, Stops};
use why::safe;
use why::unclean::Unclean;
use why::{Activity, Background, Check, Evidence, Mon, Osd, Placement, Pool};

/// Time within which an OSD answers.
const ANSWER_MAX: Duration = Duration::from_secs(6);

/// Type of an erasure-coded pool (`pg_pool_t::TYPE_ERASURE`).
const ERASURE: u64 = 3;

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_owned()
}

fn osds_of(v: &Value) -> Vec<i32> {
    list(v).iter().filter_map(|o| i32::try_from(o.as_i64()?).ok()).collect()
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The ledger of an OSD; `None` if it does not answer in time.
async fn ledger(c: &Client, addr: EntityAddr, since: u64) -> Option<Osd> {
    let cmd = json!({"prefix": "dump_ledger", "seconds": since, "format": "json"}).to_string();
    let before = unix_now();
    let r = tokio::time::timeout(ANSWER_MAX, c.tell(EntityKind::OSD, addr, &cmd)).await.ok()?.ok()?;
    let after = unix_now();
    let v: Value = serde_json::from_slice(&r.out).ok()?;
    let mut o: Osd = serde_json::from_value(v.clone()).ok()?;
    let wall = v["wall"].as_f64().unwrap_or(before);
    o.clock_ahead = if wall < before { wall - before } else { (wall - after).max(0.0) };
    Some(o)
}

/// Ledgers of all OSDs that are up, and those that did not answer.
async fn ledgers(c: &Rc<Client>, since: u64) -> Result<(Vec<Osd>, Vec<i32>), Error> {
    let map = c.osdmap().await?;
    let up = (0..map.max_osd).map(OsdId).filter(|o| map.is_up(*o));
    let asked: Vec<_> = up
        .filter_map(|o| Some((o, map.client_addr(o)?.msgr2().copied()?)))
        .map(|(o, addr)| {
            let c = Rc::clone(c);
            (o, tokio::task::spawn_local(async move { ledger(&c, addr, since).await }))
        })
        .collect();
    let (mut all, mut silent) = (Vec::new(), Vec::new());
    for (o, answer) in asked {
        match answer.await.ok().flatten() {
            Some(l) => all.push(l),
            None => silent.push(o.0),
        }
    }
    Ok((all, silent))
}

fn checks(v: &Value) -> Vec<Check> {
    let check = |(code, c): (&String, &Value)| Check {
        code: code.clone(),
        summary: text(&c["summary"]["message"]),
        detail: list(&c["detail"]).iter().map(|d| text(&d["message"])).collect(),
    };
    v["checks"].as_object().into_iter().flatten().map(check).collect()
}

fn pools(dump: &Value) -> Vec<Pool> {
    let pool = |p: &Value| Pool {
        pool: p["pool"].as_i64().unwrap_or(-1),
        name: text(&p["pool_name"]),
        full: text(&p["flags_names"]).split(',').any(|f| f == "full" || f == "full_quota"),
        quota: text(&p["flags_names"]).split(',').any(|f| f == "full_quota"),
    };
    list(&dump["pools"]).iter().map(pool).collect()
}

async fn pgs(c: &Client) -> Result<Vec<Value>, Error> {
    let v = must_json(c, json!({"prefix": "pg dump", "dumpcontents": ["pgs_brief"]})).await?;
    Ok(list(if v.is_array() { &v } else { &v["pg_stats"] }).to_vec())
}

/// The acting set of a PG.
pub(super) async fn acting(c: &Client, pg: &str) -> Result<Vec<i32>, Error> {
    let all = pgs(c).await?;
    let found = all.iter().find(|p| p["pgid"] == pg).ok_or_else(|| format!("no PG {pg}"))?;
    Ok(osds_of(&found["acting"]))
}

fn background(pg: &Value, map: &OsdMap) -> Option<Background> {
    let state = text(&pg["state"]);
    let activity = if !state.contains("active") {
        Activity::Inactive
    } else if state.contains("scrubbing+deep") {
        Activity::DeepScrub
    } else if state.split('+').any(|s| s == "recovering" || s == "backfilling") {
        Activity::Recovery
    } else {
        return None;
    };
    let mut osds = osds_of(&pg["acting"]);
    osds.extend(osds_of(&pg["up"]));
    osds.sort_unstable();
    osds.dedup();
    let placement =
        if activity == Activity::Inactive { placement::of(map, &text(&pg["pgid"])) } else { Placement::default() };
    Some(Background { pg: text(&pg["pgid"]), state, activity, osds, placement })
}

fn mons(v: &Value) -> Vec<Mon> {
    let mon = |(name, m): (&String, &Value)| Mon { name: name.clone(), skew: m["skew"].as_f64().unwrap_or(0.0) };
    v["time_skew_status"].as_object().into_iter().flatten().map(mon).collect()
}

/// All evidence but locks.
pub(super) async fn evidence(c: &Rc<Client>, since: u64) -> Result<Evidence, Error> {
    let (osds, silent) = ledgers(c, since).await?;
    let health = must_json(c, json!({"prefix": "health", "detail": "detail"})).await?;
    let dump = must_json(c, json!({"prefix": "osd dump"})).await?;
    let status = must_json(c, json!({"prefix": "status"})).await?;
    let clocks = must_json(c, json!({"prefix": "time-sync-status"})).await.unwrap_or_default();
    let map = c.osdmap().await?;
    Ok(Evidence {
        osds,
        silent,
        health: checks(&health),
        pools: pools(&dump),
        background: pgs(c).await?.iter().filter_map(|p| background(p, &map)).collect(),
        recovery_rate: status["pgmap"]["recovering_bytes_per_sec"].as_f64().unwrap_or(0.0),
        locks: Vec::new(),
        mons: mons(&clocks),
        full_ratio: dump["full_ratio"].as_f64().unwrap_or(0.0),
        backfillfull_ratio: dump["backfillfull_ratio"].as_f64().unwrap_or(0.0),
    })
}

/// True for a PG that needs no explanation: active, clean, and where CRUSH wants it.
fn is_settled(state: &str) -> bool {
    let has = |word: &str| state.split('+').any(|w| w == word);
    has("active") && has("clean") && !has("remapped")
}

/// PGs that are not clean or not in their place, with the states of their OSDs, and the health checks.
pub(super) async fn unclean(c: &Client) -> Result<(Vec<Unclean>, Vec<Check>), Error> {
    let dump = must_json(c, json!({"prefix": "osd dump"})).await?;
    let health = must_json(c, json!({"prefix": "health", "detail": "detail"})).await?;
    let down: Vec<i32> = list(&dump["osds"])
        .iter()
        .filter(|o| o["up"] == 0)
        .filter_map(|o| i32::try_from(o["osd"].as_i64()?).ok())
        .collect();
    let (all, map) = (pgs(c).await?, c.osdmap().await?);
    let bad = all.iter().filter(|p| !is_settled(p["state"].as_str().unwrap_or_default()));
    let shown = bad.map(|p| Unclean {
        pg: text(&p["pgid"]),
        state: text(&p["state"]),
        up: osds_of(&p["up"]),
        acting: osds_of(&p["acting"]),
        down: down.clone(),
        placement: placement::of(&map, &text(&p["pgid"])),
    });
    Ok((shown.collect(), checks(&health)))
}

/// True if a PG's acting set under the map is not that of its report, which is up to five seconds old.
fn is_outdated(map: &OsdMap, pg: &Value) -> bool {
    placement::acting(map, &text(&pg["pgid"])).is_some_and(|now| now != osds_of(&pg["acting"]))
}

/// Pools, PGs and hosts for `safe`.
pub(super) async fn redundancy(c: &Client) -> Result<(BTreeMap<i64, safe::Pool>, Vec<safe::Pg>, safe::Hosts), Error> {
    let dump = must_json(c, json!({"prefix": "osd dump"})).await?;
    let mut pools = BTreeMap::new();
    for p in list(&dump["pools"]) {
        let number = |k: &str| usize::try_from(p[k].as_u64().unwrap_or(0)).unwrap_or(0);
        let coded = p["type"] == ERASURE;
        let needs = if coded { data_shards(c, &text(&p["erasure_code_profile"])).await? } else { 1 };
        let pool =
            safe::Pool { name: text(&p["pool_name"]), size: number("size"), min_size: number("min_size"), needs };
        pools.insert(p["pool"].as_i64().unwrap_or(-1), pool);
    }
    let all = pgs(c).await?;
    let map = c.osdmap().await?;
    let pg = |p: &Value| {
        let pg = text(&p["pgid"]);
        let pool = pg.split_once('.').and_then(|(n, _)| n.parse().ok()).unwrap_or(-1);
        let acting = osds_of(&p["acting"]).into_iter().map(|o| if map.is_up(OsdId(o)) { o } else { OsdId::NONE.0 });
        safe::Pg { pg, pool, state: text(&p["state"]), acting: acting.collect(), outdated: is_outdated(&map, p) }
    };
    let pgs = all.iter().map(pg).collect();
    let tree = must_json(c, json!({"prefix": "osd tree"})).await?;
    let hosts = list(&tree["nodes"]).iter().filter(|n| n["type"] == "host");
    let hosts = hosts.map(|n| (text(&n["name"]), osds_of(&n["children"]))).collect();
    Ok((pools, pgs, hosts))
}

/// Number of data shards of a code's profile.
async fn data_shards(c: &Client, profile: &str) -> Result<usize, Error> {
    let v = must_json(c, json!({"prefix": "osd erasure-code-profile get", "name": profile})).await?;
    Ok(v["k"].as_str().and_then(|k| k.parse().ok()).unwrap_or(1))
}

/// A sample of what is to be recovered.
pub(super) async fn sample(c: &Client, at: f64) -> Result<Sample, Error> {
    let status = must_json(c, json!({"prefix": "status"})).await?;
    let (all, map) = (pgs(c).await?, c.osdmap().await?);
    let number = |k: &str| status["pgmap"][k].as_u64().unwrap_or(0);
    Ok(Sample {
        at,
        degraded: number("degraded_objects"),
        misplaced: number("misplaced_objects"),
        unfound: number("unfound_objects"),
        unreported: all.iter().filter(|p| is_outdated(&map, p)).count() as u64,
    })
}

/// Reasons for which recovery may stand still.
pub(super) async fn stops(c: &Client) -> Result<Stops, Error> {
    let dump = must_json(c, json!({"prefix": "osd dump"})).await?;
    let stopping = ["norecover", "nobackfill", "norebalance"];
    let flags = text(&dump["flags"]).split(',').filter(|f| stopping.contains(f)).map(str::to_owned).collect();
    let full = |p: &&Value| text(&p["state"]).contains("toofull");
    let down = list(&dump["osds"]).iter().filter(|o| o["up"] == 0 && o["in"] == 1);
    Ok(Stops {
        flags,
        too_full: pgs(c).await?.iter().filter(full).count() as u64,
        down: down.filter_map(|o| i32::try_from(o["osd"].as_i64()?).ok()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pg_outside_its_place_is_explained() {
        for settled in ["active+clean", "active+clean+scrubbing+deep", "active+clean+snaptrim"] {
            assert!(is_settled(settled), "{settled}");
        }
        for not in ["active+clean+remapped", "active+undersized", "clean+premerge+peered", "unknown", ""] {
            assert!(!is_settled(not), "{not}");
        }
    }

    #[test]
    fn a_full_pool_has_reached_a_quota_only_with_the_flag() {
        let dump = json!({"pools": [
            {"pool": 1, "pool_name": "a", "flags_names": "hashpspool,full"},
            {"pool": 2, "pool_name": "b", "flags_names": "hashpspool,full,full_quota"},
            {"pool": 3, "pool_name": "c", "flags_names": "hashpspool,backfillfull"}]});
        let seen: Vec<_> = pools(&dump).into_iter().map(|p| (p.name, p.full, p.quota)).collect();
        assert_eq!(seen, [("a".into(), true, false), ("b".into(), true, true), ("c".into(), false, false)]);
    }
}
