#!/usr/bin/env bash
# Asks whether tests and simulator would notice small mistakes: changes one place of the code at a time (as cargo-mutants lists them: another
# operator, another constant, a function that does nothing) and runs what tests that crate until something fails.
#
# usage: scripts/mutants.sh [--seed N] [--count N] [--seconds N] [--dir DIR] [--only PATTERN] [--list]
#   --count mutations (100) are drawn by --seed (1) from store/src/engine, pg/src and osd/src/core. Results go to DIR/results.tsv (target/mutants);
#   a later call goes on behind them, as long as the commit is the same or its changes left a mutated line alone. --seconds bounds the
#   processor time of each process of a stage (600).
#   --only takes mutations whose name has PATTERN. --list prints results that need a look: survivors.
# Needs cargo-mutants (`cargo install cargo-mutants --locked`), jq and patch. Works in a copy of the commit, DIR/tree, with a target directory of its own.
# What a result means: docs/design/mutations.md.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=1 count=100 seconds=600 dir=${CARGO_TARGET_DIR:-$PWD/target}/mutants only='' list=''
while [ $# -gt 0 ]; do
  case $1 in
    --seed) seed=$2; shift 2 ;;
    --count) count=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --dir) dir=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --list) list=1; shift ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
  esac
done
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
results=$dir/results.tsv
touch "$results"
summary() {
  awk -F'\t' '{n[$1]++} END {f = n["found"] + n["hangs"]; s = f + n["survives"];
    printf "%d found, %d of them by time running out; %d survive; %d do not build", f, n["hangs"], n["survives"], n["unbuildable"];
    if (s > 0) printf "; %.0f %% found", 100 * f / s; print ""}' "$results"
}
if [ -n "$list" ]; then
  awk -F'\t' '$1 == "survives" {print $3}' "$results"
  summary
  exit 0
fi

# Files that a commit did not change keep their times: only what did is built again.
tree=$dir/tree
[ -d "$tree/.git" ] || git clone -q --shared --no-checkout . "$tree"
commit=$(git rev-parse HEAD)
git -C "$tree" fetch -q origin HEAD
git -C "$tree" checkout -q -f --detach "$commit"
export CARGO_TARGET_DIR=$dir/target CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
cd "$tree"
cargo mutants --workspace --list --json --diff -f 'crates/store/src/engine/**' -f 'crates/pg/src/**' -f 'crates/osd/src/core/**' >"$dir/all.json" 2>"$dir/list.log"
# Small files first would say little: every mutation has the same chance.
jq -r --arg only "$only" 'to_entries[] | select(.value.name | contains($only)) | .key' "$dir/all.json" |
  shuf --random-source=<(yes "$seed") | head -n "$count" >"$dir/sample"
echo "$(wc -l <"$dir/sample") of $(jq length "$dir/all.json") mutations"

# What tests a crate, the quick first. Each line is a stage; a mutation is found by the first that fails.
stages() {
  case $1 in
    belemnite-store) cat <<-'S'
	cargo test -q -p belemnite-store --lib --test model --test log --test collections --test undo
	cargo test -q -p belemnite-store --test faults --test crash --test full --test memory --test checkpoint --test reactors --test grow
	cargo test -q -p belemnite-store --test rebuild --test repeated --test commits --test deep --test scale --test process
	cargo test -q -p belemnite-store --test histories short_set
	S
      ;;
    *) cat <<-S
	cargo test -q -p $1
	cargo run -q -p belemnite-sim -- --seeds 0..12
	S
      ;;
  esac
}

# Sets `outcome` and `stage`.
judge() {
  local command crate=$1
  stage='-'
  if ! cargo check -q -p "$crate" >"$dir/log" 2>&1; then outcome=unbuildable; return; fi
  outcome=survives
  while IFS= read -r command; do
    local rc=0
    # Processor time, as the machine may be busy; what waits for ever is ended later.
    (ulimit -t "$seconds" && timeout -k 10 $((20 * seconds)) $command </dev/null >"$dir/log" 2>&1) || rc=$?
    if [ $rc != 0 ]; then
      stage=$command outcome=found
      if [ $rc = 124 ] || [ $rc = 137 ] || grep -q 'SIGXCPU\|SIGKILL' "$dir/log"; then outcome=hangs; fi
      return
    fi
  done < <(stages "$crate")
}

while read -r i; do
  name=$(jq -r ".[$i].name" "$dir/all.json")
  # By name and text, as lines move: the same place is judged once.
  id=$(jq -r ".[$i] | .file + .replacement + .diff" "$dir/all.json" | grep -v '^@@' | cksum | tr -d ' ')
  cut -f2 "$results" | grep -qx "$id" && continue
  file=$(jq -r ".[$i].file" "$dir/all.json")
  crate=$(jq -r ".[$i].package" "$dir/all.json")
  cp "$file" "$dir/whole"
  jq -r ".[$i].diff" "$dir/all.json" | patch -s "$file"
  judge "$crate"
  cp "$dir/whole" "$file"
  printf '%s\t%s\t%s\t%s\n' "$outcome" "$id" "$name" "$stage" >>"$results"
  printf '%-11s %s\n' "$outcome" "$name"
done <"$dir/sample"
summary
