# Makes the id of the cluster and all keys, and keeps them in a Secret. A Secret that is there stays as it is.
set -eu
umask 077
cd /tmp
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
{
  printf '{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": "%s"}, "data": {' "$SECRET"
  for f in admin.keyring bootstrap-osd.keyring rgw.keyring mds.keyring cluster.keyring; do
    printf '"%s": "%s", ' "$f" "$(base64 -w0 "$f")"
  done
  printf '"fsid": "%s"}}' "$(base64 -w0 fsid)"
} >secret.json
account=/var/run/secrets/kubernetes.io/serviceaccount
{ printf 'Authorization: Bearer '; cat $account/token; printf '\nContent-Type: application/json\n'; } >headers
status=$(curl -sS -o answer -w '%{http_code}' --cacert $account/ca.crt -H @headers --data-binary @secret.json \
  "https://kubernetes.default.svc/api/v1/namespaces/$NAMESPACE/secrets")
case $status in
  201) echo "Secret $SECRET is made" ;;
  409) echo "Secret $SECRET is there already; its keys stay" ;;
  *) cat answer >&2; echo "Secret $SECRET was not made: HTTP $status" >&2; exit 1 ;;
esac
