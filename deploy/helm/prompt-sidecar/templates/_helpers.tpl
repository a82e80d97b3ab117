{{- define "prompt-sidecar.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "prompt-sidecar.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "prompt-sidecar.labels" -}}
{{ include "prompt-sidecar.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "prompt-sidecar.keySecret" -}}
{{- .Values.key.existingSecret | default (printf "%s-key" (include "prompt-sidecar.name" .)) -}}
{{- end -}}

{{- define "prompt-sidecar.tokensSecret" -}}
{{- if .Values.auth.tokens.existingSecret -}}
{{- .Values.auth.tokens.existingSecret -}}
{{- else if .Values.auth.tokens.create -}}
{{- printf "%s-tokens" (include "prompt-sidecar.name" .) -}}
{{- end -}}
{{- end -}}

{{- define "prompt-sidecar.storeUrl" -}}
{{- if .Values.store.url -}}
{{- .Values.store.url -}}
{{- else if .Values.store.valkey.enabled -}}
{{- printf "valkey://%s-valkey:6379/0" (include "prompt-sidecar.name" .) -}}
{{- end -}}
{{- end -}}

{{- define "prompt-sidecar.check" -}}
{{- if not (or .Values.doors.grpc.enabled .Values.doors.http.enabled .Values.doors.envoy.enabled) -}}
{{- fail "enable one of doors.grpc, doors.http and doors.envoy: no agent could reach the sidecar" -}}
{{- end -}}
{{- if and .Values.auth.tls.clientCertificates (not .Values.auth.tls.existingSecret) -}}
{{- fail "auth.tls.clientCertificates needs auth.tls.existingSecret with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- if not (or (include "prompt-sidecar.tokensSecret" .) .Values.auth.tls.clientCertificates) -}}
{{- fail "nobody would be authenticated: set auth.tokens.create, auth.tokens.existingSecret, or auth.tls with clientCertificates" -}}
{{- end -}}
{{- if not (or .Values.key.create .Values.key.existingSecret) -}}
{{- fail "pods need one key: set key.create or key.existingSecret" -}}
{{- end -}}
{{- if and .Values.store.url .Values.store.valkey.enabled -}}
{{- fail "store.url and store.valkey.enabled are two stores: set one" -}}
{{- end -}}
{{- if and .Values.admin.enabled (not .Values.admin.tokensSecret) -}}
{{- fail "admin.enabled needs admin.tokensSecret, a Secret with the entry tokens" -}}
{{- end -}}
{{- $grace := max (int .Values.shutdown.graceSeconds) (int .Values.shutdown.streamGraceSeconds) -}}
{{- if lt (int .Values.shutdown.terminationSeconds) (add (int .Values.shutdown.preStopSeconds) $grace 5 | int) -}}
{{- fail "shutdown.terminationSeconds must be at least preStopSeconds + 5 + the longer of graceSeconds and streamGraceSeconds" -}}
{{- end -}}
{{- end -}}

{{- /* Three quarters of the container's memory: the rest is for connections and copies. Accepts Mi and Gi. */ -}}
{{- define "prompt-sidecar.valkeyBytes" -}}
{{- $memory := .Values.store.valkey.memory -}}
{{- if hasSuffix "Gi" $memory -}}
{{- mul (trimSuffix "Gi" $memory | int) 768 -}}mb
{{- else -}}
{{- div (mul (trimSuffix "Mi" $memory | int) 3) 4 -}}mb
{{- end -}}
{{- end -}}
