{{/* What both Deployments' pods have in common. */}}

{{- define "quire.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.securityContext }}
{{- if not (kindIs "invalid" .runAsUser) }}
runAsUser: {{ .runAsUser | int64 }}
{{- end }}
{{- if not (kindIs "invalid" .runAsGroup) }}
runAsGroup: {{ .runAsGroup | int64 }}
{{- end }}
{{- if not (kindIs "invalid" .fsGroup) }}
fsGroup: {{ .fsGroup | int64 }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "quire.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: {{ .Values.securityContext.readOnlyRootFilesystem }}
{{- end -}}

{{/* The beginning of a pod's spec: (dict "root" . "account" "name"). Service links are off because a Service named "quire" would set
QUIRE_PORT=tcp://… in every pod of its namespace, and the server reads QUIRE_PORT. */}}
{{- define "quire.podIdentity" -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets | default (dig "imagePullSecrets" list (.root.Values.global | default dict)) }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .root.Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "quire.podSecurityContext" .root | nindent 2 }}
{{- end -}}

{{/* nodeSelector, affinity, tolerations and priorityClassName of values that have those keys; empty if none is set. */}}
{{- define "quire.placement" -}}
{{- $placement := dict -}}
{{- with .nodeSelector }}{{ $_ := set $placement "nodeSelector" . }}{{ end -}}
{{- with .affinity }}{{ $_ := set $placement "affinity" . }}{{ end -}}
{{- with .tolerations }}{{ $_ := set $placement "tolerations" . }}{{ end -}}
{{- with .priorityClassName }}{{ $_ := set $placement "priorityClassName" . }}{{ end -}}
{{- with $placement }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* The two directories that are writable when the root is read-only. A dict of sizes. */}}
{{- define "quire.writableVolumes" -}}
{{- range $name := list "home" "tmp" }}
- name: {{ $name }}
  emptyDir:
    sizeLimit: {{ index $ $name }}
{{- end -}}
{{- end -}}

{{- define "quire.writableMounts" -}}
- name: home
  mountPath: /home/quire
- name: tmp
  mountPath: /tmp
{{- end -}}

{{/* Containers of one's own: (dict "root" $ "containers" .Values.sidecars). */}}
{{- define "quire.ownContainers" -}}
{{- $context := include "quire.containerSecurityContext" .root | fromYaml -}}
{{- range .containers }}
{{- $container := deepCopy . -}}
{{- if not (hasKey . "securityContext") -}}
{{- $_ := set $container "securityContext" $context -}}
{{- end }}
{{ toYaml (list $container) }}
{{- end }}
{{- end -}}
