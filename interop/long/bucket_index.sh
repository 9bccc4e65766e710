# A bucket index of many entries in 64 shards: what a page of its listing costs at an eighth, a quarter, a half and all of
# them: time, pages of metadata and bytes that the OSD reads, size of the reply; and the OSD's memory. The number of pages
# read must not grow with the index beyond the height of its trees, and the process must not grow beyond the budget of its
# store and a fixed part.
#
# Entries come from `bi_put_entries` calls, as a resharding gateway of Tentacle makes them, but not in order: each goes to
# the end of one of a thousand directories. FILL is the store's budget in MiB meanwhile; without room for the ends of all
# directories each call reads and later writes hundreds of pages. Before each listing the OSD is started again with a
# budget of LIST, after an orderly stop: a killed one replays its log, and has the pages of the last changes in memory. An
# entry takes some 330 bytes, so even an eighth is a multiple of LIST.
#
# 10^7 entries take some minutes and 8 GB. ENTRIES, SHARDS, PAGES (listed at each size) change the defaults.
source "$(dirname "$0")/../lib.sh"
: "${ENTRIES:=10000000}" "${SHARDS:=64}" "${PAGES:=64}" "${OSD_SIZE:=24G}" "${FILL:=1536}" "${LIST:=64}"
cluster_up --osds 1 --osd-size "$OSD_SIZE"
printf '\n[osd]\nstore_cache_size = %sM\n' "$FILL" >>"$CEPH_CONF"
belemnite -c "$CEPH_CONF" pool create test 64
index() { /usr/bin/python3 "$ROOT/interop/py/bucket_index.py" "$CEPH_CONF" test "$SHARDS" "$@"; }
admin=$W/c/run/osd.0.asok
osd() { cat "$W/c/run/osd.0.pid"; }
memory() { awk -v k="$1" '$1 == k ":" { print int($2 / 1024) }' "/proc/$(osd)/status"; }
serves() { ceph --admin-daemon "$admin" perf dump && belemnite -c "$CEPH_CONF" ls test; }
ended() { ! kill -0 "$1"; }
within() { # within BUDGET: the most memory that the OSD had, against a budget in MiB
  local most
  most=$(memory VmHWM)
  [ "$most" -le $((2 * $1 + 192)) ] || { echo "$most MiB are more than twice the budget of $1 MiB and 192 MiB"; return 1; }
}
restart() { # restart BUDGET
  local was
  was=$(osd)
  sed -i "s/^store_cache_size = .*/store_cache_size = $1M/" "$CEPH_CONF"
  kill -TERM "$was"
  wait_for 120 ended "$was"
  wait_for 120 serves
}
restart "$FILL"
index init
from=0
for to in $((ENTRIES / 8)) $((ENTRIES / 4)) $((ENTRIES / 2)) "$ENTRIES"; do
  start=$SECONDS
  index fill $from "$to"
  echo "== $((to - from)) entries put in $((SECONDS - start)) s; memory of the OSD $(memory VmRSS) MiB, at most $(memory VmHWM)"
  within "$FILL"
  # The first stop may end before all is in its place; the second has little left to do.
  restart "$LIST"
  restart "$LIST"
  index page "$admin" "$(osd)" "$to" "$PAGES" >"$W/pages.$to"
  sed "s/^/== $to entries, /" "$W/pages.$to"
  echo "== memory of the OSD after the pages: $(memory VmRSS) MiB, at most $(memory VmHWM)"
  within "$LIST"
  [ "$to" = "$ENTRIES" ] || restart "$FILL"
  from=$to
done
# A leaf has at most 36 of these entries, and at least 18 when it is half full.
pages() { sed -nE "s/^$1: .* ([0-9.]+) pages read.*/\\1/p" "$W/pages.$2"; }
half=$(pages "one shard" $((ENTRIES / 2))) all=$(pages "one shard" "$ENTRIES")
awk "BEGIN { exit !($all <= $half + 6 && $all <= 1000 / 18 + 8) }" || { echo "a page reads $half pages at half, $all with all entries"; exit 1; }
# Some 23 entries of each shard are in two leaves, and the path to them is up to three pages long.
all=$(pages "all shards" "$ENTRIES")
awk "BEGIN { exit !($all <= 5 * $SHARDS) }" || { echo "a part from each shard reads $all pages"; exit 1; }
read -r sums counted <<<"$(index stats)"
expect "entries by the headers" "$sums" "$ENTRIES"
expect "entries counted" "$counted" "$ENTRIES"
within "$LIST"
cluster_down
