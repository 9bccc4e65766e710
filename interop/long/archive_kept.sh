# An archive keeps every object: images on 4+2 are filled by Winery's own classes with OBJECTS (20,000) objects of the sizes
# that Software Heritage has, SHARD bytes in each image, while one OSD is killed and another one's disk is replaced. Then
# all objects are read back and hashed, and the disk space is compared with their bytes. A million objects are 22 GB and
# take 36 GB of disk. See ../winery.sh for what this needs.
source "$(dirname "$0")/../winery.sh"
winery_private "$@"
source "$(dirname "$0")/../lib.sh"
cd "$W"
rbd_client
winery_venv "$W/winery" winery
OBJECTS=${OBJECTS:-20000}
leave() { everything_unmapped; }
trap 'status=$?; leave; finish $status' EXIT
cluster_up --osds 7 --osd-size "${OSD_SIZE:-2G}"
ceph osd erasure-code-profile set winery k=4 m=2 crush-failure-domain=osd
ceph osd pool create shards-data 32 erasure winery
ceph osd pool set shards-data allow_ec_overwrites true
ceph osd pool application enable shards-data rbd
ceph osd pool create shards 8
rbd pool init shards

kept() { winery/bin/python3 "$ROOT/interop/py/archive_kept.py" "$@"; }
mkdir names
filled() { [ "$(($(cat names/* | wc -c) / 32))" -ge "$1" ]; }
goes_on() { kill -0 "$FILL"; }
# reached N: true once N objects are written, or if nobody writes any more
reached() { filled "$1" || ! goes_on; }
kept fill shards "$OBJECTS" "${SHARD:-67108864}" "$W/names" >payload &
FILL=$!
wait_for "${LIMIT:-600}" reached $((OBJECTS / 3))
goes_on
kill -KILL "$(cat c/run/osd.1.pid)"
wait_for "${LIMIT:-600}" reached $((OBJECTS * 2 / 3))
goes_on
belemnite osd replace 2
wait "$FILL"
clean() { ceph pg stat -f json | jq -e '[.pg_summary.num_pg_by_state[] | select(.name != "active+clean")] == []'; }
wait_for "${LIMIT:-600}" clean
expect "objects read back" "$(kept read shards "$W/names")" "$OBJECTS"

ceph df -f json >df
used=$(jq '.pools[] | select(.name == "shards-data").stats.bytes_used' df)
awk -v used="$used" -v payload="$(cat payload)" -v n="$OBJECTS" 'BEGIN {
  printf "== %d objects, %.1f MB, killed and replaced on the way: all read back; %.3f bytes of disk per byte\n", n, payload / 1e6, used / payload
  exit used / payload > 1.62
}'
everything_unmapped
cluster_down
