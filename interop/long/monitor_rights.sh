# Several monitors: restricted keys at each of them, with Ceph's own library; a revoked key is revoked at all of them at
# once; no client of a relaying monitor breaks the connection that its clients share.
source "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is not installed (etcd-server)"; exit 1; }

cluster_up --osds 1 --osd-size 1G --mons 3
wait_for 20 sh -c "ceph quorum_status -f json | grep -q '\"quorum_names\":\[\"a\",\"b\",\"c\"\]'"
ceph osd pool create test 4 >/dev/null
key() { local who=$1; shift; ceph auth get-or-create "$who" "$@" >"$W/$who.keyring"; }
key client.ro mon 'allow r'
key client.there mon 'allow r network 192.0.2.0/24'
key client.here mon 'allow r network 127.0.0.0/8'
key client.gone mon 'allow *'
key client.shrinks mon 'allow *'
/usr/bin/python3 - "$W" "$CEPH_CONF" <<'P'
import errno, json, os, rados, subprocess, sys, threading, time
W, CONF = sys.argv[1:]
admin = rados.Rados(name='client.admin', conffile=CONF)
admin.connect(timeout=20)
def ask(c, cmd, data=b'', timeout=20):
    text = cmd if isinstance(cmd, str) else json.dumps(cmd)
    r, out, err = c.mon_command(text, data, timeout=timeout)
    return r, out, err
mons = {m['name']: m['public_addrs']['addrvec'][0]['addr'] for m in json.loads(ask(admin, {'prefix': 'mon dump', 'format': 'json'})[1])['mons']}
leader = json.loads(ask(admin, {'prefix': 'quorum_status', 'format': 'json'})[1])['quorum_leader_name']
def open_at(mon, who, timeout=20, keyring=None):
    keyring = keyring or (f'{W}/{who}.keyring' if who != 'client.admin' else None)
    conf = {'mon_host': f'[v2:{mons[mon]}/0]', 'client_mount_timeout': str(timeout), 'rados_mon_op_timeout': str(timeout)}
    if keyring:
        conf['keyring'] = keyring
    # No configuration file, which would name all monitors.
    base = {l.split('=')[0].strip(): l.split('=', 1)[1].strip() for l in open(CONF) if l.startswith('fsid')}
    if not keyring:
        conf['keyring'] = f'{W}/c/ceph.client.admin.keyring'
    c = rados.Rados(name=who, conffile='', conf={**base, **conf})
    c.connect(timeout=timeout)
    return c
SET = {'prefix': 'osd set', 'key': 'noout'}
STAT = {'prefix': 'osd stat', 'format': 'json'}
front = next(m for m in mons if m != leader)
print(f'== the leader is {leader}; each of {sorted(mons)} refuses and allows the same')
for m in mons:
    ro = open_at(m, 'client.ro')
    assert ask(ro, STAT)[0] == 0
    for cmd in (SET, {'prefix': 'auth ls'}, {'prefix': 'config-key dump'}, {'prefix': 'auth get', 'entity': 'mon.'}, {'prefix': 'mon rm', 'name': m},
                {'prefix': 'auth get-or-create', 'entity': 'client.x', 'caps': ['mon', 'allow *'], 'caps_mon': 'profile rbd'}):
        assert ask(ro, cmd)[0] == -errno.EACCES, (m, cmd)
    # A JSON object with the same key twice, and an input that is not a command.
    assert ask(ro, '{"prefix":"osd stat","prefix":"osd set","key":"noout"}')[0] in (-errno.EACCES, -errno.EINVAL)
    assert ask(ro, 'x' * 1000)[0] == -errno.EINVAL
    ro.shutdown()
    here = open_at(m, 'client.here')
    assert ask(here, STAT)[0] == 0
    here.shutdown()
    try:
        there = open_at(m, 'client.there', timeout=5)
        assert ask(there, STAT)[0] == -errno.EACCES, m
        there.shutdown()
    except rados.Error:
        pass

print('== what is taken away is away at once, by whichever monitor')
at = {m: (open_at(m, 'client.gone'), open_at(m, 'client.shrinks')) for m in mons}
for gone, shrinks in at.values():
    assert ask(gone, SET)[0] == 0 and ask(shrinks, SET)[0] == 0
assert ask(admin, {'prefix': 'auth caps', 'entity': 'client.shrinks', 'caps': ['mon', 'allow r']})[0] == 0
for m, (gone, shrinks) in at.items():
    assert ask(shrinks, SET)[0] == -errno.EACCES, m
    c = open_at(m, 'client.shrinks')
    assert ask(c, SET)[0] == -errno.EACCES and ask(c, STAT)[0] == 0, m
    c.shutdown()
assert ask(admin, {'prefix': 'auth rotate', 'entity': 'client.gone'})[0] == 0
for m in mons:
    try:
        c = open_at(m, 'client.gone', timeout=3)
        r = ask(c, SET, timeout=3)
        assert r[0] != 0, (m, r)
    except rados.Error:
        pass
    r = ask(at[m][0], SET, timeout=3)
    assert r[0] != 0, ('a session that was open', m, r)

print('== no client breaks the connection of a front monitor')
other = open_at(front, 'client.admin')
assert ask(other, STAT)[0] == 0
def flood(n):
    c = open_at(front, 'client.ro', timeout=30)
    for _ in range(n):
        # A command of nearly 64 MiB: its text is the front of the message.
        try:
            ask(c, '{"prefix":"osd stat","x":"' + 'x' * ((64 << 20) - 200) + '"}', timeout=10)
        except rados.Error:
            pass
def inputs(n):
    c = open_at(front, 'client.ro', timeout=30)
    for _ in range(n):
        try:
            ask(c, {'prefix': 'osd stat'}, b'y' * (16 << 20), timeout=30)
        except rados.Error:
            pass
def changes():
    line = subprocess.run(['grep', '-c', 'the connection to the leader is closed', f'{W}/c/log/mon.{front}.log'], capture_output=True, text=True).stdout
    return int(line or 0)
was = changes()
threads = [threading.Thread(target=flood, args=(2,), daemon=True)] + [threading.Thread(target=inputs, args=(6,), daemon=True) for _ in range(3)]
for t in threads:
    t.start()
slowest, asked, until = 0, 0, time.time() + 40
while any(t.is_alive() for t in threads) and time.time() < until:
    t0 = time.time()
    r = ask(other, STAT)
    assert r[0] == 0, r
    slowest, asked = max(slowest, time.time() - t0), asked + 1
    time.sleep(0.05)
assert changes() == was, 'the link was closed'
assert ask(other, STAT)[0] == 0
print(f'{asked} questions beside it, the slowest took {slowest * 1000:.0f} ms')
assert asked > 5
os._exit(0)
P
cluster_down
