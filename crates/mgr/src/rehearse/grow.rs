//! The change by which new hosts join that are like a present one.

use base::{AddrVec, OsdId};
use cluster::crush::Location;
use cluster::osdmap::{CANONICAL, WEIGHT_IN};
use cluster::{Incremental, OsdMap};

/// Most OSDs that join.
const OSDS_MAX: usize = 4_000;

/// New hosts.
#[derive(Clone, Debug)]
pub struct Grown {
    /// The change.
    pub change: Incremental,
    /// Each new OSD, with the one that it is like.
    pub osds: Vec<(OsdId, OsdId)>,
    /// Names of the new hosts.
    pub hosts: Vec<String>,
}

/// The change by which `n` hosts join, each beside `host` with OSDs of the same weights and classes. Error: a text.
pub fn hosts_like(map: &OsdMap, host: &str, n: usize) -> Result<Grown, String> {
    let like = map.crush.id_of(host).filter(|id| map.crush.bucket(*id).is_some());
    let like = like.ok_or_else(|| format!("the CRUSH map has no host {host}"))?;
    let kind = map.crush.type_of(like).and_then(|t| map.crush.type_name(t)).unwrap_or_default().to_owned();
    if kind != "host" {
        return Err(format!("{host} is a {kind}, not a host"));
    }
    let models: Vec<i32> = map.crush.leaves(like);
    if models.is_empty() {
        return Err(format!("{host} has no OSDs"));
    }
    if n == 0 || models.len().saturating_mul(n) > OSDS_MAX {
        return Err(format!("{n} hosts of {} OSDs: 1 to {OSDS_MAX} OSDs can join", models.len()));
    }
    let above: Location = map.crush.full_location(like).into_iter().collect();
    let mut crush = (*map.crush).clone();
    let mut change = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    let mut grown = Grown { change: change.clone(), osds: Vec::new(), hosts: Vec::new() };
    let mut id = map.max_osd;
    let names = (1..).map(|i| format!("{host}-new{i}")).filter(|name| map.crush.id_of(name).is_none());
    for name in names.take(n) {
        let mut loc = above.clone();
        loc.insert("host".to_owned(), name.clone());
        for model in &models {
            let weight = map.crush.weight_in(like, *model).unwrap_or(0);
            crush.insert_item(id, weight, &format!("osd.{id}"), &loc).map_err(|e| e.to_string())?;
            if let Some(class) = map.crush.class_of(*model) {
                crush.set_device_class(id, class).map_err(|e| e.to_string())?;
            }
            change.new_up_client.insert(OsdId(id), AddrVec::default());
            change.new_weight.insert(OsdId(id), WEIGHT_IN);
            grown.osds.push((OsdId(id), OsdId(*model)));
            id += 1;
        }
        grown.hosts.push(name);
    }
    crush.rebuild_shadows().map_err(|e| e.to_string())?;
    change.new_max_osd = id;
    change.crush = crush.encode_blob(CANONICAL);
    grown.change = change;
    Ok(grown)
}
