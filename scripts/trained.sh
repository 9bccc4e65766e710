#!/usr/bin/env bash
# Builds the program with what a run of it showed (docs/adr/0026): the compiler knows which branches are taken and which
# functions are called often. Takes two builds and three minutes of load on this machine, on loopback.
#
# usage: scripts/trained.sh [--profile NAME] [--plan FILE] OUT
#
# OUT is the file for the program. The profile is `dist` if none is named; `release` takes less time to build. The plan is
# packaging/train.toml if none is named. Needs `rustup component add llvm-tools`. For a package of the result:
# scripts/package.sh --binary OUT deb
set -euo pipefail
cd "$(dirname "$0")/.."
profile=dist plan=packaging/train.toml out=''
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=$2; shift 2 ;;
    --plan) plan=$2; shift 2 ;;
    -*) sed -n '5,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) out=$1; shift ;;
  esac
done
[ -n "$out" ] || { echo "name a file for the program" >&2; exit 2; }
out=$(realpath -m "$out")
host=$(rustc -vV | sed -n 's/^host: //p')
merge=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$merge" ] || { echo "llvm-profdata is missing: rustup component add llvm-tools" >&2; exit 2; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/trained")
seen=$target/seen
rm -rf "$seen" "$target/lab"
mkdir -p "$seen" "$target/lab" "$(dirname "$out")"

# build PROFILE FLAGS: the program, in $target. With --target, flags are not for programs that run while it is built.
build() {
  RUSTFLAGS="$2" CARGO_TARGET_DIR=$target cargo build --locked --quiet -p belemnite --profile "$1" --target "$host"
}

echo "building the program that counts ($(date +%H:%M:%S))"
build release "-Cprofile-generate=$seen"
echo "training ($(date +%H:%M:%S))"
# Processes of one program add their counts to one file.
LLVM_PROFILE_FILE="$seen/%4m.profraw" "$target/$host/release/belemnite" lab run "$plan" --dir "$target/lab" \
  >"$target/lab.log" 2>&1 || { tail -n 20 "$target/lab.log" >&2; exit 1; }
"$merge" merge -o "$target/belemnite.profdata" "$seen"/*.profraw
echo "building the program ($(date +%H:%M:%S))"
build "$profile" "-Cprofile-use=$target/belemnite.profdata"
cp "$target/$host/$profile/belemnite" "$out"
echo "$out"
