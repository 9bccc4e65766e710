//! PGs that report themselves where the map places them, and changes that are rehearsed and carried out in steps.

use super::*;
use base::PgId;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mgr::rehearse::steps::{Record, plan};
use mgr::rehearse::{Facts, PgFacts, Rate};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::types::{OsdStat, PgStat, pg_state};

pub(crate) fn pgs(c: &Cluster) -> Vec<PgId> {
    c.map().pools.keys().flat_map(|p| c.map().pgs_of(*p).collect::<Vec<_>>()).collect()
}

/// Every PG reports itself clean where the map places it.
pub(crate) fn report(c: &mut Cluster, seq: u64) {
    let mut by: BTreeMap<OsdId, BTreeMap<PgId, PgStat>> = BTreeMap::new();
    for pg in pgs(c) {
        let at = c.map().pg_to_up_acting(pg);
        let mut s = PgStat {
            reported_epoch: c.map().epoch,
            reported_seq: seq,
            up: at.up.to_vec(),
            acting: at.up.to_vec(),
            up_primary: at.up_primary,
            acting_primary: at.up_primary,
            ..PgStat::default()
        };
        s.set_state(pg_state::ACTIVE | pg_state::CLEAN);
        (s.stats.sum.num_objects, s.stats.sum.num_object_copies, s.stats.sum.num_bytes) = (100, 300, 100 << 20);
        by.entry(at.up_primary).or_default().insert(pg, s);
    }
    for (o, pg_stat) in by {
        let s = c.osd_session(o.0, osd_addr(o.0), Role::Mgr);
        c.send(s, &MPgStats { fsid: FSID, osd_stat: OsdStat::default(), pg_stat, ..MPgStats::default() });
        c.close(s);
    }
}

pub(crate) fn ask_rehearsal(c: &mut Cluster, who: u64, cmds: &[Value]) -> (i32, String, Value) {
    let cmds: Vec<String> = cmds.iter().map(Value::to_string).collect();
    let (rc, rs, out) = c.command(who, &json!({ "prefix": "rehearse", "cmds": cmds, "format": "json" }), "");
    (rc, rs, serde_json::from_str(&out).unwrap_or_default())
}

pub(crate) fn change(answer: &Value) -> Incremental {
    let blob = BASE64.decode(answer["incremental"].as_str().unwrap()).unwrap();
    Incremental::decode_blob(&blob.into()).unwrap()
}

/// The facts that a client gathers; a stand-in for sizes.
pub(crate) fn facts(map: &OsdMap) -> Facts {
    let pg = |id| PgFacts { bytes: 100 << 20, holders: map.pg_to_up(id).0.to_vec(), active: true };
    let pgs = map.pools.keys().flat_map(|p| map.pgs_of(*p).collect::<Vec<_>>());
    let pgs = pgs.map(|id| (id, pg(id))).collect();
    Facts { pgs, osds: BTreeMap::new(), overhead: 1.0, rate: Rate::Assumed, hold: None }
}

/// Makes a change in steps as `belemnite rehearse --apply` does; the answer, and the record that was asked for.
pub(crate) fn apply(c: &mut Cluster, who: u64, by: &str, cmd: &Value) -> (i32, String, Record) {
    let (_, _, answer) = ask_rehearsal(c, who, std::slice::from_ref(cmd));
    let before = Arc::new(c.map().clone());
    let pgs = match answer["incremental"].as_str() {
        None | Some("") => BTreeMap::new(),
        Some(_) => plan(&before, &change(&answer), &facts(&before)).map(|p| p.pgs).unwrap_or_default(),
    };
    let record = Record { command: "the change".into(), pgs, ..Record::default() };
    let apply = json!({ "prefix": "rehearse apply", "cmd": cmd.to_string(), "epoch": before.epoch.0, "by": by });
    let (rc, rs, _) = c.command(who, &apply, &serde_json::to_string(&record).unwrap());
    (rc, rs, record)
}

pub(crate) fn release(c: &mut Cluster, who: u64, by: &str, pgs: &[PgId]) -> (i32, String) {
    let pgs: Vec<String> = pgs.iter().map(PgId::to_string).collect();
    let (rc, rs, _) = c.command(who, &json!({ "prefix": "rehearse release", "by": by, "pgs": pgs }), "");
    (rc, rs)
}
