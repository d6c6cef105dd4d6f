"""The chart's parts that depend on the server's settings, from the tables that declare them.

Each setting is a value of the chart, ``engine.<name>`` or ``api.<name>``, except those that another
value decides. Pure functions from the tables to the generated parts; ``helm.generate`` writes them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from engine.config import EngineConfig
from engine.options import Option, options
from service.settings import ServiceSettings

# Settings that another value of the chart decides, and which one.
ELSEWHERE: dict[str, dict[str, str]] = {
    "engine": {
        "model": "model.path",
        "device": "gpu.count",
        "tensor_parallel_size": "gpu.count",
        "tensor_parallel_hosts": "multiNode.size",
        "ranks_host": "multiNode.port",
        "ranks_port": "multiNode.port",
        "ranks_secret": "multiNode.existingSecret",
        "data_parallel_size": "dataParallelSize",
    },
    "api": {
        "host": "server.port",
        "port": "server.port",
        "grpc_port": "server.grpcPort",
        "served_model_name": "model.servedNames",
        "api_workers": "apiWorkers",
        "drain_delay": "drain.preStopSeconds",
        "drain_timeout": "drain.timeoutSeconds",
        "keys_file": "auth.existingSecret",
        "api_key": "auth.existingSecret",
        "priority_api_key": "extraEnv",
        "store_url": "store.existingSecret",
        "signing_key": "signing.existingSecret",
        "admin": "admin.existingSecret",
        "admin_host": "admin.existingSecret",
        "admin_port": "admin.port",
        "admin_key": "admin.existingSecret",
        "fault": "extraArgs",
        "slo_ttft": "slo.ttft",
        "slo_itl": "slo.itl",
    },
}
TABLES: dict[str, type[msgspec.Struct]] = {"engine": EngineConfig, "api": ServiceSettings}
# Flags that extraArgs must not set, because other values or templates depend on them.
_OWNED = (
    *(
        "host",
        "port",
        "grpc_port",
        "drain_delay",
        "drain_timeout",
        "device",
        "model",
        "api_workers",
    ),
    *("admin", "admin_host", "admin_port", "revision", "download_dir"),
    *("tensor_parallel_hosts", "ranks_host", "ranks_port"),
)
# Secrets with separate values, each an existing Secret.
_BY_VALUE = ("api_key", "store_url", "signing_key", "admin_key", "ranks_secret")
# Engine settings without effect on the other device.
CPU_ONLY = ("cpu_path", "kv_cache_memory")
GPU_ONLY = ("gpu_path", "attention", "cuda_graphs", "gpu_memory_utilization")
# Remarks on values.
_NOTES = {
    "threads": "In the chart, null is the CPUs of resources.requests divided by dataParallelSize, "
    "or with a CPU limit the engine's own choice.",
    "kv_cache_memory": "resources.limits.memory must hold it and the weights.",
    "allowed_hosts": "The chart adds the names of the release's Services.",
    "engine_restart_timeout": "Raise it for a model that takes longer to load.",
}
_WIDTH = 94
# For settings that are texts, a valid one.
_TEXTS = {
    "tool_call_parser": "hermes",
    "reasoning_parser": "deepseek_r1",
    "audit_log": "/home/quire/audit.jsonl",
}
_LISTS = {
    "tracing_key": ["alice", "bob"],
    "allowed_origins": ["https://chat.example", "http://localhost:3000"],
    "allowed_hosts": ["llm.example", "llm"],
}


def chart_settings(block: str) -> Iterator[Option]:
    """Yield the settings that are values of ``block``: "engine" or "api"."""
    elsewhere = ELSEWHERE[block]
    return (option for option in options(TABLES[block]) if option.name not in elsewhere)


def key(option: Option) -> str:
    """Return the chart's name of a setting: ``maxModelLen`` for ``max_model_len``."""
    first, *rest = option.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def meaning(option: Option) -> str:
    return " ".join(filter(None, (option.description, _NOTES.get(option.name))))


def block_schema(block: str) -> dict[str, Any]:
    """Return the schema of a block's values; each may be null, for the server's default."""
    return {key(option): _schema(option) for option in chart_settings(block)}


def _schema(option: Option) -> dict[str, Any]:
    declared = msgspec.json.schema(option.annotation)
    branches = declared.get("anyOf", [declared])
    own = next(branch for branch in branches if branch.get("type") != "null")
    described: dict[str, Any] = {"description": f"`{option.flag}`: {meaning(option)}"}
    if isinstance(option.kind, inspect.LiteralType):
        values = list(option.kind.values)
        kind = "integer" if isinstance(values[0], int) else "string"
        return {"type": [kind, "null"], **described, "enum": [*values, None]}
    bounds = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "maxItems")
    schema = {
        "type": [own["type"], "null"],
        **described,
        **{bound: own[bound] for bound in bounds if bound in own},
    }
    if option.is_list:
        # They are joined by commas.
        return schema | {"items": {"type": "string", "pattern": "^[^,\\s]+$"}}
    if isinstance(option.kind, inspect.StrType):
        return schema | {"pattern": "^[^-\\s][^\\n]*$", "maxLength": own["maxLength"]}
    return schema


def refused_arguments() -> str:
    """Return the pattern of words that ``extraArgs`` refuses: secrets are never arguments."""
    secrets = [option.name for option in _every() if option.secret]
    flags = "|".join(name.replace("_", "-") for name in (*_OWNED, *secrets))
    return f"^--(no-)?({flags})(=|$)"


def refused_variables() -> list[str]:
    """Return the variables that ``extraEnv`` refuses: of flags that ``extraArgs`` refuses."""
    secrets = [option for option in _every() if option.name in _BY_VALUE]
    owned = [option for option in _every() if option.name in _OWNED]
    return [option.variable for option in (*secrets, *owned)]


def _every() -> Iterator[Option]:
    return (option for table in TABLES.values() for option in options(table))


def secrets_by_reference() -> list[str]:
    """Return the variables that ``extraEnv`` accepts only from a Secret (``valueFrom``)."""
    secrets = (option for option in options(ServiceSettings) if option.secret)
    return [option.variable for option in secrets if option.name not in _BY_VALUE]


def values_block(block: str) -> str:
    """Return a block of values.yaml."""
    lines = [f"{block}:"]
    for option in chart_settings(block):
        lines += [f"  # {line}" for line in textwrap.wrap(meaning(option), _WIDTH)]
        lines.append(f"  {key(option)}: null")
    return "\n".join(lines) + "\n"


def template_block() -> str:
    """Return the lists of the server's template: flags with a word, switches, and settings without
    effect on one device, each with the name of its value."""
    flags, switches, only = [], [], []
    for block in TABLES:
        for option in chart_settings(block):
            name = f"{block}.{key(option)}"
            row = f'  (list "{option.flag[2:]}" "{name}" $values.{name})'
            (switches if isinstance(option.kind, inspect.BoolType) else flags).append(row)
            if option.name in CPU_ONLY + GPU_ONLY:
                device = "CPU" if option.name in CPU_ONLY else "GPU"
                only.append(f'  (list "{device}" "{name}" $values.{name})')
    return "\n".join(
        [
            *("{{- $flags := list", *flags, "-}}"),
            *("{{- $switches := list", *switches, "-}}"),
            *("{{- $only := list", *only, "-}}", ""),
        ]
    )


def other_value(option: Option) -> Any:
    """Return a valid value of the setting other than its default in the chart."""
    default = option.default
    match option.kind:
        case inspect.BoolType():
            return not default
        case inspect.LiteralType(values):
            return next(value for value in reversed(values) if value != default)
        case inspect.IntType(ge=least, le=most):
            least = least or 0
            return least * 3 + 1 if most else least * 32768 + 1  # large, where no bound forbids it
        case inspect.FloatType(gt=above, ge=least, le=most):
            lowest = least if above is None else above
            return lowest + (most - lowest) / 4
        case inspect.StrType():
            return _TEXTS[option.name]
        case inspect.VarTupleType():
            return _LISTS[option.name]
    raise TypeError(f"no value is known for {option.flag}")


def case(block: str, device: str) -> str:
    """Return a values file that sets every setting of ``block`` that has an effect on ``device``
    ("cpu" or "gpu")."""
    lines = [f"# Every setting of {block} on a {device.upper()}. Written by helm.generate."]
    if device == "gpu":
        lines += ["model:", "  path: /model", "gpu:", "  count: 1"]
    lines.append(f"{block}:")
    for option in chart_settings(block):
        if option.name not in (GPU_ONLY if device == "cpu" else CPU_ONLY):
            value = msgspec.json.encode(other_value(option)).decode()
            lines += [f"  {key(option)}: {value}"]
    return "\n".join(lines) + "\n"
