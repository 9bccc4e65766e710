# Tasks of the manager role that move and remove images with all their relations: snapshots, parents, clones, journals,
# groups, mirrors. 2 min.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 3G
ceph config set global mon_max_pg_per_osd 1000
ceph osd pool create rbd 8
rbd pool init rbd
r() { rm -f "$W/out"; rbd "$@" 2>"$W/rbd.err" || { echo "rbd $* failed:"; tail -c 600 "$W/rbd.err"; return 1; }; }
sum() { sha256sum "$1" | cut -d' ' -f1; }
task() { ceph rbd task add "$@" | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])'; }
ended() { ! ceph rbd task list "$1" >/dev/null 2>&1; }
some() { rbd bench --io-type write --io-size 4K --io-total 64K --io-pattern rand "$1" >/dev/null 2>&1; }
v2() { r clone --rbd-default-clone-format 2 "$@"; }
head -c 9000000 /dev/urandom >"$W/random"

echo "== migrations by tasks: of a clone with snapshots, a clone of its own, a journal and a mirror; and back again"
ceph osd pool create other 8
rbd pool init other
for p in rbd other; do r mirror pool enable $p image; done
sums() { for i in "$@"; do r export "$i" "$W/out"; sum "$W/out"; done; }
# The destination has larger objects: written data is next to data from the parent.
r import --object-size 1M --image-feature layering,exclusive-lock,journaling "$W/random" rbd/base
r mirror image enable rbd/base journal
r snap create rbd/base@s
for i in there back; do
  v2 --image-feature layering,exclusive-lock,object-map,fast-diff,journaling rbd/base@s rbd/$i
  some rbd/$i; r snap create rbd/$i@one
  some rbd/$i; r resize --allow-shrink --size 6M rbd/$i; r snap create rbd/$i@two
  r resize --size 10M rbd/$i; some rbd/$i
  v2 --image-feature layering rbd/$i@two rbd/child-$i
done
snaps=$(sums rbd/there@one rbd/there@two rbd/child-there)
r mirror image enable rbd/there journal
r migration prepare --rbd-default-clone-format 2 --object-size 2M rbd/there other/there
some other/there; r snap create other/there@three; some other/there
now=$(sums other/there@three other/there)
t=$(task migration execute other/there); wait_for 60 ended "$t"
expect "the state" "$(rbd status --format json other/there | jq -r .migration.state)" executed
expect "snapshots after execution" "$(sums other/there@one other/there@two rbd/child-there)" "$snaps"
expect "the image after execution" "$(sums other/there@three other/there)" "$now"
t=$(task migration commit other/there); wait_for 60 ended "$t"
expect "snapshots after the commit" "$(sums other/there@one other/there@two rbd/child-there)" "$snaps"
expect "the image after the commit" "$(sums other/there@three other/there)" "$now"
for i in there there@one there@two there@three; do r object-map check other/$i; done
expect "clones" "$(rbd children other/there@two)" rbd/child-there
expect "mirrored" "$(rbd mirror image status --format json other/there >/dev/null && rbd info --format json other/there | jq -r .mirroring.state)" enabled
expect "the source" "$(rbd trash ls --all rbd)$(rbd ls rbd | grep -x there || true)" ""

r group create rbd/g
r group image add rbd/g rbd/back
snaps=$(sums rbd/back@one rbd/back@two)
r migration prepare --rbd-default-clone-format 2 rbd/back other/back
some other/back
t=$(task migration execute other/back); wait_for 60 ended "$t"
some other/back
# An object that is removed completely reads as zeros, not as the source's data.
/usr/bin/python3 - <<'P'
import os, rados, rbd
c = rados.Rados(conffile=os.environ["CEPH_CONF"]); c.connect()
with rbd.Image(c.open_ioctx("other"), "back") as i:
    i.discard(1 << 20, 2 << 20)
P
now=$(sums other/back)
t=$(task migration abort other/back); wait_for 60 ended "$t"
expect "the image after an abort" "$(sums rbd/back)" "$now"
expect "its snapshots" "$(sums rbd/back@one rbd/back@two)" "$snaps"
expect "its clones" "$(rbd children rbd/back@two)" rbd/child-back
expect "its group" "$(rbd group image ls rbd/g | tr -d " ")" rbd/back
for i in back back@one back@two; do r object-map check rbd/$i; done
expect "the destination" "$(rbd ls other) $(rados -p other ls | grep -c "rbd_header")" "there 1"
r group image rm rbd/g rbd/back

echo "== tasks on mirrored images"
t=$(task flatten rbd/child-back); wait_for 60 ended "$t"
r snap rm rbd/back@two
r mirror image enable rbd/child-back snapshot
expect "with mirror snapshots" "$(ceph rbd task add remove rbd/child-back 2>&1 | grep -c 'has snapshots')" 1
r trash mv rbd/child-back
t=$(task trash remove "rbd/$(rbd trash ls rbd | awk '/child-back/ {print $1}')"); wait_for 60 ended "$t"
r snap purge rbd/back
r mirror image enable rbd/back journal
t=$(task remove rbd/back); wait_for 60 ended "$t"
expect "mirrored images" "$(rbd mirror pool status --verbose --format json rbd | jq -r '.images[].name')" base
expect "what is left of them" "$(rbd ls rbd | grep -c back || true)$(rbd trash ls --all rbd)" 0
cluster_down
