//! State of a reactor that admin commands show.

use super::{IN_TRANSIT, ReactorHost};
use crate::core::counters::{ADMISSION, BLUESTORE, MESSENGER, STORE, WORKER};
use crate::host::ledger::{LedgerPart, LedgerSpace, Waits};
use crate::host::route::Inspect;
use crate::host::tracker;
use base::OsdId;
use base::counter::Section;
use base::ledger::{Cause, SINCE_MAX};
use reactor::clock;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use store::ObjectStore as _;
use store::engine::{Counters, Packing, Store};

impl ReactorHost {
    pub(super) fn inspect(&self, what: &Inspect) -> Value {
        let core = self.core.borrow();
        let pgs = core.pgs();
        match what {
            Inspect::Stages => pgs
                .iter()
                .flat_map(|p| p.dump_ops(clock::now().mono))
                .map(|o| json!([format!("{}:{}", o.client, o.tid), o.stage]))
                .collect(),
            Inspect::Ops(stages) => {
                let now = clock::now();
                let mut all = Vec::new();
                for c in self.clients.borrow().values() {
                    let (client, addr) = (c.info.entity, c.info.addr);
                    for (tid, f) in c.core.borrow().unanswered().iter() {
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
            Inspect::Historic => {
                let slowest = pgs.meter().book.borrow().slowest(clock::now().mono);
                let mut kept = self.history.borrow_mut().kept(clock::now());
                kept.iter_mut().for_each(|op| crate::host::ledger::attach(op, &slowest));
                kept.into()
            }
            Inspect::Slow => self.history.borrow().slow(clock::now()).into(),
            Inspect::States => {
                let mut all: BTreeMap<String, u64> = BTreeMap::new();
                for p in pgs.iter().filter(|p| p.is_primary()) {
                    *all.entry(wire::types::pg_state::to_string(p.state_bits())).or_default() += 1;
                }
                json!({ "pgs_by_state": all })
            }
            Inspect::Watchers => pgs.iter().flat_map(crate::host::dump::watchers).collect(),
            Inspect::Pg(pg) => pgs.pg(*pg).map_or(Value::Null, crate::host::dump::pg),
            Inspect::Places => crate::host::dump::places(self.index, pgs),
            Inspect::Caches => {
                let contexts: usize = pgs.iter().map(pg::Pg::cached_objects).sum();
                json!({ "caches": { "object_ctx": contexts, "store_bytes": core.store().meta_memory() } })
            }
            Inspect::Scrubs => pgs.iter().filter_map(|p| crate::host::dump::scheduled_scrub(p, clock::now())).collect(),
            Inspect::Pools => pgs.iter().map(|p| json!(p.spg().pg.pool.0)).collect(),
            Inspect::Messengers => {
                let all = [("client", self.endpoint()), ("cluster", self.peers().and_then(|p| p.endpoint()))];
                all.into_iter().filter_map(|(name, e)| Some(json!([name, e?.dump(self.index)]))).collect()
            }
            Inspect::Leads(pg) => pgs.pg(*pg).map_or(Value::Null, |p| p.is_primary().into()),
            Inspect::Unfound(pg) => pgs.pg(*pg).map_or(Value::Null, crate::host::dump::unfound),
        }
    }

    /// Part of this reactor in the answer of `dump_ledger`.
    pub(super) fn ledger(&self, span: Duration) -> LedgerPart {
        let (core, now) = (self.core.borrow(), clock::read().mono);
        let mut waiting: BTreeMap<(Cause, Option<OsdId>), Waits> = BTreeMap::new();
        for p in core.pgs().iter().filter(|p| p.is_primary()) {
            for o in p.dump_ops(now) {
                let behind = (o.cause == Cause::Replica).then(|| p.behind()).flatten();
                let w = waiting.entry((o.cause, behind)).or_default();
                w.ops += 1;
                w.age += o.age;
                w.oldest = w.oldest.max(o.age);
            }
        }
        let book = core.pgs().meter().book.borrow();
        let long = book.since(SINCE_MAX, now).all;
        LedgerPart {
            window: book.since(span, now),
            long: (long.ops, long.total_us()),
            waiting,
            pending: self.disk.oldest().map(|at| now.since(at)).unwrap_or_default(),
            histograms: book.histograms(),
            slowest: book.slowest(now),
            refused: core.pgs().refused().since(span, now),
            space: (self.index == 0).then(|| self.space(core.store())),
        }
    }

    /// Space of the store and of the file system under its file.
    fn space(&self, store: &Store) -> LedgerSpace {
        let (s, room) = (store.statfs(), self.device.room());
        LedgerSpace {
            short: self.judged.is_short(),
            total: s.total,
            available: s.available,
            lacks: self.judged.lacks(room),
            free: room.map_or(0, |(_, free)| free),
        }
    }

    /// Counters of this reactor.
    pub(super) fn sections(&self) -> Vec<Section> {
        let core = self.core.borrow();
        let store = core.store();
        // All reactors share one device.
        let space = (self.index == 0).then(|| {
            let mut s = store.statfs();
            s.available = s.available.saturating_sub(self.judged.lacks(self.device.room()));
            s
        });
        let n = self.net.stats();
        let mut worker = Section::new(format!("AsyncMessenger::Worker-{}", self.index), WORKER);
        worker.put("msgr_recv_messages", n.messages_in).put("msgr_send_messages", n.messages_out);
        worker.put("msgr_recv_bytes", n.bytes_in).put("msgr_send_bytes", n.bytes_out);
        worker.put("msgr_active_connections", n.connections);
        let (sessions, queued) = self.peers().map_or((0, 0), |p| p.figures());
        let mut messenger = Section::new("messenger", MESSENGER);
        messenger.put("connections", n.connections);
        messenger.put("msg_recv_messages", n.messages_in).put("msg_send_messages", n.messages_out);
        messenger.put("msg_recv_bytes", n.bytes_in).put("msg_send_bytes", n.bytes_out);
        messenger.put("reads", n.reads).put("writes", n.writes);
        messenger.put("protocol_errors", n.protocol_errors).put("auth_failures", n.auth_failures);
        messenger.put("osd_sessions", sessions).put("osd_queued_bytes", queued);
        let (clients, osds) = (self.admission.figures(), self.peers().map_or((0, 0), |p| p.verdicts()));
        let mut admission = Section::new("admission", ADMISSION);
        admission.put("public_taken", clients.0).put("public_refused", clients.1);
        admission.put("cluster_taken", osds.0).put("cluster_refused", osds.1);
        admission.put("heartbeat_taken", 0_u64).put("heartbeat_refused", 0_u64);
        let commits = self.meter.borrow().commits.all();
        let bluestore = compression_section(store.packing(), &store.compressed());
        vec![
            worker,
            admission,
            messenger,
            core.pgs().section(space),
            store_section(store.counters(), commits),
            bluestore,
        ]
    }
}

/// The section of compression, with the names of Ceph's store; `pools` has bytes before it and on the device.
fn compression_section(c: Packing, pools: &[(base::PoolId, u64, u64)]) -> Section {
    let stored: u64 = pools.iter().map(|p| p.2).sum();
    let mut s = Section::new("bluestore", BLUESTORE);
    s.put("bluestore_compressed", stored).put("bluestore_compressed_allocated", stored);
    s.put("bluestore_compressed_original", pools.iter().map(|p| p.1).sum::<u64>());
    s.put("compress_success_count", c.packed).put("compress_rejected_count", c.unpackable);
    s.put("compress_hurried_count", c.hurried);
    s
}

/// The section of the object store; `commits` is the summed latency of sampled commits and their number.
fn store_section(c: Counters, commits: (u64, u64)) -> Section {
    let mut s = Section::new("store", STORE);
    s.put("txns", c.txns).put("frames", c.frames).put("log_bytes", c.log_bytes);
    s.put("data_blocks", c.data_blocks).put("data_writes", c.data_writes).put("reads", c.reads);
    s.put("flushes", c.flushes).put("commit_latency", commits).put("checkpoints", c.checkpoints);
    s.put("page_blocks", c.page_blocks).put("page_reads", c.page_reads).put("evictions", c.evictions);
    s.put("bad_pages", c.bad_pages).put("bad_blocks", c.bad_blocks).put("stalls", c.stalls);
    s.put("cached_blocks", c.cached_blocks);
    s
}
