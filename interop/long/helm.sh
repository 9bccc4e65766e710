# The Helm chart: linted; rendered with the default values, with all, and refused with wrong ones; checked against the
# schemas of Kubernetes; and run: kubelet.py starts the rendered pods as processes, without Kubernetes. Once with one
# monitor that becomes three and five; once with three, of which one dies with its volume, and a member of etcd, too.
#
# HELM and KUBECONFORM are the programs (`go install helm.sh/helm/v3/cmd/helm@v3.16.4`,
# `go install github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7`). SWAGGER is api/openapi-spec/swagger.json of a source
# tree of Kubernetes (`go mod download -json k8s.io/kubernetes@v1.31.3`); without it and kubeconform the check of the
# schemas is left out, which the output says. Needs root, loop devices, overlayfs, python3-yaml, curl and openssl; the
# gateway and the file system are run if radosgw, and ceph-mds and ceph-common are there; several monitors need etcd.
source "$(dirname "$0")/../lib.sh"
: "${HELM:=$(type -P helm || true)}" "${KUBECONFORM:=$(type -P kubeconform || true)}" "${SWAGGER:=}"
[ -n "$HELM" ] || { echo "needs helm"; exit 77; }
type -P etcd >/dev/null || { echo "needs etcd"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "needs root for namespaces"; exit 77; }
CHART=$ROOT/packaging/helm/belemnite
ALL=(--set gateway.enabled=true,mds.enabled=true,osd.hostNetwork=true,osd.portable=true,osd.deviceClass=ssd
  --set monitor.storage.storageClassName=fast,osd.storage.storageClassName=local
  --set config.osd.osd_memory_target=4G,imagePullSecrets[0].name=registry,osd.nodeSelector.disk=nvme
  --set monitor.service.annotations.a=b,etcd.storage.storageClassName=fast,etcd.nodeSelector.disk=nvme)
ONE=(--set monitor.address=192.0.2.7,monitor.service.clusterIP=10.96.0.50)
SEVERAL=(--set monitor.replicas=3 --set-json 'monitor.addresses=["192.0.2.7", "192.0.2.8", "2001:db8::9"]'
  --set-json 'monitor.service.clusterIPs=["10.96.0.50", "10.96.0.51", "10.96.0.52"]')
render() { "$HELM" template store "$CHART" --namespace store --kube-version 1.31.3 "$@"; }

"$HELM" lint --strict --quiet --kube-version 1.31.3 "$CHART"
render >"$W/default.yaml"
render "${ALL[@]}" "${ONE[@]}" >"$W/all.yaml"
render "${ALL[@]}" "${SEVERAL[@]}" >"$W/several.yaml"
for n in 1 3 5; do render --set "gateway.enabled=true,mds.enabled=true,monitor.replicas=$n" >"$W/$n.yaml"; done
expect "kinds by default" "$(grep -c '^kind: ' "$W/default.yaml")" 10
expect "kinds with all" "$(grep -c '^kind: ' "$W/all.yaml")" 15
expect "kinds with three monitors" "$(grep -c '^kind: ' "$W/several.yaml")" 22
grep -q '^    osd_memory_target = 4G' "$W/all.yaml"
# refused WORDS ARGS…
refused() {
  local words=$1; shift
  if render "$@" >/dev/null 2>"$W/why"; then echo "not refused: $*"; exit 1; fi
  grep -qF -- "$words" "$W/why" || { echo "expected: $words"; cat "$W/why"; exit 1; }
}
for wrong in osd.replicas=0 osd.replicas=three osd.storage.size=big mds.replicas=5 monitor.replicas=2 monitor.replicas=7 \
  image.pullPolicy=No config.osd.Memory=1 monitor.address=mon.example monitor.addresses[0]=mon.example osds.replicas=3 \
  etcd.replicas=3 etcd.image.tag= etcd.storage.size=0; do
  refused "values don't meet the specifications of the schema" --set "$wrong"
done
refused "monitor.address is for one monitor; with several, name all of them in monitor.addresses" --set monitor.address=192.0.2.7,monitor.replicas=3
refused "monitor.addresses has 3 entries, monitor.replicas is 5" "${SEVERAL[@]:2:2}" --set monitor.replicas=5
refused "monitor.address and monitor.addresses are both set" --set monitor.address=192.0.2.7,monitor.addresses[0]=192.0.2.7
refused "config.mon.mon_state_etcd is set by the chart" --set monitor.replicas=3,config.mon.mon_state_etcd=http://e:2379
# What runs already: three members of etcd.
python3 "$ROOT/interop/py/kube_lookup.py" store store-belemnite-etcd 3 >"$W/port" & PIDS+=($!)
wait_for 10 test -s "$W/port"
RUNS=(--dry-run=server --kube-apiserver "http://127.0.0.1:$(cat "$W/port")")
for n in 3 5; do render "${RUNS[@]}" --set "monitor.replicas=$n" >/dev/null; done
refused "monitor.replicas is 3 in this release and cannot become 1: it can only grow" "${RUNS[@]}"
# Pods get what they need of the Secrets, and pods of several monitors nothing that those of one do not get but TLS.
python3 - "$W/several.yaml" <<'P'
import sys, yaml
may = {'mon': {'fsid', 'admin.keyring', 'cluster.keyring', 'ca.crt', 'mon.crt', 'mon.key'},
       'etcd': {'ca.crt', 'peer-ca.crt', 'etcd.crt', 'etcd.key', 'peer.crt', 'peer.key', 'made'},
       'osd': {'fsid', 'bootstrap-osd.keyring'}, 'rgw': {'fsid', 'rgw.keyring'}, 'mds': {'fsid', 'mds.keyring'},
       'fs': {'fsid', 'admin.keyring'}, 'keys': set()}
may['mons'] = may['mon']
for m in yaml.safe_load_all(open(sys.argv[1])):
    if not m or 'template' not in m.get('spec', {}):
        continue
    template = m['spec']['template']
    kind, spec = template['metadata']['labels']['app.kubernetes.io/component'], template['spec']
    gets = {i['key'] for v in spec['volumes'] if 'secret' in v for i in v['secret']['items']}
    assert gets == may[kind], (kind, gets)
    assert kind == 'keys' or spec['automountServiceAccountToken'] is False, kind
P

if [ -n "$KUBECONFORM" ] && [ -n "$SWAGGER" ]; then
  for f in default all several; do
    mkdir -p "$W/schemas.$f"
    python3 "$ROOT/interop/py/kube_schemas.py" "$SWAGGER" "$W/$f.yaml" "$W/schemas.$f"
    check() { "$KUBECONFORM" -strict -summary -schema-location "$W/schemas.$f/{{ .ResourceKind }}.json" "$@"; }
    check "$W/$f.yaml"
    # The check itself: a field that Kubernetes does not have.
    sed 's/volumeMode: Block/volumeModus: Block/' "$W/$f.yaml" >"$W/wrong.yaml"
    if check "$W/wrong.yaml" >/dev/null; then echo "a wrong field passes"; exit 1; fi
  done
else
  echo "== the schemas of Kubernetes were not checked: needs KUBECONFORM and SWAGGER"
fi

cases=(grows three)
for case in ${CASES:-"${cases[@]}"}; do
  mkdir "$W/$case"
  unshare --net --mount python3 "$ROOT/interop/py/chart_cluster.py" "$case" "$W" store-belemnite "$BIN" "$W/$case" ||
    { tail -n 15 "$W/$case"/*.log; exit 1; }
done
