{{- /* Written by python -m helm.generate. For upgrades with --reuse-values. */ -}}
{{- define "quire.defaults" -}}
nameOverride: ''
fullnameOverride: ''
image:
  registry: ''
  repository: quire
  tag: ''
  digest: ''
  pullPolicy: IfNotPresent
imagePullSecrets: []
model:
  name: ''
  revision: ''
  token:
    existingSecret: ''
    secretKey: token
  claim:
    create: false
    size: ''
    storageClassName: ''
    accessModes:
    - ReadWriteOnce
  downloadEnv: []
  downloadResources: {}
  path: ''
  servedNames: []
  existingClaim: ''
  mountPath: /models
engine: {}
api: {}
slo: {}
dataParallelSize: 1
apiWorkers: 1
gpu:
  count: 0
  resourceName: nvidia.com/gpu
multiNode:
  enabled: false
  size: 2
  port: 29500
  existingSecret: ''
  secretKey: ranks-secret
  topologyKey: ''
resources: {}
sharedMemory:
  enabled: true
  size: 1Gi
scratch:
  home: 4Gi
  tmp: 1Gi
kernelCache:
  existingClaim: ''
auth:
  existingSecret: ''
  secretKey: api-key
admin:
  existingSecret: ''
  secretKey: admin-key
  port: 8001
store:
  existingSecret: ''
  secretKey: url
  existingClaim: ''
signing:
  existingSecret: ''
  secretKey: signing-key
server:
  port: 8000
service:
  type: ClusterIP
  port: 8000
  grpcPort: 9000
  ipFamilies: []
  annotations: {}
serviceAccount:
  create: true
  name: ''
  annotations: {}
ingress:
  enabled: false
  className: ''
  controller: none
  annotations: {}
  hosts: []
  path: /
  tlsSecret: ''
  timeoutSeconds: 3600
gateway:
  httpRoute:
    enabled: false
    parentRefs: []
    hostnames: []
    annotations: {}
    timeout: 0s
  inferencePool:
    enabled: false
    endpointPicker: ''
    port: 9002
    failureMode: FailOpen
networkPolicy:
  enabled: false
  adminFrom: []
  database:
    port: 5432
  collector: {}
  hub:
    port: 443
  oidc:
    port: 443
  extraIngress: []
  extraEgress: []
drain:
  preStopSeconds: 5
  timeoutSeconds: 30
  marginSeconds: 20
updateStrategy:
  type: RollingUpdate
  maxSurge: 1
  maxUnavailable: 0
revisionHistoryLimit: 5
podDisruptionBudget:
  enabled: true
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
autoscaling:
  minReplicas: 1
  maxReplicas: 4
  waitingPerReplica: 4
  kvUsage: 0.9
  scaleDownSeconds: 600
  hpa:
    enabled: false
  keda:
    enabled: false
    prometheusAddress: ''
    authenticationRef: ''
    pollingSeconds: 15
probes:
  startup:
    periodSeconds: 5
    timeoutSeconds: 3
    failureThreshold: 360
  readiness:
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 2
  liveness:
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
metrics:
  serviceMonitor:
    enabled: false
    interval: 15s
    scrapeTimeout: 10s
    labels: {}
    scrapeProtocols: []
    existingSecret: ''
    secretKey: admin-key
    annotations: {}
    namespace: ''
    honorLabels: false
    relabelings: []
    metricRelabelings: []
  podMonitor:
    enabled: false
    interval: 15s
    scrapeTimeout: 10s
    labels: {}
    scrapeProtocols: []
    existingSecret: ''
    secretKey: admin-key
    annotations: {}
    namespace: ''
    honorLabels: false
    relabelings: []
    metricRelabelings: []
  prometheusRule:
    enabled: false
    labels: {}
    annotations: {}
    namespace: ''
    runbookUrl: ''
  boards:
    enabled: false
    labels: {}
    annotations: {}
    namespace: ''
tracing:
  endpoint: ''
  protocol: grpc
dashboard:
  enabled: false
  image:
    repository: ''
    tag: ''
    digest: ''
  port: 8501
  service:
    type: ClusterIP
    port: 8501
    ipFamilies: []
    annotations: {}
  resources: {}
  nodeSelector: {}
  tolerations: []
  affinity: {}
  priorityClassName: ''
  podAnnotations: {}
  admin:
    existingSecret: ''
    secretKey: admin-key
  oidc:
    existingSecret: ''
    secretKey: secrets.toml
  extraEnv: []
securityContext:
  readOnlyRootFilesystem: true
runtimeClassName: ''
priorityClassName: ''
nodeSelector: {}
tolerations: []
affinity: {}
dnsPolicy: ''
dnsConfig: {}
hostAliases: []
commonLabels: {}
podLabels: {}
podAnnotations: {}
extraEnv: []
extraEnvFrom: []
extraArgs: []
extraVolumes: []
extraVolumeMounts: []
initContainers: []
sidecars: []
extraObjects: []
tests:
  enabled: true
  existingSecret: ''
  secretKey: api-key
  timeoutSeconds: 120
{{- end -}}

{{/* Adds to .Values what is absent: the first line of every template that reads values. */}}
{{- define "quire.completed" -}}
{{- $defaults := include "quire.defaults" . | fromYaml -}}
{{- include "quire.complete" (dict "into" .Values "from" $defaults) -}}
{{- end -}}

{{/* Adds to a dict what is absent: (dict "into" $dict "from" $defaults). merge and mergeOverwrite
take false and 0 for absent. */}}
{{- define "quire.complete" -}}
{{- $into := .into -}}
{{- range $key, $default := .from -}}
{{- if not (hasKey $into $key) -}}
{{- $_ := set $into $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" (index $into $key)) -}}
{{- include "quire.complete" (dict "into" (index $into $key) "from" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}
