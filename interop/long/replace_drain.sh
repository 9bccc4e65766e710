# `belemnite osd replace N --drain` on a cluster with data, while clients write and read: no answer differs from the model's,
# all objects are there afterwards, and each of the OSDs has a new, empty store at the end. A command that is interrupted
# after it has marked the OSD out goes on when it is run again.
source "$(dirname "$0")/../lib.sh"
OBJECTS=${OBJECTS:-400}
cluster_up --osds 4 --osd-size 2G --pool-size 3
here() { belemnite --conf "$CEPH_CONF" "$@"; }
for p in test coded; do
  [ $p = test ] || ceph osd erasure-code-profile set code k=2 m=1 crush-failure-domain=osd
  if [ $p = test ]; then ceph osd pool create test 16; else ceph osd pool create coded 8 8 erasure code; fi
  ceph osd pool application enable $p rados
  pool_clean $p $([ $p = test ] && echo 16 || echo 8)
done
head -c 200000 /dev/urandom >"$W/data"
for p in test coded; do
  seq "$OBJECTS" | xargs -P 4 -I{} rados -p $p put "kept-{}" "$W/data"
done
uuid_of() { ceph osd dump -f json | jq -r ".osds[] | select(.osd == $1).uuid"; }
store_of() { stat -c %i "$W/c/osd.$1/block"; }
model_begins
for n in 0 1 2 3; do
  before=$(store_of $n) old=$(uuid_of $n) start=$(date +%s)
  if [ $n = 2 ]; then
    # Interrupted while it waits.
    ceph osd set nobackfill; ceph osd set norecover
    here osd replace $n --drain >"$W/first" 2>&1 & first=$!
    is_out() { ceph osd dump -f json | jq -e ".osds[] | select(.osd == $n).in == 0"; }
    wait_for 30 is_out
    kill -KILL $first; wait $first || true
    expect "the store of an interrupted command" "$(store_of $n)" "$before"
    ceph osd unset nobackfill; ceph osd unset norecover
  fi
  timeout 300 "$BIN" --conf "$CEPH_CONF" osd replace $n --drain
  echo "== osd.$n drained and replaced in $(($(date +%s) - start)) s"
  [ "$(store_of $n)" != "$before" ] || { echo "osd.$n has its old store" >&2; exit 1; }
  [ "$(uuid_of $n)" != "$old" ] || { echo "osd.$n has its old uuid" >&2; exit 1; }
  expect "osd.$n is up and in" "$(ceph osd dump -f json | jq -c ".osds[] | select(.osd == $n) | [.up, .in]")" "[1,1]"
  pool_clean test 16
  pool_clean coded 8
done
model_ends
for p in test coded; do
  for i in $(seq "$OBJECTS"); do rados -p $p get "kept-$i" - | cmp - "$W/data"; done
done
# What could not be emptied is refused before anything changes: three copies on three OSDs.
here osd remove 3
pool_clean test 16
if here osd replace 0 --drain 2>"$W/refused"; then echo "osd.0 was drained with no place for its copies" >&2; exit 1; fi
grep -q 'cannot be emptied' "$W/refused"
expect "osd.0 stays in" "$(ceph osd dump -f json | jq '.osds[] | select(.osd == 0).in')" 1
cluster_down
