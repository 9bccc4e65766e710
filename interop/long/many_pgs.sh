# Cost of PGs: memory and idle CPU of an OSD with few and with many PGs, and CPU per operation of both, run alternately.
# Nothing else should run on the machine. One copy; RUNS, SECS, FEW, MANY and DEPTH change the defaults.
#
# Memory per PG is the difference of the two processes' VmRSS divided by the difference of their PGs, before any
# operation.
source "$(dirname "$0")/../lib.sh"
few=${FEW:-8} many=${MANY:-1024} runs=${RUNS:-5}

# one NAME PORT PGS: an idle cluster of one OSD in $W/NAME.
one() {
  : >"$W/up.out"
  "$BIN" up --data "$W/$1" --port "$2" --osds 1 --osd-size 4G >"$W/up.out" 2>&1 &
  PIDS+=("$!")
  wait_for 60 is_up || { cat "$W/up.out"; return 1; }
  ceph -c "$W/$1/ceph.conf" config set global mon_max_pg_per_osd 10000 >/dev/null
  belemnite -c "$W/$1/ceph.conf" pool create test "$3"
  wait_for 120 clean "$1"
}
clean() { ceph -c "$W/$1/ceph.conf" pg stat -f json | jq -e '.pg_summary | [.num_pgs] == [.num_pg_by_state[] | select(.name == "active+clean") | .num]'; }
osd() { cat "$W/$1/run/osd.0.pid"; }
pgs() { ceph -c "$W/$1/ceph.conf" pg stat -f json | jq .pg_summary.num_pgs; }
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
# CPU milliseconds of all threads.
cpu() { cat /proc/"$1"/task/*/schedstat | awk '{ s += $1 } END { print int(s / 1e6) }'; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

one few "$PORT" "$few"
one many $((PORT + 40)) "$many"
sleep "${REST:-20}"
a=$(osd few) b=$(osd many) n=$(pgs few) m=$(pgs many)
before=("$(cpu "$a")" "$(cpu "$b")")
sleep 30
after=("$(cpu "$a")" "$(cpu "$b")")
r=("$(rss "$a")" "$(rss "$b")")
echo "== memory: ${r[0]} KiB with $n PGs, ${r[1]} KiB with $m: $(((r[1] - r[0]) * 1024 / (m - n))) bytes per PG"
echo "== idle CPU of 30 s: $((after[0] - before[0])) ms with $n PGs, $((after[1] - before[1])) ms with $m"
for job in randwrite randread; do
  : >"$W/few.us" && : >"$W/many.us"
  for _ in $(seq "$runs"); do
    for c in few many; do
      belemnite -c "$W/$c/ceph.conf" bench test $job --secs "${SECS:-5}" --depth "${DEPTH:-64}" --objects 4096 \
        --object-size 64K --cpu-of "$(osd $c)" | tee -a "$W/$c.out" | sed -E 's/.*per operation //' >>"$W/$c.us"
    done
  done
  f=$(median <"$W/few.us") g=$(median <"$W/many.us")
  echo "== $job: $f us of CPU with $n PGs, $g with $m, medians of $runs: $(awk "BEGIN { printf \"%+.1f %%\", ($g / $f - 1) * 100 }")"
done
r=("$(rss "$a")" "$(rss "$b")")
echo "== memory after that: ${r[0]} and ${r[1]} KiB"
