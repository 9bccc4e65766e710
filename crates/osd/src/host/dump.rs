//! PGs and operations as Ceph's tools print them.

use pg::Pg;
use serde_json::{Value, json};
use wire::types::pg_state;

/// `pg query`.
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
