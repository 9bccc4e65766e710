# Makes the id of the cluster and all keys, and for several monitors the certificates of etcd, and keeps them in Secrets.
# A Secret that is there stays as it is.
set -eu
umask 077
cd /tmp
account=/var/run/secrets/kubernetes.io/serviceaccount
{ printf 'Authorization: Bearer '; cat $account/token; printf '\nContent-Type: application/json\n'; } >headers
# keep SECRET FILE…: makes a Secret of these files.
keep() {
  secret=$1 comma=
  shift
  {
    printf '{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": "%s"}, "data": {' "$secret"
    for f in "$@"; do
      printf '%s"%s": "%s"' "$comma" "$f" "$(base64 -w0 "$f")"
      comma=', '
    done
    printf '}}'
  } >secret.json
  status=$(curl -sS -o answer -w '%{http_code}' --cacert $account/ca.crt -H @headers --data-binary @secret.json \
    "https://kubernetes.default.svc/api/v1/namespaces/$NAMESPACE/secrets")
  case $status in
    201) echo "Secret $secret is made" ;;
    409) echo "Secret $secret is there already; its keys stay" ;;
    *) cat answer >&2; echo "Secret $secret was not made: HTTP $status" >&2; exit 1 ;;
  esac
}

cat /proc/sys/kernel/random/uuid >fsid
belemnite keyring client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *' \
  >admin.keyring
belemnite keyring client.bootstrap-osd --cap mon 'allow profile bootstrap-osd' >bootstrap-osd.keyring
belemnite keyring client.rgw.k8s --cap mon 'allow rw' --cap mgr 'allow rw' --cap osd 'allow rwx' >rgw.keyring
for i in a b c d; do
  belemnite keyring "mds.$i" --cap mon 'allow profile mds' --cap mgr 'allow profile mds' --cap mds allow \
    --cap osd 'allow rwx tag cephfs *=*'
done >mds.keyring
# The monitor makes the cluster with these.
{ belemnite keyring mon. --cap mon 'allow *'; cat bootstrap-osd.keyring rgw.keyring mds.keyring; } >cluster.keyring
keep "$SECRET" admin.keyring bootstrap-osd.keyring rgw.keyring mds.keyring cluster.keyring fsid
[ -n "${ETCD:-}" ] || exit 0

# certificate NAME SUBJECT EXTENSIONS [AUTHORITY]: a key and a certificate, valid for 20 years.
certificate() {
  printf '[req]\ndistinguished_name=dn\nprompt=no\nx509_extensions=v3\n[dn]\nCN=%s\n[v3]\n%b\n' "$2" "$3" >cnf
  openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
  openssl req -x509 -new -sha256 -days 7300 -config cnf -key "$1.key" -out "$1.crt" ${4:+-CA "$4.crt" -CAkey "$4.key"}
}
authority='basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign'
leaf='basicConstraints=critical,CA:false\nkeyUsage=critical,digitalSignature\nextendedKeyUsage='
names=
for k in 0 1 2 3 4; do names="$names${names:+,}DNS:$ETCD-$k.$ETCD.$NAMESPACE.svc"; done
# Two authorities: a client of etcd cannot be a member. Their keys are not kept.
certificate ca "etcd" "$authority"
certificate peer-ca "etcd members" "$authority"
certificate etcd etcd "${leaf}serverAuth,clientAuth\nsubjectAltName=$names" ca
certificate peer etcd "${leaf}serverAuth,clientAuth\nsubjectAltName=$names" peer-ca
certificate mon monitors "${leaf}clientAuth" ca
date +%s >made
keep "$ETCD" ca.crt peer-ca.crt etcd.crt etcd.key peer.crt peer.key mon.crt mon.key made
