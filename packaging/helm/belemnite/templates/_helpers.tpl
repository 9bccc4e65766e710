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

{{- /* The container that writes this pod's ceph.conf before the others start. */ -}}
{{- define "belemnite.configContainer" -}}
- name: config
  {{- include "belemnite.image" . | nindent 2 }}
  command: [/bin/sh, /files/config.sh]
  env:
    - { name: MON_ADDRESS, value: {{ .Values.monitor.address | quote }} }
    - { name: MON_SERVICE, value: {{ printf "%s-mon" (include "belemnite.name" .) | quote }} }
    - { name: NODE, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
    - { name: POD, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
    - { name: POD_IP, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
  securityContext: {{- include "belemnite.locked" . | nindent 4 }}
  volumeMounts:
    - { name: files, mountPath: /files, readOnly: true }
    - { name: keys, mountPath: /keys, readOnly: true }
    - { name: etc-ceph, mountPath: /etc/ceph }
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
