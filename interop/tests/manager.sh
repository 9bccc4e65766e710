# Ceph's ceph-mgr in the manager role (`up --mgr ceph`), with modules that only it has: subvolumes with snapshots and
# clones by `volumes`, the balancer and the autoscaler. Then the built-in role takes over again. An operator's options
# in ceph.conf are preserved.
source "$(dirname "$0")/../lib.sh"

cluster_up --osds 1 --osd-size 2G --fs --mds 1 --mgr ceph
expect "the active manager" "$(ceph mgr dump | jq -r .active_name)" x
printf '[global]\nosd_pool_default_pg_num = 8\n' >>"$CEPH_CONF"

ceph fs subvolumegroup create home csi
ceph fs subvolume create home v --group_name csi --size 10485760
path=$(ceph fs subvolume getpath home v --group_name csi)
case $path in /volumes/csi/v/*) ;; *) echo "path $path"; exit 1 ;; esac
expect "quota" "$(ceph fs subvolume info home v --group_name csi | jq .bytes_quota)" 10485760
ceph fs subvolume snapshot create home v s --group_name csi
ceph fs subvolume snapshot clone home v s w --group_name csi --target_group_name csi
cloned() { ceph fs clone status home w --group_name csi | jq -e '.status.state == "complete"'; }
wait_for 60 cloned
expect "subvolumes" "$(ceph fs subvolume ls home --group_name csi | jq -r '.[].name' | sort | paste -sd,)" v,w
ceph fs subvolume snapshot rm home v s --group_name csi
for v in v w; do ceph fs subvolume rm home $v --group_name csi; done
expect "subvolumes left" "$(ceph fs subvolume ls home --group_name csi)" "[]"

ceph balancer status | jq -e .mode >/dev/null
ceph osd pool autoscale-status >/dev/null
wait_for 30 sh -c "ceph pg stat -f json | jq -e '.pg_summary.num_pg_by_state | length == 1'"
image_counters "$(ceph osd pool create images 8 >/dev/null 2>&1; rbd pool init images; echo images)"
ceph rbd task add remove images/counted >/dev/null
wait_for 30 sh -c "! rbd info images/counted"
cluster_down

cluster_up --mgr belemnite
expect "the active manager" "$(ceph mgr dump | jq -r .active_name)" a
expect "own options" "$(tail -n 1 "$CEPH_CONF")" "osd_pool_default_pg_num = 8"
# Groups of subvolumes, by the other manager's names.
wait_for 60 ceph fs subvolumegroup ls home
expect "the path of a group" "$(ceph fs subvolumegroup getpath home csi)" /volumes/csi

# Metrics, and the balancer of the built-in role.
ceph config set mgr mgr/prometheus/server_port $((PORT + 400))
ceph mgr module enable prometheus
served() { ceph mgr services | jq -er .prometheus; }
wait_for 10 served
curl -sf "$(served)metrics" >"$W/metrics"
for name in health_status osd_up osd_metadata pool_stored pg_active cluster_total_bytes; do
  grep -q "^ceph_$name[{ ]" "$W/metrics" || { echo "no ceph_$name"; cat "$W/metrics"; exit 1; }
done
expect "metric of the OSD" "$(grep '^ceph_osd_up' "$W/metrics")" 'ceph_osd_up{ceph_daemon="osd.0"} 1.0'
ceph mgr module disable prometheus
closed() { ! curl -s --max-time 2 "http://127.0.0.1:$((PORT + 400))/metrics" >/dev/null; }
wait_for 10 closed
expect "balancer" "$(ceph balancer status | jq -r '.active, .mode' | paste -sd,)" true,upmap
ceph balancer eval | grep -q 'lower is better'
# Refused until the PGs have reported to the new manager.
tried() { ceph osd test-reweight-by-pg 2>&1 | grep -q oload; }
wait_for 30 tried

# The manager map names the role's clients, by the address that OSDs see. The next process keeps them from the OSDs.
clients() { ceph mgr dump | jq -er '.active_clients | map(.addrvec[0] | "\(.addr)/\(.nonce)") | select(. != []) | .[]'; }
wait_for 30 clients
clients | sort >"$W/clients.first"
cluster_down
cluster_up --mgr belemnite
wait_for 30 clients
expect "clients of both processes" "$(clients | grep -Fxf "$W/clients.first")" ""
ceph osd blocklist ls 2>/dev/null | cut -d' ' -f1 | sort >"$W/blocked"
expect "clients that work on" "$(comm -23 "$W/clients.first" "$W/blocked")" ""
