{{/* The server's pod: a template of the Deployment, or of a LeaderWorkerSet's leaders. */}}

{{- define "quire.grace" -}}
{{- add (.Values.drain.preStopSeconds | int) (.Values.drain.timeoutSeconds | int) (.Values.drain.marginSeconds | int) -}}
{{- end -}}

{{- define "quire.serverPod" -}}
{{- $server := dict "root" . "component" "server" -}}
{{- $secrets := (include "quire.secretFiles" . | fromJson).files -}}
{{- $drain := .Values.drain -}}
{{- $startup := .Values.probes.startup -}}
metadata:
  labels:
    {{- include "quire.podLabels" $server | nindent 4 }}
    {{- if .Values.gateway.inferencePool.enabled }}
    llm-d.ai/engine-type: quire
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "quire.podIdentity" (dict "root" . "account" (include "quire.serviceAccountName" .)) | nindent 2 }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "quire.grace" . }}
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
      args:
        {{- include "quire.serverArgs" . | nindent 8 }}
      {{- with include "quire.serverEnv" . }}
      env:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: {{ .Values.server.port | int }}
          protocol: TCP
        {{- with .Values.server.grpcPort }}
        - name: grpc
          containerPort: {{ . | int }}
          protocol: TCP
        {{- end }}
        {{- if .Values.admin.existingSecret }}
        - name: admin
          containerPort: {{ .Values.admin.port | int }}
          protocol: TCP
        {{- end }}
      startupProbe:
        {{- include "quire.probe" (dict "path" "/health/ready" "port" "http" "timing" $startup) | nindent 8 }}
      readinessProbe:
        {{- include "quire.probe" (dict "path" "/health/ready" "port" "http" "timing" .Values.probes.readiness) | nindent 8 }}
      livenessProbe:
        {{- include "quire.probe" (dict "path" "/health/live" "port" "http" "timing" .Values.probes.liveness) | nindent 8 }}
      {{- if gt ($drain.preStopSeconds | int) 0 }}
      lifecycle:
        preStop:
          exec:
            command: [sleep, {{ $drain.preStopSeconds | int | quote }}]
      {{- end }}
      terminationMessagePolicy: FallbackToLogsOnError
      resources:
        {{- include "quire.serverResources" . | nindent 8 }}
      securityContext:
        {{- include "quire.containerSecurityContext" . | nindent 8 }}
      volumeMounts:
        {{- include "quire.mounts" (dict "root" . "component" "server" "secrets" $secrets) | trim | nindent 8 }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .Values.sidecars }}
    {{- include "quire.ownContainers" (dict "root" $ "containers" .) | trim | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "quire.volumes" (dict "root" . "component" "server" "secrets" $secrets) | trim | nindent 4 }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "quire.placement" .Values }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "quire.spread" . | fromYamlArray }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The chart's own mounts and volumes of a server or worker: (dict "root" $ "component" "server" "secrets" list). The store is the server's
alone. */}}
{{- define "quire.mounts" -}}
{{- include "quire.writableMounts" .root | nindent 0 }}
{{- if .root.Values.sharedMemory.enabled }}
- name: shm
  mountPath: /dev/shm
{{- end }}
{{- if .root.Values.kernelCache.existingClaim }}
- name: cache
  mountPath: /home/quire/.cache
{{- end }}
{{- if and .root.Values.store.existingClaim (eq .component "server") }}
- name: store
  mountPath: /home/quire/.local/state/quire
{{- end }}
{{- if or .root.Values.model.existingClaim .root.Values.model.name }}
- name: model
  mountPath: {{ .root.Values.model.mountPath }}
  readOnly: true
{{- end }}
{{- if .secrets }}
- name: secrets
  mountPath: {{ include "quire.secretsFolder" .root }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "quire.volumes" -}}
{{- include "quire.writableVolumes" .root.Values.scratch | trim | nindent 0 }}
{{- if .root.Values.sharedMemory.enabled }}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .root.Values.sharedMemory.size }}
{{- end }}
{{- with .root.Values.kernelCache.existingClaim }}
- name: cache
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- if and .root.Values.store.existingClaim (eq .component "server") }}
- name: store
  persistentVolumeClaim:
    claimName: {{ .root.Values.store.existingClaim }}
{{- end }}
{{- with include "quire.modelVolumes" .root | trim }}
{{- . | nindent 0 }}
{{- end }}
{{- if .secrets }}
{{- include "quire.secretsVolume" (dict "root" .root "name" "secrets" "files" .secrets) | nindent 0 }}
{{- end }}
{{- end -}}
