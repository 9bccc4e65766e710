# Does an archive keep every object? Images on 4+2 are filled with OBJECTS (50,000) objects of the sizes that Software
# Heritage has, IMAGE bytes in each, while one OSD is killed and the disk of another one is replaced. Then all objects are
# read back in random order and hashed, and the disk space is compared with their bytes. READ=scan reads in order and in
# large pieces. A million objects are 22 GB and take 34 GB of disk:
# OBJECTS=1000000 IMAGE=1073741824 OSD_SIZE=8G LIMIT=3600 READ=scan.
source "$(dirname "$0")/../lib.sh"
OBJECTS=${OBJECTS:-50000} LIMIT=${LIMIT:-600}
cluster_up --osds 7 --osd-size "${OSD_SIZE:-2G}"
ceph osd erasure-code-profile set archive k=4 m=2 crush-failure-domain=osd
ceph osd pool create shards-data 32 erasure archive
ceph osd pool set shards-data allow_ec_overwrites true
ceph osd pool application enable shards-data rbd
ceph osd pool create shards 8
rbd pool init shards

kept() { /usr/bin/python3 "$ROOT/interop/py/archive_kept.py" "$@"; }
mkdir "$W/names"
written() { echo $(($(cat "$W/names"/* 2>/dev/null | wc -c) / 44)); }
goes_on() { kill -0 "$FILL"; }
# reached N: true once N objects are written, or if nobody writes any more.
reached() { [ "$(written)" -ge "$1" ] || ! goes_on; }
clean() { ceph pg stat -f json | jq -e '[.pg_summary.num_pg_by_state[] | select(.name != "active+clean")] == []'; }
kept fill shards "$OBJECTS" "${IMAGE:-67108864}" "$W/names" >"$W/payload" & FILL=$!; PIDS+=("$FILL")
wait_for "$LIMIT" reached $((OBJECTS / 3))
goes_on
kill -KILL "$(cat "$W/c/run/osd.1.pid")"
wait_for "$LIMIT" reached $((OBJECTS / 2))
goes_on
replaced() { belemnite --conf "$CEPH_CONF" osd replace 2 --degraded; }
wait_for "$LIMIT" replaced
echo "replaced after $(written) of $OBJECTS objects"
wait "$FILL"
wait_for "$LIMIT" clean
expect "objects read back" "$(kept "${READ:-read}" shards "$W/names")" "$OBJECTS"

ceph df -f json >"$W/df"
used=$(jq '.pools[] | select(.name == "shards-data").stats.bytes_used' "$W/df")
awk -v used="$used" -v payload="$(cat "$W/payload")" -v n="$OBJECTS" 'BEGIN {
  printf "== %d objects, %.1f MB, an OSD killed and one replaced: all read back; %.3f bytes of disk per byte\n", n, payload / 1e6, used / payload
  exit used / payload > 1.62
}'
cluster_down
