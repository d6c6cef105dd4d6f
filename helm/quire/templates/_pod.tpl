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

{{/* The beginning of a pod's spec. Service links are off because a Service named "quire" would set
QUIRE_PORT=tcp://… in every pod of its namespace, and the server reads QUIRE_PORT. */}}
{{- define "quire.podIdentity" -}}
serviceAccountName: {{ include "quire.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- include "quire.podSecurityContext" . | nindent 2 }}
{{- end -}}

{{/* nodeSelector, affinity and tolerations of values that have those keys; empty if none is set. */}}
{{- define "quire.placement" -}}
{{- $placement := dict -}}
{{- with .nodeSelector }}{{ $_ := set $placement "nodeSelector" . }}{{ end -}}
{{- with .affinity }}{{ $_ := set $placement "affinity" . }}{{ end -}}
{{- with .tolerations }}{{ $_ := set $placement "tolerations" . }}{{ end -}}
{{- with $placement }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* The two directories that are writable when the root is read-only. */}}
{{- define "quire.writableVolumes" -}}
- name: home
  emptyDir: {}
- name: tmp
  emptyDir: {}
{{- end -}}

{{- define "quire.writableMounts" -}}
- name: home
  mountPath: /home/quire
- name: tmp
  mountPath: /tmp
{{- end -}}
