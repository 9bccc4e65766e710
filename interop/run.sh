#!/usr/bin/env bash
# Runs the interoperability tests: Belemnite's daemons with real Ceph clients, and with real Ceph daemons in place of
# some.
#
# usage: interop/run.sh [NAME...]      NAME is a script in interop/tests, without .sh; default: all of them.
#
# Scripts in interop/long take minutes or need more packages; they run only by name. LIMIT is the number of seconds a
# script may take (900). Two scripts run at a time (JOBS), each with ports of its own: most of their time is waiting.
# Needs target/release/belemnite and the packages that scripts/test.sh installs. Everything runs on loopback and in a
# temporary directory; processes are ended by pid. Lines of a test that begin with == are figures, and are shown. A
# failing test is run a second time, alone, with the output of both shown. One that then passes has hit a race, which is a
# bug to be fixed but does not fail the run; two such tests do. Exit status 0 means that all tests passed.
set -uo pipefail
cd "$(dirname "$0")"
names=("$@")
[ ${#names[@]} -gt 0 ] || for t in tests/*.sh; do names+=("$(basename "$t" .sh)"); done
: "${PORT:=23300}" "${JOBS:=2}"
failed=() races=()
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 143' TERM INT

# run_one NAME LANE: runs it with the ports of a lane, and shows how it went.
run_one() {
  local n=$1 start out script=tests/$1.sh status=0
  start=$(date +%s)
  out=$(mktemp -p "$results")
  [ -e "$script" ] || script=long/$n.sh
  PORT=$((PORT + 2000 * $2)) timeout -k 60 "${LIMIT:-900}" bash "$script" >"$out" 2>&1 || status=$?
  if [ $status = 0 ]; then
    echo "ok      $n ($(($(date +%s) - start)) s)"
    grep '^== ' "$out" | sed 's/^==/       /'
  else
    echo "FAILED  $n (status $status, $(($(date +%s) - start)) s); its output:"
    sed 's/^/        /' "$out" | tail -n 60
  fi
  rm -f "$out"
  return $status
}

# lane LANE: takes one name after the other; the file `next` says how far all lanes are.
lane() {
  local i
  while true; do
    exec 9>>"$results/lock"; flock 9
    i=$(cat "$results/next"); echo $((i + 1)) >"$results/next"
    exec 9>&-
    [ "$i" -lt ${#names[@]} ] || return 0
    # Shown as a whole, not line by line among those of others.
    run_one "${names[$i]}" "$1" >"$results/$i.shown" || echo "${names[$i]}" >>"$results/failed"
    cat "$results/$i.shown"
  done
}

echo 0 >"$results/next"
for l in $(seq 0 $((JOBS - 1))); do lane "$l" & done
wait
[ ! -e "$results/failed" ] || while read -r n; do
  if [ ${#races[@]} = 0 ] && run_one "$n" 0; then races+=("$n"); else failed+=("$n"); fi
done <"$results/failed"
[ ${#races[@]} = 0 ] || echo "failed once and passed then: ${races[*]}"
echo "$((${#names[@]} - ${#failed[@]})) passed, ${#failed[@]} failed"
[ ${#failed[@]} = 0 ]
