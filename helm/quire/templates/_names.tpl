{{/* Names and labels. The full name leaves room for the suffixes "-dashboard" and "-replicas" within
63 characters, which a Service may have. */}}

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

{{/* The dashboard needs none of the rights that a cloud may give the server's account. */}}
{{- define "quire.dashboardServiceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- include "quire.dashboardName" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{/* The Service without an address of its own, whose name resolves to the addresses of all server
pods, ready or not: each is watched and scraped by itself. */}}
{{- define "quire.replicasName" -}}
{{- include "quire.fullname" . }}-replicas
{{- end -}}

{{/* For the API's and the dashboard's Services. That of the replicas keeps one family: a pod with two
addresses would be watched and scraped twice. */}}
{{- define "quire.ipFamilies" -}}
{{- with .ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
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

{{/* The version as a label and an image tag may hold it: neither has a "+". */}}
{{- define "quire.appVersion" -}}
{{- .Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of an object: (dict "root" $ "component" "server"). commonLabels add to them. */}}
{{- define "quire.labels" -}}
{{- $own := include "quire.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" (include "quire.appVersion" .root) -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- toYaml (merge $own .root.Values.commonLabels) -}}
{{- end -}}

{{/* Labels of a component's pods: podLabels adds to them and cannot change those that select the
pods. They do not include the chart's version, so a new chart alone does not replace pods. */}}
{{- define "quire.podLabels" -}}
{{- $own := include "quire.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" (include "quire.appVersion" .root) -}}
{{- toYaml (merge $own .root.Values.podLabels .root.Values.commonLabels) -}}
{{- end -}}

{{/* An image reference: (dict "root" $ "override" (dict …)); keys set in override win. A repository,
tag or digest from override is never combined with the other image's digest. */}}
{{- define "quire.image" -}}
{{- $own := .root.Values.image -}}
{{- $override := .override | default dict -}}
{{- $repository := $override.repository | default $own.repository -}}
{{- $registry := $own.registry | default (dig "imageRegistry" "" (.root.Values.global | default dict)) -}}
{{- if $registry -}}
{{- $repository = printf "%s/%s" $registry $repository -}}
{{- end -}}
{{- $tag := $override.tag | default $own.tag | default (include "quire.appVersion" .root) -}}
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

{{/* For the notes: how to find a Service's address outside the cluster. */}}
{{- define "quire.outsideAddress" -}}
{{- if eq .service.type "NodePort" }}

From outside the cluster it is at port NODE_PORT of any node:

  NODE_PORT=$(kubectl {{ .at }} get service {{ .name }} --output jsonpath='{.spec.ports[?(@.name=="http")].nodePort}')
{{- else if eq .service.type "LoadBalancer" }}

From outside the cluster it is at port {{ .service.port | int }} of the load balancer, once that has an address:

  kubectl {{ .at }} get service {{ .name }} --output jsonpath='{.status.loadBalancer.ingress[0].ip}{.status.loadBalancer.ingress[0].hostname}'
{{- end }}
{{- end -}}
