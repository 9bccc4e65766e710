# Counters of OSDs as Ceph's tools read them, in `perf dump`, daemonperf and the metrics; metadata and devices; commands of
# `ceph tell osd.N`.
source "$(dirname "$0")/../lib.sh"

cluster_up --osds 3 --osd-size 2G
ceph osd pool create p 8 >/dev/null
head -c 65536 /dev/urandom >"$W/data"
for i in $(seq 12); do rados -p p put "o$i" "$W/data"; done
for i in $(seq 12); do rados -p p get "o$i" - >/dev/null; done

# counter OSD NAME: the value in section `osd`.
counter() { ceph tell "osd.$1" perf dump osd "$2" | jq ".osd.$2"; }
total() { local s=0 o; for o in 0 1 2; do s=$((s + $(counter $o "$1"))); done; echo $s; }
expect "bytes written" "$(total op_in_bytes)" $((12 * 65536))
expect "bytes read" "$(total op_out_bytes)" $((12 * 65536))
expect "writes" "$(total op_w)" 12
expect "replicated writes" "$(total subop_w)" 24
# The manager knows the PGs once the OSDs have reported them.
same_pgs() { [ "$(total numpg)" = "$(ceph osd df -f json | jq '[.nodes[].pgs] | add')" ]; }
wait_for 30 same_pgs
for o in 0 1 2; do
  ceph tell osd.$o perf dump osd | jq -e '.osd | .op_latency.avgcount == .op
    and .op == .op_r + .op_w + .op_rw and .subop_w_latency.avgcount == .subop_w
    and (.op_w == 0 or .op_w_latency.sum > 0) and .stat_bytes == .stat_bytes_used + .stat_bytes_avail'
done >/dev/null
histogram() { ceph tell "osd.$1" perf histogram dump osd op_w_latency_in_bytes_histogram; }
n=0
for o in 0 1 2; do n=$((n + $(histogram $o | jq '[.osd[].values[][]] | add'))); done
expect "writes in histograms" $n 12
ceph tell osd.0 perf schema osd op | jq -e '.osd.op == {type: 10, metric_type: "counter", value_type: "integer",
  description: "Client operations", nick: "ops", priority: 10, units: "none"}' >/dev/null
ceph tell osd.0 counter dump osd op | jq -e '.osd[0] | .labels == {} and .counters.op >= 0' >/dev/null
ceph daemonperf "$W/c/run/osd.0.asok" 1 1 >"$W/daemonperf"
grep -q 'ops' "$W/daemonperf" && grep -q 'rbt' "$W/daemonperf" || { cat "$W/daemonperf"; exit 1; }
ceph tell osd.0 perf reset all >/dev/null
expect "operations after the reset" "$(counter 0 op)" 0

# The metrics have the same numbers as the OSD.
ceph config set mgr mgr/prometheus/server_port $((PORT + 400))
ceph mgr module enable prometheus
served() { ceph mgr services | jq -er .prometheus; }
wait_for 10 served
metric() { curl -sf "$(served)metrics" | sed -n "s/^$1{ceph_daemon=\"osd\.1\"} //p"; }
counted() { [ "$(metric ceph_osd_op_w)" = "$(counter 1 op_w).0" ]; }
wait_for 15 counted
curl -sf "$(served)metrics" >"$W/metrics"
for name in osd_op_latency_sum osd_op_latency_count osd_op_r_out_bytes osd_recovery_bytes mon_num_sessions; do
  grep -q "^ceph_$name{" "$W/metrics" || { echo "no ceph_$name"; exit 1; }
done
ceph osd status >"$W/status"
[ "$(grep -v ' - ' "$W/status" | grep -c 'exists,up')" = 3 ] || { cat "$W/status"; exit 1; }

# What inventories read.
ceph osd metadata 0 | jq -e 'has("devices") and has("device_ids") and has("device_paths") and has("back_iface")
  and .kernel_description != "" and .created_at != "" and .ceph_version_when_created == .ceph_version' >/dev/null
expect "devices" "$(ceph tell osd.0 list_devices | jq -r '[.[].device | ltrimstr("/dev/")] | join(",")')" \
  "$(ceph osd metadata 0 | jq -r .devices)"

# Commands to the OSD.
seq=$(ceph tell osd.2 flush_pg_stats)
reported() { [ "$(ceph osd last-stat-seq 2)" -ge "$seq" ]; }
wait_for 5 reported
before=$(ceph tell osd.0 perf dump store checkpoints | jq .store.checkpoints)
ceph tell osd.0 compact | jq -e '.elapsed_time >= 0' >/dev/null
[ "$(ceph tell osd.0 perf dump store checkpoints | jq .store.checkpoints)" -gt "$before" ]
ceph tell osd.0 cache status | jq -e '.object_ctx >= 0' >/dev/null
expect "entries of scrubs" "$(for o in 0 1 2; do ceph tell osd.$o dump_scrubs | jq -r '.[].pgid'; done | sort -u | wc -l)" \
  "$(ceph pg dump pgs_brief -f json 2>/dev/null | jq '.pg_stats | length')"
pg=$(ceph osd map p o1 -f json | jq -r .pgid) lead=$(ceph osd map p o1 -f json | jq -r .acting_primary)
last() { ceph pg "$pg" query | jq -r .info.history.last_deep_scrub_stamp; }
old=$(last)
ceph tell "osd.$lead" deep-scrub "$pg" | jq -e .deep >/dev/null
scrubbed() { [ "$(last)" != "$old" ]; }
wait_for 30 scrubbed
ceph tell osd.0 dump_osd_network 0 | jq -e '.entries | length == 4' >/dev/null
ceph tell osd.0 objecter_requests | jq -e '.ops == []' >/dev/null
ceph tell osd.0 send_beacon
ceph tell osd.0 cluster_log info from a tool
logged() { ceph log last 20 info cluster | grep -q 'from a tool'; }
wait_for 5 logged
ceph tell osd.0 injectargs --no-osd_scrub_auto_repair >/dev/null 2>&1
expect "a switch" "$(ceph tell osd.0 config get osd_scrub_auto_repair | jq -r .osd_scrub_auto_repair)" false
refused() { local said; said=$(ceph tell osd.0 "$@" 2>&1) && return 1; grep -q "$WORD" <<<"$said"; }
ceph tell osd.0 smart | jq -e 'type == "object"' >/dev/null
WORD=store_cache_size refused cache drop
WORD=primary refused scrub "$(ceph pg dump pgs_brief -f json 2>/dev/null | jq -r '[.pg_stats[] | select(.acting_primary != 0)][0].pgid')"
ceph tell osd.0 help >"$W/help" 2>&1
grep -q flush_pg_stats "$W/help"
ceph daemon "$W/c/run/mgr.a.asok" mgr_status | jq -e .initialized >/dev/null
