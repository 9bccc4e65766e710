#!/usr/bin/env bash
# Builds packages of the program with its units, manual pages and completions (docs/adr/0019).
#
# usage: scripts/package.sh [--profile NAME] [--binary FILE] [--version V] [--out DIR] deb|rpm|tree
#
#   deb   a Debian package, by dpkg-deb and dpkg-shlibdeps (package dpkg-dev)
#   rpm   an rpm of the same files, by rpmbuild
#   tree  the files alone, in DIR/tree, for an image or another kind of package
#
# The program is built with profile `dist`; another profile is faster to build. --binary packages a program that exists.
# --version replaces the version of Cargo.toml, for builds between releases. DIR is target/package. Files carry the date
# of the last commit, so the same commit gives the same package. A package runs on the release of Debian that built it
# and later ones.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=dist binary='' version='' out=target/package kind=''
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=$2; shift 2 ;;
    --binary) binary=$2; shift 2 ;;
    --version) version=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    deb | rpm | tree) kind=$1; shift ;;
    *) sed -n '4,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
[ -n "$kind" ] || { echo "name a kind: deb, rpm or tree" >&2; exit 2; }
: "${version:=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)}"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
maintainer='Belemnite developers <packages@belemnite.invalid>'

if [ -z "$binary" ]; then
  cargo build --locked -p belemnite --profile "$profile"
  directory=$profile
  [ "$profile" != dev ] || directory=debug
  binary=target/$directory/belemnite
fi
mkdir -p "$out"
out=$(realpath "$out")
tree=$out/tree
rm -rf "$tree"
umask 022

# put MODE FILE PATH: a file of the package, from a file or from standard input (-).
put() {
  mkdir -p "$tree/$(dirname "$3")"
  if [ "$2" = - ]; then cat >"$tree/$3"; else cp "$2" "$tree/$3"; fi
  chmod "$1" "$tree/$3"
}

put 755 "$binary" usr/bin/belemnite
# The symbols for debuggers stay beside the packages.
objcopy --only-keep-debug --compress-debug-sections "$tree/usr/bin/belemnite" "$out/belemnite-$version.debug"
strip --strip-unneeded "$tree/usr/bin/belemnite"
objcopy --add-gnu-debuglink="$out/belemnite-$version.debug" "$tree/usr/bin/belemnite"

for unit in packaging/systemd/*; do put 644 "$unit" "usr/lib/systemd/system/$(basename "$unit")"; done
put 644 packaging/sysusers.conf usr/lib/sysusers.d/belemnite.conf
put 644 packaging/tmpfiles.conf usr/lib/tmpfiles.d/belemnite.conf
put 644 packaging/default etc/default/belemnite
mkdir -p "$tree/usr/share/man/man1"
"$binary" man-pages "$tree/usr/share/man/man1"
find "$tree/usr/share/man" -name '*.1' -exec gzip -9n {} +
"$binary" completions bash | put 644 - usr/share/bash-completion/completions/belemnite
"$binary" completions zsh | put 644 - usr/share/zsh/vendor-completions/_belemnite
"$binary" completions fish | put 644 - usr/share/fish/vendor_completions.d/belemnite.fish
doc=usr/share/doc/belemnite
put 644 packaging/ceph.conf.example $doc/examples/ceph.conf
gzip -9n <CHANGELOG.md | put 644 - $doc/NEWS.md.gz
{
  cat packaging/debian/copyright
  echo "License: MIT"
  sed 's/^$/./; s/^/ /' LICENSE-MIT
} | put 644 - $doc/copyright
{
  echo "Crates that the program consists of, with their licences."
  echo
  cargo tree --locked -p belemnite -e normal --prefix none --format '{p} {l}' | sed 's| ([^)]*)||g' | sort -u
} | gzip -9n | put 644 - $doc/crates.txt.gz
gzip -9n <<END | put 644 - $doc/changelog.gz
belemnite ($version) unstable; urgency=medium

  * NEWS.md.gz in this directory lists the changes, the stored formats and
    the versions that work together.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END

debian() {
  local arch control=$tree/DEBIAN depends
  arch=$(dpkg --print-architecture)
  # dpkg-shlibdeps reads a source package's control file.
  rm -rf "$out/shlibs"
  mkdir -p "$out/shlibs/debian" "$control"
  echo "Source: belemnite" >"$out/shlibs/debian/control"
  depends=$(cd "$out/shlibs" && dpkg-shlibdeps -O "$tree/usr/bin/belemnite" | sed -n 's/^shlibs:Depends=//p')
  [ -n "$depends" ] || { echo "dpkg-shlibdeps names no library of the program" >&2; exit 1; }
  rm -rf "$out/shlibs"
  cat >"$control/control" <<END
Package: belemnite
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Depends: $depends, systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles
Recommends: ceph-common
Suggests: cryptsetup-bin, etcd-server, radosgw, ceph-mds
Section: admin
Priority: optional
Homepage: https://github.com/belemnite/belemnite
Description: storage cluster that speaks Ceph's protocols
 Monitors and OSDs of a cluster for objects, block devices and files, with
 units for systemd. Ceph's unmodified clients, gateways and metadata servers
 use it.
END
  for s in postinst prerm postrm; do install -m 755 "packaging/debian/$s" "$control/$s"; done
  echo /etc/default/belemnite >"$control/conffiles"
  (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$control/md5sums"
  chmod 644 "$control"/{control,conffiles,md5sums}
  find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group --build "$tree" "$out/belemnite_${version}_$arch.deb"
  rm -rf "$control"
}

redhat() {
  # rpm's versions have no dash.
  rpmbuild -bb --quiet --define "_topdir $out/rpm" --define "_rpmdir $out" --define "tree $tree" \
    --define "the_version ${version//-/\~}" --define "_build_name_fmt belemnite-%%{VERSION}.%%{ARCH}.rpm" \
    --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' packaging/belemnite.spec
  rm -rf "$out/rpm"
  echo "$out/belemnite-${version//-/\~}.$(uname -m).rpm"
}

case $kind in
  deb) debian ;;
  rpm) redhat ;;
  tree) echo "$tree" ;;
esac
