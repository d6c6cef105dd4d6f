"""Defaults for values that an older chart did not have.

``helm upgrade --reuse-values`` gives a new chart's templates the old release's values, without the
new chart's defaults. The template ``quire.defaults`` adds them. A key that the user set to null is
absent, too, because Helm removes it. So a value that may be null, whose absence means null, is not
among the defaults; nor are the keys of free-form values such as ``resources``, of which a user may
have removed some.
"""

from __future__ import annotations

from typing import Any

import yaml

_TEMPLATE = """\
{{- /* Written by python -m helm.generate. For upgrades with --reuse-values. */ -}}
{{- define "quire.defaults" -}}
%s{{- end -}}

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
"""


def closed(part: dict[str, Any]) -> bool:
    """Return whether a value is an object with fixed keys, each with a default."""
    return "properties" in part and "requests" not in part["properties"]


def absent(schema: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults to add, from the chart's schema and values.yaml."""
    found: dict[str, Any] = {}
    for name, part in schema["properties"].items():
        if name not in values:
            continue
        if closed(part):
            found[name] = absent(part, values[name])
        elif not nullable(part):
            # Of a free-form value only that there is one.
            value = values[name]
            found[name] = {} if isinstance(value, dict) else value
    return found


def nullable(part: dict[str, Any]) -> bool:
    branches = part.get("anyOf", [part])
    return any("null" in branch["type"] for branch in branches if "type" in branch)


def template(schema: dict[str, Any], values: dict[str, Any]) -> str:
    """Return the template file, from the chart's schema and values.yaml."""
    text = yaml.safe_dump(absent(schema, values), sort_keys=False, allow_unicode=True)
    return _TEMPLATE % text
