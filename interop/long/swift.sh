# python-swiftclient with Ceph's radosgw on a Belemnite cluster: objects, large ones by dynamic and static manifests, copies,
# metadata; deletion of objects, of segments and of containers by the client itself, after which nothing is left in the pool
# of data. Needs the package python3-swiftclient. GATEWAY_ROOT, a directory, selects the radosgw of the system in it.
source "$(dirname "$0")/../lib.sh"
command -v swift >/dev/null || { echo "python3-swiftclient is not installed"; exit 77; }
cluster_up --osds 1 --osd-size 4G --s3 ${GATEWAY_ROOT:+--ceph-root "$GATEWAY_ROOT"}
wait_for 120 grep -q '^secret key' "$W/up.out" || { cat "$W/up.out"; exit 1; }
if [ -n "${GATEWAY_ROOT:-}" ]; then
  admin() { timeout 120 chroot "$GATEWAY_ROOT" radosgw-admin -c "/run/belemnite/$(awk '/^fsid/{print $3}' "$CEPH_CONF")/ceph.conf" -n client.rgw.a "$@" 2>>"$W/admin.err"; }
else
  admin() { timeout 120 radosgw-admin "$@" 2>>"$W/admin.err"; }
fi
key=$(admin subuser create --uid s3 --subuser s3:swift --key-type swift --access full --gen-secret | jq -r '.swift_keys[0].secret_key')
swift() { timeout 120 "$(type -P swift)" -A "http://127.0.0.1:$((PORT + 5))/auth/v1.0" -U s3:swift -K "$key" "$@"; }
sum() { sha256sum | cut -d' ' -f1; }
names() { swift list "$1" | paste -sd' '; }

echo "== $(swift --version 2>&1 | head -n 1)"
mkdir "$W/files" "$W/out"
cd "$W/files"
for n in 1 2 3; do head -c $((n * 10000)) /dev/urandom >"small$n"; done
head -c 5500000 /dev/urandom >large
swift post things
for f in small1 small2 small3; do swift upload things $f >/dev/null; done
swift upload --segment-size 1048576 things large --object-name dynamic >/dev/null
swift upload --segment-size 1048576 --use-slo things large --object-name static >/dev/null
expect "names" "$(names things)" "dynamic small1 small2 small3 static"
expect "names by prefix" "$(swift list things --prefix small | wc -l)" 3
expect "segments" "$(swift list things_segments | wc -l)" 12
for o in small1:small1 small3:small3 large:dynamic large:static; do
  expect "contents of ${o#*:}" "$(swift download things "${o#*:}" -o - | sum)" "$(sum <"${o%:*}")"
done
swift post -m Colour:green things small1
swift stat things small1 | grep -q 'Meta Colour: green'
swift stat things | grep -Eq 'Objects: 5$'
swift copy -d /things/copy things small2 >/dev/null
expect "a copy" "$(swift download things copy -o - | sum)" "$(sum <small2)"

swift delete things small1 copy >/dev/null
swift delete things dynamic >/dev/null
expect "segments after the dynamic object's end" "$(swift list things_segments | wc -l)" 6
swift delete things static >/dev/null
expect "segments after the static object's end" "$(swift list things_segments | wc -l)" 0
expect "names" "$(names things)" "small2 small3"
swift delete things >/dev/null
swift delete things_segments >/dev/null
expect "containers" "$(swift list | wc -l)" 0
empty() { admin gc process --include-all && [ "$(rados -p default.rgw.buckets.data ls | wc -l)" = 0 ]; }
wait_for 120 empty || { rados -p default.rgw.buckets.data ls | head; exit 1; }
cluster_down
