//! Counters of a monitor that leads, in the sections of Ceph's.

use super::bridge::Bridge;
use base::counter::{Counter, INTERESTING, Section, USEFUL, count, gauge, time};
use net::Net;
use wire::types::pg_state;

const WORKER: &[Counter] = &[
    count("msgr_recv_messages", "Network received messages"),
    count("msgr_send_messages", "Network sent messages"),
    count("msgr_recv_bytes", "Network received bytes").bytes(),
    count("msgr_send_bytes", "Network sent bytes").bytes(),
    count("msgr_created_connections", "Created connection number"),
    gauge("msgr_active_connections", "Active connection number"),
];

const CLUSTER: &[Counter] = &[
    gauge("num_mon", "Monitors"),
    gauge("num_mon_quorum", "Monitors in quorum"),
    gauge("num_osd", "OSDs"),
    gauge("num_osd_up", "OSDs that are up"),
    gauge("num_osd_in", "OSD in state \"in\" (they are in cluster)"),
    gauge("osd_epoch", "Current epoch of OSD map"),
    gauge("osd_bytes", "Total capacity of cluster").bytes(),
    gauge("osd_bytes_used", "Used space").bytes(),
    gauge("osd_bytes_avail", "Available space").bytes(),
    gauge("num_pool", "Pools"),
    gauge("num_pg", "Placement groups"),
    gauge("num_pg_active_clean", "Placement groups in active+clean state"),
    gauge("num_pg_active", "Placement groups in active state"),
    gauge("num_pg_peering", "Placement groups in peering state"),
    gauge("num_object", "Objects"),
    gauge("num_object_degraded", "Degraded (missing replicas) objects"),
    gauge("num_object_misplaced", "Misplaced (wrong location in the cluster) objects"),
    gauge("num_object_unfound", "Unfound objects"),
    gauge("num_bytes", "Size of all objects").bytes(),
];

const MON: &[Counter] = &[
    gauge("num_sessions", "Open sessions").nick("sess").at(USEFUL),
    count("session_add", "Created sessions").nick("sadd").at(INTERESTING),
    count("session_rm", "Removed sessions").nick("srm").at(INTERESTING),
];

const PAXOS: &[Counter] = &[
    count("begin", "Started and handled begins").at(USEFUL),
    count("commit", "Commits").nick("cmt").at(INTERESTING),
    time("commit_latency", "Commit latency").nick("clat").at(USEFUL),
];

fn positive(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// The sections of this monitor.
pub(super) fn sections(bridge: &Bridge, net: &Net) -> Vec<Section> {
    let core = bridge.core.borrow();
    let s = core.state();
    let map = &s.osdmap;
    let (osds, up, inn) = map.osd_counts();
    let space = s.mgr.stats.osd_sum().statfs;
    let states = s.mgr.stats.states(map);
    let with = |bits: u64| positive(states.iter().filter(|(st, _)| *st & bits == bits).map(|(_, n)| *n).sum());
    let sum = &s.mgr.stats.sum().stats.sum;
    let (n, c) = (net.stats(), bridge.counters());
    let (commits, commit_ns) = core.commit_latency();
    let mut worker = Section::new("AsyncMessenger::Worker-0", WORKER);
    worker.put("msgr_recv_messages", n.messages_in).put("msgr_send_messages", n.messages_out);
    worker.put("msgr_recv_bytes", n.bytes_in).put("msgr_send_bytes", n.bytes_out);
    worker.put("msgr_created_connections", c.sessions_opened.get()).put("msgr_active_connections", n.connections);
    let mut cluster = Section::new("cluster", CLUSTER);
    cluster.put("num_mon", s.monmap.mons.len()).put("num_mon_quorum", s.quorum().len());
    cluster.put("num_osd", osds as u64).put("num_osd_up", up as u64).put("num_osd_in", inn as u64);
    cluster.put("osd_epoch", u64::from(map.epoch.0)).put("osd_bytes", positive(space.total));
    cluster.put("osd_bytes_used", positive(space.total - space.available));
    cluster.put("osd_bytes_avail", positive(space.available));
    cluster.put("num_pool", map.pools.len()).put("num_pg", s.mgr.stats.num_pg(map) as u64);
    cluster.put("num_pg_active_clean", with(pg_state::ACTIVE | pg_state::CLEAN));
    cluster.put("num_pg_active", with(pg_state::ACTIVE)).put("num_pg_peering", with(pg_state::PEERING));
    cluster.put("num_object", positive(sum.num_objects));
    cluster.put("num_object_degraded", positive(sum.num_objects_degraded));
    cluster.put("num_object_misplaced", positive(sum.num_objects_misplaced));
    cluster.put("num_object_unfound", positive(sum.num_objects_unfound));
    cluster.put("num_bytes", positive(sum.num_bytes));
    let mut mon = Section::new("mon", MON);
    mon.put("num_sessions", core.session_count() as u64);
    mon.put("session_add", c.sessions_opened.get()).put("session_rm", c.sessions_closed.get());
    let mut paxos = Section::new("paxos", PAXOS);
    paxos.put("begin", c.commits.get()).put("commit", commits);
    paxos.put("commit_latency", (commit_ns, commits));
    vec![worker, cluster, mon, paxos]
}
