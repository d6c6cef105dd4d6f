{{/* Names and labels. The full name leaves room for the suffix "-dashboard" within 63 characters. */}}

{{- define "quire.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "quire.fullname" -}}
{{- $name := include "quire.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "quire.dashboardName" -}}
{{- include "quire.fullname" . }}-dashboard
{{- end -}}

{{- define "quire.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "quire.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods of one component: (dict "root" $ "component" "server"). */}}
{{- define "quire.selectorLabels" -}}
app.kubernetes.io/name: {{ include "quire.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "quire.labels" -}}
{{ include "quire.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Labels of a component's pods: podLabels adds to them and cannot change those that select the
pods. They do not include the chart's version, so a new chart alone does not replace pods. */}}
{{- define "quire.podLabels" -}}
{{- $own := include "quire.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" .root.Chart.AppVersion -}}
{{- toYaml (merge $own .root.Values.podLabels) -}}
{{- end -}}

{{/* An image reference: (dict "root" $ "override" (dict …)); keys set in override win. A repository,
tag or digest from override is never combined with the other image's digest. */}}
{{- define "quire.image" -}}
{{- $own := .root.Values.image -}}
{{- $override := .override | default dict -}}
{{- $repository := $override.repository | default $own.repository -}}
{{- $tag := $override.tag | default $own.tag | default .root.Chart.AppVersion -}}
{{- $digest := $override.digest -}}
{{- if not (or $override.repository $override.tag $override.digest) -}}
{{- $digest = $own.digest -}}
{{- end -}}
{{- if $digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- else -}}
{{- printf "%s:%s" $repository $tag -}}
{{- end -}}
{{- end -}}
