#!/usr/bin/env bash
# Runs the interoperability tests: our daemons with real Ceph clients, and each half swapped for the real one.
#
# usage: interop/run.sh [NAME...]      names are those of the scripts in interop/tests, without .sh; default: all of them
#                                      Those of interop/long take minutes or more packages, and run only by name.
# Needs target/release/belemnite and the packages that scripts/test.sh installs. Everything runs on loopback below a
# temporary directory; processes are ended by pid. Lines of a test that begin with == are its figures, and shown.
# Exit status 0 means that all passed.
set -uo pipefail
cd "$(dirname "$0")"
names=("$@")
[ ${#names[@]} -gt 0 ] || for t in tests/*.sh; do names+=("$(basename "$t" .sh)"); done
failed=()
for n in "${names[@]}"; do
  start=$(date +%s)
  out=$(mktemp)
  script=tests/$n.sh
  [ -e "$script" ] || script=long/$n.sh
  if timeout 900 bash "$script" >"$out" 2>&1; then
    echo "ok      $n ($(($(date +%s) - start)) s)"
    grep '^== ' "$out" | sed 's/^==/       /'
  else
    echo "FAILED  $n (status $?, $(($(date +%s) - start)) s); its output:"
    sed 's/^/        /' "$out" | tail -n 60
    failed+=("$n")
  fi
  rm -f "$out"
done
echo "$((${#names[@]} - ${#failed[@]})) passed, ${#failed[@]} failed"
[ ${#failed[@]} = 0 ]
