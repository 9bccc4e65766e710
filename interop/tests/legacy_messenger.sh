# msgr1: Ceph's own clients at a cluster whose daemons announce their v1 addresses first: ceph, rados, rbd, python-rados
# with watch, notify and blocklist; wrong and missing keys.
source "$(dirname "$0")/../lib.sh"
export BELEMNITE_MSGR1_FIRST=1
cluster_up --osd-size 2G --osds 2 --pool-size 2
grep -q "^mon_host = \[v1:127.0.0.1:$((PORT + 4))/0,v2:127.0.0.1:$PORT/0\]" "$CEPH_CONF"
V1=$W/v1.conf
sed "s#^mon_host = .*#mon_host = v1:127.0.0.1:$((PORT + 4))/0#" "$CEPH_CONF" >"$V1"
export CEPH_CONF=$V1

ceph -s | grep -q 'osd: 2 osds: 2 up'
ceph osd dump -f json >"$W/dump.json"
expect "types of the addresses of osd.0" "$(jq -c '[.osds[0].public_addrs.addrvec[].type]' "$W/dump.json")" '["v1","v2"]'
ceph osd pool create p 8
rbd pool init p
head -c 3000001 /dev/urandom >"$W/big"
rados -p p put big "$W/big"
rados -p p get big "$W/back"
cmp "$W/big" "$W/back"
rados -p p bench 2 write -t 8 --no-cleanup >"$W/bench" &
B=$!
ports=$(jq -r '.osds[].public_addrs.addrvec[] | select(.type == "v1") | .addr' "$W/dump.json" | sed 's/.*://')
at_v1() { for p in $ports; do ss -Htn state established "dport = :$p" | grep -q . || return 1; done; }
wait_for 10 at_v1
wait $B
grep -q 'Total writes made' "$W/bench"
rados -p p bench 1 seq -t 8 >/dev/null

rbd create -s 64M p/i
rbd bench --io-type write --io-size 64K --io-total 8M p/i >/dev/null
rbd export --no-progress p/i "$W/exported"
cmp -s -n 8M "$W/exported" /dev/zero && { echo "nothing was written" >&2; exit 1; }
rbd snap create p/i@s
expect "snapshots" "$(rbd snap ls --format json p/i | jq -r '.[].name')" s

/usr/bin/python3 - <<'P'
import os, rados, threading

def client(conf=os.environ['CEPH_CONF'], **more):
    c = rados.Rados(name='client.admin', conffile=conf, conf={'rados_osd_op_timeout': '20', **more})
    c.connect(timeout=20)
    return c

watcher, other = client(), client()
io, io2 = watcher.open_ioctx('p'), other.open_ioctx('p')
heard = threading.Event()
io.write_full('w', b'x')
w = io.watch('w', lambda *a: heard.set())
io2.notify('w', 'hello', 5000)
assert heard.wait(10), 'no notification'
w.close()

# 16.2 names an address of msgr1 without its type.
addr = watcher.get_addrs().removeprefix('v1:')
assert not addr.startswith(('v2:', '[')), addr
io.write_full('b', b'1')
r = other.mon_command('{"prefix": "osd blocklist", "blocklistop": "add", "addr": "%s"}' % addr, b'')
assert r[0] == 0, r
other.wait_for_latest_osdmap()
io2.write_full('b', b'2')
try:
    io.write_full('b', b'3')
except rados.Error as e:
    assert abs(e.errno) == 108, e
else:
    raise SystemExit('a blocklisted client of msgr1 wrote')
assert io2.read('b') == b'2'
P

echo "== refused"
ceph auth get-or-create client.r mon 'allow r' osd 'allow r pool=p' >"$W/r.keyring"
rados -n client.r --keyring "$W/r.keyring" -p p stat big >/dev/null
if rados -n client.r --keyring "$W/r.keyring" -p p put no "$W/r.keyring" 2>"$W/err"; then exit 1; fi
grep -q 'Operation not permitted' "$W/err"
sed 's/key = .*/key = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==/' "$W/r.keyring" >"$W/wrong.keyring"
if timeout 20 rados -n client.r --keyring "$W/wrong.keyring" -p p stat big 2>"$W/err"; then exit 1; fi
grep -q 'client.r proved knowledge of another key' "$W/c/log/mon.a.log"
# The usual order again.
ceph mon set-addrs a "[v2:127.0.0.1:$PORT/0,v1:127.0.0.1:$((PORT + 4))/0]"
cluster_down

echo "== a cluster without it, which gets it while it runs"
unset BELEMNITE_MSGR1_FIRST
cluster_up --no-msgr1
grep -q "^mon_host = \[v2:127.0.0.1:$PORT/0\]" "$W/c/ceph.conf"
at_v1() { timeout "$1" rados --conf "$V1" -p p stat big >/dev/null 2>&1; }
if at_v1 5; then echo "served although it is off" >&2; exit 1; fi
ceph mon set-addrs a "[v2:127.0.0.1:$PORT/0]"
dumped() { ceph mon dump -f json 2>/dev/null | jq -c '[.mons[0].public_addrs.addrvec[].type]'; }
expect "addresses without msgr1" "$(dumped)" '["v2"]'
refused() {
  if ceph mon set-addrs "$1" "$2" 2>"$W/err"; then echo "not refused: $2" >&2; exit 1; fi
  grep -q "$3" "$W/err" || { cat "$W/err" >&2; exit 1; }
}
refused z "v2:127.0.0.1:$PORT" 'mon.z does not exist'
refused a nothing "failed to parse addrs 'nothing'"
refused a v2:127.0.0.1:0 'must bind to a non-zero port'
refused a v1:127.0.0.1:4000 'a monitor has one v2 address'
refused a '[v2:127.0.0.1:4000/0,v2:127.0.0.2:4000/0]' 'a monitor has one v2 address'
cluster_down
cluster_up --msgr1
grep -q "^mon.a gets the addresses \[v2:127.0.0.1:$PORT/0,v1:127.0.0.1:$((PORT + 4))/0\]" "$W/up.out"
expect "addresses with msgr1" "$(dumped)" '["v2","v1"]'
at_v1 20
cluster_down
