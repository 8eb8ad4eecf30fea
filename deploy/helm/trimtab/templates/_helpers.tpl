{{/* The release's name, with the chart's name appended unless it contains it. */}}
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

{{/* The brokers' ports, from the bootstrap servers. */}}
{{- define "trimtab.brokerPorts" -}}
{{- $ports := list -}}
{{- range splitList "," .Values.kafka.bootstrap }}{{ $ports = append $ports (splitList ":" (trim .) | last) }}{{ end -}}
{{- range uniq $ports }}
- {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end -}}

{{/* Checks whose errors the schema cannot word plainly. */}}
{{- define "trimtab.checks" -}}
{{- $wrong := list -}}
{{- range splitList "," .Values.kafka.bootstrap -}}
{{- if not (regexMatch "^[^:\\s].*:[0-9]{1,5}$" (trim .)) -}}
{{- $wrong = append $wrong (printf "kafka.bootstrap: %q has no port; write host:port, several parted by commas" (trim .)) -}}
{{- end -}}
{{- end -}}
{{- if not (regexMatch "^[0-9.]+ ?[kMGT]?i?B/s$" .Values.capacity) -}}
{{- $wrong = append $wrong (printf "capacity: %q is no rate; write one like 2.3 MB/s" .Values.capacity) -}}
{{- end -}}
{{- $owned := .Files.Get "files/settings.yaml" | fromYaml -}}
{{- $root := . -}}
{{- range $part := list "consumer" "sidecar" -}}
{{- range $name, $instead := index $owned $part -}}
{{- if hasKey (index $root.Values $part "settings") $name -}}
{{- $wrong = append $wrong (printf "%s.settings.%s is the chart's to set: %s" $part $name $instead) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.sidecar.settings -}}
{{- if not (or (has $name $owned.known) (hasKey $owned.sidecar $name)) -}}
{{- $wrong = append $wrong (printf "sidecar.settings.%s is not a setting of the sidecar; docs/sidecar.md has them" $name) -}}
{{- end -}}
{{- end -}}
{{- $settings := .Values.consumer.settings -}}
{{- $inside := regexMatch "^/lake(/|$)" (toString (index $settings "lake.warehouse")) -}}
{{- if and .Values.consumer.volume.enabled (or (not $inside) (index $settings "lake.catalog.uri") (index $settings "lake.storage")) -}}
{{- $wrong = append $wrong "consumer.volume.enabled: the volume is for tables and catalog in one folder; set consumer.settings.lake\\.warehouse=/lake and the settings lake.catalog.type, lake.catalog.uri and lake.storage to null, or leave the volume out" -}}
{{- end -}}
{{- if and $inside (not .Values.consumer.volume.enabled) -}}
{{- $wrong = append $wrong "consumer.settings.lake.warehouse is in /lake, where nothing can be written without a volume; set consumer.volume.enabled" -}}
{{- end -}}
{{- if and .Values.consumer.executors.enabled .Values.consumer.volume.enabled -}}
{{- $wrong = append $wrong "consumer.executors.enabled: executors cannot write to the volume of consumer.volume.enabled; put the tables into an object storage (consumer.settings.lake\\.storage), or leave one of the two out" -}}
{{- end -}}
{{- if and .Values.consumer.executors.enabled (eq (toString (index $settings "lake.file.writer")) "arrow") -}}
{{- $wrong = append $wrong "consumer.executors.enabled: with lake.file.writer=arrow the consumers write the files, and executors would be idle; leave one of the two out" -}}
{{- end -}}
{{- $own := or (index $settings "spark.jars") (index $settings "spark.jars.packages") (hasPrefix "hdfs:" (toString (index $settings "lake.warehouse"))) -}}
{{- if not (or .Values.consumer.volume.enabled (index $settings "lake.storage") $own) -}}
{{- $wrong = append $wrong "consumer.settings.lake.storage is not set: tables of consumers on several nodes are in an object storage, s3, gcs or azure; or set consumer.volume.enabled for a trial on one node" -}}
{{- end -}}
{{- if and .Values.shardTopic (not (include "trimtab.hasManyGroups" .)) -}}
{{- $wrong = append $wrong "shardTopic divides many groups among the sidecars; set groups, customResources.enabled or workloadSelector, too" -}}
{{- end -}}
{{- if and .Values.shardTopic .Values.keda.enabled -}}
{{- $wrong = append $wrong "shardTopic and keda.enabled: KEDA asks one sidecar, and another one may have the group; leave one of them out" -}}
{{- end -}}
{{- if and (gt (int .Values.sidecar.replicas) 3) (not .Values.shardTopic) -}}
{{- $wrong = append $wrong "sidecar.replicas is above 3, and all but one would stand by; set shardTopic, too" -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n- %s" (join "\n- " $wrong)) -}}
{{- end -}}
{{- end -}}

{{/* Scheme of a part's endpoint: HTTPS if its settings have a certificate. (dict "root" $ "part" "sidecar") */}}
{{- define "trimtab.scheme" -}}
{{- $certificate := dict "sidecar" "tls-certificate" "consumer" "trimtab.metrics.tls.certificate" -}}
{{- ternary "HTTPS" "HTTP" (not (empty (index .root.Values .part "settings" (index $certificate .part)))) -}}
{{- end -}}

{{/* Prometheus's endpoint of a part: (dict "root" $ "part" "sidecar" "port" "http") */}}
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
{{- if .Values.consumer.executors.enabled }}{{ $own = merge $own (include "trimtab.executorSettings" . | fromYaml) }}{{ end -}}
{{- range $name, $value := .Values.consumer.settings }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $own $name $value }}{{ end }}{{ end -}}
{{- toYaml $own -}}
{{- end -}}

{{/* Settings of Spark with pods as executors: see deploy/kustomize/overlays/spark-executors/ingest.yaml. */}}
{{- define "trimtab.executorSettings" -}}
lake.file.writer: spark
spark.master: k8s://https://kubernetes.default.svc
spark.executor.instances: 1
spark.executor.cores: 1
spark.executor.memory: 1g
spark.kubernetes.namespace: ${env:POD_NAMESPACE}
spark.kubernetes.container.image: {{ include "trimtab.image" (dict "root" $ "image" .Values.consumer.image) }}
spark.kubernetes.executor.podTemplateFile: /etc/trimtab/executor.yaml
spark.kubernetes.driver.pod.name: ${env:POD_NAME}
spark.driver.host: ${env:POD_IP}
spark.driver.port: 7078
spark.blockManager.port: 7079
spark.kubernetes.executor.disableConfigMap: true
spark.kubernetes.driver.service.deleteOnTermination: false
spark.kubernetes.driver.ownPersistentVolumeClaim: false
spark.kubernetes.driver.reusePersistentVolumeClaim: false
{{- end -}}

{{/* Template of the executors' pods: see deploy/kustomize/overlays/spark-executors/executor.yaml. */}}
{{- define "trimtab.executorPod" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "trimtab.selector" (dict "root" $ "part" "executor") | nindent 4 }}
    {{- with .Values.consumer.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "trimtab.name" . }}-consumer
  automountServiceAccountToken: false
  securityContext: {{- include "trimtab.podSecurity" . | nindent 4 }}
  containers:
    - name: executor
      command:
        - sh
        - -c
        - |
          {{- .Files.Get "files/executor.sh" | nindent 10 }}
      envFrom:
        - secretRef: {name: {{ .Values.consumer.storageCredentials }}, optional: true}
      securityContext: {{- include "trimtab.security" . | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 4Gi}
{{- end -}}

{{/* "true" if one sidecar manages more groups than the chart's own. */}}
{{- define "trimtab.hasManyGroups" -}}
{{- if or .Values.groups .Values.customResources.enabled .Values.workloadSelector }}true{{ end -}}
{{- end -}}

{{- define "trimtab.sidecarSettings" -}}
{{- $group := dict "group" .Values.group "topics" .Values.topics "capacity" .Values.capacity "target" (ternary "keda" "kubernetes" .Values.keda.enabled) "workload" (printf "deployment/%s-consumer" (include "trimtab.name" .)) -}}
{{- $own := dict "bootstrap" .Values.kafka.bootstrap "host" "0.0.0.0" "port" 8080 -}}
{{- if include "trimtab.hasManyGroups" . -}}
{{- $_ := set $own "groups" (prepend .Values.groups $group) -}}
{{- if .Values.customResources.enabled }}{{ $_ := set $own "custom-resources" true }}{{ end -}}
{{- with .Values.workloadSelector }}{{ $_ := set $own "workload-selector" . }}{{ end -}}
{{- with .Values.shardTopic }}{{ $_ := set $own "shard-topic" . }}{{ end -}}
{{- else -}}
{{- $own = merge $own $group -}}
{{- end -}}
{{- if .Values.keda.enabled }}{{ $_ := set $own "grpc-host" "0.0.0.0" }}{{ end -}}
{{- range $name, $value := .Values.sidecar.settings }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $own $name $value }}{{ end }}{{ end -}}
{{- toYaml $own -}}
{{- end -}}
