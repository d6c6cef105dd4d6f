{{/* How many pods, and where they run. */}}

{{/* The number of pods; empty: Kubernetes' default. Where an autoscaler decides, it is the number of
now: if the chart left it out, Helm would remove what an earlier release had set, and Kubernetes
would then run one pod. */}}
{{- define "quire.replicas" -}}
{{- if not (or (kindIs "invalid" .Values.replicaCount) (include "quire.autoscaled" .)) -}}
{{- .Values.replicaCount | int -}}
{{- else -}}
{{- $target := include "quire.scaleTarget" . | fromYaml -}}
{{- dig "spec" "replicas" "" (lookup $target.apiVersion $target.kind .Release.Namespace $target.name) -}}
{{- end -}}
{{- end -}}

{{/* What has replicas, and what an autoscaler scales. */}}
{{- define "quire.scaleTarget" -}}
{{- if .Values.multiNode.enabled -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
name: {{ include "quire.groupName" . }}
{{- else -}}
apiVersion: apps/v1
kind: Deployment
name: {{ include "quire.fullname" . }}
{{- end -}}
{{- end -}}

{{/* "true" if an autoscaler of the chart decides. */}}
{{- define "quire.autoscaled" -}}
{{- if or .Values.autoscaling.hpa.enabled .Values.autoscaling.keda.enabled -}}true{{- end -}}
{{- end -}}

{{/* A number as a quantity of thousandths: 900m for 0.9. */}}
{{- define "quire.milliQuantity" -}}
{{- mulf . 1000 | floor | int64 }}m
{{- end -}}

{{/* The server's topology spread constraints, as a YAML list. */}}
{{- define "quire.spread" -}}
{{- $own := dict "matchLabels" (include "quire.selectorLabels" (dict "root" . "component" "server") | fromYaml) -}}
{{- $constraints := .Values.topologySpreadConstraints -}}
{{- if kindIs "invalid" $constraints -}}
{{- $constraints = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- end -}}
{{- $complete := list -}}
{{- range $constraints -}}
{{- $constraint := deepCopy . -}}
{{- if not (hasKey . "labelSelector") -}}
{{- $_ := set $constraint "labelSelector" $own -}}
{{- end -}}
{{- $complete = append $complete $constraint -}}
{{- end -}}
{{- toYaml $complete -}}
{{- end -}}
