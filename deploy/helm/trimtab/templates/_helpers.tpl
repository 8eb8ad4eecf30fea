{{/* Names are the release's, with the chart's where the release does not say it. */}}
{{- define "trimtab.name" -}}
{{- ternary .Release.Name (printf "%s-trimtab" .Release.Name) (contains "trimtab" .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select a part's pods: (dict "root" $ "part" "consumer") */}}
{{- define "trimtab.selector" -}}
app.kubernetes.io/name: trimtab
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "trimtab.labels" -}}
{{ include "trimtab.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- define "trimtab.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "trimtab.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "trimtab.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* How a page is asked: https where its settings give it a certificate. (dict "root" $ "part" "sidecar") */}}
{{- define "trimtab.scheme" -}}
{{- $certificate := dict "sidecar" "tls-certificate" "consumer" "trimtab.metrics.tls.certificate" -}}
{{- ternary "HTTPS" "HTTP" (not (empty (index .root.Values .part "settings" (index $certificate .part)))) -}}
{{- end -}}

{{/* How Prometheus asks a part's page: (dict "root" $ "part" "sidecar" "port" "http") */}}
{{- define "trimtab.endpoint" -}}
{{- $tokens := dict "sidecar" "token-file" "consumer" "trimtab.metrics.token.file" -}}
{{- $more := index .root.Values.monitoring .part -}}
{{- $token := index $tokens .part -}}
{{- if and (index .root.Values .part "settings" $token) (not $more.authorization) -}}
{{- fail (printf "%s.settings has %s, so Prometheus needs the token: set monitoring.%s.authorization, as in {credentials: {name: %s, key: token}}" .part $token .part .root.Values.credentials) -}}
{{- end -}}
port: {{ .port }}
path: /metrics
interval: 15s
{{- if eq (include "trimtab.scheme" .) "HTTPS" }}
scheme: https
{{- end }}
{{- with $more.tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $more.authorization }}
authorization: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "trimtab.consumerSettings" -}}
{{- $own := dict "bootstrap.servers" .Values.kafka.bootstrap "group.id" .Values.group "topics" .Values.topics "trimtab.capacity" .Values.capacity "trimtab.metrics.host" "0.0.0.0" -}}
{{- range $name, $value := .Values.consumer.settings }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $own $name $value }}{{ end }}{{ end -}}
{{- toYaml $own -}}
{{- end -}}

{{- define "trimtab.sidecarSettings" -}}
{{- $own := dict "bootstrap" .Values.kafka.bootstrap "group" .Values.group "topics" .Values.topics "capacity" .Values.capacity "host" "0.0.0.0" "port" 8080 "target" (ternary "keda" "kubernetes" .Values.keda.enabled) "workload" (printf "deployment/%s-consumer" (include "trimtab.name" .)) -}}
{{- if .Values.keda.enabled }}{{ $_ := set $own "grpc-host" "0.0.0.0" }}{{ end -}}
{{- range $name, $value := .Values.sidecar.settings }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $own $name $value }}{{ end }}{{ end -}}
{{- toYaml $own -}}
{{- end -}}
