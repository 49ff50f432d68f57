{{/* The prefix of all names; leaves room for -headless within 63 bytes. */}}
{{- define "aftd.name" -}}
{{- $default := ternary .Release.Name (printf "%s-aftd" .Release.Name) (contains "aftd" .Release.Name) -}}
{{- default $default .Values.fullnameOverride | trunc 54 | trimSuffix "-" -}}
{{- end -}}

{{- define "aftd.selector" -}}
app.kubernetes.io/name: aftd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "aftd.labels" -}}
{{ include "aftd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "aftd.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{/* Non-empty if there are keys, or TLS. */}}
{{- define "aftd.keysSecret" -}}
{{- if .Values.keys.existingSecret -}}
{{ .Values.keys.existingSecret }}
{{- else if .Values.keys.file -}}
{{ include "aftd.name" . }}-keys
{{- end -}}
{{- end -}}

{{- define "aftd.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{ .Values.tls.existingSecret }}
{{- else if .Values.tls.certificate -}}
{{ include "aftd.name" . }}-tls
{{- end -}}
{{- end -}}

{{/* Empty: the namespace's default. */}}
{{- define "aftd.serviceAccountName" -}}
{{- default (ternary (include "aftd.name" .) "" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* The port of sessions.redis. */}}
{{- define "aftd.redisPort" -}}
{{- regexReplaceAll "^redis://.*?(:([0-9]+))?(/[0-9]*)?$" .Values.sessions.redis "${2}" | default "6379" -}}
{{- end -}}

{{/* The source of the models' volume as JSON; {} for those of the image. */}}
{{- define "aftd.modelsVolume" -}}
{{- $source := .Values.models.volume -}}
{{- $claim := ternary (printf "%s-models" (include "aftd.name" .)) .Values.models.existingClaim .Values.models.claim.create -}}
{{- if $claim -}}
{{- $source = dict "persistentVolumeClaim" (dict "claimName" $claim "readOnly" true) -}}
{{- end -}}
{{- toJson $source -}}
{{- end -}}

{{/* Seconds from SIGTERM to SIGKILL: the two of draining, and the 15 that the daemon may take after them to end
     (STOP_MS_MAX in server/main.c). No preStop hook waits before: the daemon itself accepts requests for
     drain_delay_ms, and no probe is ready from the first moment. */}}
{{- define "aftd.gracePeriod" -}}
{{- $ms := add (int .Values.config.drain_delay_ms) (int .Values.config.drain_timeout_ms) -}}
{{- add (div (add $ms 999) 1000) 15 -}}
{{- end -}}

{{/* The names of services, which clients may ask for: NAME, NAME.NAMESPACE, ... */}}
{{- define "aftd.hosts" -}}
{{- $names := list "auto" -}}
{{- $services := list (include "aftd.name" .) (printf "%s-headless" (include "aftd.name" .)) -}}
{{- if .Values.admin.expose -}}
{{- $services = append $services (printf "%s-admin" (include "aftd.name" .)) -}}
{{- end -}}
{{- range $services -}}
{{- $inside := printf "%s.%s" . $.Release.Namespace -}}
{{- $whole := printf "%s.svc.%s" $inside $.Values.clusterDomain -}}
{{- $names = concat $names (list . $inside (printf "%s.svc" $inside) $whole) -}}
{{- end -}}
{{- if .Values.ingress.enabled -}}
{{- range .Values.ingress.hosts -}}
{{- $names = append $names .host -}}
{{- end -}}
{{- end -}}
{{- join "," (concat $names .Values.hosts) -}}
{{- end -}}

{{/* aftd.json: the values of config, and what follows from others. */}}
{{- define "aftd.settings" -}}
{{- $own := dict "hosts" (include "aftd.hosts" .) "metrics_address" .Values.config.listen_address -}}
{{- $_ := set $own "admin_address" (ternary .Values.config.listen_address "127.0.0.1" .Values.admin.expose) -}}
{{- $inVolume := trimSuffix "/" (printf "/models/%s" (trimAll "/" .Values.models.subfolder)) -}}
{{- $inImage := eq (include "aftd.modelsVolume" .) "{}" -}}
{{- $_ := set $own "models_dir" (ternary "/usr/share/aftd/models" $inVolume $inImage) -}}
{{- if include "aftd.keysSecret" . -}}
{{- $_ := set $own "keys_file" "/etc/aftd-keys/keys.json" -}}
{{- end -}}
{{- if include "aftd.tlsSecret" . -}}
{{- $_ := set $own "tls_certificate" "/etc/aftd-tls/tls.crt" -}}
{{- $_ := set $own "tls_key" "/etc/aftd-tls/tls.key" -}}
{{- end -}}
{{- with .Values.sessions.redis -}}
{{- $_ := set $own "sessions_redis" . -}}
{{- if $.Values.sessions.passwordSecret.name -}}
{{- $_ := set $own "sessions_redis_password_file" "/etc/aftd-redis/password" -}}
{{- end -}}
{{- end -}}
{{- merge $own .Values.config | toPrettyJson -}}
{{- end -}}

{{/* The same for KServe, whose gateway speaks TLS, and whose pods have one port and one model, which flags name. */}}
{{- define "aftd.kserveSettings" -}}
{{- $namespace := .Release.Namespace -}}
{{- $names := list "auto" (printf "*.%s" $namespace) (printf "*.%s.svc" $namespace) -}}
{{- $names = append $names (printf "*.%s.svc.%s" $namespace .Values.clusterDomain) -}}
{{- $names = append $names (printf "*.%s" .Values.kserve.domain) -}}
{{- $own := dict "hosts" (join "," (concat $names .Values.hosts)) "models_dir" "off" -}}
{{- if include "aftd.keysSecret" . -}}
{{- $_ := set $own "keys_file" "/etc/aftd-keys/keys.json" -}}
{{- end -}}
{{- merge $own .Values.config | toPrettyJson -}}
{{- end -}}

{{- define "aftd.securityContext" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}
