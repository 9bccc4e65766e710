//! State of a reactor that admin commands show.

use super::{IN_TRANSIT, ShardHost};
use crate::host::route::Inspect;
use crate::host::tracker;
use reactor::clock;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::ObjectStore as _;

impl ShardHost {
    pub(super) fn inspect(&self, what: &Inspect) -> Value {
        let core = self.core.borrow();
        match what {
            Inspect::Stages => core
                .pgs()
                .flat_map(|p| p.dump_ops(clock::now().mono))
                .map(|o| json!([format!("{}:{}", o.client, o.tid), o.stage]))
                .collect(),
            Inspect::Ops(stages) => {
                let now = clock::now();
                let mut all = Vec::new();
                for c in self.clients.borrow().values() {
                    let (client, addr) = (c.info.entity, c.info.addr);
                    for (tid, f) in c.in_flight.borrow().iter() {
                        // An operation that no PG knows is on its way to one, or was dropped.
                        let young = (now.mono.since(f.received) < IN_TRANSIT).then_some("queued_for_pg");
                        let stage = stages.get(&format!("{client}:{tid}")).map(String::as_str).or(young);
                        let shown =
                            stage.and_then(|s| tracker::in_flight(&f.request, client, addr, f.received, s, now));
                        all.extend(shown);
                    }
                }
                Value::Array(all)
            }
            Inspect::Historic => self.history.borrow_mut().kept(clock::now()).into(),
            Inspect::Slow => self.history.borrow().slow(clock::now()).into(),
            Inspect::States => {
                let mut all: BTreeMap<String, u64> = BTreeMap::new();
                for p in core.pgs().filter(|p| p.is_primary()) {
                    *all.entry(wire::types::pg_state::to_string(p.state_bits())).or_default() += 1;
                }
                json!({ "pgs_by_state": all })
            }
            Inspect::Watchers => core.pgs().flat_map(crate::host::dump::watchers).collect(),
            Inspect::Pg(pg) => core.pg(*pg).map_or(Value::Null, crate::host::dump::pg),
            Inspect::Places => crate::host::dump::places(self.index, &core),
            Inspect::Unfound(pg) => core.pg(*pg).map_or(Value::Null, crate::host::dump::unfound),
            Inspect::Perf => {
                let (c, n, s) = (core.counters(), self.net.stats(), self.store.borrow().counters());
                let fs = self.store.borrow().statfs();
                let (sessions, queued) = self.peers().map_or((0, 0), |p| p.figures());
                let (from_clients, from_osds) = (self.door.figures(), self.peers().map_or((0, 0), |p| p.verdicts()));
                json!({
                    "osd": {
                        "op": c.op, "op_r": c.op_r, "op_w": c.op_w, "op_in_bytes": c.op_in_bytes,
                        "op_out_bytes": c.op_out_bytes, "op_denied": c.op_denied, "op_misdirected": c.op_misdirected,
                        "numpg": core.pg_count(),
                        "stat_bytes": if self.index == 0 { fs.total } else { 0 },
                        "stat_bytes_avail": if self.index == 0 { fs.available } else { 0 },
                    },
                    "messenger": {
                        "connections": n.connections, "msg_recv_messages": n.messages_in,
                        "msg_send_messages": n.messages_out, "msg_recv_bytes": n.bytes_in,
                        "msg_send_bytes": n.bytes_out, "reads": n.reads, "writes": n.writes,
                        "protocol_errors": n.protocol_errors, "auth_failures": n.auth_failures,
                        "osd_sessions": sessions, "osd_queued_bytes": queued,
                    },
                    "admission": {
                        "public_taken": from_clients.0, "public_refused": from_clients.1,
                        "cluster_taken": from_osds.0, "cluster_refused": from_osds.1,
                    },
                    "store": {
                        "txns": s.txns, "frames": s.frames, "log_bytes": s.log_bytes, "data_blocks": s.data_blocks,
                        "data_writes": s.data_writes, "reads": s.reads, "flushes": s.flushes,
                        "checkpoints": s.checkpoints, "page_blocks": s.page_blocks, "page_reads": s.page_reads,
                        "evictions": s.evictions, "bad_pages": s.bad_pages, "bad_blocks": s.bad_blocks,
                        "stalls": s.stalls, "cached_blocks": s.cached_blocks,
                    },
                })
            }
        }
    }
}
