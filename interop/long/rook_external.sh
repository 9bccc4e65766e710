# Rook's public script create-external-cluster-resources.py, unmodified, by its path ROOK_EXTERNAL: RBD, CephFS, S3, keys that
# are restricted, namespaces, topologies, upgrades of keys; on a cluster with a file system and on one without. Its keys
# must do what Rook's drivers do with them. The metrics' address is that of `ceph mgr services`. Two minutes; packages
# radosgw, ceph-mds, python3-yaml, python3-requests.
source "$(dirname "$0")/../lib.sh"
: "${ROOK_EXTERNAL:?the path of create-external-cluster-resources.py}"
rook() {
  local s=0
  /usr/bin/python3 "$ROOK_EXTERNAL" -c "$CEPH_CONF" -k "$W/c/ceph.client.admin.keyring" "$@" >"$W/said" 2>"$W/err" || s=$?
  [ $s = 0 ] || { echo "rook $*: status $s" >&2; tail -n 20 "$W/said" "$W/err" >&2; return 1; }
}
# secret NAME FIELD, in the JSON that it prints.
secret() { jq -r --arg n "$1" --arg f "$2" '.[] | select(.name == $n and .kind == "Secret") | .data[$f]' "$W/said"; }
# of NAME: a file with the key.
keyring_of() { printf '[client.%s]\n\tkey = %s\n' "$1" "$2" >"$W/key.$1"; echo "$W/key.$1"; }

# No file system, no gateway: RBD alone.
cluster_up --osds 3 --osd-size 2G
ceph osd pool create rbd 8
rbd pool init rbd
ceph config set mgr mgr/prometheus/server_port $((PORT + 900))
ceph mgr module enable prometheus
is_served() { ceph mgr services -f json | jq -e .prometheus; }
wait_for 20 is_served
rook --rbd-data-pool-name rbd --format json
endpoint=$(jq -r '.[] | select(.name == "monitoring-endpoint") | .data | .MonitoringEndpoint + ":" + .MonitoringPort' "$W/said")
expect "the metrics' address" "http://$endpoint/" "$(ceph mgr services -f json | jq -r .prometheus)"
curl -sf "http://$endpoint/metrics" | grep -q '^ceph_health_status'
cp "$W/said" "$W/rbd.json"
node=$(secret rook-csi-rbd-node userKey)
prov=$(secret rook-csi-rbd-provisioner userKey)
k=$(keyring_of csi-rbd-provisioner "$prov")
rbd --id csi-rbd-provisioner --keyring "$k" create --size 64M rbd/image
k=$(keyring_of csi-rbd-node "$node")
rbd --id csi-rbd-node --keyring "$k" info rbd/image | grep -q 'size 64 MiB'
health=$(jq -r '.[] | select(.name == "rook-ceph-operator-creds") | .data.userKey' "$W/said")
k=$(keyring_of healthchecker "$health")
ceph --id healthchecker --keyring "$k" quorum_status -f json | jq -e '.quorum | length == 1' >/dev/null
! ceph --id healthchecker --keyring "$k" osd pool create no 8 2>/dev/null
# The same again gives the same keys.
rook --rbd-data-pool-name rbd --format json
jq -S . "$W/said" | diff - <(jq -S . "$W/rbd.json")
rook --rbd-data-pool-name rbd --format bash
grep -q '^export ROOK_EXTERNAL_FSID=' "$W/said"
rook --rbd-data-pool-name rbd --dry-run
grep -q 'auth get-or-create' "$W/said"
echo "== without a file system"

# Restricted keys, a namespace of the pool, an alias, a topology, coded data.
rbd namespace create rbd/tenant
rook --rbd-data-pool-name rbd --rados-namespace tenant --restricted-auth-permission true --k8s-cluster-name k8s --format json
key=$(jq -r '[.[] | select(.kind == "Secret" and (.name | startswith("rook-csi-rbd-provisioner")))][0].data | [.userID, .userKey] | @tsv' "$W/said")
read -r id key <<<"$key"
k=$(keyring_of "$id" "$key")
rbd --id "$id" --keyring "$k" create --size 16M rbd/tenant/image
! rbd --id "$id" --keyring "$k" create --size 16M rbd/elsewhere 2>/dev/null
for p in east west; do ceph osd pool create $p 8; rbd pool init $p; done
rook --rbd-data-pool-name rbd --topology-pools east,west --topology-failure-domain-label region \
  --topology-failure-domain-values e,w --format json
grep -q topology "$W/said"
ceph osd pool create 'a.b' 8
rook --rbd-data-pool-name a.b --alias-rbd-data-pool-name ab --restricted-auth-permission true --k8s-cluster-name k8s --format json
ceph osd erasure-code-profile set small k=2 m=1 crush-failure-domain=osd
ceph osd pool create coded 8 8 erasure small
ceph osd pool set coded allow_ec_overwrites true
rook --rbd-data-pool-name coded --rbd-metadata-ec-pool-name rbd --format json
rook --upgrade
rook --upgrade --rbd-data-pool-name rbd --k8s-cluster-name k8s --restricted-auth-permission true --run-as-user "client.$id"
echo "== restricted keys, namespaces, topologies, coded data, upgrades"
cluster_down
rm -rf "$W/c"

# With a file system and a gateway.
cluster_up --osds 3 --osd-size 2G --fs home --s3
ceph osd pool create rbd 8
rbd pool init rbd
fs=(--cephfs-filesystem-name home)
ceph config set mgr mgr/prometheus/server_port $((PORT + 901))
ceph mgr module enable prometheus
wait_for 20 is_served
gateway=$(sed -n 's/^.*endpoint: *http:\/\///p' "$W/up.out" | head -n 1)
: "${gateway:=127.0.0.1:$((PORT + 5))}"
rook --rbd-data-pool-name rbd "${fs[@]}" --format json
expect "the group of subvolumes" "$(ceph fs subvolumegroup ls home -f json | jq -r '.[].name')" csi
prov=$(secret rook-csi-cephfs-provisioner adminKey)
[ "$prov" != null ] || prov=$(secret rook-csi-cephfs-provisioner userKey)
k=$(keyring_of csi-cephfs-provisioner "$prov")
ceph --id csi-cephfs-provisioner --keyring "$k" fs subvolume create home volume --group_name csi --size 16777216
ceph --id csi-cephfs-provisioner --keyring "$k" fs subvolume getpath home volume --group_name csi | grep -q ^/volumes/csi/volume/
rook --rbd-data-pool-name rbd "${fs[@]}" --subvolume-group other --format json
ceph fs subvolumegroup ls home -f json | jq -e 'any(.name == "other")' >/dev/null
rook --rbd-data-pool-name rbd "${fs[@]}" --restricted-auth-permission true --k8s-cluster-name k8s --format json
rook --upgrade
rook --rbd-data-pool-name rbd "${fs[@]}" --rgw-endpoint "$gateway" --format json
jq -e '.[] | select(.name == "rgw-admin-ops-user" and .kind == "Secret") | .data.accessKey | length > 10' "$W/said" >/dev/null
rook --rbd-data-pool-name rbd --rgw-endpoint "$gateway" --rgw-pool-prefix default --format bash
rook --rbd-data-pool-name rbd --monitoring-endpoint 127.0.0.1 --monitoring-endpoint-port $((PORT + 901)) --format json
rook --rbd-data-pool-name rbd --skip-monitoring-endpoint --v2-port-enable --format json
echo "== with a file system and a gateway"
cluster_down
