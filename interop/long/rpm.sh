# The rpm against the Debian package of the same program: the same files with the same contents, modes and owners, valid
# scripts, the account and the directories by the same files. Nothing is installed, since no rpm-based root is made. Needs
# dpkg-dev, rpm. Half a minute.
source "$(dirname "$0")/../lib.sh"
trap 'finish $?' EXIT
export DPKG_DEB_COMPRESSOR_TYPE=gzip
for kind in deb rpm; do "$ROOT/scripts/package.sh" --binary "$BIN" --version 0.1.0-test1 --out "$W/p" $kind >/dev/null; done
R=$(ls "$W"/p/belemnite-*.rpm)
expect "name" "$(rpm -qp --qf '%{NAME} %{VERSION}-%{RELEASE} %{LICENSE}' "$R")" "belemnite 0.1.0~test1-1 Apache-2.0 OR MIT"

mkdir "$W/deb" "$W/rpm"
dpkg-deb -x "$W"/p/*.deb "$W/deb"
rpm2archive - <"$R" | tar -xz -C "$W/rpm"
# contents DIR: mode, digest and path of each file. Completions of zsh have other places.
contents() {
  (cd "$1" && find . -type f -printf '%m %P\n' | sort -k 2 | while read -r mode path; do
    echo "$mode $(sha256sum <"$path" | cut -c -16) ${path/vendor-completions/site-functions}"
  done) | sort -k 3
}
contents "$W/deb" >"$W/deb.list"
contents "$W/rpm" >"$W/rpm.list"
diff "$W/deb.list" "$W/rpm.list"
expect "a program, units, pages" "$(grep -cE ' usr/(bin/belemnite|lib/systemd/system/belemnite.*@\.service)$' "$W/rpm.list")" 4
[ "$(grep -c ' usr/share/man/man1/belemnite' "$W/rpm.list")" -gt 20 ]
expect "owners" "$(rpm -qp --qf '[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]' "$R" | sort -u)" root:root
expect "configuration" "$(rpm -qpc "$R")" "$(dpkg-deb --ctrl-tarfile "$W"/p/*.deb | tar -xO ./conffiles)"
# Every path of the rpm is a file of the package: directories of the system are not its own.
rpm -qpl "$R" | sed 's|^/||' | grep -v '^usr/share/doc/belemnite' | while read -r p; do [ -f "$W/rpm/$p" ] || { echo "no file: $p"; exit 1; }; done
for s in PREIN POSTIN PREUN POSTUN; do
  rpm -qp --qf "%{$s}" "$R" | sed 's/^(none)$//' | sh -n
done
rpm -qp --qf '%{POSTIN}' "$R" | grep -q 'systemd-sysusers belemnite.conf'
rpm -qpR "$R" | grep -qx systemd
# The same commit gives the same package.
sha256sum "$R" >"$W/first"
"$ROOT/scripts/package.sh" --binary "$BIN" --version 0.1.0-test1 --out "$W/p" rpm >/dev/null
sha256sum -c --quiet "$W/first"
echo "the rpm has the files of the Debian package: $(wc -l <"$W/rpm.list")"
