{{/* The server container: arguments, environment, resources, probes. */}}

{{/* A value as one command-line word. Numbers from a values file arrive as floats, and a large one
would be written with an exponent. */}}
{{- define "quire.word" -}}
{{- if and (kindIs "float64" .) (eq (float64 .) (floor .)) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* The arguments as a YAML list. For a null value the flag is omitted, so the server's default applies. */}}
{{- define "quire.serverArgs" -}}
{{- $values := .Values -}}
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
  "--host" "0.0.0.0"
  "--port" (include "quire.word" $values.server.port)
  "--admin-port" (include "quire.word" $values.admin.port)
  "--drain-timeout" (include "quire.word" $values.drain.timeoutSeconds)
  "--device" (ternary "cuda" "cpu" (gt (int $values.gpu.count) 0))
) -}}
{{- if $values.admin.existingSecret -}}
{{- $args = concat $args (list "--admin-host" "0.0.0.0") -}}
{{- end -}}
{{- $devices := div (int $values.gpu.count) (int $values.dataParallelSize) -}}
{{- if gt $devices 1 -}}
{{- $args = concat $args (list "--tensor-parallel-size" (include "quire.word" $devices)) -}}
{{- end -}}
{{- if gt (int $values.dataParallelSize) 1 -}}
{{- $args = concat $args (list "--data-parallel-size" (include "quire.word" $values.dataParallelSize)) -}}
{{- end -}}
{{- if gt (int $values.apiWorkers) 1 -}}
{{- $args = concat $args (list "--api-workers" (include "quire.word" $values.apiWorkers)) -}}
{{- end -}}
{{- $engine := $values.engine -}}
{{- /* written by python -m helm.generate */ -}}
{{- $flags := list
  (list "--load-format" $engine.loadFormat)
  (list "--dtype" $engine.dtype)
  (list "--quantization" $engine.quantization)
  (list "--seed" $engine.seed)
  (list "--max-model-len" $engine.maxModelLen)
  (list "--pooling" $engine.pooling)
  (list "--cpu-path" $engine.cpuPath)
  (list "--gpu-path" $engine.gpuPath)
  (list "--attention" $engine.attention)
  (list "--gpu-memory-utilization" $engine.gpuMemoryUtilization)
  (list "--threads" $engine.threads)
  (list "--max-num-seqs" $engine.maxNumSeqs)
  (list "--max-num-batched-tokens" $engine.maxNumBatchedTokens)
  (list "--max-decode-slowdown" $engine.maxDecodeSlowdown)
  (list "--block-size" $engine.blockSize)
  (list "--num-kv-blocks" $engine.numKvBlocks)
  (list "--kv-cache-memory" $engine.kvCacheMemory)
  (list "--kv-cache-dtype" $engine.kvCacheDtype)
-}}
{{- $switches := list
  (list "deterministic" $engine.deterministic)
  (list "cuda-graphs" $engine.cudaGraphs)
  (list "async-scheduling" $engine.asyncScheduling)
  (list "enable-prefix-caching" $engine.enablePrefixCaching)
-}}
{{- /* end of what is written */ -}}
{{- $flags = append $flags (list "--grpc-port" $values.server.grpcPort) -}}
{{- range $flag := $flags -}}
{{- if not (kindIs "invalid" (index $flag 1)) -}}
{{- $args = concat $args (list (index $flag 0) (include "quire.word" (index $flag 1))) -}}
{{- end -}}
{{- end -}}
{{- range $switch := $switches -}}
{{- if not (kindIs "invalid" (index $switch 1)) -}}
{{- $args = append $args (printf (ternary "--%s" "--no-%s" (index $switch 1)) (index $switch 0)) -}}
{{- end -}}
{{- end -}}
{{- toYaml (concat $args $values.extraArgs) -}}
{{- end -}}

{{/* The environment as a YAML list, empty if there is none. */}}
{{- define "quire.serverEnv" -}}
{{- $env := list -}}
{{- $secrets := list (list "QUIRE_API_KEY" .Values.auth) (list "QUIRE_STORE_URL" .Values.store) (list "QUIRE_SIGNING_KEY" .Values.signing) (list "QUIRE_ADMIN_KEY" .Values.admin) -}}
{{- range $secrets -}}
{{- $from := index . 1 -}}
{{- if $from.existingSecret -}}
{{- $env = append $env (dict "name" (index . 0) "valueFrom" (dict "secretKeyRef" (dict "name" $from.existingSecret "key" $from.secretKey))) -}}
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
{{- $taken := dict -}}
{{- range concat $env .Values.extraEnv -}}
{{- if hasKey $taken .name -}}
{{- fail (printf "extraEnv: %s is given twice or already set by the chart (auth, tracing)" .name) -}}
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
