#!/usr/bin/env bash
# Runs the fuzz targets of fuzz/ for some seconds each, on stable Rust without further packages: plain compiler flags
# provide libFuzzer and its coverage. Address checks need a nightly compiler and cargo-fuzz: fuzz/README.md.
#
# usage: scripts/fuzz.sh [--seconds N] [--fresh] [TARGET…]      (default: 10 seconds for each of all targets)
# Default runs are deterministic as far as their seconds last, so that a change does not pass by luck; --fresh uses a
# random seed and the corpus of earlier runs. Findings are in fuzz/artifacts/TARGET, and the command that repeats one is
# printed. Exit status 0: no findings.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=10
fresh=0
while :; do
  case ${1:-} in
    --seconds) seconds=$2; shift 2 ;;
    --fresh) fresh=1; shift ;;
    *) break ;;
  esac
done
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  for f in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$f" .rs)"); done
fi

host=$(rustc -vV | sed -n 's/^host: //p')
out=$PWD/${CARGO_TARGET_DIR:-target}/fuzz
case ${CARGO_TARGET_DIR:-} in /*) out=$CARGO_TARGET_DIR/fuzz ;; esac
cover=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1)
flags="--cfg fuzzing -Cdebug-assertions -Coverflow-checks ${cover[*]}"

# Seeds are the golden vectors; inputs added by a run go to a separate corpus.
cargo run --quiet -p belemnite-hostile --bin corpus -- fuzz/corpus
# With --target the flags apply to the targets and their dependencies, but not to build scripts.
RUSTFLAGS=$flags cargo build --quiet --release --target "$host" --target-dir "$out" --manifest-path fuzz/Cargo.toml

failed=0
for t in "${targets[@]}"; do
  seed=1
  [ $fresh = 1 ] && seed=0 || rm -rf "$out/corpus/$t"
  mkdir -p "fuzz/artifacts/$t" "$out/corpus/$t"
  log=$out/$t.log
  echo "$t: $seconds s"
  # Memory limit: the most that one message may make a daemon hold, with room for the fuzzer.
  if ! "$out/$host/release/$t" -seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="fuzz/artifacts/$t/" "$out/corpus/$t" "fuzz/corpus/$t" >"$log" 2>&1; then
    failed=1
    tail -n 40 "$log"
    echo "$t: found something; repeat it with $out/$host/release/$t FILE"
  else
    grep -E 'stat::number_of_executed_units|stat::peak_rss_mb' "$log" | sed 's/^/  /'
  fi
done
exit $failed
