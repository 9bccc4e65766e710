# The Helm chart: linted; rendered with the default values, with all, and refused with wrong ones; checked against the
# schemas of Kubernetes; and run: kubelet.py starts the rendered pods as processes, without Kubernetes.
#
# HELM and KUBECONFORM are the programs (`go install helm.sh/helm/v3/cmd/helm@v3.16.4`,
# `go install github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7`). SWAGGER is api/openapi-spec/swagger.json of a source
# tree of Kubernetes (`go mod download -json k8s.io/kubernetes@v1.31.3`); without it and kubeconform the check of the
# schemas is left out, which the output says. Needs root, loop devices, overlayfs, python3-yaml, curl and openssl; the
# gateway and the file system are run if radosgw, and ceph-mds and ceph-common are there.
source "$(dirname "$0")/../lib.sh"
: "${HELM:=$(type -P helm || true)}" "${KUBECONFORM:=$(type -P kubeconform || true)}" "${SWAGGER:=}"
[ -n "$HELM" ] || { echo "needs helm"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "needs root for namespaces"; exit 77; }
CHART=$ROOT/packaging/helm/belemnite
ALL=(--set gateway.enabled=true,mds.enabled=true,osd.hostNetwork=true,osd.portable=true,osd.deviceClass=ssd
  --set monitor.address=192.0.2.7,monitor.storage.storageClassName=fast,osd.storage.storageClassName=local
  --set config.osd.osd_memory_target=4G,imagePullSecrets[0].name=registry,osd.nodeSelector.disk=nvme
  --set monitor.service.clusterIP=10.96.0.50,monitor.service.annotations.a=b)
render() { "$HELM" template store "$CHART" --namespace store --kube-version 1.31.3 "$@"; }

"$HELM" lint --strict --quiet --kube-version 1.31.3 "$CHART"
render >"$W/default.yaml"
render "${ALL[@]}" >"$W/all.yaml"
render --set gateway.enabled=true,mds.enabled=true >"$W/run.yaml"
expect "kinds by default" "$(grep -c '^kind: ' "$W/default.yaml")" 10
expect "kinds with all" "$(grep -c '^kind: ' "$W/all.yaml")" 15
grep -q '^    osd_memory_target = 4G' "$W/all.yaml"
for wrong in osd.replicas=0 osd.replicas=three osd.storage.size=big mds.replicas=5 monitor.replicas=3 \
  image.pullPolicy=No config.osd.Memory=1 monitor.address=mon.example osds.replicas=3; do
  if render --set "$wrong" >/dev/null 2>"$W/why"; then echo "not refused: $wrong"; exit 1; fi
  grep -q "values don't meet the specifications of the schema" "$W/why" || { cat "$W/why"; exit 1; }
done

if [ -n "$KUBECONFORM" ] && [ -n "$SWAGGER" ]; then
  for f in default all; do
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

unshare --net --mount python3 "$ROOT/interop/py/chart_cluster.py" "$W/run.yaml" store-belemnite "$BIN" "$W" ||
  { tail -n 15 "$W"/*.log; exit 1; }
