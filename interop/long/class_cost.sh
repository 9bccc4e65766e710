# Cost of class calls: CPU of the OSD per call with 64 in flight. Nothing else should run on the machine.
#
# For comparison a plain write of 4 KiB to the same number of objects, which shows the cost of any operation. `rgw.put` is
# `bucket_prepare_op` and `bucket_complete_op` of a new entry in turn, on 64 index shards: the cost shown is the mean of both.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 1 --osd-size 3G
belemnite -c "$CEPH_CONF" pool create test 64
pid=$(cat "$W/c/run/osd.0.pid")
cost() {
  belemnite -c "$CEPH_CONF" bench test "$1" --secs "${SECS:-5}" --depth 64 --object-size 4K --cpu-of "$pid" |
    sed -E 's/^([^:]*): .* ([0-9]+) per second.*per operation (.*)/\1 \3 \2/' | { read -r call us rate
      printf '== %-18s %6.1f us %8d/s\n' "$call" "$us" "$rate"; }
}
for call in ${CALLS:-lock.lock lock.get_info rbd.get_size rbd.get_features rbd.metadata_set rbd.set_flags rgw.bucket_prepare_op rgw.put randwrite randread}; do
  cost "$call"
done
cluster_down
