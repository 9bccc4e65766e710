# A member of etcd whose file is mostly free is defragmented by the leading monitor without a word of the operator: first one
# that does not lead etcd. Clients change and read meanwhile. Takes up to two minutes; needs etcd.
source "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is not installed (etcd-server)"; exit 1; }
# A small quota: a file is large in relation to it soon.
export ETCD_QUOTA_BACKEND_BYTES=$((32 << 20))
cluster_up --osds 1 --osd-size 1G --mons 3
IFS=, read -ra members < <(sed -n 's/^ *mon_state_etcd *= *//p' "$CEPH_CONF" | tr -d ' ')
etcd() { curl -sf --max-time 30 "$1$2" -d "$3"; }
status() { etcd "$1" /v3/maintenance/status '{}'; }
sizes() { for m in "${members[@]}"; do status "$m" | jq -r '[.dbSize // "0", .dbSizeInUse // "0", (.leader == .header.member_id)] | join(" ")'; done; }
/usr/bin/python3 - <<'P'
import json, os, rados, sys
c = rados.Rados(conffile=os.environ['CEPH_CONF']); c.connect()
for n in range(420):
    rc, out, err = c.mon_command(json.dumps({'prefix': 'config-key set', 'key': f'k/{n % 5}'}), os.urandom(30000).hex().encode())
    assert rc == 0, (n, rc, err)
P
rev=$(status "${members[0]}" | jq -r .header.revision)
etcd "${members[0]}" /v3/kv/compaction "{\"revision\":\"$rev\",\"physical\":true}" >/dev/null
sizes | sed 's/^/== before (size, used, leads etcd): /'
done_by_monitor() { grep -h 'is defragmented; ' "$W"/c/log/mon.*.log >"$W/said"; }
slowest=0
for _ in $(seq 300); do
  t=$(date +%s%N)
  ceph config-key set counter "$t" 2>/dev/null; expect "the counter" "$(ceph config-key get counter)" "$t"
  took=$((($(date +%s%N) - t) / 1000000))
  [ $took -le $slowest ] || slowest=$took
  ! done_by_monitor || break
  [ $((SECONDS)) -lt 150 ] || break
done
done_by_monitor || { sizes; ceph health detail; exit 1; }
sed 's/^.*etcd at/== etcd at/' "$W/said"
expect "members at once" "$(wc -l <"$W/said")" 1
sizes | tee "$W/after" | sed 's/^/== after: /'
# The leader of etcd is not the first, and one file is small now.
small=$(awk '$1 < 16777216 {n++; l = $3} END {print n + 0, l}' "$W/after")
expect "small files, and whether theirs leads" "$small" "1 false"
echo "== slowest change and read meanwhile: $slowest ms"
expect "bytes of a key of before" "$(ceph config-key get k/1 | wc -c)" 60000
cluster_down
