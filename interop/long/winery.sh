# Winery's own tests, all of them, unmodified, with their RBD pools on a cluster of six OSDs and 4+2 shards, and with the
# gateway of `up --s3` in place of the S3 server that the tests of its mosaic pool and of the cloud backend bring along.
# Tests that are skipped are named. TESTS selects by pytest's -k. Five minutes.
#
# Two tests of RBD pools unmap an image that they still read. The kernel's client refuses that (EBUSY) and is then told
# to do it by force; rbd_mapper.py does it lazily. On a machine with much other work test_winery_add_concurrent can
# fail: it expects that four threads look for an object before the first of them has added it. What it leaves open makes
# the tests after it fail, too ("Some IdleHandlers are still alive").
#
# Where the kernel has no rbd, py/rbd_mapper.py maps images; winery_kernel.sh has a kernel that does, in a guest. See
# ../winery.sh for what this needs; also sudo and radosgw. The tests run as the user postgres and call `sudo rbd`,
# which a sudoers file in this script's mount namespace allows.
source "$(dirname "$0")/../winery.sh"
winery_private "$@"
source "$(dirname "$0")/../lib.sh"
cd "$W"
chmod 755 "$W"
rbd_client
trap 'status=$?; everything_unmapped; suite_gone; finish $status' EXIT
trap 'echo "ended from outside at: $BASH_COMMAND"; everything_unmapped; suite_gone; finish 143' TERM
suite_here

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
[ "$RBD_CLIENT" != kernel ] || { unmap_what_is_read; : "${RBD_MAP_OPTIONS:=ms_mode=prefer-crc}"; }
suite swh/objstorage/tests/winery swh/objstorage/tests/test_objstorage_cloud.py >tests.out 2>&1 ||
  { grep -v '^WARNING' tests.out | tail -n 150; exit 1; }
suite_figures tests.out "$RBD_CLIENT"
# What they say is on the cluster was there.
suite_has_passed tests/results.xml test_objstorage_winery_rbd=40 test_winery_mixedpools=40 \
  test_winery_mosaic_s3_pool=20 TestMotoS3CloudObjStorage=10
cluster_down
