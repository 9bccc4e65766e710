# Common parts of the tests with Software Heritage's Winery; sourced before lib.sh.
#
# Provides: winery_private ARGS… (the script's first command: runs it in a mount namespace of its own); winery_venv DIR
# EXTRAS; rbd_client, which makes `rbd device map` work and sets RBD_CLIENT to `kernel` or `librbd` (py/rbd_mapper.py);
# postgres_up, a server in $W/db, with PGHOST and PGPORT for its clients; everything_unmapped.
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
  mkdir -p "$W/bin"
  if modprobe rbd 2>/dev/null || grep -qw rbd /proc/devices; then
    RBD_CLIENT=kernel
  else
    RBD_CLIENT=librbd
    /usr/bin/python3 -c 'import fuse, rados, rbd' || { echo "needs python3-fuse and python3-rbd"; exit 77; }
    ln -s "$ROOT/interop/py/rbd_mapper.py" "$W/bin/rbd"
    export RBD_MAPPER_DIR=$W/mapped
  fi
  export PATH=$W/bin:$PATH
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
  [ "${RBD_CLIENT:-}" != librbd ] || "$W/bin/rbd" device unmap-all || true
}
