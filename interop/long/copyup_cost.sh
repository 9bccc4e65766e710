# Write amplification of copy-up: bytes written to the device when the first write to each 4 MiB object of a clone
# copies it up from the parent, as a multiple of the objects' size.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 1 --osd-size 3G
ceph osd pool create rbd 16
rbd pool init rbd
N=${OBJECTS:-32}
head -c $((N * 4194304)) /dev/urandom | rbd import --image-feature layering - rbd/parent 2>/dev/null
rbd snap create rbd/parent@s
rbd snap protect rbd/parent@s
rbd clone --image-feature layering rbd/parent@s rbd/child
written() { awk '/^write_bytes/ {print $2}' "/proc/$(cat "$W/c/run/osd.0.pid")/io"; }
sleep 2
before=$(written)
N=$N /usr/bin/python3 - <<'P'
import os, rados, rbd
c = rados.Rados(conffile=os.environ["CEPH_CONF"]); c.connect()
io = c.open_ioctx("rbd")
with rbd.Image(io, "child") as i:
    for n in range(int(os.environ["N"])):
        i.write(b"x", n << 22)
    i.flush()
P
sleep 2
after=$(written)
echo "$before $after $N" | awk '{r = ($2 - $1) / ($3 * 4194304)
  printf "== copy-up of %d objects of 4 MiB: %.3f times their size written\n", $3, r; exit r > 1.1}'
cluster_down
