# Chosen primaries (`osd pg-upmap-primary`, balancer mode `upmap-read`): clients of 20.2 follow them, the OSD that is chosen
# serves, 20.2's osdmaptool places as we do, and clients of 16.2 are turned away with a reason until there are none.
# NEWER: how to run tools of 20.2, as "chroot DIR". SCRATCH: a directory that is the same in both.
source "$(dirname "$0")/../lib.sh"
: "${NEWER:?NEWER=\"chroot DIR\", a root with Ceph 20.2}"
newer() { timeout 60 $NEWER "$@"; }

cluster_up --osds 4 --osd-size 1G
ceph osd pool create p 32 32 >/dev/null 2>&1
newer ceph balancer off
wait_for 60 sh -c "ceph pg stat -f json | jq -e '.pg_summary.num_pg_by_state | all(.name == \"active+clean\")'"
head -c 100000 /dev/urandom >"$W/data"
rados -p p put x "$W/data"
ceph osd require-osd-release reef

# The command of 16.2 is an older client itself.
! ceph osd set-require-min-compat-client reef 2>"$W/err"
grep -q 'connected client(s) look like pacific (missing 0x200000000); add --yes-i-really-mean-it' "$W/err" || { cat "$W/err"; exit 1; }
wait_for 30 newer ceph osd set-require-min-compat-client reef

where() { newer ceph osd map p x -f json | jq -r "$1"; }
pg=$(where .pgid) was=$(where .up_primary) second=$(where '.up[1]')
newer ceph osd pg-upmap-primary "$pg" "$second" 2>&1 | grep -q "change primary for pg $pg to osd.$second"
expect "the primary" "$(where .acting_primary)" "$second"
ops() { newer ceph tell "osd.$1" perf dump 2>/dev/null | jq ".osd.op_w + .osd.op_r"; }
before=$(ops "$second") others=$(ops "$was")
for i in 1 2 3 4 5; do
  newer rados -p p put x "$W/data"
  newer rados -p p get x "$W/got"
  cmp "$W/data" "$W/got"
done
[ $(($(ops "$second") - before)) -ge 10 ] || { echo "osd.$second served $(ops "$second"), $before before"; exit 1; }
expect "operations of the former primary" "$(ops "$was")" "$others"

# 20.2's tools read the map.
newer ceph osd getmap -o "$W/map" 2>/dev/null
newer osdmaptool "$W/map" --print | grep -q "^pg_upmap_primary $pg $second\$"
newer osdmaptool "$W/map" --test-map-pgs-dump-all | sed -n 's/^\([0-9.a-f]*\)\traw.* up (\(\[.*\]\), p\(-*[0-9]*\)) acting.*/\1 \2 \3/p;s/^\([0-9.a-f]*\) raw.* up (\(\[.*\]\), p\(-*[0-9]*\)) acting.*/\1 \2 \3/p' | sort >"$W/theirs"
newer ceph pg dump pgs -f json 2>/dev/null | jq -r '.pg_stats[] | "\(.pgid) [\(.up | map(tostring) | join(","))] \(.up_primary)"' | sort >"$W/ours"
diff "$W/theirs" "$W/ours"

# A client of 16.2 says why it does not get on.
! timeout 10 rados -p p get x "$W/got" 2>"$W/err"
grep -q 'does not support all server features' "$W/err" || { cat "$W/err"; exit 1; }
! newer ceph osd set-require-min-compat-client luminous 2>"$W/err"
grep -q 'utilizes features that require reef' "$W/err"

# The balancer evens reads out.
score() { newer ceph osd pool ls detail -f json | jq '.[] | select(.pool_name == "p") | .read_balance.score_acting'; }
echo "== read balance score before: $(score)"
newer ceph config set mgr mgr/balancer/sleep_interval 1
newer ceph balancer mode upmap-read
newer ceph balancer on
even() { newer ceph balancer status | jq -e '.no_optimization_needed'; }
wait_for 90 even
# 32 PGs on four OSDs: at most nine each, as soon as they have reported.
leads_evenly() { jq -ne "$(score) <= 1.13"; }
wait_for 60 leads_evenly
echo "== read balance score after: $(score), by $(newer ceph osd dump -f json | jq '.pg_upmap_primaries | length') entries"
newer rados -p p get x "$W/got"
cmp "$W/data" "$W/got"

# The way back.
newer ceph balancer mode upmap
newer ceph osd rm-pg-upmap-primary-all
newer ceph osd set-require-min-compat-client luminous
wait_for 30 timeout 10 rados -p p get x "$W/got"
cmp "$W/data" "$W/got"
cluster_down
