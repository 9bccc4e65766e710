# Prints what this host has of a cluster: one fact a line, its words separated by tabs; the last line is `end`. Arguments
# are devices, and directories with files that serve as devices. Changes nothing.
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
say() { printf '%s' "$1"; shift; for w; do printf '\t%s' "$w"; done; echo; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
say time "$(date +%s%N)"
[ "$(id -u)" = 0 ] && say root
say system "$(. /etc/os-release 2>/dev/null; echo "${ID:-unknown} ${VERSION_ID:-}")" "$(uname -m)"
[ -d /run/systemd/system ] && say systemd
for p in belemnite ceph-common etcd-server etcd-client ceph-mds radosgw; do
  v=$(dpkg-query -Wf '${db:Status-Status} ${Version}' $p 2>/dev/null) || continue
  case $v in "installed "*) say package $p "${v#installed }" ;; esac
done
[ -x /usr/bin/belemnite ] && say program "$(sum /usr/bin/belemnite)"
conf=/etc/ceph/ceph.conf
[ -e $conf ] && say conf "$(sum $conf)" "$(sed -n 's/^[[:space:]]*fsid[[:space:]]*=[[:space:]]*//p' $conf | head -n 1)" \
  "$(grep -Eq '^[[:space:]]*mon_state_etcd[[:space:]]*=' $conf && echo etcd || echo file)"
[ -s /var/lib/ceph/bootstrap-osd/ceph.keyring ] && say bootstrap
[ -s /etc/ceph/ceph.client.admin.keyring ] && say admin
[ -s /etc/belemnite/tls/etcd.crt ] && say certificate "$(sum /etc/belemnite/tls/ca.crt)"
for d in /var/lib/belemnite/etcd/*/member; do
  [ -d "$d" ] || continue
  d=${d%/member} n=${d##*/}
  say etcd "$n" "$(sed -n 's/^ETCD_INITIAL_CLUSTER=//p' "/etc/belemnite/etcd-$n.env" 2>/dev/null)"
done
for d in /var/lib/ceph/mon/ceph-*/state.redb; do [ -e "$d" ] && d=${d%/state.redb} && say state "${d##*/ceph-}"; done
for k in mds radosgw; do
  for d in /var/lib/ceph/$k/ceph-*/keyring; do [ -s "$d" ] && d=${d%/keyring} && say key $k "${d##*/ceph-}"; done
done
for d in /var/lib/ceph/osd/ceph-*; do
  [ -e "$d/block" ] || [ -L "$d/block" ] || continue
  say store "${d##*/ceph-}" "$(readlink -m "$d/block")"
done
sed -n 's/.*"target":"\([^"]*\)".*/making\t\1/p' /var/lib/ceph/osd/.new/*.json 2>/dev/null
systemctl list-units --all --plain --no-legend 'belemnite-*@*' 'ceph-mds@*' 'ceph-radosgw@*' 2>/dev/null |
  while read -r u _ active _; do
    pid=$(systemctl show -p MainPID "$u") pid=${pid#MainPID=} program= conf_is=
    if [ "${pid:-0}" != 0 ]; then
      [ /proc/$pid/exe -ef /usr/bin/belemnite ] && program=same || program=other
      started=$(systemctl show -p ExecMainStartTimestamp "$u")
      started=$(date -d "${started#*=}" +%s 2>/dev/null)
      [ -e $conf ] && [ "$(stat -c %Y $conf)" -gt "${started:-9999999999}" ] && conf_is=newer
    fi
    say unit "${u%.service}" "$active" "${program:-none}" "${conf_is:-read}"
  done
lsblk -bJ -o PATH,SIZE,ROTA,TYPE,FSTYPE,PTTYPE,MOUNTPOINT,RO 2>/dev/null | tr -d '\n\t' | sed 's/^/lsblk\t/'
echo
for d in $(lsblk -dnro PATH 2>/dev/null); do
  [ "$(head -c 15 "$d" 2>/dev/null | tr -d '\0')" = "belemnite store" ] && say label "$d"
done
for dir; do
  case $dir in /dev/*) [ -e "$dir" ] && say link "$dir" "$(readlink -m "$dir")"; continue ;; esac
  for f in "$dir"/*; do
    [ -f "$f" ] || continue
    data=zeros
    [ -n "$(head -c 65536 "$f" | tr -d '\0' | head -c 1 | od -An -tx1)" ] && data=data
    say file "$f" "$(stat -c %s "$f")" $data
  done
done
echo end
