//! PGs and operations as Ceph's tools print them.

use base::Now;
use pg::{OpDump, Pg};
use serde_json::{Value, json};
use wire::types::pg_state;

fn op(o: &OpDump) -> Value {
    json!({
        "description": o.description,
        "initiated_at": o.initiated_at.iso(),
        "age": o.age.as_secs_f64(),
        "duration": o.age.as_secs_f64(),
        "type_data": {"flag_point": o.stage, "client_info": {"client": o.client.to_string()}},
    })
}

/// Operations of a PG that have no answer yet.
pub(super) fn ops(p: &Pg, now: Now) -> Vec<Value> {
    p.dump_ops(now.mono).iter().map(op).collect()
}

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
            },
        },
        "peer_info": [],
        "recovery_state": [],
    })
}
