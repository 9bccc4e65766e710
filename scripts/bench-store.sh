#!/bin/bash
# Measures the store alone and, where they are installed, what it is compared with, on one file in one run, and prints a table.
#
#   scripts/bench-store.sh [FILE] [SIZE] [SECONDS] [MEMORY] [KEYS]
#
# FILE must not exist; it is written once before anything is measured and removed at the end. CPU is that of the process.
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:-/var/tmp/belemnite-bench.store}
size=${2:-8G}
secs=${3:-20}
memory=${4:-16M}
keys=${5:-2000000}
if [ -e "$file" ]; then
    echo "$file is there already" >&2
    exit 1
fi
dir=$(mktemp -d "$(dirname "$file")/belemnite-bench.XXXXXX")
trap 'rm -rf "$file" "$dir"' EXIT
cargo build --release -q -p belemnite
bytes=$(numfmt --from=iec "$size")
dd if=/dev/zero of="$file" bs=4M count=$((bytes / 4194304)) oflag=direct status=none

echo "## machine"
grep -m1 'model name' /proc/cpuinfo || true
echo "load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores, file system $(stat -f -c %T "$file")"

if command -v fio >/dev/null; then
    echo "## fio, the same file, O_DIRECT"
    for job in "write 4M 4" "read 4M 4" "randwrite 4k 32" "randread 4k 32"; do
        read -r rw bs depth <<<"$job"
        fio --name="$rw" --filename="$file" --rw="$rw" --bs="$bs" --iodepth="$depth" --ioengine=libaio --direct=1 \
            --size="$size" --runtime="$secs" --time_based --output-format=terse --terse-version=3 |
            awk -F';' -v n="$rw $bs depth $depth" '{printf "%-28s read %d KiB/s %d IOPS, write %d KiB/s %d IOPS, cpu %s user %s sys\n", n, $7, $8, $48, $49, $88, $89}'
    done
fi

echo "## belemnite store bench"
target/release/belemnite store bench "$file" --size "$size" --secs "$secs" --memory "$memory" --keys "$keys" --force

if command -v db_bench >/dev/null; then
    echo "## RocksDB, $keys keys of 19 bytes with values of 100, 32 threads, batches of 32, synchronous log"
    bench() {
        /usr/bin/time -f 'cpu %U user %S sys of %e s' db_bench --db="$dir/rocksdb" --key_size=19 --value_size=100 --sync=1 \
            --compression_type=none "$@" 2>&1 | grep -E '^fillrandom|^overwrite|^cpu'
    }
    bench --benchmarks=fillrandom --threads=32 --num=$((keys / 32)) --batch_size=32
    echo "one key and one range of 32 removed in turns"
    bench --benchmarks=overwrite --use_existing_db=1 --num="$keys" --writes=3000 --writes_per_range_tombstone=1 \
        --range_tombstone_width=32 --max_num_range_tombstones=3000
fi

redb=scripts/redb-bench
if (cd "$redb" && cargo build --release -q --target-dir "$OLDPWD/target/redb-bench" 2>/dev/null); then
    echo "## redb, a cache of $memory"
    for batch in 32 1024; do
        target/redb-bench/release/redb-bench "$dir/redb-$batch" "$keys" "$batch" "$(numfmt --from=iec "$memory")"
    done
fi
