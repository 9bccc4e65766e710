# Bytes that violate the protocol: each ends its own connection and affects nothing else.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 2G --osds 1
ceph osd pool create test 8
pids() { cat "$W"/c/run/*.pid | sort | tr '\n' ' '; }
before=$(pids)
/usr/bin/python3 "$ROOT/interop/py/hostile.py" "${SEED:-$RANDOM}" "127.0.0.1:$PORT" "127.0.0.1:$((PORT + 1))" \
  "127.0.0.1:$((PORT + 10))" "127.0.0.1:$((PORT + 11))" "127.0.0.1:$((PORT + 12))"
expect "the same processes serve" "$(pids)" "$before"
echo hello >"$W/h"
rados -p test put h "$W/h"
expect "content" "$(rados -p test get h -)" hello
grep -q 'ms_mode' "$W/c/log/mon.a.log" || { echo "no hint for clients of the old protocol in the log" >&2; exit 1; }

echo "== requests beyond the limits get Ceph's errno"
/usr/bin/python3 - <<'P'
import os, rados
c = rados.Rados(conffile=os.environ['CEPH_CONF']); c.connect(); io = c.open_ioctx('test')
def errno(f, want):
    try:
        f()
    except rados.Error as e:
        assert abs(e.errno) == want, (e, want)
    else:
        raise AssertionError('was allowed')
errno(lambda: io.write_full('n' * 2049, b''), 36)
errno(lambda: io.set_xattr('h', 'n' * 101, b''), 36)
errno(lambda: io.write('h', b'x', 128 << 20), 27)
errno(lambda: io.execute('h', 'nosuch', 'method', b''), 95)
errno(lambda: io.execute('h', 'lock', 'lock', b'\xff' * 10), 22)
assert io.read('h') == b'hello\n'
P
echo "== caps"
ceph auth get-or-create client.ro mon 'allow r' osd 'allow r pool=test' >"$W/ro.keyring"
rados -n client.ro --keyring "$W/ro.keyring" -p test get h - >/dev/null
if rados -n client.ro --keyring "$W/ro.keyring" -p test put h "$W/h" 2>"$W/err"; then echo "a write without w" >&2; exit 1; fi
grep -q 'Operation not permitted' "$W/err"
if ceph -n client.ro --keyring "$W/ro.keyring" osd pool create x 2>"$W/err"; then echo "a command without caps" >&2; exit 1; fi
cluster_down
