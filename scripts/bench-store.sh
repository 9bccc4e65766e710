#!/bin/bash
# Measures the store alone and, if they are installed, RocksDB, redb and BlueStore on the same file, and prints a table.
#
#   scripts/bench-store.sh [FILE] [SIZE] [SECONDS] [MEMORY] [KEYS]
#
# FILE must not exist; it is written once before the measurements and removed at the end. CPU is that of the process.
# BlueStore runs in a ceph-osd with a Belemnite monitor, on the same file. CEPH_OSD, as "chroot DIR ceph-osd", selects
# another release; FILE's directory must be the same in that root. PORT is the monitor's port.
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:-/var/tmp/belemnite-bench.store}
size=${2:-8G}
secs=${3:-20}
memory=${4:-16M}
keys=${5:-2000000}
ceph_osd=${CEPH_OSD:-ceph-osd}
port=${PORT:-23300}
if [ -e "$file" ]; then
    echo "$file exists already" >&2
    exit 1
fi
dir=$(mktemp -d "$(dirname "$file")/belemnite-bench.XXXXXX")
pids=()
finish() {
    for p in "${pids[@]}"; do kill -TERM "$p" 2>/dev/null || true; done
    for p in "${pids[@]}"; do tail --pid="$p" -f /dev/null; done
    rm -rf "$file" "$dir"
}
trap finish EXIT
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

# CPU of a process in microseconds, and the bytes that it has written to the device.
spent() { awk -v hz="$(getconf CLK_TCK)" '{sub(/.*\) /, ""); printf "%d\n", ($12 + $13) * 1000000 / hz}' "/proc/$1/stat"; }
written() { awk '/^write_bytes/ {print $2}' "/proc/$1/io"; }

# BlueStore, by the command `bench` of a ceph-osd's admin socket: its store alone, without network, plain writes without
# log entry, PG info or xattrs. The Belemnite cluster around it is idle.
bluestore() {
    local id key uuid pid out up_pid=
    target/release/belemnite up --data "$dir/c" --port "$port" --osds 1 --osd-size 4G >"$dir/up.out" 2>&1 &
    up_pid=$!
    pids+=("$up_pid")
    timeout 60 sh -c 'until grep -q "^The cluster is up" "$1"; do sleep 0.1; done' - "$dir/up.out"
    export CEPH_CONF=$dir/c/ceph.conf
    uuid=$(cat /proc/sys/kernel/random/uuid)
    key=$(ceph-authtool --gen-print-key)
    id=$(echo "{\"cephx_secret\": \"$key\"}" | ceph osd new "$uuid" -i -)
    mkdir -p "$dir/osd"
    { sed '/^\[osd/,$d' "$CEPH_CONF"; cat <<C
[osd]
osd_data = $dir/osd
keyring = $dir/keyring
osd_objectstore = bluestore
bluestore_block_path = $file
bluestore_debug_enforce_settings = ssd
bluestore_cache_autotune = false
bluestore_cache_size = $(numfmt --from=iec "$memory")
osd_bench_small_size_max_iops = 10000000
osd_bench_duration = 1000
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = $((port + 200))
ms_bind_port_max = $((port + 260))
run_dir = $dir
admin_socket = $dir/\$name.asok
log_file = $dir/osd.log
crash_dir = $dir
setuser_match_path =
C
    } >"$dir/ceph.conf"
    printf '[osd.%s]\n\tkey = %s\n' "$id" "$key" >"$dir/keyring"
    $ceph_osd -c "$dir/ceph.conf" -i "$id" --mkfs --osd-uuid "$uuid" >"$dir/mkfs.out" 2>&1
    $ceph_osd -c "$dir/ceph.conf" -f -i "$id" >"$dir/out" 2>&1 &
    pid=$!
    pids+=("$pid")
    timeout 60 sh -c 'until ceph osd stat | grep -q "2 up"; do sleep 0.1; done'
    # WHAT TOTAL SIZE OBJECT OBJECTS MADE: total bytes, bytes of each write and of each object; number of objects;
    # number of objects that `bench` makes first, whose CPU and bytes are not counted.
    local made=0
    job() {
        local c0 w0 c w n=$(($2 / $3))
        c0=$(spent "$pid") w0=$(written "$pid")
        out=$(ceph --admin-daemon "$dir/osd.$id.asok" bench "$2" "$3" "$4" "$5")
        c=$(($(spent "$pid") - c0 - $6 * made)) w=$(($(written "$pid") - w0 - $6 * 4194304))
        echo "$out" | jq -r .iops | awk -v what="$1" -v n="$n" -v b="$3" -v c="$c" -v w="$w" \
            '{printf "%-28s %8.0f ops/s  cpu %6.1f us/op  write amp %.2f\n", what, $1, c / n, w / (n * b)}'
        made=$((c / n))
    }
    objects=$((bytes / 4 / 4194304))
    job "write 4 MiB" $((objects * 4194304)) 4194304 0 0 0
    job "write 4 KiB" $((200000 * 4096)) 4096 4194304 "$objects" "$objects"
    kill -TERM "$pid" "$up_pid"
    tail --pid="$pid" -f /dev/null
    tail --pid="$up_pid" -f /dev/null
    pids=()
}
if $ceph_osd --version >/dev/null 2>&1 && command -v jq >/dev/null; then
    echo "## BlueStore, $($ceph_osd --version | cut -d' ' -f1-3), the same file, cache of $memory"
    bluestore
fi

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
