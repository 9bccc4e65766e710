{{- define "belemnite.name" -}}
{{- if contains "belemnite" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-belemnite" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "belemnite.selector" -}}
app.kubernetes.io/name: belemnite
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "belemnite.labels" -}}
{{ include "belemnite.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "belemnite.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "belemnite.cephImage" -}}
image: {{ printf "%s:%s" .Values.cephImage.repository .Values.cephImage.tag | quote }}
imagePullPolicy: {{ .Values.cephImage.pullPolicy }}
{{- end }}

{{- /* Where pods may run: the values of a kind of daemon. */ -}}
{{- define "belemnite.place" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "belemnite.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "belemnite.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- /* Not empty: several monitors, whose state is in etcd. */ -}}
{{- define "belemnite.several" -}}
{{- if gt (int .Values.monitor.replicas) 1 }}yes{{ end }}
{{- end }}

{{- /* Members of etcd, as monitors name them. */ -}}
{{- define "belemnite.etcdUrls" -}}
{{- $etcd := printf "%s-etcd" (include "belemnite.name" .) -}}
{{- range $k := until (int .Values.monitor.replicas) }}{{ if $k }},{{ end }}https://{{ $etcd }}-{{ $k }}.{{ $etcd }}.{{ $.Release.Namespace }}.svc:2379{{ end }}
{{- end }}

{{- /* The Service of a monitor: the context, and its number. */ -}}
{{- define "belemnite.monService" -}}
{{- include "belemnite.name" (index . 0) }}-mon{{ with index . 1 }}-{{ index (list "a" "b" "c" "d" "e") . }}{{ end }}
{{- end }}

{{- /* One for each monitor: the context, the value for a single one, the list for several, and their names. */ -}}
{{- define "belemnite.each" -}}
{{- $top := index . 0 }}{{ $one := index . 1 }}{{ $all := index . 2 -}}
{{- $n := int $top.Values.monitor.replicas -}}
{{- if and $one $all }}{{ fail (printf "%s and %s are both set" (index . 3) (index . 4)) }}{{ end -}}
{{- if and $one (gt $n 1) }}{{ fail (printf "%s is for one monitor; with several, name all of them in %s" (index . 3) (index . 4)) }}{{ end -}}
{{- if and $all (ne (len $all) $n) }}{{ fail (printf "%s has %d entries, monitor.replicas is %d" (index . 4) (len $all) $n) }}{{ end -}}
{{- if $one }}{{ list $one | toJson }}{{ else }}{{ $all | toJson }}{{ end -}}
{{- end }}

{{- define "belemnite.addresses" -}}
{{- include "belemnite.each" (list . .Values.monitor.address .Values.monitor.addresses "monitor.address" "monitor.addresses") }}
{{- end }}

{{- /* Monitors for config.sh: id, Service, address. */ -}}
{{- define "belemnite.monitors" -}}
{{- $addresses := include "belemnite.addresses" . | fromJsonArray -}}
{{- range $k := until (int .Values.monitor.replicas) }}
{{ index (list "a" "b" "c" "d" "e") $k }} {{ include "belemnite.monService" (list $ $k) }}{{ if $addresses }} {{ index $addresses $k }}{{ end }}
{{- end }}
{{- end }}

{{- /* Pods of some components on different nodes, as far as possible: the values of a kind of daemon, the context, the components. */ -}}
{{- define "belemnite.apart" -}}
{{- $values := index . 0 }}{{ $top := index . 1 -}}
{{- include "belemnite.place" $values }}
{{- if and (not $values.affinity) (include "belemnite.several" $top) }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector: {{- include "belemnite.components" (list $top (rest (rest .))) | nindent 12 }}
{{- end }}
{{- end }}

{{- /* A selector of the pods of some components: the context, the list. */ -}}
{{- define "belemnite.components" -}}
matchLabels: {{- include "belemnite.selector" (index . 0) | nindent 2 }}
matchExpressions:
  - { key: app.kubernetes.io/component, operator: In, values: {{ index . 1 | toJson }} }
{{- end }}

{{- /* The container that writes this pod's ceph.conf before the others start; `mon.conf` is for monitors. */ -}}
{{- define "belemnite.configContainer" -}}
{{ include "belemnite.configContainerOf" (list .) }}
{{- end }}

{{- define "belemnite.configContainerOf" -}}
{{- $more := rest . }}{{ with index . 0 -}}
- name: config
  {{- include "belemnite.image" . | nindent 2 }}
  command: {{ concat (list "/bin/sh" "/files/config.sh") $more | toJson }}
  env:
    - { name: NODE, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
    - { name: POD, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
    - { name: POD_IP, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
  securityContext: {{- include "belemnite.locked" . | nindent 4 }}
  volumeMounts:
    - { name: files, mountPath: /files, readOnly: true }
    - { name: keys, mountPath: /keys, readOnly: true }
    - { name: etc-ceph, mountPath: /etc/ceph }
{{- end }}
{{- end }}

{{- define "belemnite.mounts" -}}
- { name: keys, mountPath: /keys, readOnly: true }
- { name: etc-ceph, mountPath: /etc/ceph, readOnly: true }
- { name: run-ceph, mountPath: /run/ceph }
- { name: tmp, mountPath: /tmp }
{{- end }}

{{- /* Volumes of a pod: the context, and the names of the keyrings that it gets. */ -}}
{{- define "belemnite.volumes" -}}
{{- $top := index . 0 -}}
- name: files
  configMap: { name: {{ include "belemnite.name" $top }} }
- name: keys
  secret:
    secretName: {{ include "belemnite.name" $top }}-keys
    defaultMode: 0440
    items:
      - { key: fsid, path: fsid }
      {{- range rest . }}
      - { key: {{ . }}.keyring, path: {{ . }}.keyring }
      {{- end }}
- { name: etc-ceph, emptyDir: {} }
- { name: run-ceph, emptyDir: {} }
- { name: tmp, emptyDir: {} }
{{- end }}

{{- /* Refuses what a release cannot become, as far as Helm sees what runs. */ -}}
{{- define "belemnite.check" -}}
{{- $n := int .Values.monitor.replicas -}}
{{- $etcd := lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-etcd" (include "belemnite.name" .)) -}}
{{- if $etcd }}{{ if gt (int $etcd.spec.replicas) $n }}
{{- fail (printf "monitor.replicas is %d in this release and cannot become %d: it can only grow" (int $etcd.spec.replicas) $n) }}
{{- end }}{{ end }}
{{- if and (gt $n 1) (hasKey .Values.config.mon "mon_state_etcd") }}
{{- fail "config.mon.mon_state_etcd is set by the chart when monitor.replicas is above 1" }}
{{- end }}
{{- end }}

{{- /* Changes with everything that a monitor reads at its start. */ -}}
{{- define "belemnite.monChecksum" -}}
{{- printf "%s%s%s" (tpl (.Files.Get "files/ceph.conf") .) (tpl (.Files.Get "files/mon.conf") .) (include "belemnite.monitors" .) | sha256sum }}
{{- end }}

{{- /* What the container of a monitor has beside its command. */ -}}
{{- define "belemnite.monServes" -}}
ports:
  - { name: msgr2, containerPort: 3300 }
  - { name: mgr, containerPort: 3301 }
  - { name: metrics, containerPort: 9283 }
readinessProbe: { tcpSocket: { port: msgr2 }, periodSeconds: 5 }
resources: {{- toYaml .Values.monitor.resources | nindent 2 }}
securityContext: {{- include "belemnite.locked" . | nindent 2 }}
{{- end }}

{{- define "belemnite.monMounts" -}}
{{ include "belemnite.mounts" . }}
{{- if include "belemnite.several" . }}
- { name: tls, mountPath: /tls, readOnly: true }
{{- end }}
{{- end }}

{{- define "belemnite.monVolumes" -}}
{{ include "belemnite.volumes" (list . "admin" "cluster") }}
{{- if include "belemnite.several" . }}
- name: tls
  secret:
    secretName: {{ include "belemnite.name" . }}-etcd
    defaultMode: 0440
    items:
      - { key: ca.crt, path: ca.crt }
      - { key: mon.crt, path: mon.crt }
      - { key: mon.key, path: mon.key }
{{- end }}
{{- end }}
