# A monitor beside the first one: adds itself to the monitors' map, and serves. It is in the map already if it has served
# before; then it starts also while no other monitor answers.
set -eu
id=$(echo "${POD##*-}" | tr 0123 bcde)
mkdir -p "/var/lib/ceph/mon/ceph-$id"
belemnite mon -i "$id" --join || true
exec belemnite mon -i "$id"
