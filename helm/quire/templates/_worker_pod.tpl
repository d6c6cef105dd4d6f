{{/* The pods of a group besides the leader (multiNode): `quire join`, with the leader's model and devices. */}}

{{/* The Service that the LeaderWorkerSet's controller makes has its name, so it must differ from the chart's. */}}
{{- define "quire.groupName" -}}
{{- include "quire.fullname" . }}-group
{{- end -}}

{{- define "quire.ranksSecret" -}}
{{- with .Values.multiNode -}}
{{- toJson (dict "files" (list (dict "secret" .existingSecret "key" .secretKey "file" "ranks" "variable" "QUIRE_RANKS_SECRET_FILE"))) -}}
{{- end -}}
{{- end -}}

{{/* The worker's environment: how it joins, then that of the operator, such as NCCL_SOCKET_IFNAME. Settings of `quire serve` come from the
leader. */}}
{{- define "quire.workerEnv" -}}
{{- $env := list (dict "name" "QUIRE_RANKS_SECRET_FILE" "value" (printf "%s/ranks" (include "quire.secretsFolder" .))) -}}
{{- if .Values.model.name -}}
{{- $env = append $env (dict "name" "HF_HUB_OFFLINE" "value" "1") -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if not (hasPrefix "QUIRE_" .name) -}}
{{- $env = append $env . -}}
{{- end -}}
{{- end -}}
{{- toYaml $env -}}
{{- end -}}

{{- define "quire.workerPod" -}}
{{- $secrets := (include "quire.ranksSecret" . | fromJson).files -}}
metadata:
  labels:
    {{- include "quire.podLabels" (dict "root" . "component" "worker") | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "quire.podIdentity" (dict "root" . "account" (include "quire.serviceAccountName" .)) | nindent 2 }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- /* A group's workers are deleted after their leader, which drains first. */}}
  terminationGracePeriodSeconds: 30
  {{- if or .Values.model.name .Values.initContainers }}
  initContainers:
    {{- if .Values.model.name }}
    {{- include "quire.modelInitContainer" . | nindent 4 }}
    {{- end }}
    {{- with .Values.initContainers }}
    {{- include "quire.ownContainers" (dict "root" $ "containers" .) | trim | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: quire
      image: {{ include "quire.image" (dict "root" .) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      {{- /* The controller gives every container the variable, before all others. */}}
      args:
        - join
        - $(LWS_LEADER_ADDRESS):{{ .Values.multiNode.port | int }}
        {{- range $flag, $value := dict "log-level" .Values.api.logLevel "log-format" .Values.api.logFormat }}
        {{- if not (kindIs "invalid" $value) }}
        - --{{ $flag }}
        - {{ $value }}
        {{- end }}
        {{- end }}
      env:
        {{- include "quire.workerEnv" . | nindent 8 }}
      terminationMessagePolicy: FallbackToLogsOnError
      resources:
        {{- include "quire.serverResources" . | nindent 8 }}
      securityContext:
        {{- include "quire.containerSecurityContext" . | nindent 8 }}
      volumeMounts:
        {{- include "quire.mounts" (dict "root" . "component" "worker" "secrets" $secrets) | trim | nindent 8 }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- include "quire.volumes" (dict "root" . "component" "worker" "secrets" $secrets) | trim | nindent 4 }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "quire.placement" .Values }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Refuses what contradicts itself. Each message begins with the key. */}}
{{- define "quire.checkMultiNode" -}}
{{- with .Values.multiNode -}}
{{- if .enabled -}}
{{- if not .existingSecret -}}
{{- fail "multiNode.existingSecret: name a Secret with a text of 16 characters or more, which the pods of a group prove to each other that they know" -}}
{{- end -}}
{{- if gt (len (include "quire.groupName" $)) 49 -}}
{{- fail (printf "fullnameOverride: with multiNode at most 43 characters, from which the controller makes labels; %q has more" (include "quire.fullname" $)) -}}
{{- end -}}
{{- if or (hasSuffix ".gguf" (lower $.Values.model.path)) (contains ":" (index $.Values.model "name" | default "")) -}}
{{- fail "multiNode.enabled: a GGUF file is not served over several pods: name its original checkpoint" -}}
{{- end -}}
{{- if lt (int $.Values.gpu.count) 1 -}}
{{- fail "gpu.count: multiNode needs GPUs: those of each pod, so that a group has gpu.count times multiNode.size" -}}
{{- end -}}
{{- if gt (mul (int $.Values.gpu.count) (int .size)) 64 -}}
{{- fail (printf "multiNode.size: a model is shared by 64 GPUs at most, and gpu.count times multiNode.size is %d" (mul (int $.Values.gpu.count) (int .size))) -}}
{{- end -}}
{{- if not (or $.Values.model.path (index $.Values.model "name")) -}}
{{- fail "multiNode.enabled: the embedded demonstration model is too small to be split: name a model in model.path or model.name" -}}
{{- end -}}
{{- if gt (int $.Values.dataParallelSize) 1 -}}
{{- fail "dataParallelSize: with multiNode a group is one engine; raise replicaCount for more groups" -}}
{{- end -}}
{{- if ne $.Values.updateStrategy.type "RollingUpdate" -}}
{{- fail "updateStrategy.type: a LeaderWorkerSet knows RollingUpdate only; maxSurge 0 with maxUnavailable 1 needs no spare GPUs" -}}
{{- end -}}
{{- /* A Deployment rounds up there. */ -}}
{{- $update := $.Values.updateStrategy -}}
{{- if and (has (toString $update.maxSurge) (list "0" "0%")) (hasSuffix "%" (toString $update.maxUnavailable)) -}}
{{- $percent := trimSuffix "%" $update.maxUnavailable | int -}}
{{- $groups := int (ternary $.Values.autoscaling.minReplicas (default 1 $.Values.replicaCount) (not (empty (include "quire.autoscaled" $)))) -}}
{{- if lt (mul $percent $groups) 100 -}}
{{- fail (printf "updateStrategy.maxUnavailable: %s of %d replicas is none, and with updateStrategy.maxSurge 0 no group could ever be replaced: use 1" $update.maxUnavailable $groups) -}}
{{- end -}}
{{- end -}}
{{- if has (int .port) (list (int $.Values.server.port) (int (default 0 $.Values.server.grpcPort)) (int $.Values.admin.port)) -}}
{{- fail "multiNode.port: HTTP, gRPC or the admin API has this port (server.port, server.grpcPort, admin.port)" -}}
{{- end -}}
{{- if and $.Values.model.claim.create (not (has "ReadWriteMany" $.Values.model.claim.accessModes)) -}}
{{- fail "model.claim.accessModes: the pods of a group are on several nodes, and each one's init container may write: ReadWriteMany, or no claim" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
