{{/* The server container: arguments, environment, resources, probes. */}}

{{/* A value as one command-line word. Numbers from a values file arrive as floats, and a large one
would be written with an exponent. */}}
{{- define "quire.word" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if and (kindIs "float64" .) (eq (float64 .) (floor .)) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* The arguments as a YAML list. For a null value the flag is omitted, so the server's default applies. */}}
{{- define "quire.serverArgs" -}}
{{- $values := .Values -}}
{{- $onGpu := gt (int $values.gpu.count) 0 -}}
{{- $args := list "serve" -}}
{{- if $values.model.name -}}
{{- $args = concat $args (include "quire.modelByNameArgs" $values.model | fromYamlArray) -}}
{{- else if $values.model.path -}}
{{- $args = append $args $values.model.path -}}
{{- end -}}
{{- if $values.model.servedNames -}}
{{- $args = concat $args (list "--served-model-name" (join "," $values.model.servedNames)) -}}
{{- end -}}
{{- $args = concat $args (list
  "--host" "::"
  "--port" (include "quire.word" $values.server.port)
  "--admin-port" (include "quire.word" $values.admin.port)
  "--drain-timeout" (include "quire.word" $values.drain.timeoutSeconds)
  "--device" (ternary "cuda" "cpu" $onGpu)
) -}}
{{- if $values.admin.existingSecret -}}
{{- $args = concat $args (list "--admin-host" "::") -}}
{{- end -}}
{{- if eq (include "quire.readsKeysFile" .) "true" -}}
{{- $args = concat $args (list "--keys-file" (printf "%s/%s" (include "quire.secretsFolder" .) (include "quire.keysFile" .))) -}}
{{- end -}}
{{- $engines := int $values.dataParallelSize -}}
{{- $ranks := div (int $values.gpu.count) $engines -}}
{{- if $values.multiNode.enabled -}}
{{- $hosts := int $values.multiNode.size -}}
{{- $args = concat $args (list "--tensor-parallel-size" (include "quire.word" (mul $ranks $hosts)) "--tensor-parallel-hosts" (include "quire.word" $hosts) "--ranks-host" "::" "--ranks-port" (include "quire.word" $values.multiNode.port)) -}}
{{- else if gt $ranks 1 -}}
{{- $args = concat $args (list "--tensor-parallel-size" (include "quire.word" $ranks)) -}}
{{- end -}}
{{- if gt $engines 1 -}}
{{- $args = concat $args (list "--data-parallel-size" (include "quire.word" $engines)) -}}
{{- end -}}
{{- if gt (int $values.apiWorkers) 1 -}}
{{- $args = concat $args (list "--api-workers" (include "quire.word" $values.apiWorkers)) -}}
{{- end -}}
{{- /* written by python -m helm.generate */ -}}
{{- $flags := list
  (list "load-format" "engine.loadFormat" $values.engine.loadFormat)
  (list "model-impl" "engine.modelImpl" $values.engine.modelImpl)
  (list "dtype" "engine.dtype" $values.engine.dtype)
  (list "quantization" "engine.quantization" $values.engine.quantization)
  (list "seed" "engine.seed" $values.engine.seed)
  (list "max-model-len" "engine.maxModelLen" $values.engine.maxModelLen)
  (list "pooling" "engine.pooling" $values.engine.pooling)
  (list "cpu-path" "engine.cpuPath" $values.engine.cpuPath)
  (list "gpu-path" "engine.gpuPath" $values.engine.gpuPath)
  (list "attention" "engine.attention" $values.engine.attention)
  (list "gpu-memory-utilization" "engine.gpuMemoryUtilization" $values.engine.gpuMemoryUtilization)
  (list "threads" "engine.threads" $values.engine.threads)
  (list "max-num-seqs" "engine.maxNumSeqs" $values.engine.maxNumSeqs)
  (list "max-num-batched-tokens" "engine.maxNumBatchedTokens" $values.engine.maxNumBatchedTokens)
  (list "max-decode-slowdown" "engine.maxDecodeSlowdown" $values.engine.maxDecodeSlowdown)
  (list "block-size" "engine.blockSize" $values.engine.blockSize)
  (list "num-kv-blocks" "engine.numKvBlocks" $values.engine.numKvBlocks)
  (list "kv-cache-memory" "engine.kvCacheMemory" $values.engine.kvCacheMemory)
  (list "kv-cache-dtype" "engine.kvCacheDtype" $values.engine.kvCacheDtype)
  (list "tracing-key" "api.tracingKey" $values.api.tracingKey)
  (list "audit-log" "api.auditLog" $values.api.auditLog)
  (list "store-max-requests" "api.storeMaxRequests" $values.api.storeMaxRequests)
  (list "store-request-days" "api.storeRequestDays" $values.api.storeRequestDays)
  (list "store-usage-days" "api.storeUsageDays" $values.api.storeUsageDays)
  (list "allowed-origins" "api.allowedOrigins" $values.api.allowedOrigins)
  (list "allowed-hosts" "api.allowedHosts" $values.api.allowedHosts)
  (list "max-websockets" "api.maxWebsockets" $values.api.maxWebsockets)
  (list "receive-timeout" "api.receiveTimeout" $values.api.receiveTimeout)
  (list "idle-timeout" "api.idleTimeout" $values.api.idleTimeout)
  (list "stream-keep-alive" "api.streamKeepAlive" $values.api.streamKeepAlive)
  (list "slow-reader-timeout" "api.slowReaderTimeout" $values.api.slowReaderTimeout)
  (list "tool-call-parser" "api.toolCallParser" $values.api.toolCallParser)
  (list "reasoning-parser" "api.reasoningParser" $values.api.reasoningParser)
  (list "unknown-fields" "api.unknownFields" $values.api.unknownFields)
  (list "max-body-bytes" "api.maxBodyBytes" $values.api.maxBodyBytes)
  (list "max-choices" "api.maxChoices" $values.api.maxChoices)
  (list "max-waiting-requests" "api.maxWaitingRequests" $values.api.maxWaitingRequests)
  (list "max-waiting-tokens" "api.maxWaitingTokens" $values.api.maxWaitingTokens)
  (list "engine-silence-timeout" "api.engineSilenceTimeout" $values.api.engineSilenceTimeout)
  (list "engine-restart-timeout" "api.engineRestartTimeout" $values.api.engineRestartTimeout)
  (list "engine-hang-timeout" "api.engineHangTimeout" $values.api.engineHangTimeout)
  (list "worker-hang-timeout" "api.workerHangTimeout" $values.api.workerHangTimeout)
  (list "store-max-responses" "api.storeMaxResponses" $values.api.storeMaxResponses)
  (list "store-max-bytes" "api.storeMaxBytes" $values.api.storeMaxBytes)
  (list "store-ttl" "api.storeTtl" $values.api.storeTtl)
  (list "resume-timeout" "api.resumeTimeout" $values.api.resumeTimeout)
  (list "resume-stream-bytes" "api.resumeStreamBytes" $values.api.resumeStreamBytes)
  (list "resume-total-bytes" "api.resumeTotalBytes" $values.api.resumeTotalBytes)
  (list "log-level" "api.logLevel" $values.api.logLevel)
  (list "log-format" "api.logFormat" $values.api.logFormat)
  (list "keep-requests" "api.keepRequests" $values.api.keepRequests)
  (list "metrics-aliases" "api.metricsAliases" $values.api.metricsAliases)
-}}
{{- $switches := list
  (list "symmetric-memory" "engine.symmetricMemory" $values.engine.symmetricMemory)
  (list "deterministic" "engine.deterministic" $values.engine.deterministic)
  (list "cuda-graphs" "engine.cudaGraphs" $values.engine.cudaGraphs)
  (list "programmatic-launch" "engine.programmaticLaunch" $values.engine.programmaticLaunch)
  (list "async-scheduling" "engine.asyncScheduling" $values.engine.asyncScheduling)
  (list "enable-prefix-caching" "engine.enablePrefixCaching" $values.engine.enablePrefixCaching)
  (list "store-requests" "api.storeRequests" $values.api.storeRequests)
  (list "stored-keys" "api.storedKeys" $values.api.storedKeys)
  (list "log-clients" "api.logClients" $values.api.logClients)
-}}
{{- $only := list
  (list "CPU" "engine.cpuPath" $values.engine.cpuPath)
  (list "GPU" "engine.gpuPath" $values.engine.gpuPath)
  (list "GPU" "engine.attention" $values.engine.attention)
  (list "GPU" "engine.cudaGraphs" $values.engine.cudaGraphs)
  (list "GPU" "engine.gpuMemoryUtilization" $values.engine.gpuMemoryUtilization)
  (list "CPU" "engine.kvCacheMemory" $values.engine.kvCacheMemory)
-}}
{{- /* end of what is written */ -}}
{{- $flags = concat $flags (list
  (list "grpc-port" "server.grpcPort" $values.server.grpcPort)
  (list "slo-ttft" "slo.ttft" $values.slo.ttft)
  (list "slo-itl" "slo.itl" $values.slo.itl)
) -}}
{{- /* The flags that are given, and by which values. */ -}}
{{- $from := dict -}}
{{- range $flag, $value := dict "tensor-parallel-size" "gpu.count" "tensor-parallel-hosts" "multiNode.size" "ranks-port" "multiNode.port" "ranks-host" "multiNode.port" "data-parallel-size" "dataParallelSize" "served-model-name" "model.servedNames" -}}
{{- if has (printf "--%s" $flag) $args -}}
{{- $_ := set $from $flag $value -}}
{{- end -}}
{{- end -}}
{{- range $only -}}
{{- if and (not (kindIs "invalid" (index . 2))) (eq (index . 0) (ternary "CPU" "GPU" $onGpu)) -}}
{{- fail (printf "%s: has an effect only on a %s, but gpu.count is %d" (index . 1) (index . 0) (int $values.gpu.count)) -}}
{{- end -}}
{{- end -}}
{{- range $flags -}}
{{- $value := index . 2 -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $from (index . 0) (index . 1) -}}
{{- if and (eq (index . 0) "allowed-hosts") $value -}}
{{- $value = concat $value (include "quire.ownHosts" $ | fromYamlArray) | uniq -}}
{{- end -}}
{{- $args = concat $args (list (printf "--%s" (index . 0)) (include "quire.word" $value)) -}}
{{- end -}}
{{- end -}}
{{- range $switches -}}
{{- if not (kindIs "invalid" (index . 2)) -}}
{{- $_ := set $from (index . 0) (index . 1) -}}
{{- $args = append $args (printf (ternary "--%s" "--no-%s" (index . 2)) (index . 0)) -}}
{{- end -}}
{{- end -}}
{{- $extra := include "quire.extraFlags" . | fromJson -}}
{{- range $name, $_ := $extra -}}
{{- if hasKey $from $name -}}
{{- fail (printf "extraArgs: --%s is already set by %s" $name (index $from $name)) -}}
{{- end -}}
{{- if and $onGpu (eq $name "tensor-parallel-size") -}}
{{- fail "extraArgs: --tensor-parallel-size is gpu.count divided by dataParallelSize" -}}
{{- end -}}
{{- end -}}
{{- range $values.extraEnv -}}
{{- $name := .name | trimPrefix "QUIRE_" | lower | replace "_" "-" -}}
{{- if and (hasPrefix "QUIRE_" .name) (or (hasKey $extra $name) (hasKey $from $name)) -}}
{{- fail (printf "extraEnv: %s has no effect, because %s sets --%s" .name (index $from $name | default "extraArgs") $name) -}}
{{- end -}}
{{- end -}}
{{- $threads := include "quire.threads" . -}}
{{- if and $threads (not (hasKey $from "threads")) (not (hasKey $extra "threads")) -}}
{{- $args = concat $args (list "--threads" $threads) -}}
{{- end -}}
{{- toYaml (concat $args $values.extraArgs) -}}
{{- end -}}

{{/* Names of the release's Services, as a YAML list: Prometheus, the dashboard and `helm test` use them. */}}
{{- define "quire.ownHosts" -}}
{{- $names := list (include "quire.fullname" .) (include "quire.replicasName" .) -}}
{{- if .Values.admin.existingSecret -}}
{{- $names = append $names (printf "%s-admin" (include "quire.fullname" .)) -}}
{{- end -}}
{{- range $names }}
- {{ . }}
- {{ . }}.{{ $.Release.Namespace }}
- {{ . }}.{{ $.Release.Namespace }}.svc
- {{ . }}.{{ $.Release.Namespace }}.svc.cluster.local
{{- end }}
{{- end -}}

{{/* The flags in extraArgs, without dashes, "no-" and values: a JSON object of flag -> true. */}}
{{- define "quire.extraFlags" -}}
{{- $flags := dict -}}
{{- range .Values.extraArgs -}}
{{- if hasPrefix "--" . -}}
{{- $_ := set $flags (regexReplaceAll "=.*" . "" | trimPrefix "--" | trimPrefix "no-") true -}}
{{- end -}}
{{- end -}}
{{- toJson $flags -}}
{{- end -}}

{{/* Threads of each engine, from the CPUs requested. Empty where there is a CPU limit, which the
engine reads, where nothing is requested, and where a variable says how many. */}}
{{- define "quire.threads" -}}
{{- $resources := .Values.resources -}}
{{- $request := dig "requests" "cpu" "" $resources -}}
{{- $said := false -}}
{{- range .Values.extraEnv -}}
{{- if has .name (list "OMP_NUM_THREADS" "QUIRE_THREADS") -}}{{- $said = true -}}{{- end -}}
{{- end -}}
{{- if and $request (not $said) (not (dig "limits" "cpu" "" $resources)) -}}
{{- /* The server's bounds of --threads. */ -}}
{{- max 1 (div (include "quire.milli" $request | int64) (mul 1000 (int .Values.dataParallelSize))) | min 512 -}}
{{- end -}}
{{- end -}}

{{/* A Kubernetes quantity, in thousandths. */}}
{{- define "quire.milli" -}}
{{- $units := dict "m" 1 "k" 1e6 "M" 1e9 "G" 1e12 "T" 1e15 "P" 1e18 "E" 1e21 "Ki" 1024e3 "Mi" 1048576e3 "Gi" 1073741824e3 "Ti" 1099511627776e3 "Pi" 1125899906842624e3 "Ei" 1152921504606846976e3 -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[a-zA-Z]+$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (index $units $unit | default 1e3 | float64) | int64 -}}
{{- end -}}

{{/* The environment as a YAML list, empty if there is none. */}}
{{- define "quire.serverEnv" -}}
{{- $env := list -}}
{{- range (include "quire.secretFiles" . | fromJson).files -}}
{{- if .variable -}}
{{- $env = append $env (dict "name" .variable "value" (printf "%s/%s" (include "quire.secretsFolder" $) .file)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.model.name -}}
{{- $env = append $env (dict "name" "HF_HUB_OFFLINE" "value" "1") -}}
{{- end -}}
{{- with .Values.tracing -}}
{{- if .endpoint -}}
{{- $env = append $env (dict "name" "OTEL_EXPORTER_OTLP_ENDPOINT" "value" .endpoint) -}}
{{- $env = append $env (dict "name" "OTEL_EXPORTER_OTLP_PROTOCOL" "value" .protocol) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if and (has .name (list "HF_TOKEN" "HUGGING_FACE_HUB_TOKEN")) (hasKey . "value") -}}
{{- fail (printf "extraEnv: %s is a secret: name a Secret in model.token.existingSecret" .name) -}}
{{- end -}}
{{- end -}}
{{- $taken := dict -}}
{{- range concat $env .Values.extraEnv -}}
{{- if hasKey $taken .name -}}
{{- fail (printf "extraEnv: %s is given twice or already set by the chart (auth, store, signing, admin, tracing)" .name) -}}
{{- end -}}
{{- $_ := set $taken .name true -}}
{{- end -}}
{{- with concat $env .Values.extraEnv -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* Requests and limits, including GPUs. */}}
{{- define "quire.serverResources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- $gpu := .Values.gpu.resourceName -}}
{{- if or (hasKey (default dict $resources.limits) $gpu) (hasKey (default dict $resources.requests) $gpu) -}}
{{- fail (printf "resources: ask for %s with gpu.count" $gpu) -}}
{{- end -}}
{{- if gt (int .Values.gpu.count) 0 -}}
{{- $limits := merge (dict $gpu (int .Values.gpu.count)) (default dict $resources.limits) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* An HTTP probe: (dict "path" "/health/live" "port" "http" "timing" .Values.probes.liveness). */}}
{{- define "quire.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
periodSeconds: {{ .timing.periodSeconds | int }}
timeoutSeconds: {{ .timing.timeoutSeconds | int }}
failureThreshold: {{ .timing.failureThreshold | int }}
{{- end -}}
