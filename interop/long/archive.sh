# The commands of docs/start/archive.md, in order and as printed: an archive with Software Heritage's Winery. Ports and
# the directory of udev's rules are those of the test, and the database is a PostgreSQL of its own. `apt install` is left
# out unless INSTALL=1, and Winery comes out of the cache (see winery.sh). Then what the page says is looked at: deleted
# bytes are gone from the image, keys and roles of readers cannot write, writers have no key. Two minutes.
source "$(dirname "$0")/../winery.sh"
winery_private "$@"
source "$(dirname "$0")/../lib.sh"
cd "$W"
if [ -n "${INSTALL:-}" ]; then
  grep -h '^    apt install' "$ROOT/docs/start/archive.md" | while read -r _ _ packages; do
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $packages python3-fuse python3-rbd curl jq
  done
fi
rbd_client
postgres_up
winery_venv "$W/winery" winery
leave() {
  local p
  for p in $(cat "$W/pids" 2>/dev/null); do kill -TERM "$p" 2>/dev/null || true; done
  everything_unmapped
  [ ! -e belemnite-data ] || "$BIN" stop --data "$W/belemnite-data" >/dev/null 2>&1 || true
}
trap 'status=$?; leave; finish $status' EXIT

is_read_only() { [ -z "$(psql -At "$WINERY" -c "SELECT FROM shards WHERE state NOT IN ('readonly', 'writing')")" ]; }
# refused COMMAND…: an error if the command succeeds
refused() { ! "$@" >/dev/null 2>&1 || { echo "was not refused: $*"; return 1; }; }
export -f wait_for is_read_only refused
export BIN PORT W
# The page as a script. Servers are waited for; so are the daemons at the end, until every full shard is packed and clean.
{
  # shellcheck disable=SC2016
  echo 'set -euo pipefail
    belemnite() { local command=$1; shift; [ "$command" != up ] || set -- --port "$PORT" --osd-size 3G "$@"; "$BIN" "$command" "$@"; }'
  sed -n 's/^    //p' "$ROOT/docs/start/archive.md" |
    sed -E "/^(apt install|python3 -m venv|winery\/bin\/pip) /d
      s#/etc/udev#$W/udev#g
      s#\b5003\b#$((PORT + 700))#g; s#\b5004\b#$((PORT + 701))#g
      s#@localhost#@localhost:$((PORT + 600))#
      s#^! (.*)#refused \1#
      s#^(swh .* rpc-serve .*--port ([0-9]+) .*&)\$#\1\nwait_for 60 curl -fs http://127.0.0.1:\2/#
      s#^(.*[^&]&)\$#\1\necho \$! >>$W/pids#
      s#^(swh .* import .*unittest)\$#\1\nwait_for 180 is_read_only#
      s#^belemnite stop\$#. $W/checks\n&#"
} >page
n=$(sed -n 's/^    //p' "$ROOT/docs/start/archive.md" | grep -c '^[a-z].*')
[ "$n" -gt 60 ] || { echo "only $n lines were found in the document"; exit 1; }

# With the archive still there, before `belemnite stop`.
cat >checks <<'C'
license=/usr/share/common-licenses/GPL-3
images=$(rbd ls shards)
[ "$(wc -l <<<"$images")" -ge 2 ] || { echo "one shard at most was packed: $images"; exit 1; }
for image in $images; do
  # Data is in the erasure-coded pool.
  rbd info "shards/$image" | grep -q 'data_pool: shards-data'
  rbd export "shards/$image" - 2>/dev/null >image
  refused grep -q 'Everyone is permitted to copy and distribute verbatim copies' image || { echo "a deleted object is still in $image"; exit 1; }
done
ceph osd pool get shards-data erasure_code_profile | grep -q winery
# A reader's key reads and does not write; nobody's key of this archive reaches the rest of the cluster.
rbd --id reader export "shards/$image" - 2>/dev/null | cmp - image
refused rbd --id reader create --size 1 shards/other
refused rbd --id reader remove --no-progress "shards/$image"
refused rados --id reader -p shards-data rm nothing
refused env CEPH_ARGS='--id reader' rbd --pool=shards device map -o rw "$image"
ceph osd pool create other 8 2>/dev/null
for user in reader packer; do
  refused timeout 60 rados --id $user -p other put mine "$license"
  refused timeout 60 ceph --id $user osd pool set shards-data allow_ec_overwrites true
done
reader=$(sed -n 's/^ *db: //p' reader.yml)
[ "$(psql -At "$reader" -c 'SELECT count(*) FROM shards')" -ge 2 ]
refused psql "$reader" -c "DELETE FROM signature2shard"
refused psql "$reader" -c "UPDATE shards SET state = 'full'"
objects=$(psql -At "$WINERY" -c "SELECT count(*) FROM signature2shard WHERE state = 'present'")
echo "== $objects objects in $(wc -l <<<"$images") images"
C
timeout 400 bash page >page.out 2>&1 || { tail -n 60 page.out; exit 1; }
grep '^== ' page.out
echo "== the page's $n lines did what they say, images mapped by $RBD_CLIENT"
