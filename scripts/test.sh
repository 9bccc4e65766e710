#!/usr/bin/env bash
# Installs what the tests need (Debian packages, without questions) and runs all tests: formatting, lints,
# documentation, licences, unit and property tests, a short run of the fuzz targets, and the interoperability tests with
# real Ceph clients and daemons.
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
step "fuzz targets, briefly"
scripts/fuzz.sh --seconds "${FUZZ_SECONDS:-5}"
if command -v cargo-deny >/dev/null; then
  step "licences and advisories"
  cargo deny check licenses bans sources
fi
# Fixed seeds, twice each, and once those that found a bug before. Then for a minute (SIM_SECONDS) seeds derived from
# the committed files: each state of the code has its own, and two runs of it have the same. A failing seed prints how
# to repeat it, and is a bug to be fixed. The other checks continue, and the run fails at its end.
step "simulation"
cargo run --release --quiet -p belemnite-sim -- --seeds "${SIM_SEEDS:-0..23}" --twice --jobs "$(nproc)"
for seed in 1795351121 1795351286 1795351547 1795351774 1795352198 1795352409 1795353072 1795351135 1795410331 1795410420 1795351538 1795440140 1795364696 \
  1795368429 80001005 80001685 80004451 80005184 80009845 80010095 80013326 80019813 80022659 80025844 80039406 81000806 81004784 82019378 3369888778 700000348 \
  863916204 2604302829 600708 600622 1852665987 7700057 7700124 7710055; do
  cargo run --release --quiet -p belemnite-sim -- --seeds "$seed" --plain
done
# Several monitors, as drawn.
cargo run --release --quiet -p belemnite-sim -- --seeds 355157051
# Erasure-coded pools only, and seeds that found a bug of theirs.
cargo run --release --quiet -p belemnite-sim -- --seeds "${SIM_EC_SEEDS:-76..90}" --ec any --ops 800 --faults 12 --jobs "$(nproc)"
for seed in 810000 810079 920090; do
  cargo run --release --quiet -p belemnite-sim -- --seeds "$seed" --ec 4,2 --ops 800 --faults 12
done
for seed in 610014 610038 610179 610302 720003 500053 930063; do
  cargo run --release --quiet -p belemnite-sim -- --seeds "$seed" --ec any --ops 800 --faults 12
done
step "simulation, fresh seeds"
fresh_failed=
tree=$(git rev-parse --short=8 'HEAD^{tree}' 2>/dev/null || date +%s | tail -c 8)
first=${SIM_FIRST:-$((16#${tree:0:8}))}
echo "seeds from $first on, for ${SIM_SECONDS:-60} s"
cargo run --release --quiet -p belemnite-sim -- --seeds "$first..$((first + 1000000))" --seconds "${SIM_SECONDS:-60}" --keep-going \
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
