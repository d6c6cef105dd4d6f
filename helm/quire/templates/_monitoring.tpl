{{/* What a ServiceMonitor's and a PodMonitor's endpoint have in common: (dict "root" $ "monitor" …). */}}
{{- define "quire.endpoint" -}}
{{- with .monitor -}}
port: {{ ternary "admin" "http" (not (empty .existingSecret)) }}
path: /metrics
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
honorLabels: {{ .honorLabels }}
{{- if .existingSecret }}
authorization:
  credentials:
    name: {{ .existingSecret }}
    key: {{ .secretKey | quote }}
{{- end }}
{{- /* The alert QuireDown finds its targets by the job's name. */}}
relabelings:
  - targetLabel: job
    replacement: {{ include "quire.job" $.root }}
  {{- with .relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "quire.job" -}}
{{- $name := include "quire.fullname" . -}}
{{- if contains "quire" $name }}{{ $name }}{{ else }}quire-{{ $name }}{{ end -}}
{{- end -}}

{{/* In a selector, the labels that ServiceMonitors and PodMonitors both give this release's series. */}}
{{- define "quire.series" -}}
namespace={{ .Release.Namespace | quote }},job={{ include "quire.job" . | quote }}
{{- end -}}

{{/* Metadata of a monitoring object: (dict "root" $ "about" .Values.metrics.podMonitor). */}}
{{- define "quire.monitoringMetadata" -}}
namespace: {{ .about.namespace | default .root.Release.Namespace }}
labels:
  {{- toYaml (merge (include "quire.labels" (dict "root" .root "component" "server") | fromYaml) .about.labels) | nindent 2 }}
{{- with .about.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* An objective as a bucket's bound: 2.0. */}}
{{- define "quire.bound" -}}
{{- $text := toString . -}}
{{- if contains "." $text }}{{ $text }}{{ else }}{{ $text }}.0{{ end -}}
{{- end -}}
