# Cost of class calls: CPU of the OSD per call with 64 in flight. Nothing else should run on the machine.
#
# For comparison a plain write of 4 KiB to the same number of objects, which shows the cost of any operation.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 1 --osd-size 3G
belemnite -c "$CEPH_CONF" pool create test 64
pid=$(cat "$W/c/run/osd.0.pid")
cost() {
  belemnite -c "$CEPH_CONF" bench test "$1" --secs "${SECS:-5}" --depth 64 --object-size 4K --cpu-of "$pid" |
    sed -E 's/^([^:]*): .* ([0-9]+) per second.*per operation (.*)/\1 \3 \2/' | { read -r call us rate
      printf '== %-18s %6.1f us %8d/s\n' "$call" "$us" "$rate"; }
}
for call in ${CALLS:-lock.lock lock.get_info rbd.get_size rbd.get_features rbd.metadata_set rbd.set_flags randwrite randread}; do
  cost "$call"
done
cluster_down
