//! PGs and operations as Ceph's tools print them.

use crate::core::pgs::Pgs;
use pg::Pg;
use pg::reserve::{ClaimDump, Reserver, Side};
use serde_json::{Value, json};
use wire::types::pg_state;

/// Answer to `pg query`.
pub(super) fn pg(p: &Pg) -> Value {
    let (i, h) = (p.info(), &p.info().history);
    let m = &i.interval.mapping;
    let numbers = |v: &[base::OsdId]| v.iter().map(|o| o.0).collect::<Vec<_>>();
    json!({
        "state": pg_state::to_string(p.state_bits()),
        "pgid": p.spg().to_string(),
        "reason": p.inactive_reason(),
        "up": numbers(&m.up),
        "acting": numbers(&m.acting),
        "info": {
            "pgid": p.spg().to_string(),
            "last_update": i.last_update.to_string(),
            "last_complete": i.last_update.to_string(),
            "log_tail": i.log_tail.to_string(),
            "last_user_version": i.last_user_version,
            "history": {
                "epoch_created": h.epoch_created.0,
                "last_epoch_started": h.last_epoch_started.0,
                "last_epoch_clean": h.last_epoch_clean.0,
                "same_interval_since": h.same_interval_since.0,
                "same_up_since": h.same_up_since.0,
                "same_primary_since": h.same_primary_since.0,
                "last_scrub": h.last_scrub.to_string(),
                "last_scrub_stamp": h.last_scrub_stamp.iso(),
                "last_deep_scrub": h.last_deep_scrub.to_string(),
                "last_deep_scrub_stamp": h.last_deep_scrub_stamp.iso(),
                "last_clean_scrub_stamp": h.last_clean_scrub_stamp.iso(),
            },
            "stats": {
                "stat_sum": {
                    "num_objects": i.stats.num_objects,
                    "num_bytes": i.stats.num_bytes,
                    "num_object_clones": i.stats.num_object_clones,
                    "num_scrub_errors": p.scrub_errors(),
                    "num_shallow_scrub_errors": i.stats.num_shallow_scrub_errors,
                    "num_deep_scrub_errors": i.stats.num_deep_scrub_errors,
                    "num_objects_repaired": i.stats.num_objects_repaired,
                },
            },
        },
        "peer_info": [],
        "recovery_state": [],
        "scrubber": {"active": p.is_scrubbing()},
    })
}

/// CPU time of the calling thread in nanoseconds; 0 where the system does not tell.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// PGs of a reactor, and its work since the start.
pub(super) fn places(index: usize, core: &Pgs) -> Value {
    let mut all: Vec<&Pg> = core.iter().filter(|p| *p.state() != pg::State::Arriving).collect();
    all.sort_by_key(|p| p.spg());
    let pgs: Vec<String> = all.iter().map(|p| p.spg().to_string()).collect();
    let astray = all.iter().filter(|p| core.home(p.spg().pg) != index).count();
    let moving = core.departing().map(|(pg, to)| json!({"pgid": pg.to_string(), "to": to}));
    let (ops, cpu) = (core.counters().op, cpu_ns() as f64 / 1e9);
    json!([{
        "reactor": index, "num_pgs": pgs.len(), "num_to_move": astray, "moving": moving,
        "num_ops": ops, "cpu_seconds": cpu, "pgs": pgs,
    }])
}

/// Most unfound objects listed at once.
const UNFOUND_MAX: usize = 1000;

/// Answer to `pg PGID list_unfound`.
pub(super) fn unfound(p: &Pg) -> Value {
    let all = p.unfound_objects();
    let objects: Vec<Value> = all
        .iter()
        .take(UNFOUND_MAX)
        .map(|(h, need)| {
            json!({
                "oid": {
                    "oid": String::from_utf8_lossy(&h.oid),
                    "key": String::from_utf8_lossy(&h.key),
                    "snapid": h.snap.0 as i64,
                    "hash": h.hash,
                    "max": 0,
                    "pool": h.pool.0,
                    "namespace": String::from_utf8_lossy(&h.nspace),
                },
                "need": need.to_string(),
                "have": "0'0",
                "flags": "none",
                "clean_regions": "clean_offsets: [], clean_omap: 0, new_object: 1",
                "locations": [],
            })
        })
        .collect();
    json!({
        "num_missing": p.missing(),
        "num_unfound": all.len(),
        "objects": objects,
        "state": if p.is_active() { "Active" } else { "NotActive" },
        "available_might_have_unfound": true,
        "might_have_unfound": p
            .might_have_unfound()
            .into_iter()
            .map(|(o, status)| json!({"osd": o.0.to_string(), "status": status}))
            .collect::<Vec<_>>(),
        "more": all.len() > UNFOUND_MAX,
    })
}

/// An entry of `dump_scrubs`; nothing for a PG that another OSD leads.
pub(super) fn scheduled_scrub(p: &Pg, now: base::Now) -> Option<Value> {
    let (at, deadline, forced) = p.next_scrub()?;
    let at = if forced { now.wall } else { at };
    Some(json!({
        "pgid": p.spg().to_string(),
        "sched_time": at.iso(),
        "deadline": deadline.unwrap_or_default().iso(),
        "forced": forced,
    }))
}

/// The watches of a PG's objects, as `dump_watchers` shows them.
pub(super) fn watchers(p: &Pg) -> Vec<Value> {
    let one = |w: pg::WatchDump| {
        json!({
            "namespace": String::from_utf8_lossy(&w.head.nspace),
            "object": String::from_utf8_lossy(&w.head.oid),
            "entity_name": {"type": w.client.kind.word(), "num": w.client.num},
            "cookie": w.cookie,
            "timeout": w.timeout.as_secs(),
            "entity_addr": {
                "type": "any",
                "addr": w.addr.sock.map_or_else(|| "-".to_owned(), |s| s.to_string()),
                "nonce": w.addr.nonce,
            },
        })
    };
    p.watches().into_iter().map(one).collect()
}

/// Answer to `dump_recovery_reservations`.
pub(super) fn reservations(r: &Reserver) -> Value {
    let (all, max) = (r.dump(), r.max_backfills());
    let one = |c: &ClaimDump| json!({"item": c.spg.to_string(), "prio": c.prio, "can_preempt": true});
    let side = |side: Side| {
        let of = |granted: bool| all.iter().filter(move |c| c.side == side && c.granted == granted);
        let mut queues: Vec<Value> = Vec::new();
        for c in of(false) {
            match queues.last_mut() {
                Some(q) if q["priority"] == json!(c.prio) => {
                    if let Some(items) = q["items"].as_array_mut() {
                        items.push(one(c));
                    }
                }
                _ => queues.push(json!({"priority": c.prio, "items": [one(c)]})),
            }
        }
        json!({
            "max_allowed": max,
            "min_priority": 0,
            "queues": queues,
            "in_progress": of(true).map(one).collect::<Vec<_>>(),
        })
    };
    json!({"local_reservations": side(Side::Local), "remote_reservations": side(Side::Remote)})
}
