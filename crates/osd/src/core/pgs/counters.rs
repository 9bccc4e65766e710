//! Counters of a reactor's operations, and the section `osd` made of them.

use super::{OpCounters, Pgs};
use crate::core::counters::OSD;
use crate::core::refused::Refused;
use base::counter::Section;
use base::{Mono, PoolId};
use pg::State;
use pg::meter::{Class, Histogram, Meter};
use store::Statfs;

/// Histograms of operations, by the names that Ceph gives them.
pub const HISTOGRAMS: [(&str, &str); 4] = [
    ("op_r_latency_out_bytes_histogram", "Histogram of operation latency (including queue time) + data read"),
    ("op_w_latency_in_bytes_histogram", "Histogram of operation latency (including queue time) + data written"),
    ("op_rw_latency_in_bytes_histogram", "Histogram of rw operation latency (including queue time) + data written"),
    ("op_rw_latency_out_bytes_histogram", "Histogram of rw operation latency (including queue time) + data read"),
];

/// Counters of operations before they reach a PG, and objects whose calls were refused.
#[derive(Debug, Default)]
pub(super) struct OpStats {
    counters: OpCounters,
    refused: Refused,
}

impl OpStats {
    /// The counters.
    pub(super) fn counters(&self) -> &OpCounters {
        &self.counters
    }

    /// Counts a received operation.
    pub(super) fn count_op(&mut self) {
        self.counters.op += 1;
    }

    /// Counts an operation or a message of an OSD that waits for a map.
    pub(super) fn count_delayed(&mut self) {
        self.counters.delayed += 1;
    }

    /// Counts an operation that was refused for lack of caps.
    pub(super) fn count_denied(&mut self) {
        self.counters.op_denied += 1;
    }

    /// Counts an operation that was dropped because another OSD serves it.
    pub(super) fn count_misdirected(&mut self) {
        self.counters.op_misdirected += 1;
    }

    /// Notes a call that was refused with `EBUSY`.
    pub(super) fn note_refused(&mut self, pool: PoolId, name: &[u8], now: Mono) {
        self.refused.note(pool, name, now);
    }
}

impl Pgs {
    /// Counters of operations before they reach a PG.
    #[must_use]
    pub fn counters(&self) -> OpCounters {
        self.stats.counters
    }

    /// Objects whose calls were refused with `EBUSY`.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.stats.refused
    }

    /// Counters of the PGs' operations.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        self.services.meter()
    }

    /// Counts of [`HISTOGRAMS`], each empty until its first operation.
    #[must_use]
    pub fn histograms(&self) -> [Vec<u64>; 4] {
        let m = self.services.meter();
        let (read, write, both) = (m.of(Class::Read), m.of(Class::Write), m.of(Class::Both));
        [&read.by_out, &write.by_in, &both.by_in, &both.by_out].map(Histogram::counts)
    }

    /// The section `osd`. `space` is that of the device, for one reactor; the others pass `None`. Values of the control
    /// machine are 0.
    #[must_use]
    pub fn section(&self, space: Option<Statfs>) -> Section {
        let m = self.services.meter();
        let (r, c) = (&m.replication, self.stats.counters());
        let (read, write, both) = (m.of(Class::Read), m.of(Class::Write), m.of(Class::Both));
        let (ops, latency, bytes_in, bytes_out) = m.total();
        let (mut wip, mut primary, mut replica, mut stray, mut removing) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
        for p in self.pgs.values().filter(|p| *p.state() != State::Arriving) {
            if p.is_primary() {
                primary += 1;
                wip += p.uncommitted() as u64;
            } else if matches!(p.state(), State::Deleting { .. }) {
                removing += 1;
            } else if p.is_member() {
                replica += 1;
            } else {
                stray += 1;
            }
        }
        let subops = r.writes.get() + r.pulls_in.get() + r.pushes_in.get();
        let durable = (r.write_ns.get(), r.writes_durable.get());
        let (total, available) = space.map_or((0, 0), |s| (s.total, s.available));
        let mut s = Section::new("osd", OSD);
        s.put("op_wip", wip).put("op", ops).put("op_in_bytes", bytes_in).put("op_out_bytes", bytes_out);
        s.put("op_latency", latency);
        s.put("op_r", &read.n).put("op_r_out_bytes", &read.bytes_out).put("op_r_latency", read.latency());
        s.put("op_w", &write.n).put("op_w_in_bytes", &write.bytes_in).put("op_w_latency", write.latency());
        s.put("op_rw", &both.n).put("op_rw_in_bytes", &both.bytes_in).put("op_rw_out_bytes", &both.bytes_out);
        s.put("op_rw_latency", both.latency());
        s.put("subop", subops).put("subop_in_bytes", r.write_bytes.get() + r.push_bytes_in.get());
        s.put("subop_latency", durable);
        s.put("subop_w", &r.writes).put("subop_w_in_bytes", &r.write_bytes).put("subop_w_latency", durable);
        s.put("subop_pull", &r.pulls_in);
        s.put("subop_push", &r.pushes_in).put("subop_push_in_bytes", &r.push_bytes_in);
        s.put("pull", &r.pulls_out).put("push", &r.pushes_out).put("push_out_bytes", &r.push_bytes_out);
        s.put("recovery_ops", &r.recovered).put("recovery_bytes", &r.recovered_bytes);
        s.put("loadavg", 0_u64);
        s.put("numpg", primary + replica + stray + removing).put("numpg_primary", primary);
        s.put("numpg_replica", replica).put("numpg_stray", stray).put("numpg_removing", removing);
        s.put("heartbeat_to_peers", 0_u64);
        for control in
            ["map_messages", "map_message_epochs", "map_message_epoch_dups", "full_map_received", "inc_map_received"]
        {
            s.put(control, 0_u64);
        }
        s.put("messages_delayed_for_map", c.delayed);
        s.put("stat_bytes", total).put("stat_bytes_used", total.saturating_sub(available));
        s.put("stat_bytes_avail", available);
        s.put("op_denied", c.op_denied).put("op_misdirected", c.op_misdirected);
        s
    }
}
