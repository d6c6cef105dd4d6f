{{/* Checks that a schema cannot express: contradicting values. Each message begins with the key. */}}

{{- define "quire.check" -}}
{{- $name := include "quire.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "fullnameOverride: set it to a name that a Service may have; %q must begin with a letter and hold only a-z, 0-9 and -" $name) -}}
{{- end -}}
{{- $model := .Values.model -}}
{{- $simulated := hasPrefix "simulated:" $model.path -}}
{{- if and $simulated (gt (int .Values.gpu.count) 0) -}}
{{- fail (printf "gpu.count: must be 0, as %s (model.path) computes nothing" $model.path) -}}
{{- end -}}
{{- if mod (int .Values.gpu.count) (int .Values.dataParallelSize) -}}
{{- fail (printf "gpu.count: must be a multiple of dataParallelSize (%d), because every engine gets the same number of GPUs" (int .Values.dataParallelSize)) -}}
{{- end -}}
{{- include "quire.checkModelByName" . -}}
{{- if and $model.existingClaim (not $model.name) -}}
{{- if not $model.path -}}
{{- fail (printf "model.path: name the model's directory under %s; with model.existingClaim alone the embedded model would be served" $model.mountPath) -}}
{{- end -}}
{{- if not (or $simulated (hasPrefix (printf "%s/" (trimSuffix "/" $model.mountPath)) (printf "%s/" (trimSuffix "/" $model.path)))) -}}
{{- fail (printf "model.path: %s is not under model.mountPath (%s), where model.existingClaim is mounted" $model.path $model.mountPath) -}}
{{- end -}}
{{- end -}}
{{- $update := .Values.updateStrategy -}}
{{- if and (eq $update.type "RollingUpdate") (has (toString $update.maxSurge) (list "0" "0%")) (has (toString $update.maxUnavailable) (list "0" "0%")) -}}
{{- fail "updateStrategy.maxUnavailable: must not be 0 where updateStrategy.maxSurge is 0: no pod could ever be replaced" -}}
{{- end -}}
{{- if not (kindIs "invalid" .Values.server.grpcPort) -}}
{{- if eq (int .Values.server.grpcPort) (int .Values.server.port) -}}
{{- fail "server.grpcPort: HTTP has this port (server.port); gRPC needs one of its own" -}}
{{- end -}}
{{- if eq (int .Values.service.grpcPort) (int .Values.service.port) -}}
{{- fail "service.grpcPort: HTTP has this port (service.port); gRPC needs one of its own" -}}
{{- end -}}
{{- end -}}
{{- if has (int .Values.admin.port) (list (int .Values.server.port) (int (default 0 .Values.server.grpcPort))) -}}
{{- fail "admin.port: HTTP or gRPC has this port (server.port, server.grpcPort); the admin API needs another one" -}}
{{- end -}}
{{- $store := .Values.store -}}
{{- if $store.existingClaim -}}
{{- if $store.existingSecret -}}
{{- fail "store.existingClaim: for the SQLite file, which store.existingSecret takes the place of" -}}
{{- end -}}
{{- if or (gt (int .Values.replicaCount) 1) (ne $update.type "Recreate") -}}
{{- fail "store.existingClaim: two pods must never open one SQLite file: replicaCount 1 and updateStrategy.type Recreate, or a PostgreSQL database (store.existingSecret)" -}}
{{- end -}}
{{- end -}}
{{- $monitor := .Values.metrics.serviceMonitor -}}
{{- if gt (include "quire.seconds" $monitor.scrapeTimeout | int) (include "quire.seconds" $monitor.interval | int) -}}
{{- fail (printf "metrics.serviceMonitor.scrapeTimeout: %s is longer than the interval, %s" $monitor.scrapeTimeout $monitor.interval) -}}
{{- end -}}
{{- if and $monitor.enabled .Values.auth.existingSecret (not (and $monitor.existingSecret .Values.admin.existingSecret)) -}}
{{- fail "metrics.serviceMonitor.existingSecret: with auth.existingSecret metrics are only on the admin port: name a Secret with an admin key, and set admin.existingSecret" -}}
{{- end -}}
{{- if and $monitor.enabled $monitor.existingSecret (not .Values.admin.existingSecret) -}}
{{- fail "metrics.serviceMonitor.existingSecret: Prometheus cannot reach the admin port unless admin.existingSecret is set" -}}
{{- end -}}
{{- $probes := .Values.probes -}}
{{- range $name := list "startup" "readiness" "liveness" -}}
{{- $probe := index $probes $name -}}
{{- if gt (int $probe.timeoutSeconds) (int $probe.periodSeconds) -}}
{{- fail (printf "probes.%s.timeoutSeconds: longer than periodSeconds" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Seconds of a duration such as 15s or 2m (the schema allows no other form). */}}
{{- define "quire.seconds" -}}
{{- if hasSuffix "m" . -}}
{{- mul 60 (trimSuffix "m" . | int) -}}
{{- else -}}
{{- trimSuffix "s" . | int -}}
{{- end -}}
{{- end -}}
