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
{{- if and (gt (div (int .Values.gpu.count) (int .Values.dataParallelSize)) 1) (not (or $model.path (index $model "name"))) -}}
{{- fail "gpu.count: the embedded demonstration model is too small to be split over GPUs: name a model in model.path, or set dataParallelSize to gpu.count" -}}
{{- end -}}
{{- if mod (int .Values.gpu.count) (int .Values.dataParallelSize) -}}
{{- fail (printf "gpu.count: must be a multiple of dataParallelSize (%d), because every engine gets the same number of GPUs" (int .Values.dataParallelSize)) -}}
{{- end -}}
{{- $bits := .Values.engine.quantization -}}
{{- if and $bits (ne (toString $bits) "none") (gt (div (int .Values.gpu.count) (int .Values.dataParallelSize)) 1) -}}
{{- fail (printf "engine.quantization: %s supports one GPU per engine: set dataParallelSize to gpu.count (%d), or serve a quantized checkpoint" $bits (int .Values.gpu.count)) -}}
{{- end -}}
{{- if and $bits (ne (toString $bits) "none") .Values.multiNode.enabled -}}
{{- fail (printf "engine.quantization: %s supports one GPU per engine, and multiNode has several: serve a quantized checkpoint" $bits) -}}
{{- end -}}
{{- include "quire.checkModelByName" . -}}
{{- include "quire.checkMultiNode" . -}}
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
{{- if include "quire.autoscaled" . -}}
{{- fail "store.existingClaim: an autoscaler would start a second pod, and two must never open one SQLite file: use a PostgreSQL database (store.existingSecret)" -}}
{{- end -}}
{{- if $store.existingSecret -}}
{{- fail "store.existingClaim: for the SQLite file, which store.existingSecret takes the place of" -}}
{{- end -}}
{{- if or (kindIs "invalid" .Values.replicaCount) (gt (int .Values.replicaCount) 1) (ne $update.type "Recreate") -}}
{{- fail "store.existingClaim: two pods must never open one SQLite file: replicaCount 1 and updateStrategy.type Recreate, or a PostgreSQL database (store.existingSecret)" -}}
{{- end -}}
{{- end -}}
{{- include "quire.checkMonitoring" . -}}
{{- include "quire.checkAutoscaling" . -}}
{{- include "quire.checkGateway" . -}}
{{- $probes := .Values.probes -}}
{{- range $name := list "startup" "readiness" "liveness" -}}
{{- $probe := index $probes $name -}}
{{- if gt (int $probe.timeoutSeconds) (int $probe.periodSeconds) -}}
{{- fail (printf "probes.%s.timeoutSeconds: longer than periodSeconds" $name) -}}
{{- end -}}
{{- end -}}
{{- include "quire.checkContainers" . -}}
{{- include "quire.checkVolumes" . -}}
{{- include "quire.checkAuditLog" . -}}
{{- include "quire.checkClaims" . -}}
{{- include "quire.checkResources" (dict "key" "resources" "resources" .Values.resources) -}}
{{- include "quire.checkResources" (dict "key" "dashboard.resources" "resources" .Values.dashboard.resources) -}}
{{- include "quire.checkSharedMemory" . -}}
{{- include "quire.checkIPFamilies" (dict "key" "service" "service" .Values.service) -}}
{{- include "quire.checkIPFamilies" (dict "key" "dashboard.service" "service" .Values.dashboard.service) -}}
{{- end -}}

{{- define "quire.checkIPFamilies" -}}
{{- if and (gt (len .service.ipFamilies) 1) (not (has (toString .service.ipFamilyPolicy) (list "PreferDualStack" "RequireDualStack"))) -}}
{{- fail (printf "%s.ipFamilyPolicy: must be PreferDualStack or RequireDualStack where %s.ipFamilies has two" .key .key) -}}
{{- end -}}
{{- end -}}

{{- define "quire.checkMonitoring" -}}
{{- $metrics := .Values.metrics -}}
{{- if and $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled -}}
{{- fail "metrics.podMonitor.enabled: metrics.serviceMonitor is enabled, too; both would scrape every pod twice" -}}
{{- end -}}
{{- range $name := list "serviceMonitor" "podMonitor" -}}
{{- $monitor := index $metrics $name -}}
{{- if gt (include "quire.seconds" $monitor.scrapeTimeout | int) (include "quire.seconds" $monitor.interval | int) -}}
{{- fail (printf "metrics.%s.scrapeTimeout: %s is longer than the interval, %s" $name $monitor.scrapeTimeout $monitor.interval) -}}
{{- end -}}
{{- $keys := include "quire.keysFrom" $ -}}
{{- if and $monitor.enabled $keys (not (and $monitor.existingSecret $.Values.admin.existingSecret)) -}}
{{- fail (printf "metrics.%s.existingSecret: with %s metrics are only on the admin port: name a Secret with an admin key, and set admin.existingSecret" $name $keys) -}}
{{- end -}}
{{- if and $monitor.enabled $monitor.existingSecret (not $.Values.admin.existingSecret) -}}
{{- fail (printf "metrics.%s.existingSecret: Prometheus cannot reach the admin port unless admin.existingSecret is set" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "quire.checkAutoscaling" -}}
{{- with .Values.autoscaling -}}
{{- if and .hpa.enabled .keda.enabled -}}
{{- fail "autoscaling.keda.enabled: autoscaling.hpa is enabled, too; the two would work against each other" -}}
{{- end -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail "autoscaling.minReplicas: more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and .keda.enabled (not .keda.prometheusAddress) -}}
{{- fail "autoscaling.keda.prometheusAddress: KEDA asks Prometheus: give its URL" -}}
{{- end -}}
{{- if and .keda.enabled (not (or $.Values.metrics.serviceMonitor.enabled $.Values.metrics.podMonitor.enabled)) -}}
{{- fail "autoscaling.keda.enabled: its queries read what metrics.serviceMonitor or metrics.podMonitor scrape: enable one" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "quire.checkGateway" -}}
{{- with .Values.gateway -}}
{{- if and .httpRoute.enabled (not .httpRoute.parentRefs) -}}
{{- fail "gateway.httpRoute.parentRefs: name the Gateway" -}}
{{- end -}}
{{- if .inferencePool.enabled -}}
{{- if not .inferencePool.endpointPicker -}}
{{- fail "gateway.inferencePool.endpointPicker: name the Service of the endpoint picker" -}}
{{- end -}}
{{- if ne (toString $.Values.api.metricsAliases) "vllm" -}}
{{- fail "gateway.inferencePool.enabled: the endpoint picker reads vLLM's names: set api.metricsAliases to vllm" -}}
{{- end -}}
{{- with include "quire.keysFrom" $ -}}
{{- fail (printf "gateway.inferencePool.enabled: the endpoint picker reads /metrics of the API's port, which is closed with %s: check keys in the gateway" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Containers of one's own: a pod has each name once, over containers and init containers. */}}
{{- define "quire.checkContainers" -}}
{{- $taken := dict "quire" "the chart already has a container of this name" -}}
{{- if index .Values.model "name" -}}
{{- $_ := set $taken "model" "the chart already has a container of this name" -}}
{{- end -}}
{{- range $key := list "initContainers" "sidecars" -}}
{{- range index $.Values $key -}}
{{- if hasKey $taken .name -}}
{{- fail (printf "%s: %s: %s" $key (index $taken .name) .name) -}}
{{- end -}}
{{- $_ := set $taken .name (printf "another of %s has this name" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Volumes and mounts of one's own: each mount has a volume, and nothing is there twice. */}}
{{- define "quire.checkVolumes" -}}
{{- $reserved := list "home" "tmp" "shm" "model" "store" "cache" "secrets" "hub-token" -}}
{{- $volumes := list -}}
{{- range .Values.extraVolumes -}}
{{- if has .name $reserved -}}
{{- fail (printf "extraVolumes: the chart has a volume of this name: %s" .name) -}}
{{- end -}}
{{- if has .name $volumes -}}
{{- fail (printf "extraVolumes: %s is there twice" .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $model := .Values.model.mountPath -}}
{{- $taken := dict "/" "the container's root" "/tmp" "scratch" "/home/quire" "scratch" "/dev/shm" "sharedMemory" "/etc/quire/secrets" "Secrets" -}}
{{- if hasKey $taken $model -}}
{{- fail (printf "model.mountPath: %s is taken by %s" $model (index $taken $model)) -}}
{{- end -}}
{{- range list "/bin" "/boot" "/dev" "/etc" "/lib" "/lib64" "/opt" "/proc" "/run" "/sbin" "/sys" "/usr" "/var/run" -}}
{{- if hasPrefix (printf "%s/" .) (printf "%s/" $model) -}}
{{- fail (printf "model.mountPath: %s would hide files of the container (%s)" $model .) -}}
{{- end -}}
{{- end -}}
{{- if .Values.model.existingClaim -}}
{{- $_ := set $taken $model "model.existingClaim" -}}
{{- else if .Values.model.name -}}
{{- $_ := set $taken $model "model.name" -}}
{{- end -}}
{{- if .Values.kernelCache.existingClaim -}}
{{- $_ := set $taken "/home/quire/.cache" "kernelCache.existingClaim" -}}
{{- end -}}
{{- if .Values.store.existingClaim -}}
{{- $_ := set $taken "/home/quire/.local/state/quire" "store.existingClaim" -}}
{{- end -}}
{{- range .Values.extraVolumeMounts -}}
{{- $path := trimSuffix "/" .mountPath -}}
{{- if not (has .name $volumes) -}}
{{- fail (printf "extraVolumeMounts: %s is not in extraVolumes" .name) -}}
{{- end -}}
{{- if hasKey $taken $path -}}
{{- fail (printf "extraVolumeMounts: %s is taken by %s" $path (index $taken $path)) -}}
{{- end -}}
{{- $_ := set $taken $path "another of extraVolumeMounts" -}}
{{- end -}}
{{- end -}}

{{/* The audit log is where the server may write. A relative path is in its home. */}}
{{- define "quire.checkAuditLog" -}}
{{- $file := .Values.api.auditLog -}}
{{- if and $file .Values.securityContext.readOnlyRootFilesystem -}}
{{- $writable := dict "/home/quire" true "/tmp" true "/dev" true (trimSuffix "/" .Values.model.mountPath) false -}}
{{- range .Values.extraVolumeMounts -}}
{{- $_ := set $writable (trimSuffix "/" .mountPath) (not .readOnly) -}}
{{- end -}}
{{- $mount := "" -}}
{{- range $path, $_ := $writable -}}
{{- if and (hasPrefix (printf "%s/" $path) $file) (gt (len $path) (len $mount)) -}}{{- $mount = $path -}}{{- end -}}
{{- end -}}
{{- if and (hasPrefix "/" $file) (not (dig $mount false $writable)) -}}
{{- fail (printf "api.auditLog: %s cannot be written: put it under /home/quire, /tmp or a mount of extraVolumeMounts that is not readOnly" $file) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* No limit is below its request: (dict "key" "resources" "resources" …). */}}
{{- define "quire.checkResources" -}}
{{- $limits := .resources.limits | default dict -}}
{{- $key := .key -}}
{{- range $name, $request := .resources.requests -}}
{{- if hasKey $limits $name -}}
{{- $limit := index $limits $name -}}
{{- if lt (include "quire.milli" $limit | int64) (include "quire.milli" $request | int64) -}}
{{- fail (printf "%s.limits.%s: %v is less than the request, %v" $key $name $limit $request) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "quire.checkSharedMemory" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources -}}
{{- if and .Values.sharedMemory.enabled $limit -}}
{{- if gt (include "quire.milli" .Values.sharedMemory.size | int64) (include "quire.milli" $limit | int64) -}}
{{- fail (printf "sharedMemory.size: %s is more than resources.limits.memory (%v), of which it is a part" .Values.sharedMemory.size $limit) -}}
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
