# The same clients work with a cluster without authentication.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 2G --osds 1 --auth none
ceph -s
ceph osd pool create test 8
echo hello >"$W/h"
rados -p test put h "$W/h"
expect "content" "$(rados -p test get h -)" hello
cluster_down
