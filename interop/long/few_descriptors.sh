# Daemons with 1,024 descriptors, as without LimitNOFILE, and 1,100 connections that never sign in at each: clients are
# served, OSDs reach each other, and health names the daemons.
source "$(dirname "$0")/../lib.sh"
printf '#!/bin/sh\nulimit -n 1024\nexec "%s" "$@"\n' "$BIN" >"$W/few"
chmod +x "$W/few"
BIN=$W/few
cluster_up --osds 2 --osd-size 1G
ceph osd pool create p 8 >/dev/null
pool_clean p 8
ports() { for p in "$W"/c/run/mon.a.pid "$W"/c/run/osd.*.pid; do
  ss -Hltnp | grep "pid=$(cat "$p")," | awk '{print $4}'
done; }
mapfile -t targets < <(ports)
/usr/bin/python3 "$ROOT/interop/py/strangers.py" $((1100 * ${#targets[@]})) 40 "${targets[@]}" >"$W/strangers" 2>&1 & s=$!
PIDS+=("$s")
for n in $(seq 5); do
  timeout 20 ceph -s >/dev/null
  timeout 20 rados -p p bench 3 write -b 4096 -t 4 >/dev/null
done
few() { ceph health detail -f json | jq -e '.checks.DAEMON_FEW_DESCRIPTORS.summary.count == 3'; }
wait_for 20 few || { ceph health detail; exit 1; }
expect "OSDs that are up" "$(ceph osd stat -f json | jq .num_up_osds)" 2
wait "$s"
sed 's/^/== /' "$W/strangers"
cluster_down
