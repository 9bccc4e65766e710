# The laboratory names planted bottlenecks: a client and OSDs limited by control groups, a scrub, a throttled disk, one
# slow OSD; and clean runs have no finding of that kind. On a machine of few cores that clients and servers share, a
# saturated machine is a true finding: clean runs are therefore at a low rate. CLEAN is their number (20). ONLY names
# some of the cases.
source "$(dirname "$0")/../lib.sh"
[ "$(id -u)" = 0 ] || { echo "control groups need root"; exit 1; }
: "${CLEAN:=20}"
: "${ONLY:=client-limit osd-limit scrub disk-limit slow-osd clean}"
port=$((PORT + 700))
head_of() {
  cat <<P
name = "$1"
repetitions = $2
[cluster]
devices = 3
osd_size = "2G"
$3
[pool]
redundancy = $4
pg_num = 16
[[load]]
objects = 64
object_size = "1M"
warm_up = 1
seconds = 6
P
}
# kinds RUN: kinds of its findings about cells, each once.
kinds() {
  /usr/bin/python3 -c '
import json, sys
f = json.load(open(sys.argv[1] + "/results.json"))["findings"]
print(" ".join(sorted({x["kind"] for x in f if x["about"] != "run"})))' "$W/lab/$1"
}
# planted NAME KIND: runs the plan of standard input and expects a finding of that kind.
planted() {
  cat >"$W/$1.toml"
  [[ " $ONLY " == *" $1 "* ]] || return 0
  belemnite lab run "$W/$1.toml" --name "$1" --dir "$W/lab" --port $port >"$W/$1.out" || { cat "$W/$1.out"; return 1; }
  local have; have=$(kinds "$1")
  [[ " $have " == *" $2 "* ]] || { echo "$1: expected $2, found: $have"; belemnite lab show "$1" --dir "$W/lab"; return 1; }
  echo "== $1: $have"
}

{ head_of client-limit 1 "" 3; printf 'job = "randread"\ndepth = 64\nclient_cores = 0.1\n'; } | planted client-limit client-cpu
{ head_of osd-limit 1 "cores_per_device = 0.1" 3; printf 'job = "randwrite"\ndepth = 32\n'; } | planted osd-limit osd-cpu
# A scrub of few objects would end between two samples; with many objects and pauses it lasts.
{ head_of scrub 1 "" 3 | sed 's/^pg_num.*/pg_num = 4/; s/^objects.*/objects = 1024/; s/^object_size.*/object_size = "64K"/'
  printf 'job = "randread"\nrate = 100\ndepth = 64\n[observe]\nevery = 0.2\n[options.osd]\nosd_scrub_sleep = "0.3"\n'
  for at in 0 0.25 0.5 0.75; do printf '[[disturb]]\nat = %s\nwhat = "deep-scrub"\n' $at; done
} | planted scrub scrub
# The store writes without the page cache, so that the control group of one OSD limits what it writes.
{ head_of disk-limit 1 'disk_limit = "2M"' 3; printf 'job = "randwrite"\nblock = "64K"\ndepth = 32\n'; } | planted disk-limit disk-throttled
# One slow OSD: stopped for four fifths of the time.
{ head_of slow-osd 1 "" 1; printf 'job = "randread"\nrate = 300\ndepth = 256\n'; } >"$W/slow.toml"
slow() {
  local pid=
  while [ -e "$W/slowing" ]; do
    if [ -n "$pid" ] && kill -STOP "$pid" 2>/dev/null; then
      sleep 0.2
      kill -CONT "$pid" 2>/dev/null || true
      sleep 0.05
    else
      sleep 0.2
      pid=$(pgrep -f "lab-$port-[0-9]*/ceph.conf -i 1\$" | head -n 1) || true
    fi
  done
}
touch "$W/slowing"; slow & SLOW=$!; PIDS+=("$SLOW")
planted slow-osd slow-osd <"$W/slow.toml"
rm "$W/slowing"; wait "$SLOW" || true

[[ " $ONLY " == *" clean "* ]] || exit 0
{ head_of clean "$CLEAN" "" 3; printf 'job = "randrw"\nrate = 100\ndepth = 64\n'; } | sed 's/^seconds.*/seconds = 4/' >"$W/clean.toml"
belemnite lab run "$W/clean.toml" --name clean --dir "$W/lab" --port $port >"$W/clean.out" || { cat "$W/clean.out"; exit 1; }
have=$(kinds clean)
echo "== $CLEAN clean runs: findings: ${have:-none}"
[ -z "$have" ] || { belemnite lab show clean --dir "$W/lab"; exit 1; }
