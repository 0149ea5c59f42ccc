{{- define "etcd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains "etcd" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-etcd" (.Release.Name | trunc 47) -}}
{{- end -}}
{{- end -}}

{{- define "etcd.selectorLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/name: etcd
{{- end -}}

{{- define "etcd.labels" -}}
{{ include "etcd.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Values.image.tag | trunc 63 | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The domain under which the headless Service publishes SRV records. */ -}}
{{- define "etcd.domain" -}}
{{ include "etcd.fullname" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "etcd.listenHost" -}}
{{ if eq .Values.ipFamily "IPv6" }}[::]{{ else }}0.0.0.0{{ end }}
{{- end -}}

{{- define "etcd.scheme" -}}
{{ if .Values.tls.enabled }}https{{ else }}http{{ end }}
{{- end -}}

{{- /* The port names are the labels of the SRV records. */ -}}
{{- define "etcd.portSuffix" -}}
{{ if .Values.tls.enabled }}-ssl{{ end }}
{{- end -}}

{{- define "etcd.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{ .Values.tls.existingSecret }}
{{- else if .Values.tls.issuerRef -}}
{{ include "etcd.fullname" . }}-tls
{{- else -}}
{{ fail "tls.enabled needs tls.existingSecret or tls.issuerRef" }}
{{- end -}}
{{- end -}}

{{- define "etcd.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "etcd.config" -}}
# etcd's own configuration, the same for every member.
discovery-srv: {{ include "etcd.domain" . | quote }}
initial-cluster-token: {{ default (include "etcd.domain" .) .Values.initialClusterToken | quote }}
data-dir: /var/lib/etcd/data
listen-peer-urls: {{ include "etcd.scheme" . }}://{{ include "etcd.listenHost" . }}:2380
listen-client-urls: {{ include "etcd.scheme" . }}://{{ include "etcd.listenHost" . }}:2379
listen-metrics-urls: http://{{ include "etcd.listenHost" . }}:2381
{{- if .Values.tls.enabled }}
{{- range list "peer-transport-security" "client-transport-security" }}
{{ . }}:
  cert-file: /etc/etcd-tls/tls.crt
  key-file: /etc/etcd-tls/tls.key
  trusted-ca-file: /etc/etcd-tls/ca.crt
  client-cert-auth: true
{{- end }}
{{- end }}
{{- range $key, $value := .Values.config }}
{{- if not (kindIs "invalid" $value) }}
{{ $key }}: {{ $value | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* An image, from a mirror if image.registry names one, by digest if it has one. */ -}}
{{- define "etcd.image" -}}
{{- $repository := .repository -}}
{{- if .registry -}}
{{- $repository = printf "%s/%s" .registry (regexReplaceAll "^[^/]*[.:][^/]*/" .repository "") -}}
{{- end -}}
{{- if .digest -}}
{{ $repository }}@{{ .digest }}
{{- else -}}
{{ $repository }}:{{ .tag }}
{{- end -}}
{{- end -}}

{{- /* What contradicts etcdinit, in words; values.schema.json has the types. */ -}}
{{- define "etcd.validate" -}}
{{- if not (kindIs "invalid" .Values.replicaCount) -}}
{{- fail "replicaCount: this chart calls it members, because it is the number of members of a new cluster: set members instead" -}}
{{- end -}}
{{- range $key, $value := .Values.config -}}
{{- if has $key (list "peer-transport-security" "client-transport-security") -}}
{{- fail (printf "config.%s: TLS is set with tls.enabled and tls.existingSecret or tls.issuerRef" $key) -}}
{{- else if or (hasPrefix "initial-" $key) (hasPrefix "listen-" $key) (has $key (list "name" "data-dir" "wal-dir" "discovery-srv" "discovery-srv-name" "discovery" "force-new-cluster" "advertise-client-urls")) -}}
{{- fail (printf "config.%s: remove it. The configuration is the same for every member, and etcdinit and this chart set who a member is and where it listens" $key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.etcdinit.exec (eq .Values.image.repository "gcr.io/etcd-development/etcd") -}}
{{- fail "etcdinit.exec needs an image with both programs: set image.repository (deploy/kubernetes/README.md, One container a member)" -}}
{{- end -}}
{{- if and .Values.tls.enabled .Values.tls.existingSecret .Values.tls.issuerRef -}}
{{- fail "tls.existingSecret and tls.issuerRef: set one of the two" -}}
{{- end -}}
{{- end -}}

{{- /* What an empty member does where its cluster runs, and what a new cluster begins with. */ -}}
{{- define "etcd.running" -}}
- name: ETCDINIT_IF_RUNNING
  valueFrom: {configMapKeyRef: {name: {{ include "etcd.fullname" . }}, key: if-running, optional: true}}
- name: ETCDINIT_REPLACE_AFTER
  valueFrom: {configMapKeyRef: {name: {{ include "etcd.fullname" . }}, key: replace-after, optional: true}}
{{- if not .Values.etcdinit.exec }}
- name: ETCDINIT_ETCD_VERSION
  valueFrom: {configMapKeyRef: {name: {{ include "etcd.fullname" . }}, key: etcd-version, optional: true}}
{{- end }}
- name: ETCDINIT_RESTORE_SNAPSHOT
  valueFrom: {configMapKeyRef: {name: {{ include "etcd.fullname" . }}, key: restore-snapshot, optional: true}}
{{- end -}}
