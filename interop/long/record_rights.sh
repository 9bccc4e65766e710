# Records what restricted keys may do on a real Ceph cluster, with one monitor, manager, OSD and MDS made for it, with
# py/record_rights.py. OUT is the directory for the recordings. REAL="chroot DIR" uses Ceph of another release in a root
# directory; SCRATCH is then a directory that is the same in both. KINDS limits what is recorded; `auth`: the output of
# commands on keys (NEWER=newer: also of 18.2 and later). About 15 minutes for a release.
source "$(dirname "$0")/../lib.sh"
source "$ROOT/interop/real_ceph.sh"
: "${OUT:?directory for the recordings}"
D=$W/real
cp "$ROOT/interop/py/record_rights.py" "$W"
real_cluster "$D" "$PORT"
real_cluster_osd "$D"
real_cluster_fs "$D" home
mkdir -p "$OUT" "$W/out" "$W/t"
if [ "${KINDS:-}" = auth ]; then
  # Texts of `ceph auth` and `ceph-authtool`.
  ceph() { real_ceph "$D" "$@"; }
  ceph-authtool() { real ceph-authtool "$@"; }
  source "$ROOT/interop/py/auth_transcript.sh" "$W/t" ${NEWER:-} >"$OUT/auth.txt"
  exit
fi
# shellcheck disable=SC2086
real /usr/bin/python3 "$W/record_rights.py" "$D/ceph.conf" "$W/out" ${KINDS:-}
cp "$W"/out/*.json "$OUT"; cp "$W"/out/*.log "$OUT" 2>/dev/null || true
