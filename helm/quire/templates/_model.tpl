{{/* A model by its name (model.name): an init container downloads it into a volume and verifies it;
the server reads it from there and never asks the hub. */}}

{{/* Refuses what contradicts itself. Each message begins with the key. */}}
{{- define "quire.checkModelByName" -}}
{{- $model := .Values.model -}}
{{- $claim := default dict $model.claim -}}
{{- $token := default dict $model.token -}}
{{- if $model.name -}}
{{- if $model.path -}}
{{- fail "model.path: leave it empty with model.name, which decides where the files are" -}}
{{- end -}}
{{- if and $claim.create $model.existingClaim -}}
{{- fail "model.claim.create: leave it false with model.existingClaim, which takes its place" -}}
{{- end -}}
{{- if and $claim.create (not $claim.size) -}}
{{- fail "model.claim.size: how much the claim that model.claim.create makes is to hold, such as 40Gi" -}}
{{- end -}}
{{- if and $claim.create (or (kindIs "invalid" .Values.replicaCount) (include "quire.autoscaled" .) (gt (int .Values.replicaCount) 1)) (not (has "ReadWriteMany" $claim.accessModes)) -}}
{{- fail "model.claim.accessModes: several replicas need ReadWriteMany, as each pod's init container may write" -}}
{{- end -}}
{{- $update := .Values.updateStrategy -}}
{{- if and $claim.create (not (has "ReadWriteMany" $claim.accessModes)) (eq $update.type "RollingUpdate") (not (has (toString $update.maxSurge) (list "0" "0%"))) -}}
{{- fail "model.claim.accessModes: an update starts the next pod before it stops the last one, perhaps on another node, where a claim without ReadWriteMany cannot be mounted: ReadWriteMany, or updateStrategy.type Recreate, or updateStrategy.maxSurge 0 with maxUnavailable 1" -}}
{{- end -}}
{{- else if or $model.revision $claim.create $token.existingSecret $model.downloadEnv -}}
{{- fail "model.name: is empty, but model.revision, model.claim.create, model.token or model.downloadEnv, which only apply to a model by its name, is set" -}}
{{- end -}}
{{- end -}}

{{- define "quire.modelClaimName" -}}
{{- default (printf "%s-models" (include "quire.fullname" .)) .Values.model.existingClaim -}}
{{- end -}}

{{/* What pull and serve must agree on, as a YAML list of words. */}}
{{- define "quire.modelByNameArgs" -}}
{{- $args := list .name "--download-dir" .mountPath -}}
{{- with .revision -}}
{{- $args = concat $args (list "--revision" .) -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{- define "quire.modelInitContainer" -}}
{{- $model := .Values.model -}}
{{- $token := default dict $model.token -}}
- name: model
  image: {{ include "quire.image" (dict "root" .) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - pull
    - --if-missing
    {{- include "quire.modelByNameArgs" $model | nindent 4 }}
  {{- $env := list -}}
  {{- if $token.existingSecret -}}
  {{- $env = append $env (dict "name" "HF_TOKEN_PATH" "value" "/run/secrets/quire-hub/token") -}}
  {{- end -}}
  {{- with concat $env (default list $model.downloadEnv) }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationMessagePolicy: FallbackToLogsOnError
  resources:
    {{- toYaml (default dict $model.downloadResources) | nindent 4 }}
  securityContext:
    {{- include "quire.containerSecurityContext" . | nindent 4 }}
  volumeMounts:
    {{- include "quire.writableMounts" . | nindent 4 }}
    - name: model
      mountPath: {{ $model.mountPath }}
    {{- if $token.existingSecret }}
    - name: hub-token
      mountPath: /run/secrets/quire-hub
      readOnly: true
    {{- end }}
{{- end -}}

{{/* The volumes of a model, by its name or from a claim that holds it; empty if there is none. */}}
{{- define "quire.modelVolumes" -}}
{{- $model := .Values.model -}}
{{- $token := default dict $model.token -}}
{{- if or $model.existingClaim (and $model.name (default dict $model.claim).create) -}}
- name: model
  persistentVolumeClaim:
    claimName: {{ include "quire.modelClaimName" . }}
    {{- if not $model.name }}
    readOnly: true
    {{- end }}
{{- else if $model.name -}}
- name: model
  emptyDir: {}
{{- end }}
{{- if and $model.name $token.existingSecret }}
- name: hub-token
  secret:
    secretName: {{ $token.existingSecret }}
    defaultMode: {{ ternary 0444 0440 (kindIs "invalid" .Values.securityContext.fsGroup) }}
    items:
      - key: {{ $token.secretKey }}
        path: token
{{- end -}}
{{- end -}}
