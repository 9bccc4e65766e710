# File systems as docs/operate/from-ceph.md copies them: a mount of Debian's Ceph beside one of a Belemnite cluster,
# snapshots and a first copy by rsync while a client writes, a second one without. The copy must have the same
# snapshots, contents, links, holes, owners, modes, times and attributes; quotas and layouts are set as the document says.
#
# Needs ceph-mon, ceph-mgr, ceph-osd, ceph-mds, ceph-fuse and rsync; root. About a minute.
source "$(dirname "$0")/../lib.sh"
source "$ROOT/interop/real_ceph.sh"
for c in rsync ceph-mds ceph-fuse; do
  command -v $c >/dev/null || { echo "$c is not installed"; exit 77; }
done
D=$W/old OLD=$W/old/ceph.conf NEW=$W/c/ceph.conf
O=$W/mnt.old N=$W/mnt.new
mkdir -p "$O" "$N"
unmount() { local m; for m in "$O" "$N"; do ! mountpoint -q "$m" || umount "$m" || fusermount -u "$m"; done; }
trap 'status=$?; unmount; finish $status' EXIT

mount_of() { # mount_of CONF DIR
  ceph-fuse -f -c "$1" -n client.admin -k "$(dirname "$1")/ceph.client.admin.keyring" "$2" >"$2.out" 2>&1 & PIDS+=("$!")
  wait_for 60 mountpoint -q "$2" || { cat "$2.out"; return 1; }
}
attribute() { # attribute FILE NAME [VALUE]: sets or prints an attribute, as setfattr and getfattr do
  /usr/bin/python3 -c '
import os, sys
f, n, *v = sys.argv[1:]
print(os.getxattr(f, n).decode()) if not v else os.setxattr(f, n, v[0].encode())' "$@"
}
# Everything that a copy must keep. A directory has no size of its own here, and its time is not compared at the root.
look() { (cd "$1" && find . -mindepth 1 \( -type d -printf '%P d %m %U %G %T@\n' \) -o -printf '%P %y %m %U %G %T@ %s %n %l\n' | sort); }
contents() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
same() { # same DIR: below both mounts
  diff <(look "$O/$1") <(look "$N/$1") && diff <(contents "$O/$1") <(contents "$N/$1")
}

real_cluster "$D" $((PORT + 100))
real_cluster_osd "$D"
real_cluster_fs "$D" home
cluster_up --osds 1 --osd-size 4G --fs
mount_of "$OLD" "$O"
mount_of "$NEW" "$N"

# What users of the old cluster have.
mkdir -p "$O/project/src" "$O/limited" "$O/empty"
cp -r "$ROOT/interop" "$O/project/"
ln -s interop/lib.sh "$O/project/link"
ln "$O/project/interop/lib.sh" "$O/project/second_name"
truncate -s 64M "$O/project/holes"
echo end >>"$O/project/holes"
chown 1234:2345 "$O/project/src"; chmod 2770 "$O/project/src"
touch -d '2001-02-03 04:05:06' "$O/project/interop/run.sh"
attribute "$O/project/interop/run.sh" user.colour red
echo one >"$O/project/twice"; touch -d '2001-02-03 04:05:06.1' "$O/project/twice"
attribute "$O/limited" ceph.quota.max_bytes 1048576
mkdir "$O/.snap/monday"
echo tuesday >"$O/project/src/notes"; rm "$O/project/second_name"
mkdir "$O/.snap/tuesday"

# Quotas and layouts, which rsync does not read. A layout holds for files that are made after it.
mkdir "$N/limited"
attribute "$N/limited" ceph.quota.max_bytes "$(attribute "$O/limited" ceph.quota.max_bytes)"

# Snapshots, oldest first, then a first copy while a client writes.
(i=0; while true; do i=$((i + 1)); echo $i >>"$O/project/src/log"; echo $i >"$O/project/src/file.$i"; sleep 0.05; done) & WRITER=$!
PIDS+=("$WRITER")
for s in monday tuesday; do
  rsync -aHAXS --modify-window=-1 --delete "$O/.snap/$s/" "$N/"
  mkdir "$N/.snap/$s"
done
status=0
rsync -aHAXS --modify-window=-1 --delete "$O/" "$N/" || status=$?
# 24: a file went while it was copied, which a client may do.
[ $status = 0 ] || expect "status of rsync" "$status" 24
kill "$WRITER"; wait "$WRITER" 2>/dev/null || true
echo changed >"$O/project/interop/README"
# Of the same length and in the same second as the copy.
echo two >"$O/project/twice"; touch -d '2001-02-03 04:05:06.2' "$O/project/twice"
rm "$O/project/interop/run.sh"
rsync -aHAXS --modify-window=-1 --delete "$O/" "$N/"

for d in project limited empty .snap/monday .snap/tuesday; do same $d; done
expect "names at the top" "$(ls "$N")" "$(ls "$O")"
expect "snapshots" "$(ls "$N/.snap")" "$(ls "$O/.snap")"
expect "an attribute" "$(attribute "$N/.snap/monday/project/interop/run.sh" user.colour)" red
expect "the quota" "$(attribute "$N/limited" ceph.quota.max_bytes)" 1048576
expect "names of a file with two names" "$(stat -c %h "$N/.snap/monday/project/second_name")" 2
echo "== files: $(find "$N" -type f | wc -l) copied, $(ls "$N/.snap" | wc -l) snapshots"
