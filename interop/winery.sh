# Common parts of the tests with Software Heritage's Winery; sourced before lib.sh.
#
# Provides: winery_private ARGS… (the script's first command: runs it in a mount namespace of its own); winery_venv DIR
# EXTRAS; rbd_client, which makes `rbd device map` work and sets RBD_CLIENT to `kernel` or `librbd` (py/rbd_mapper.py);
# postgres_up, a server in $W/db, with PGHOST and PGPORT for its clients; everything_unmapped. For Winery's own tests:
# suite_here, unmap_what_is_read, suite FILE…, suite_figures OUTPUT CLIENT, suite_has_passed RESULTS PART=LEAST….
#
# Needs root and the packages postgresql, python3-venv, python3-dev, build-essential, pkg-config, libpq-dev, libsystemd-dev,
# ceph-common; without the kernel's client also python3-fuse and python3-rbd. pip needs a package index. The virtual
# environment is kept in CACHE (~/.cache/belemnite), one for each version of Winery.
WINERY_VERSION=7.4.1
CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/belemnite}

winery_private() {
  [ "$(id -u)" = 0 ] || { echo "needs root for block devices"; exit 77; }
  [ -n "${WINERY_PRIVATE:-}" ] || WINERY_PRIVATE=1 exec unshare --mount --propagation private bash "$0" "$@"
}

# winery_venv DIR EXTRAS: DIR becomes a virtual environment with Winery, out of the cache if it is there.
winery_venv() {
  local kept=$CACHE/winery-$WINERY_VERSION-$2
  if [ ! -e "$kept/complete" ]; then
    mkdir -p "$CACHE"
    rm -rf "$kept"
    /usr/bin/python3 -m venv "$kept"
    "$kept/bin/pip" install -q --disable-pip-version-check "swh.objstorage[$2]==$WINERY_VERSION"
    touch "$kept/complete"
  fi
  ln -s "$kept" "$1"
}

rbd_client() {
  mkdir -p "$W/programs"
  if modprobe rbd 2>/dev/null || grep -qw rbd /proc/devices; then
    RBD_CLIENT=kernel
  else
    RBD_CLIENT=librbd
    /usr/bin/python3 -c 'import fuse, rados, rbd' || { echo "needs python3-fuse and python3-rbd"; exit 77; }
    ln -s "$ROOT/interop/py/rbd_mapper.py" "$W/programs/rbd"
    export RBD_MAPPER_DIR=$W/mapped
  fi
  export PATH=$W/programs:$PATH
}

# The directory of PostgreSQL's programs.
postgres_programs() { dirname "$(ls -d /usr/lib/postgresql/*/bin/pg_ctl | tail -n 1)"; }

postgres_up() {
  local bin
  bin=$(postgres_programs)
  chmod 755 "$W"
  mkdir -p "$W/db"
  chown postgres "$W/db"
  su postgres -c "cd /; $bin/initdb -D $W/db/data --auth-local=trust --auth-host=scram-sha-256 --pwfile=<(echo nobody-knows)" >"$W/initdb.out"
  su postgres -c "cd /; exec $bin/postgres -D $W/db/data -k $W/db -p $((PORT + 600)) -c listen_addresses=127.0.0.1" >"$W/db.log" 2>&1 &
  PIDS+=($!)
  export PGHOST=$W/db PGPORT=$((PORT + 600))
  wait_for 30 su postgres -c "psql -c ''" || { cat "$W/db.log"; return 1; }
}

everything_unmapped() {
  [ "${RBD_CLIENT:-}" != librbd ] || "$W/programs/rbd" device unmap-all || true
}

# suite_here: $W/venv becomes the virtual environment, which the user postgres can read, $W/tests his directory, and he
# may call sudo. Needs a mount namespace of its own; suite_gone undoes it.
suite_here() {
  winery_venv "$W/found" testing,winery
  chmod 755 "$W"
  mkdir "$W/venv" "$W/tests"
  # The user need not get into the directory of the cache.
  mount --bind "$(readlink -f "$W/found")" "$W/venv"
  mount -o remount,bind,ro "$W/venv"
  rm "$W/found"
  chown postgres "$W/tests"
  cat >"$W/sudoers" <<S
Defaults env_keep += "CEPH_CONF RBD_DEVICE_GROUP RBD_UNMAP_LAZILY RBD_MAPPER_DIR"
Defaults secure_path = "$W/programs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL = (ALL) ALL
postgres ALL = (root) NOPASSWD: ALL
S
  chmod 440 "$W/sudoers"
  mount --bind "$W/sudoers" /etc/sudoers
}

# unmap_what_is_read: where the kernel refuses to unmap an image because it is open (EBUSY), `rbd` tells it to do it by
# force and notes it in $W/forced. rbd_mapper.py does so with RBD_UNMAP_LAZILY.
unmap_what_is_read() {
  mkdir -p "$W/programs"
  cat >"$W/programs/rbd" <<R
#!/bin/sh
/usr/bin/rbd "\$@"
status=\$?
case "\$status \$*" in "16 "*" device unmap "*) ;; *) exit \$status ;; esac
echo "\$*" >>$W/forced
exec /usr/bin/rbd "\$@" -o force
R
  chmod 755 "$W/programs/rbd"
}

suite_gone() { umount -l "$W/venv" /etc/sudoers 2>/dev/null || true; }

# suite FILE…: Winery's tests in these files, with the S3 server at $gateway; TESTS selects by pytest's -k. Results are
# in $W/tests/results.xml.
suite() {
  local packages
  packages=$(echo "$W"/venv/lib/python3*/site-packages)
  su postgres -c "cd $packages && USE_CEPH=yes RBD_DEVICE_GROUP=postgres RBD_UNMAP_LAZILY=yes \
    RBD_MAP_OPTIONS='${RBD_MAP_OPTIONS:-}' GATEWAY=${gateway:-} PYTHONPATH=$ROOT/interop/py PYTHONDONTWRITEBYTECODE=1 \
    HOME=$W/tests $W/venv/bin/python -m pytest -p winery_on_a_cluster -p no:cacheprovider \
    -o consider_namespace_packages=true -q -rsfE \
    --basetemp=$W/tests/tmp --postgresql-exec=$(postgres_programs)/pg_ctl ${TESTS:+-k '$TESTS'} \
    --junitxml=$W/tests/results.xml --rootdir=$packages $*"
}

# suite_figures OUTPUT CLIENT: what was skipped and how many passed, images mapped by this client.
suite_figures() {
  sed -n 's/^SKIPPED /== skipped: /p' "$1"
  echo "== $(tail -n 1 "$1" | tr -d '='), images mapped by $2"
}

# suite_has_passed RESULTS PART=LEAST…: that many tests passed of each part, unless TESTS selects some.
suite_has_passed() {
  [ -z "${TESTS:-}" ] || return 0
  python3 - "$@" <<'P'
import sys, xml.etree.ElementTree as tree
passed = [c.get('classname') for c in tree.parse(sys.argv[1]).iter('testcase') if not list(c)]
for part, least in (a.split('=') for a in sys.argv[2:]):
    count = sum(part in name for name in passed)
    assert count >= int(least), f'only {count} tests of {part} passed'
P
}
