# Half an hour of interop/thrash.py on an erasure-coded pool (SECS=1800, CODE=4+2): six OSDs under a model checker, rados bench and fio
# with verification, while OSDs are killed, stopped in order, paused and cut off, a disk is replaced, pg_num changes and
# scrubs run. In the end all PGs are clean, every byte is what was acknowledged, a deep scrub finds nothing, and rot of M shards
# of an object is found and repaired. Needs root. SEED names the order of faults.
#
#     LIMIT=4000 interop/run.sh thrash_coded
. "$(dirname "$0")/../lib.sh"
[ "$(id -u)" = 0 ] || { echo "needs root for network namespaces"; exit 77; }
export FOR=${SECS:-1800} CODE=${CODE:-4+2} OSD_SIZE=${OSD_SIZE:-3G} DIR=$W BELEMNITE=$BIN
python3 "$ROOT/interop/thrash.py" | tee "$W/thrash.out"
grep -E '(operations as the model|fio:|finds nothing|found and repaired|ok:)' "$W/thrash.out" | sed 's/^ *[0-9.]* */== /'
