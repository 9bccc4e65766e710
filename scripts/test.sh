#!/usr/bin/env bash
# Installs what the tests need (Debian packages, without questions) and runs all tests: formatting, lints,
# documentation, licences, unit and property tests, and the interoperability tests with real Ceph clients and daemons.
# FUZZ_SECONDS=N: also libFuzzer for N seconds on each of its targets.
#
# usage: scripts/test.sh [--no-interop]
# Everything runs on loopback. Exit status 0 means that every check passed.
set -euo pipefail
cd "$(dirname "$0")/.."
interop=1
[ "${1:-}" = --no-interop ] && interop=0

step() { printf '\n== %s (%s)\n' "$1" "$(date +%H:%M:%S)"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
  echo "cannot install packages: neither root nor sudo" >&2; return 1; fi; }

need_packages() {
  local missing=()
  for p in "$@"; do dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok' || missing+=("$p"); done
  [ ${#missing[@]} = 0 ] && return
  echo "installing: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "${missing[@]}"
}

if [ $interop = 1 ]; then
  step "packages"
  need_packages ceph-common radosgw curl procps ceph-mon ceph-mgr ceph-mgr-modules-core ceph-osd ceph-mds ceph-fuse etcd-server fio python3-rados python3-rbd python3-cephfs python3-pytest jq iproute2 qemu-utils qemu-block-extra e2fsprogs
fi
step "format"
cargo fmt --all --check
step "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings
step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
step "unit, vector, property and simulation tests"
cargo test --workspace
# The same families get 30,000 damaged inputs each in the tests above; libFuzzer needs a build of its own.
if [ "${FUZZ_SECONDS:-0}" != 0 ]; then
  step "fuzz targets, briefly"
  scripts/fuzz.sh --seconds "$FUZZ_SECONDS"
fi
if command -v cargo-deny >/dev/null; then
  step "licences and advisories"
  cargo deny check licenses bans sources
fi
# Fixed seeds, twice each, and once those that found a bug before. Then SIM_COUNT seeds derived from the committed files,
# for SIM_SECONDS at most: each state of the code has its own, and two runs of it have the same. A failing seed prints how
# to repeat it, and is a bug to be fixed. The other checks continue, and the run fails at its end.
step "simulation"
# With assertions, at less than twice the time of a run without them. The tests above have built the program; a build of
# it alone would have other features of its dependencies, and so build them again.
asserting="${CARGO_TARGET_DIR:-target}/debug/sim"
"$asserting" --seeds "${SIM_SEEDS:-0..23}" --twice --jobs "$(nproc)"
"$asserting" --seeds 0..12 --once --jobs "$(nproc)"
cargo run --release --quiet -p belemnite-sim -- --regressions crates/sim/regressions.toml --keep-going --jobs "$(nproc)"
# Erasure-coded pools only.
cargo run --release --quiet -p belemnite-sim -- --seeds "${SIM_EC_SEEDS:-76..90}" --ec any --ops 800 --faults 12 --jobs "$(nproc)"
step "simulation, fresh seeds"
fresh_failed=
tree=$(git rev-parse --short=8 'HEAD^{tree}' 2>/dev/null || date +%s | tail -c 8)
first=${SIM_FIRST:-$((16#${tree:0:8}))}
last=$((first + ${SIM_COUNT:-250}))
echo "seeds from $first to $((last - 1)), ${SIM_SECONDS:-120} s at most"
cargo run --release --quiet -p belemnite-sim -- --seeds "$first..$last" --seconds "${SIM_SECONDS:-120}" --keep-going \
  --jobs "$(nproc)" || fresh_failed=1
if [ $interop = 1 ]; then
  step "build"
  cargo build --release
  step "interoperability"
  interop/run.sh
fi
if [ -n "$fresh_failed" ]; then
  step "a fresh seed failed: see above"
  exit 1
fi
step "all passed"
