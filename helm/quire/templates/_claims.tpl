{{/* Claims that several pods mount. The chart knows what a claim allows only if it exists and Helm asks the cluster, as `helm template` does
not; for the rest there is a sentence in NOTES.txt. */}}

{{/* The keys of such claims, as a JSON object of key -> {claim, modes: one of them lets several nodes mount it}. */}}
{{- define "quire.sharedClaims" -}}
{{- $claims := dict -}}
{{- with .Values.kernelCache.existingClaim -}}
{{- $_ := set $claims "kernelCache.existingClaim" (dict "claim" . "modes" (list "ReadWriteMany")) -}}
{{- end -}}
{{- with .Values.model.existingClaim -}}
{{- /* By its name, the init container of each pod writes. */ -}}
{{- $modes := ternary (list "ReadWriteMany") (list "ReadWriteMany" "ReadOnlyMany") (not (empty (index $.Values.model "name"))) -}}
{{- $_ := set $claims "model.existingClaim" (dict "claim" . "modes" $modes) -}}
{{- end -}}
{{- toJson $claims -}}
{{- end -}}

{{/* Replicas may all run on one node, where ReadWriteOnce is enough, so only a group's claims are checked. */}}
{{- define "quire.checkClaims" -}}
{{- if .Values.multiNode.enabled -}}
{{- range $key, $needed := include "quire.sharedClaims" . | fromJson -}}
{{- $found := lookup "v1" "PersistentVolumeClaim" $.Release.Namespace $needed.claim -}}
{{- $modes := dig "status" "accessModes" (dig "spec" "accessModes" list $found) $found -}}
{{- $suits := false -}}
{{- range $needed.modes -}}
{{- if has . $modes -}}{{- $suits = true -}}{{- end -}}
{{- end -}}
{{- if and $modes (not $suits) -}}
{{- fail (printf "%s: the pods of a group (multiNode) are on several nodes, and claim %s is %s: it must be %s" $key $needed.claim (join ", " $modes) (join " or " $needed.modes)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
