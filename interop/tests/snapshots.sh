# Do snapshots through librados, and reads of watched objects from replicas, agree with a model and with Ceph?
#
# The model (interop/py/snap_model.py) was validated against Ceph 16.2. STEPS and SEED select the length and the run;
# long runs:
#
# for s in $(seq 20); do STEPS=5000 SEED=$s interop/run.sh snapshots; done
. "$(dirname "$0")/../lib.sh"

cluster_up --osds 3 --osd-size 8G
ceph config set mon mon_allow_pool_delete true
for p in self pool watched; do
  ceph osd pool create "$p" 8 8
  ceph osd pool set "$p" size 3
done
for mode in self pool; do
  timeout 600 /usr/bin/python3 "$ROOT/interop/py/snap_model.py" "$mode" "$mode" "${STEPS:-600}" "${SEED:-$RANDOM}"
done
timeout 120 /usr/bin/python3 "$ROOT/interop/py/watched_reads.py" watched

# The copy of a pool with an image and its snapshot contains the image, which lists the snapshot; the copy itself never
# had snapshots.
for p in images copies; do ceph osd pool create "$p" 8 8; rbd pool init "$p"; done
rbd create --size 8M images/i
rbd snap create images/i@s
rados cppool images copies --yes-i-really-mean-it
rbd snap rm copies/i@s
expect 'snapshots of the copy' "$(rbd snap ls copies/i | wc -l)" 0
expect 'snapshots of the image' "$(rbd snap ls images/i | grep -c ' s ')" 1
cluster_down
