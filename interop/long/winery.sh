# Winery's own tests, all of them, unmodified, with their RBD pools on a cluster of six OSDs and 4+2 shards, and with the
# gateway of `up --s3` in place of the S3 server that the tests of its mosaic pool and of the cloud backend bring along.
# Tests that are skipped are named. TESTS selects by pytest's -k. Five minutes.
#
# Two tests of RBD pools unmap an image that they still read, which the kernel's client refuses (EBUSY) and rbd_mapper.py
# then does lazily.
#
# Where the kernel has no rbd, py/rbd_mapper.py maps images. See ../winery.sh for what this needs; also sudo and radosgw.
# The tests run as the user postgres and call `sudo rbd`, which a sudoers file in this script's mount namespace allows.
source "$(dirname "$0")/../winery.sh"
winery_private "$@"
source "$(dirname "$0")/../lib.sh"
cd "$W"
chmod 755 "$W"
rbd_client
winery_venv "$W/found" testing,winery
trap 'status=$?; everything_unmapped; umount -l "$W/venv" /etc/sudoers 2>/dev/null; finish $status' EXIT
# The user need not get into the directory of the cache.
mkdir venv
mount --bind "$(readlink -f found)" venv
rm found
packages=$(echo "$W"/venv/lib/python3*/site-packages)
cat >sudoers <<S
Defaults env_keep += "CEPH_CONF RBD_DEVICE_GROUP RBD_UNMAP_LAZILY RBD_MAPPER_DIR"
Defaults secure_path = "$W/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL = (ALL) ALL
postgres ALL = (root) NOPASSWD: ALL
S
chmod 440 sudoers
mount --bind sudoers /etc/sudoers

cluster_up --osds 6 --osd-size 4G --s3
gateway_is_up() { grep -q '^S3: ' up.out; }
wait_for 120 gateway_is_up
gateway=$(sed -n 's#^S3: *http://##p' up.out)
# The tests' bucket has an underscore in its name.
ceph config set client.rgw rgw_relaxed_s3_bucket_names true
belemnite gateway restart >/dev/null
wait_for 60 curl -fs "http://$gateway"
for user in 'bar foo' 'API_KEY API SECRET KEY'; do
  radosgw-admin user create --uid "${user%% *}" --display-name "${user%% *}" --access-key "${user%% *}" --secret-key "${user#* }" >/dev/null
done
mkdir tests
chown postgres tests
run_tests() {
  su postgres -c "cd $packages && USE_CEPH=yes RBD_DEVICE_GROUP=postgres RBD_UNMAP_LAZILY=yes RBD_MAP_OPTIONS='${RBD_MAP_OPTIONS:-}' GATEWAY=$gateway \
    PYTHONPATH=$ROOT/interop/py PYTHONDONTWRITEBYTECODE=1 HOME=$W/tests $W/venv/bin/python -m pytest -p winery_on_a_cluster -p no:cacheprovider -o consider_namespace_packages=true -q -rsfE \
    --basetemp=$W/tests/tmp --postgresql-exec=$(postgres_programs)/pg_ctl ${TESTS:+-k '$TESTS'} \
    --junitxml=$W/tests/results.xml --rootdir=$packages swh/objstorage/tests/winery swh/objstorage/tests/test_objstorage_cloud.py"
}
[ "$RBD_CLIENT" != kernel ] || : "${RBD_MAP_OPTIONS:=ms_mode=prefer-crc}"
run_tests >tests.out 2>&1 || { grep -v '^WARNING' tests.out | tail -n 150; exit 1; }
sed -n 's/^SKIPPED /== skipped: /p' tests.out
echo "== $(tail -n 1 tests.out | tr -d '='), images mapped by $RBD_CLIENT"
# What they say is on the cluster was there.
ceph osd pool ls >pools
[ -n "${TESTS:-}" ] || {
  python3 - tests/results.xml <<'P'
import sys, xml.etree.ElementTree as tree
passed = [c.get('classname') for c in tree.parse(sys.argv[1]).iter('testcase') if not list(c)]
for part, least in (('test_objstorage_winery_rbd', 40), ('test_winery_mixedpools', 40), ('test_winery_mosaic_s3_pool', 20), ('TestMotoS3CloudObjStorage', 10)):
    count = sum(part in name for name in passed)
    assert count >= least, f'only {count} tests of {part} passed'
P
}
cluster_down
