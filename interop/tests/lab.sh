# The laboratory: a killed run resumes without measuring a finished cell again, leaves nothing behind, and its tables
# can be read.
source "$(dirname "$0")/../lib.sh"
cat >"$W/plan.toml" <<P
name = "tiny"
repetitions = 2
[cluster]
devices = 2
osd_size = "2G"
[pool]
redundancy = 2
pg_num = 8
[[load]]
name = "reads, \\"quoted\\""
job = "randread"
depth = [1, 8]
objects = 8
object_size = "64K"
seconds = 1
warm_up = 0
[[load]]
name = "checked"
job = "randrw"
verify = true
rate = 200
objects = 8
object_size = "64K"
seconds = 1
warm_up = 0
[[load]]
name = "archive"
tool = "objects"
job = "archive"
sizes = "archive"
object_size = "3K"
objects = 20
read_rate = 100
seconds = 1
warm_up = 0
verify = true
[[load]]
name = "rados"
tool = "rados"
job = "write"
block = "64K"
seconds = 1
warm_up = 0
[[load]]
name = "device"
tool = "fio"
target = "device"
device = "$W/device"
engine = "io_uring"
image_size = "8M"
job = "randread"
depth = 4
seconds = 1
warm_up = 0
P
truncate -s 8M "$W/device"
lab() { belemnite lab "$@" --dir "$W/lab"; }
port=$((PORT + 700))
expect "errors name the line" "$(sed 's/^pg_num/pgnum/' "$W/plan.toml" >"$W/bad.toml"; lab run "$W/bad.toml" 2>&1 | grep -c 'bad.toml:8: .*did you mean pg_num')" 1
lab run "$W/plan.toml" --dry-run | grep -q '12 measurements on 1 clusters'
done_cells() { find "$W/lab/one/cells" -name result.json 2>/dev/null | wc -l; }

"$BIN" lab run "$W/plan.toml" --name one --dir "$W/lab" --port $port >"$W/first.out" 2>&1 & LAB=$!; PIDS+=("$LAB")
some_cells() { [ "$(done_cells)" -ge 3 ]; }
wait_for 120 some_cells
kill -KILL $LAB
wait $LAB || true
before=$(cd "$W/lab/one/cells" && stat -c '%n %Y %i' ./*/result.json)
# The kernel kills the daemons of a killed laboratory; `lab clean` removes their files.
no_daemons() { ! pgrep -f "lab-$port-$LAB" >/dev/null; }
wait_for 20 no_daemons
lab clean | grep -q "removed .*lab-$port-$LAB"
[ -z "$(ls "$W/lab/work")" ]

lab run --resume --port $port >"$W/second.out" || { cat "$W/second.out"; exit 1; }
expect "cells" "$(done_cells)" 12
after=$(cd "$W/lab/one/cells" && stat -c '%n %Y %i' ./*/result.json)
expect "cells measured again" "$(comm -23 <(echo "$before") <(echo "$after"))" ""
grep -q ' 0 failed' "$W/second.out"
[ -z "$(ls "$W/lab/work")" ]

# Tables can be read and contain the measured cells.
python3 - "$W/lab/one" <<'PY'
import csv, json, sys
d = sys.argv[1]
rows = list(csv.DictReader(open(d + '/results.csv')))
assert len(rows) == 12, rows
assert {r['load'] for r in rows} == {'reads, "quoted"', 'checked', 'archive', 'rados', 'device'}, rows
for r in rows:
    assert float(r['iops']) > 0 and float(r['seconds']) > 0, r
    # The device is none of the cluster's.
    assert r['load'] == 'device' or float(r['osd_us_per_op']) > 0, r
checked = [r for r in rows if r['load'] == 'checked']
# The rate is a bound: a busy machine does less.
assert all(0 < float(r['iops']) < 220 for r in checked), checked
archive = [r for r in rows if r['load'] == 'archive']
for r in archive:
    # Writers and readers, these within their rate; quantiles of the time to the first byte in order.
    assert float(r['put_iops']) > 0 and 0 < float(r['get_iops']) < 120, r
    first = [float(r[f'first_byte_{q}_us']) for q in ('p1', 'p10', 'p25', 'p50', 'p75', 'p90', 'p99', 'max')]
    assert first[0] > 0 and first == sorted(first), first
assert len(list(csv.DictReader(open(d + '/series.csv')))) >= 6
results = json.load(open(d + '/results.json'))['results']
assert len(results) == 12
for r in results:
    if r['load'] == 'rados':
        # Two OSDs get the client's bytes, and one of them sends them to the other.
        osds = [p for p in r['processes'] if p['name'].startswith('osd.')]
        sent = sum(p['received'] for p in osds) / (r['metrics']['ops'] * 65536)
        assert 1.5 < sent < 3, (sent, r)
page = open(d + '/report.html').read()
for bad in ('http:', 'https:', 'src=', 'href=', '<script', 'url('):
    assert bad not in page, bad
assert page.count('<svg') >= 3
try:
    import pandas
    assert len(pandas.read_csv(d + '/results.csv')) == 12
except ImportError:
    pass
PY
# A browser renders the report, if one is installed.
if command -v chromium >/dev/null; then
  chromium --headless --no-sandbox --disable-gpu --dump-dom "file://$W/lab/one/report.html" 2>/dev/null | grep -c '<polyline\|<rect' | grep -qv '^0$'
fi
lab show one | grep -q 'checked'
lab compare one >/dev/null
lab list | grep -q 'one .*12 cells'

# The floor takes the place of the OSDs and gives right answers; the table beside it says how far we are above it.
cat >"$W/floor.toml" <<P
name = "floor"
repetitions = 1
[cluster]
system = ["belemnite", "floor"]
osd_size = "1G"
[[load]]
name = "checked"
job = "randrw"
verify = true
depth = 8
objects = 16
seconds = 1
warm_up = 0
P
lab run "$W/floor.toml" --name floor --port $port
lab show floor | grep -q '^times the floor'
[ -z "$(ls "$W/lab/work")" ]

# Ctrl-C stops all daemons; a second run in the same directory is independent.
"$BIN" lab run "$W/plan.toml" --name two --dir "$W/lab" --port $port >"$W/third.out" 2>&1 & LAB=$!; PIDS+=("$LAB")
up() { grep -q 'is up' "$W/third.out"; }
wait_for 60 up
kill -INT $LAB
wait $LAB && exit 1
grep -q 'lab run --resume' "$W/third.out"
! pgrep -f "lab-$port-$LAB" >/dev/null
[ -z "$(ls "$W/lab/work")" ]

# On an existing cluster the laboratory leaves the user's pools alone and its own behind in no case: not after its end,
# not after Ctrl-C, and after a kill until the run is resumed.
cluster_up --osds 2 --pool-size 2 --osd-size 2G
ceph config set mon mon_allow_pool_delete true
for n in 1 2; do
  ceph osd pool create lab$n 8 >/dev/null
  rados -p lab$n put mine /etc/hostname
done
pools=$(ceph osd pool ls | sort)
cat >"$W/theirs.toml" <<P
name = "theirs"
repetitions = 2
[cluster]
system = "existing:$W/c/ceph.conf"
[pool]
redundancy = [1, 2]
pg_num = 8
[[load]]
job = "randwrite"
objects = 8
object_size = "64K"
seconds = 1
warm_up = 0
P
theirs() { "$BIN" lab run "$@" --dir "$W/lab" --port $port; }
own_pool() { ceph osd pool ls | grep -q '^lab-'; }
for signal in INT KILL; do
  theirs "$W/theirs.toml" --name "existing-$signal" >"$W/$signal.out" 2>&1 & LAB=$!; PIDS+=("$LAB")
  wait_for 60 own_pool
  kill -$signal $LAB
  wait $LAB || true
  [ $signal = INT ] && expect "pools after SIGINT" "$(ceph osd pool ls | sort)" "$pools"
done
own_pool
theirs --resume existing-KILL >"$W/resumed.out" 2>&1 || { cat "$W/resumed.out"; exit 1; }
expect "pools after the end" "$(ceph osd pool ls | sort)" "$pools"
for n in 1 2; do rados -p lab$n get mine - | cmp - /etc/hostname; done
