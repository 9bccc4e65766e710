# Three monitors on three etcd members: each monitor and each member is killed in turn under load. Clients continue
# within seconds, no epoch decreases, no acknowledged write is lost, and no OSD is marked down. Then all members are
# killed and return.
source "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is not installed (etcd-server)"; exit 1; }

# Space for the writes of a fast machine: a full OSD would block the load.
cluster_up --osds 1 --osd-size 6G --mons 3
mons() { ceph quorum_status -f json | python3 -c 'import json,sys; print(" ".join(json.load(sys.stdin)["quorum_names"]))'; }
leader() { ceph quorum_status -f json | python3 -c 'import json,sys; print(json.load(sys.stdin)["quorum_leader_name"])'; }
pid() { cat "$W/c/run/$1.pid"; }
wait_for 20 sh -c "[ \"\$(ceph quorum_status -f json | grep -o '\"quorum_names\":\[[^]]*\]')\" = '\"quorum_names\":[\"a\",\"b\",\"c\"]' ]"
expect "the monitors that are there" "$(mons)" "a b c"
ceph osd pool create p 4 >/dev/null
up_from=$(ceph osd dump -f json | python3 -c 'import json,sys; print(json.load(sys.stdin)["osds"][0]["up_from"])')

# Each monitor serves every client: keys, maps and commands through one monitor alone.
for m in a b c; do
  addr=$(ceph mon dump -f json | python3 -c "import json,sys
for m in json.load(sys.stdin)['mons']:
    if m['name'] == '$m': print(m['public_addrs']['addrvec'][0]['addr'])")
  expect "the id by mon.$m" "$(timeout 20 ceph -m "$addr" fsid)" "$(ceph fsid)"
done

# All monitors tell what they are, not the leader alone.
expect "versions of monitors" "$(ceph mon versions -f json | jq -c '[length, add]')" "[1,3]"
expect "monitors of each version" "$(ceph versions -f json | jq -c '[.mon | length, add]')" "[1,3]"
expect "monitors with metadata" "$(ceph mon metadata -f json | jq -c '[.[] | select((.hostname | length) > 0 and
  (.ceph_version | startswith("ceph version ")) and (.kernel_version | length) > 0 and (.addrs | length) > 0) | .name] | sort')" '["a","b","c"]'

# Admin socket commands concern only their own process.
for m in a b c; do
  expect "who mon.$m is" "$(ceph tell "mon.$m" mon_status | jq -r .name)" "$m"
  ceph tell "mon.$m" config set debug_ms "$(printf '%d' "'$m")" >/dev/null
  expect "what mon.$m says of itself" "$(ceph daemon "$W/c/run/mon.$m.asok" mon_status | jq -r .name)" "$m"
done
for m in a b c; do
  expect "an option of mon.$m" "$(ceph daemon "$W/c/run/mon.$m.asok" config get debug_ms | jq -r .debug_ms | cut -d/ -f1)" "$(printf '%d' "'$m")"
  ceph tell "mon.$m" config unset debug_ms >/dev/null
done
l=$(leader)
expect "the leader" "$(ceph tell "mon.$l" mon_status | jq -r .state)" leader

# Only the monitor with a wrong clock is reported.
pid_b=$(cat "$W/c/run/mon.$(mons | cut -d' ' -f3).pid")
printf '[mon.c]\ntest_clock_shift = -2\n' >>"$W/c/ceph.conf"
kill -TERM "$pid_b"
skewed() { ceph health detail | grep -q 'mon\.[a-c] clock skew [12].* > max 0.05s'; }
wait_for 60 skewed
ceph time-sync-status -f json | python3 -c 'import json,sys
of = json.load(sys.stdin)["time_skew_status"]
print(f"== clocks of monitors: {of}")
assert sum(1.9 < abs(m["skew"]) < 2.1 for m in of.values()) >= 1, of'

# A client that continuously creates keys and reads epochs.
cat >"$W/load.sh" <<'LOAD'
n=0 last=0 slowest=0
while [ ! -e "$1/stop" ]; do
  t=$(date +%s%N)
  if timeout 60 ceph config-key set "k/$n" "$n" >/dev/null 2>&1; then echo "$n" >>"$1/acknowledged"; fi
  e=$(timeout 60 ceph osd dump -f json 2>/dev/null | python3 -c 'import json,sys; print(json.load(sys.stdin)["epoch"])') || e=
  d=$((($(date +%s%N) - t) / 1000000))
  [ "$d" -le "$slowest" ] || slowest=$d
  if [ -n "$e" ]; then [ "$e" -ge "$last" ] || echo "epoch $e after $last" >>"$1/back"; last=$e; fi
  n=$((n + 1))
done
echo "$slowest" >"$1/slowest"
LOAD
bash "$W/load.sh" "$W" & load=$!
PIDS+=($load)
timeout 120 rados -p p bench 30 write -b 4096 -t 4 --debug-ms=1 --debug-objecter=20 --debug-monc=20 \
  --log-file="$W/bench.log" >"$W/bench.txt" 2>&1 & bench=$!
PIDS+=($bench)

for round in 1 2; do
  l=$(leader)
  kill -KILL "$(pid mon."$l")"
  wait_for 30 timeout 10 ceph osd pool set p pg_autoscale_mode off
  wait_for 30 sh -c '[ -e "$0" ]' "$W/c/run/mon.$l.pid"
  m=$([ "$round" = 1 ] && echo a || echo b)
  kill -KILL "$(pid etcd.$m)"
  wait_for 30 timeout 10 ceph osd pool set p nodelete false
  sleep 1
done
wait $bench || { cat "$W/bench.txt"; grep monclient "$W/bench.log" | tail -n 40; exit 1; }
# All members at once: nothing can change, and afterwards the state is as before.
for m in a b c; do kill -KILL "$(pid etcd.$m)"; done
wait_for 90 timeout 20 ceph osd pool set p nodelete false
touch "$W/stop"
wait $load
[ ! -e "$W/back" ] || { cat "$W/back"; exit 1; }
ceph config-key dump >"$W/keys.json"
python3 - "$W" <<'PY'
import json, sys
w = sys.argv[1]
have = json.load(open(w + "/keys.json"))
said = [l.strip() for l in open(w + "/acknowledged")]
lost = [n for n in said if have.get("k/" + n) != n]
assert not lost, f"acknowledged and lost: {lost}"
assert len(said) > 3, said
print(f"== {len(said)} changes acknowledged, none lost; the slowest change and question took {open(w + '/slowest').read().strip()} ms")
PY
expect "the OSD was never marked down" "$(ceph osd dump -f json | python3 -c 'import json,sys; print(json.load(sys.stdin)["osds"][0]["up_from"])')" "$up_from"

# The state is exported to a file, and imported into a single monitor.
belemnite --conf "$CEPH_CONF" state export "$W/state.json" >/dev/null
mkdir "$W/one"
sed -e "/^mon_state_etcd/d" -e "s|^mon_data = .*|mon_data = $W/one/mon.\$id|" "$CEPH_CONF" >"$W/one/ceph.conf"
belemnite --conf "$W/one/ceph.conf" state import "$W/state.json" >/dev/null
! belemnite --conf "$W/one/ceph.conf" state import "$W/state.json" >/dev/null 2>&1
cluster_down
