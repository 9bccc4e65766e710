//! Facts of the cluster, from its monitors.

use super::{Error, Site};
use crate::admin;
use crate::cli::operate::{command, must_json, unclean};
use client::Client;
use deploy::facts::{Cluster, OsdFacts, PoolFacts};
use deploy::{Facts, inventory};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time for a monitor to answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Connects as the administrator.
///
/// # Errors
/// No monitor answers in time.
pub(super) async fn connect(site: &Site) -> Result<Client, Error> {
    let o = admin::options(&site.dir.at("ceph.conf"), "admin", None)?;
    crate::cli::check_refused(&o).await?;
    let asked = tokio::time::timeout(ANSWER_MAX, Client::connect(o)).await;
    Ok(asked.map_err(|_| format!("no monitor answers within {} s", ANSWER_MAX.as_secs()))??)
}

fn array(v: &Value) -> impl Iterator<Item = &Value> {
    v.as_array().into_iter().flatten()
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_owned()
}

fn id(v: &Value) -> Option<u32> {
    u32::try_from(v.as_u64()?).ok()
}

/// Monitors of a monmap with their addresses.
fn monitors(dump: &Value) -> BTreeMap<String, IpAddr> {
    let address = |m: &Value| {
        let listed = array(&m["public_addrs"]["addrvec"]).find_map(|a| a["addr"].as_str());
        let at = listed.or_else(|| m["public_addr"].as_str())?.split('/').next()?;
        Some(at.parse::<SocketAddr>().ok()?.ip())
    };
    array(&dump["mons"]).filter_map(|m| Some((text(&m["name"]), address(m)?))).collect()
}

/// Hosts of the CRUSH map: the buckets above each, and the OSDs below.
fn hosts(tree: &Value) -> (BTreeMap<String, BTreeMap<String, String>>, BTreeMap<u32, String>) {
    let nodes: BTreeMap<i64, &Value> = array(&tree["nodes"]).filter_map(|n| Some((n["id"].as_i64()?, n))).collect();
    let mut above: BTreeMap<i64, i64> = BTreeMap::new();
    for (i, n) in &nodes {
        above.extend(array(&n["children"]).filter_map(Value::as_i64).map(|c| (c, *i)));
    }
    let (mut places, mut osds) = (BTreeMap::new(), BTreeMap::new());
    for (i, n) in nodes.iter().filter(|(_, n)| n["type"] == "host") {
        let mut place = BTreeMap::new();
        let mut at = above.get(i);
        // Types in a map are fewer than this, so a map with a circle ends, too.
        for _ in 0..inventory::PLACES.len() + 1 {
            let Some(b) = at.and_then(|p| nodes.get(p)) else { break };
            if b["type"] != "root" {
                place.insert(text(&b["type"]), text(&b["name"]));
            }
            at = at.and_then(|p| above.get(p));
        }
        places.insert(text(&n["name"]), place);
        osds.extend(array(&n["children"]).filter_map(id).map(|o| (o, text(&n["name"]))));
    }
    (places, osds)
}

/// The type of buckets over which each rule spreads copies, by the rule's id.
fn domains(rules: &Value) -> BTreeMap<u64, String> {
    let domain = |r: &Value| {
        let chosen = array(&r["steps"]).filter(|s| s["op"].as_str().is_some_and(|o| o.starts_with("choose")));
        chosen.last().map_or_else(|| "osd".into(), |s| text(&s["type"]))
    };
    array(rules).filter_map(|r| Some((r["rule_id"].as_u64()?, domain(r)))).collect()
}

/// OSDs of the map.
fn osds(dump: &Value, df: &Value, host: &BTreeMap<u32, String>) -> BTreeMap<u32, OsdFacts> {
    let sizes: BTreeMap<u32, &Value> = array(&df["nodes"]).filter_map(|n| Some((id(&n["id"])?, n))).collect();
    let kib = |id: u32, k: &str| sizes.get(&id).and_then(|n| n[k].as_u64()).unwrap_or_default().saturating_mul(1024);
    let one = |o: &Value| {
        let id = id(&o["osd"])?;
        let facts = OsdFacts {
            host: host.get(&id).cloned().unwrap_or_default(),
            up: o["up"] == 1,
            is_in: o["in"] == 1,
            needed: true,
            bytes: kib(id, "kb"),
            used: kib(id, "kb_used_data"),
        };
        Some((id, facts))
    };
    array(&dump["osds"]).filter_map(one).collect()
}

/// Asks the monitors for what a plan depends on.
pub(super) async fn ask(site: &Site, f: &Facts) -> Result<Cluster, Error> {
    let c = connect(site).await?;
    let dump = must_json(&c, json!({"prefix": "osd dump"})).await?;
    let (places, host) = hosts(&must_json(&c, json!({"prefix": "osd tree"})).await?);
    let df = must_json(&c, json!({"prefix": "osd df"})).await?;
    let domains = domains(&must_json(&c, json!({"prefix": "osd crush rule dump"})).await?);
    let pool = |p: &Value| PoolFacts {
        name: text(&p["pool_name"]),
        size: p["size"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or_default(),
        domain: p["crush_rule"].as_u64().and_then(|r| domains.get(&r).cloned()).unwrap_or_else(|| "osd".into()),
    };
    let options = must_json(&c, json!({"prefix": "config dump"})).await?;
    let quorum = must_json(&c, json!({"prefix": "quorum_status"})).await?;
    let flags = text(&dump["flags"]);
    let mut all = Cluster {
        monitors: monitors(&must_json(&c, json!({"prefix": "mon dump"})).await?),
        quorum: array(&quorum["quorum_names"]).map(text).collect(),
        etcd: Vec::new(),
        osds: osds(&dump, &df, &host),
        places,
        pools: array(&dump["pools"]).map(pool).collect(),
        filesystems: array(&must_json(&c, json!({"prefix": "fs ls"})).await?).map(|f| text(&f["name"])).collect(),
        options: array(&options).map(|o| ((text(&o["section"]), text(&o["name"])), text(&o["value"]))).collect(),
        is_clean: unclean(&c).await?.is_none(),
        noout: flags.split(',').any(|w| w == "noout"),
        noout_is_ours: site.dir.has_noout(),
    };
    let leaving: BTreeSet<&String> = f.former.keys().collect();
    for (id, o) in all.osds.iter_mut().filter(|(_, o)| !o.is_in && leaving.contains(&o.host)) {
        let r = command(&c, json!({"prefix": "osd safe-to-destroy", "ids": [id.to_string()]})).await?;
        o.needed = r.rc != 0;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read() {
        let tree = json!({"nodes": [
            {"id": -1, "type": "root", "name": "default", "children": [-3]},
            {"id": -3, "type": "rack", "name": "r1", "children": [-2]},
            {"id": -2, "type": "host", "name": "h", "children": [1, 0]},
            {"id": 0, "type": "osd", "name": "osd.0"}, {"id": 1, "type": "osd", "name": "osd.1"}]});
        let (places, osds) = hosts(&tree);
        assert_eq!(places["h"], BTreeMap::from([("rack".to_owned(), "r1".to_owned())]));
        assert_eq!(osds, BTreeMap::from([(0, "h".to_owned()), (1, "h".to_owned())]));
        // A circle ends.
        hosts(&json!({"nodes": [{"id": -1, "type": "host", "name": "h", "children": [-1]}]}));
        let mons = json!({"mons": [
            {"name": "a", "public_addrs": {"addrvec": [{"type": "v2", "addr": "10.0.0.1:3300"}]}},
            {"name": "b", "public_addr": "[::1]:3300/0"}, {"name": "c"}]});
        let all = monitors(&mons);
        assert_eq!(all.len(), 2);
        assert_eq!(all["b"].to_string(), "::1");
        let rules = json!([{"rule_id": 3, "steps": [{"op": "take"}, {"op": "chooseleaf_firstn", "type": "rack"}]}]);
        assert_eq!(domains(&rules)[&3], "rack");
    }
}
