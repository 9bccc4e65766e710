# Keys of OSDs, and of Ceph's gateway, metadata servers and manager, are rotated while they run: `auth rotate`, health and the
# monitor's log say what follows, and `up` hands each its new key. Needs ceph-mds, ceph-mgr, radosgw.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 2G --fs --s3 --mgr ceph
value() { sed -n "s/^$1: *//p" "$W/up.out" | head -n 1; }
s3() { wait_for 90 grep -q '^S3:' "$W/up.out"; /usr/bin/python3 "$ROOT/interop/py/s3.py" "$(value S3 | sed 's,http://,,')" "$(value 'access key')" "$(value 'secret key')" "$@"; }
active_mds() { ceph mds stat -f json | jq -r '[.fsmap.filesystems[].mdsmap.info[] | select(.state == "up:active") | .name][0]'; }
standbys() { ceph mds stat -f json | jq '.fsmap.standbys | length'; }
has_standby() { [ "$(standbys)" -ge 1 ]; }
manages() { ceph mgr stat -f json | jq -e '.available and .active_name == "x"'; }
rotate() { ceph auth rotate "$1" 2>&1 >/dev/null | tee "$W/said"; }
# The keyring of a daemon has the monitor's key.
has_key() { grep -qF "$(ceph auth get-key "$1")" "$W/c/$1/keyring"; }
took_up() { wait_for 60 has_key "$1" || { ls -l "$W/c/$1"; return 1; }; }
wait_for 90 s3 put before 0 20
wait_for 120 has_standby
wait_for 120 manages

rotate client.rgw.a
grep -q 'keyring of client.rgw.a, and restart it' "$W/said"
# It goes on with its tickets until it is restarted.
s3 put between 0 20
wait_for 60 grep -q "rgw.a: took up its new key" "$W/up.out"
wait_for 60 grep -q "rgw.a was restarted\|rgw.a stopped" "$W/up.out"
wait_for 90 s3 put after 0 20

m=$(active_mds)
rotate "mds.$m"
took_up "mds.$m"
# It comes back as the standby, or before another one takes its rank over.
wait_for 60 grep -q "mds.$m was restarted\|mds.$m stopped" "$W/up.out"
serves() { has_standby && [ -n "$(active_mds)" ] && [ "$(active_mds)" != null ]; }
wait_for 90 serves

rotate mgr.x
old() { grep -q 'mgr.x proved knowledge of another key' "$W/c/log/mon.a.log"; }
wait_for 60 old
took_up mgr.x
wait_for 90 manages
# OSDs, while PGs move.
ceph osd pool create moving 32
rados -p moving bench 3 write -b 65536 --no-cleanup >/dev/null
ceph osd out 0
rotate osd.1
rotate osd.2
told() { ceph log last 200 | grep -q DAEMON_KEY_REFUSED; }
for o in osd.1 osd.2; do took_up $o; done
ceph osd in 0
ceph osd out 1
wait_for 60 told
ceph osd in 1
pool_clean moving 32
quiet() { ! ceph health detail -f json | jq -e '.checks | has("DAEMON_KEY_REFUSED") or has("MGR_DOWN") or has("MDS_INSUFFICIENT_STANDBY") or has("PG_AVAILABILITY")'; }
wait_for 90 quiet || { ceph health detail; exit 1; }
for b in before between after; do expect "objects of $b" "$(s3 check $b 20)" 20; done
cluster_down
