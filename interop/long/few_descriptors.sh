# Daemons with 1,024 descriptors, as without LimitNOFILE, and 1,100 connections that never sign in at each, from sixteen
# addresses, which are opened again as soon as they are closed. No daemon runs out of descriptors, clients are served,
# also after 2^16 connections to an OSD, and health names the daemons.
source "$(dirname "$0")/../lib.sh"
printf '#!/bin/sh\nulimit -n 1024\nexec "%s" "$@"\n' "$BIN" >"$W/few"
chmod +x "$W/few"
BIN=$W/few
cluster_up --osds 2 --osd-size 1G
ceph osd pool create p 8 >/dev/null
pool_clean p 8
ports() { for p in "$W"/c/run/mon.a.pid "$W"/c/run/osd.*.pid; do
  ss -Hltnp | grep "pid=$(cat "$p")," | awk '{print $4}'
done; }
mapfile -t targets < <(ports)
FROM=$(printf '127.0.1.%s ' $(seq 16)) /usr/bin/python3 "$ROOT/interop/py/strangers.py" $((1100 * ${#targets[@]})) 60 \
  "${targets[@]}" >"$W/strangers" 2>&1 & s=$!
PIDS+=("$s")
held() { find "/proc/$(cat "$W/c/run/$1.pid")/fd" -mindepth 1 2>/dev/null | wc -l; }
# The bound of accepted connections, and some twenty descriptors of the daemon itself.
many() { for d in mon.a osd.0 osd.1; do [ "$(held $d)" -ge 880 ] || return 1; done; }
wait_for 30 many || { for d in mon.a osd.0 osd.1; do echo "$d: $(held $d)"; done; exit 1; }
most=0
serve() {
  timeout 20 ceph -s >/dev/null
  timeout 20 rados -p p bench 3 write -b 4096 -t 4 >/dev/null
  for d in mon.a osd.0 osd.1; do n=$(held $d); [ "$n" -le "$most" ] || most=$n; done
}
while kill -0 "$s" 2>/dev/null; do serve; done
wait "$s"
sed 's/^/== /' "$W/strangers"
echo "== descriptors in use: at most $most"
few() { ceph health detail -f json | jq -e '.checks.DAEMON_FEW_DESCRIPTORS.summary.count == 3'; }
wait_for 20 few || { ceph health detail; exit 1; }
expect "OSDs that are up" "$(ceph osd stat -f json | jq .num_up_osds)" 2
! grep -h 'cannot accept connections' "$W"/c/log/*.log || exit 1
# An OSD's connections have numbers beyond 2^16 now.
/usr/bin/python3 - "$(ceph osd dump -f json | jq -r '.osds[].public_addrs.addrvec[0].addr')" <<'P'
import collections, socket, sys
for address in sys.argv[1].split():
    host, port = address.rsplit(':', 1)
    held = collections.deque()
    for n in range(66000):
        s = socket.socket()
        # Closed by a reset, so that no port stays in use, and some time after it was accepted.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
        s.setsockopt(socket.IPPROTO_IP, 24, 1)
        # Each address fails less often than it may.
        s.bind(('127.0.2.%d' % (1 + n % 250), 0))
        s.connect((host, int(port)))
        held.append(s)
        if len(held) > 200: held.popleft().close()
P
serve
cluster_down
