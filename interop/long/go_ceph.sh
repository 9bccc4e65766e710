# go-ceph's own tests of the manager's commands, unmodified, with the built-in manager role: cephfs/admin, rbd/admin and
# common/admin/manager. They need Go with a module proxy, and the packages gcc, librados-dev, librbd-dev and
# libcephfs-dev, whose release is the tag that the tests are built with (RELEASE); VERSION is go-ceph's. Five minutes.
#
# Left out are tests of what the libraries of that release lack, but the role has (progress of clones), and the opposite;
# and one that wants the name of the container that it runs in. One test looks for 6789 in the monitor's address, which is
# that of msgr1, four ports above the other.
: "${PORT:=26785}"
source "$(dirname "$0")/../lib.sh"
: "${VERSION:=v0.33.0}" "${RELEASE:=pacific}"
PATH=$PATH:/usr/local/go/bin
export GOPATH=$W/go GOFLAGS=-modcacherw CGO_ENABLED=1
SKIP='TestCloneProgress|TestFSQuiesce|TestServerSentinel'
found=$(cd "$W" && go mod download -json "github.com/ceph/go-ceph@$VERSION" | jq -r .Dir)
cp -r "$found" "$W/src"
packages=(cephfs/admin rbd/admin common/admin/manager)
for p in "${packages[@]}"; do (cd "$W/src" && go test -tags "$RELEASE" -c -o "$W/${p//\//-}.test" "./$p"); done

cluster_up --osds 3 --osd-size 2G --mds 3 --fs unused
ceph fs fail unused
ceph fs rm unused --yes-i-really-mean-it
# They expect the id of the first file system.
for fs in "cephfs 1" "altfs 2"; do
  read -r name id <<<"$fs"
  ceph osd pool create ${name}_data 8
  ceph osd pool create ${name}_metadata 8
  ceph fs new "$name" ${name}_metadata ${name}_data --fscid "$id" --force
done
ceph osd pool create rbd 8
rbd pool init rbd
rbd mirror pool enable rbd image
served() { [ "$(ceph mds stat -f json | jq '[.fsmap.filesystems[].mdsmap.info[] | select(.state == "up:active")] | length')" = 2 ]; }
wait_for 60 served
wrong=0
for p in "${packages[@]}"; do
  out=$W/${p//\//-}.out
  (cd "$W/src/$p" && timeout 300 "$W/${p//\//-}.test" -test.v -test.skip "$SKIP") >"$out" 2>&1 || { wrong=1; grep -v '^=== ' "$out" | tail -n 80; }
  sed -n 's/^ *--- SKIP: /== skipped: /p' "$out"
  echo "== $p: $(grep -c '^--- PASS' "$out") passed, $(grep -c '^--- FAIL' "$out" || true) failed"
done
[ $wrong = 0 ]
cluster_down
