//! The tables of an OSD's counters. Names, help, priorities and headings of the sections `osd` and `AsyncMessenger::…`
//! are Ceph's; the other sections are our own.
//!
//! Left out are Ceph's counters of what does not exist here: queues between connection and PG (`op_process_latency`,
//! `op_before_queue_op_lat`), cache tiers, the caches of decoded maps, the cache of checksums (`cached_crc`).

use base::counter::{CRITICAL, Counter, INTERESTING, USEFUL, count, gauge, time};

/// Section `osd`.
pub const OSD: &[Counter] = &[
    gauge("op_wip", "Replication operations currently being processed (primary)").at(USEFUL),
    count("op", "Client operations").nick("ops").at(CRITICAL),
    count("op_in_bytes", "Client operations total write size").nick("wr").at(INTERESTING).bytes(),
    count("op_out_bytes", "Client operations total read size").nick("rd").at(INTERESTING).bytes(),
    time("op_latency", "Latency of client operations (including queue time)").nick("l").at(9),
    count("op_r", "Client read operations").at(USEFUL),
    count("op_r_out_bytes", "Client data read").at(USEFUL).bytes(),
    time("op_r_latency", "Latency of read operation (including queue time)").at(USEFUL),
    count("op_w", "Client write operations").at(USEFUL),
    count("op_w_in_bytes", "Client data written").at(USEFUL).bytes(),
    time("op_w_latency", "Latency of write operation (including queue time)").at(USEFUL),
    count("op_rw", "Client read-modify-write operations").at(USEFUL),
    count("op_rw_in_bytes", "Client read-modify-write operations write in").at(USEFUL).bytes(),
    count("op_rw_out_bytes", "Client read-modify-write operations read out").at(USEFUL).bytes(),
    time("op_rw_latency", "Latency of read-modify-write operation (including queue time)").at(USEFUL),
    count("subop", "Suboperations"),
    count("subop_in_bytes", "Suboperations total size").bytes(),
    time("subop_latency", "Suboperations latency"),
    count("subop_w", "Replicated writes"),
    count("subop_w_in_bytes", "Replicated written data size").bytes(),
    time("subop_w_latency", "Replicated writes latency"),
    count("subop_pull", "Suboperations pull requests"),
    count("subop_push", "Suboperations push messages"),
    count("subop_push_in_bytes", "Suboperations pushed size").bytes(),
    count("pull", "Pull requests sent"),
    count("push", "Push messages sent"),
    count("push_out_bytes", "Pushed size").bytes(),
    count("recovery_ops", "Started recovery operations").nick("rop").at(INTERESTING),
    count("recovery_bytes", "recovery bytes").nick("rbt").at(INTERESTING).bytes(),
    gauge("loadavg", "CPU load"),
    gauge("numpg", "Placement groups").nick("pgs").at(USEFUL),
    gauge("numpg_primary", "Placement groups for which this osd is primary"),
    gauge("numpg_replica", "Placement groups for which this osd is replica"),
    gauge("numpg_stray", "Placement groups ready to be deleted from this osd"),
    gauge("numpg_removing", "Placement groups queued for local deletion").nick("pgsr").at(USEFUL),
    gauge("heartbeat_to_peers", "Heartbeat (ping) peers we send to"),
    count("map_messages", "OSD map messages"),
    count("map_message_epochs", "OSD map epochs"),
    count("map_message_epoch_dups", "OSD map duplicates"),
    count("full_map_received", "number of full OSD map received via MOSDMap"),
    count("inc_map_received", "number of incremental OSD map received via MOSDMap"),
    count("messages_delayed_for_map", "Operations waiting for OSD map"),
    gauge("stat_bytes", "OSD size").nick("size").at(USEFUL).bytes(),
    gauge("stat_bytes_used", "Used space").nick("used").at(USEFUL).bytes(),
    gauge("stat_bytes_avail", "Available space").bytes(),
    count("op_denied", "Client operations refused for lack of rights"),
    count("op_misdirected", "Client operations dropped because another OSD serves them"),
];

/// Sections `AsyncMessenger::Worker-N`, one for each reactor.
pub const WORKER: &[Counter] = &[
    count("msgr_recv_messages", "Network received messages"),
    count("msgr_send_messages", "Network sent messages"),
    count("msgr_recv_bytes", "Network received bytes").bytes(),
    count("msgr_send_bytes", "Network sent bytes").bytes(),
    gauge("msgr_active_connections", "Active connection number"),
];

/// Section `messenger`: connections of all reactors.
pub const MESSENGER: &[Counter] = &[
    gauge("connections", "connections open or in handshake"),
    count("msg_recv_messages", "messages received"),
    count("msg_send_messages", "messages sent"),
    count("msg_recv_bytes", "bytes read from sockets").bytes(),
    count("msg_send_bytes", "bytes written to sockets").bytes(),
    count("reads", "read system calls"),
    count("writes", "write system calls"),
    count("protocol_errors", "connections refused or closed for breaking the protocol"),
    count("auth_failures", "failed sign-ins, in both directions"),
    gauge("osd_sessions", "sessions with other OSDs"),
    gauge("osd_queued_bytes", "bytes queued for other OSDs").bytes(),
];

/// Section `admission`: messages by the address that received them.
pub const ADMISSION: &[Counter] = &[
    count("public_taken", "messages of clients taken"),
    count("public_refused", "messages of clients refused"),
    count("cluster_taken", "messages of OSDs taken"),
    count("cluster_refused", "messages of OSDs refused"),
    count("heartbeat_taken", "messages on the heartbeat addresses taken"),
    count("heartbeat_refused", "messages on the heartbeat addresses refused"),
];

/// Section `store`.
pub const STORE: &[Counter] = &[
    count("txns", "transactions"),
    count("frames", "log frames written"),
    count("log_bytes", "bytes of log frames written").bytes(),
    count("data_blocks", "data blocks written"),
    count("data_writes", "write requests for data"),
    count("reads", "read requests"),
    count("flushes", "flush requests"),
    time("commit_latency", "latency of sampled flushes"),
    count("checkpoints", "checkpoints completed"),
    count("page_blocks", "metadata blocks written"),
    count("page_reads", "read requests for metadata pages"),
    count("evictions", "metadata pages evicted from memory"),
    count("bad_pages", "metadata pages that were unreadable or inconsistent"),
    count("bad_blocks", "blocks whose checksum did not match"),
    count("stalls", "times a transaction waited for log or space"),
    count("cached_blocks", "blocks of reads that were answered from memory"),
];

/// Section `bluestore`: compression, with Ceph's names.
pub const BLUESTORE: &[Counter] = &[
    gauge("bluestore_compressed", "Sum for stored compressed bytes").nick("c").at(USEFUL).bytes(),
    gauge("bluestore_compressed_allocated", "Sum for bytes allocated for compressed data")
        .nick("c_a")
        .at(USEFUL)
        .bytes(),
    gauge("bluestore_compressed_original", "Sum for original bytes that were compressed")
        .nick("c_o")
        .at(USEFUL)
        .bytes(),
    count("compress_success_count", "Sum for beneficial compress ops"),
    count("compress_rejected_count", "Sum for compress ops rejected due to low net gain of space"),
    count("compress_hurried_count", "Pieces compressed at a faster level than set, or not at all: too much at once"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_daemonperf_has_columns() {
        for table in [OSD, WORKER, MESSENGER, ADMISSION, STORE, BLUESTORE] {
            let names: BTreeSet<&str> = table.iter().map(|c| c.name).collect();
            assert_eq!(names.len(), table.len());
            assert!(table.iter().all(|c| !c.help.is_empty()));
        }
        let shown: Vec<&str> = OSD.iter().filter(|c| c.priority >= INTERESTING).map(|c| c.nick).collect();
        assert_eq!(shown, ["ops", "wr", "rd", "l", "rop", "rbt"], "the columns of Ceph's daemonperf");
    }
}
