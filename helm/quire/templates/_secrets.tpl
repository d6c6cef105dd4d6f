{{/* Secrets that the server reads. They are files, which change with the Secret, and are not in the
pod's environment. */}}

{{- define "quire.secretsFolder" -}}
/etc/quire/secrets
{{- end -}}

{{/* Name of the API keys' file: its ending says how it is read. */}}
{{- define "quire.keysFile" -}}
{{- $ending := regexFind "\\.(toml|json)$" .Values.auth.secretKey -}}
keys{{ $ending | default ".txt" }}
{{- end -}}

{{/* What makes the server require API keys, by which /metrics is only on the admin port: a value's name; empty: nothing does. */}}
{{- define "quire.keysFrom" -}}
{{- $from := "" -}}
{{- range .Values.extraEnv -}}
{{- if or (has .name (list "QUIRE_API_KEY_FILE" "QUIRE_PRIORITY_API_KEY" "QUIRE_PRIORITY_API_KEY_FILE" "QUIRE_KEYS_FILE")) (and (eq .name "QUIRE_STORED_KEYS") (not (has (lower (toString .value)) (list "false" "0")))) -}}
{{- $from = "extraEnv" -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- if regexMatch "^--(keys-file(=|$)|stored-keys$)" . -}}{{- $from = "extraArgs" -}}{{- end -}}
{{- end -}}
{{- if .Values.api.storedKeys -}}{{- $from = "api.storedKeys" -}}{{- end -}}
{{- if .Values.auth.existingSecret -}}{{- $from = "auth.existingSecret" -}}{{- end -}}
{{- $from -}}
{{- end -}}

{{/* A flag that names the file of API keys, which is read again when it changes: "true" unless a
keys file of one's own is in extraArgs or extraEnv. */}}
{{- define "quire.readsKeysFile" -}}
{{- $own := hasKey (include "quire.extraFlags" . | fromJson) "keys-file" -}}
{{- range .Values.extraEnv -}}
{{- if eq .name "QUIRE_KEYS_FILE" -}}{{- $own = true -}}{{- end -}}
{{- end -}}
{{- if and .Values.auth.existingSecret (not $own) -}}true{{- end -}}
{{- end -}}

{{/* The files as a JSON object with a list: Secret, entry, file, and the variable that names it, if
that is not a flag. */}}
{{- define "quire.secretFiles" -}}
{{- $files := list -}}
{{- with .Values.auth -}}
{{- if .existingSecret -}}
{{- $variable := ternary "" "QUIRE_API_KEY_FILE" (eq (include "quire.readsKeysFile" $) "true") -}}
{{- $files = append $files (dict "secret" .existingSecret "key" .secretKey "file" (include "quire.keysFile" $) "variable" $variable) -}}
{{- end -}}
{{- end -}}
{{- range $name, $variable := dict "store" "QUIRE_STORE_URL_FILE" "signing" "QUIRE_SIGNING_KEY_FILE" "admin" "QUIRE_ADMIN_KEY_FILE" -}}
{{- $from := index $.Values $name -}}
{{- if $from.existingSecret -}}
{{- $files = append $files (dict "secret" $from.existingSecret "key" $from.secretKey "file" $name "variable" $variable) -}}
{{- end -}}
{{- end -}}
{{- if .Values.multiNode.enabled -}}
{{- $files = concat $files (include "quire.ranksSecret" . | fromJson).files -}}
{{- end -}}
{{- toJson (dict "files" $files) -}}
{{- end -}}

{{/* A projected volume of files: (dict "root" $ "name" "secrets" "files" list). */}}
{{- define "quire.secretsVolume" -}}
- name: {{ .name }}
  projected:
    {{- /* Without a group of the volume only its owner, root, could read 0440. */}}
    defaultMode: {{ ternary 0444 0440 (kindIs "invalid" .root.Values.securityContext.fsGroup) }}
    sources:
      {{- range .files }}
      - secret:
          name: {{ .secret }}
          items:
            - key: {{ .key | quote }}
              path: {{ .file }}
      {{- end }}
{{- end -}}
