# etcd at its quota: health warns before, changes fail with EIO while reads are answered, and the steps of the page on
# monitors end it.
source "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is not installed (etcd-server)"; exit 1; }

export ETCD_QUOTA_BACKEND_BYTES=$((16 << 20))
cluster_up --osds 1 --osd-size 1G --mons 3
# The members, as the configuration has them.
IFS=, read -ra members < <(sed -n 's/^ *mon_state_etcd *= *//p' "$CEPH_CONF" | tr -d ' ')
expect "members of etcd" "${#members[@]}" 3
etcd() { curl -sf --max-time 30 "$1$2" -d "$3"; }

has() { ceph health detail -f json | jq -e ".checks.$1"; }
! has MON_STATE_NEARFULL >/dev/null || exit 1
# fill N: N changes of some 60 KB each. Error: one was refused.
fill() {
  /usr/bin/python3 - "$1" <<'P'
import json, os, rados, sys
c = rados.Rados(conffile=os.environ['CEPH_CONF']); c.connect()
for n in range(int(sys.argv[1])):
    rc, out, err = c.mon_command(json.dumps({'prefix': 'config-key set', 'key': f'k/{n % 5}'}), os.urandom(30000).hex().encode())
    if rc:
        sys.exit(f'{rc} {err}')
P
}
fill 225
wait_for 40 has MON_STATE_NEARFULL || { ceph health detail; exit 1; }
ceph health detail | grep 'of a quota of 16 MiB' | head -n 1 | sed 's/^ */== /'
if fill 200 2>"$W/err"; then echo "changes beyond the quota" >&2; exit 1; fi
wait_for 40 has MON_STATE_ALARM || { ceph health detail; cat "$W/err"; exit 1; }
ceph health detail | grep -m 1 'NOSPACE' | sed 's/^ */== /'
ceph osd dump >/dev/null

# The steps of "When etcd is full", by etcd's gateway instead of etcdctl.
rev=$(etcd "${members[0]}" /v3/maintenance/status '{}' | jq -r .header.revision)
etcd "${members[0]}" /v3/kv/compaction "{\"revision\":\"$rev\",\"physical\":true}" >/dev/null
for m in "${members[@]}"; do etcd "$m" /v3/maintenance/defragment '{}' >/dev/null; done
for id in $(etcd "${members[0]}" /v3/maintenance/alarm '{"action":"GET"}' | jq -r '.alarms[]?.memberID'); do
  etcd "${members[0]}" /v3/maintenance/alarm "{\"action\":\"DEACTIVATE\",\"memberID\":\"$id\",\"alarm\":\"NOSPACE\"}" >/dev/null
done
wait_for 20 ceph config-key set after 1
healthy() { ! has MON_STATE_ALARM && ! has MON_STATE_NEARFULL && ! has MON_DISK_CRIT; }
wait_for 40 healthy || { ceph health detail; exit 1; }
expect "bytes of a key of before" "$(ceph config-key get k/1 | wc -c)" 60000
cluster_down
