#!/usr/bin/env bash
# Mutation testing: checks whether tests and simulator detect small mistakes, such as another operator, an empty
# function, or a missing match arm.
#
# usage: scripts/mutants.sh [--seed N] [--count N] [--dir DIR] [--only PATH] [--list]
#
# COUNT mutations (100) are drawn by SEED (1) from store/src/engine, pg/src and osd/src/core, and compiled into one
# build (scripts/mutants), in which an environment variable activates one. For each, the tests of its crate run, the
# fastest first, until one fails. Results go to DIR/results.tsv (target/mutants); later calls append to it. --only
# selects files whose path contains PATH. --list prints the results to look at: survivors. Needs jq. Works in a copy of
# the commit, DIR/tree, with its own target directory. Meaning of the results: docs/design/mutations.md.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=1 count=100 dir=${CARGO_TARGET_DIR:-$PWD/target}/mutants only='' list=''
while [ $# -gt 0 ]; do
  case $1 in
    --seed) seed=$2; shift 2 ;;
    --count) count=$2; shift 2 ;;
    --dir) dir=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --list) list=1; shift ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
  esac
done
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
results=$dir/results.tsv
touch "$results" "$dir/unbuildable"
summary() {
  awk -F'\t' '{n[$1]++} END {f = n["found"] + n["hangs"]; s = f + n["survives"];
    printf "%d found, %d of them by time running out; %d survive", f, n["hangs"], n["survives"];
    if (s > 0) printf "; %.0f %% found", 100 * f / s; print ""}' "$results"
}
if [ -n "$list" ]; then
  awk -F'\t' '$1 == "survives" {print $2}' "$results"
  summary
  exit 0
fi

# Files that are unchanged in the commit keep their times, so that only changed ones are rebuilt.
tree=$dir/tree
[ -d "$tree/.git" ] || git clone -q --shared --no-checkout . "$tree"
commit=$(git rev-parse HEAD)
git -C "$tree" fetch -q origin HEAD
export CARGO_TARGET_DIR=$dir/target
cargo build -q --release --manifest-path scripts/mutants/Cargo.toml
cd "$tree"

# Insert the mutations, omitting those that the compiler rejects, until it accepts all.
weave() {
  git checkout -q -f --detach "$commit"
  git clean -q -f
  cat >crates/base/src/mutant.rs <<'R'
//! The active mutation.
static WHICH: std::sync::LazyLock<u32> =
    std::sync::LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|v| v.parse().ok()).unwrap_or(0));
/// True if it is this one.
#[inline]
pub fn is(n: u32) -> bool {
    *WHICH == n
}
R
  echo 'pub mod mutant;' >>crates/base/src/lib.rs
  find crates/store/src/engine crates/pg/src crates/osd/src/core -name '*.rs' ! -name '*tests.rs' | grep -F -- "$only" | sort |
    xargs "$CARGO_TARGET_DIR/release/mutants" "$seed" "$count" "$dir/unbuildable" >"$dir/woven.tsv"
}
weave
crates=(-p belemnite-store -p belemnite-pg -p belemnite-osd)
until cargo check -q --message-format short "${crates[@]}" >/dev/null 2>"$dir/check.log"; do
  grep -oE '^crates/[^ ]+\.rs:[0-9]+:[0-9]+: error' "$dir/check.log" | cut -d: -f1,2 | sort -u >"$dir/lines"
  awk -F'\t' 'NR == FNR {bad[$1]; next} ($2 ":" $3) in bad {print $4}' "$dir/lines" "$dir/woven.tsv" >"$dir/more"
  # An error in a function's body belongs to the mutation at the function's first line or below.
  [ -s "$dir/more" ] || { echo "what the compiler refuses is none of the mutations: $dir/check.log" >&2; exit 1; }
  cat "$dir/more" >>"$dir/unbuildable"
  weave
done

# All with optimization, since execution dominates; debug assertions of the crates are enabled.
asserts=()
for c in store pg osd; do
  for w in debug-assertions overflow-checks; do asserts+=(--config "profile.release.package.belemnite-$c.$w=true"); done
done
cargo test -q --release --no-run --message-format json "${asserts[@]}" "${crates[@]}" -p belemnite-sim >"$dir/build.json"
jq -r 'select(.reason == "compiler-artifact" and .profile.test and .executable) | [.manifest_path, .target.name, .executable] | @tsv' "$dir/build.json" |
  sed -E 's|^.*/crates/([a-z]+)/Cargo.toml|\1|' >"$dir/tests.tsv"
sim=$CARGO_TARGET_DIR/release/sim

# Runs a test or a simulation with a mutation: `run NUMBER SECONDS CRATE NAME PROGRAM`.
run() {
  local args=(-q)
  case $3/$4 in
    store/histories) args=(-q short_set) ;;
    sim/*) read -r -a args <<<"--jobs 1 $4" ;;
  esac
  # The limit is processor time, because the machine may be busy; a hanging process is ended later.
  (cd "$tree/crates/$3" && ulimit -t "$2" && MUTANT=$1 timeout -k 10 $((10 * $2)) "$5" "${args[@]}" </dev/null >"$dir/log" 2>&1)
}

# Tests that pass without a mutation, with their processor time: crate, name, seconds, program.
if [ ! -f "$dir/stages.$commit" ]; then
  {
    grep -v '^sim' "$dir/tests.tsv"
    printf 'sim\t--seeds 0..12\t%s\nsim\t--seeds 0..8 --ec any\t%s\n' "$sim" "$sim"
  } | while IFS=$'\t' read -r crate name program; do
    begun=$(date +%s%N)
    run 0 600 "$crate" "$name" "$program" || { echo "$crate $name fails without a mutation: $dir/log" >&2; exit 1; }
    printf '%s\t%s\t%d\t%s\n' "$crate" "$name" $((($(date +%s%N) - begun) / 1000000)) "$program"
  done | sort -t $'\t' -n -k 3 >"$dir/stages.tmp"
  mv "$dir/stages.tmp" "$dir/stages.$commit"
fi

# Sets `outcome` and `stage`.
judge() {
  local crate name ms program own
  own=$(cut -d/ -f2 <<<"$2")
  outcome=survives stage=-
  while IFS=$'\t' read -r crate name ms program; do
    case $own/$crate in store/store | pg/pg | pg/osd | pg/sim | osd/osd | osd/sim) ;; *) continue ;; esac
    local rc=0
    run "$1" $((20 + ms / 200)) "$crate" "$name" "$program" || rc=$?
    if [ $rc != 0 ]; then
      stage="$crate $name" outcome=found
      if [ $rc = 124 ] || [ $rc = 137 ] || [ $rc = 152 ]; then outcome=hangs; fi
      return
    fi
  # The tests of the mutation's crate first, then the others, each in the order of their times.
  done < <(awk -F'\t' -v own="$own" '$1 == own' "$dir/stages.$commit"; awk -F'\t' -v own="$own" '$1 != own' "$dir/stages.$commit")
}

while IFS=$'\t' read -r n file line name; do
  cut -f2 "$results" | grep -qxF -- "$name" && continue
  judge "$n" "$file"
  printf '%s\t%s\t%s:%s\t%s\n' "$outcome" "$name" "$file" "$line" "$stage" >>"$results"
  printf '%-9s %s (%s)\n' "$outcome" "$name" "$stage"
done <"$dir/woven.tsv"
summary
