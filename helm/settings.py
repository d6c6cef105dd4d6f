"""The chart's parts that depend on the server's settings, from the tables that declare them.

Each engine setting is a value ``engine.<name>`` of the chart, except those that another value
decides. Pure functions from the tables to the generated parts; ``helm.generate`` writes them.
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

# Engine settings that another value of the chart decides.
ELSEWHERE = {
    "model": "model.path",
    "device": "gpu.count",
    "tensor_parallel_size": "gpu.count",
    "data_parallel_size": "dataParallelSize",
}
# Flags that extraArgs must not set, because other values or templates depend on them.
_OWNED = (
    *("host", "port", "grpc_port", "drain_timeout", "device", "model", "api_workers"),
    *("admin", "admin_host", "admin_port", "revision", "download_dir"),
)
# Secrets with separate values, each an existing Secret.
_BY_VALUE = {
    "api_key": "auth",
    "store_url": "store",
    "signing_key": "signing",
    "admin_key": "admin",
}
# Defaults for pods, where the server's own default does not fit, and remarks on values.
DEFAULTS = {"threads": 2}
_NOTES = {
    "threads": "Set it to the CPUs that you give the pod: a container sees all cores of its node.",
    "kv_cache_memory": "resources.limits.memory must hold it and the weights.",
}


def engine_settings() -> Iterator[Option]:
    return (option for option in options(EngineConfig) if option.name not in ELSEWHERE)


def key(option: Option) -> str:
    """Return the chart's name of a setting: ``maxModelLen`` for ``max_model_len``."""
    first, *rest = option.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def meaning(option: Option) -> str:
    return " ".join(filter(None, (option.description, _NOTES.get(option.name))))


def engine_schema() -> dict[str, Any]:
    """Return the schema of ``engine``: each value, or null for the server's default."""
    return {key(option): _schema(option) for option in engine_settings()}


def _schema(option: Option) -> dict[str, Any]:
    declared = msgspec.json.schema(option.annotation)
    branches = declared.get("anyOf", [declared])
    own = next(branch for branch in branches if branch.get("type") != "null")
    described: dict[str, Any] = {"description": f"`{option.flag}`: {meaning(option)}"}
    if isinstance(option.kind, inspect.LiteralType):
        values = list(option.kind.values)
        kind = "integer" if isinstance(values[0], int) else "string"
        return {"type": [kind, "null"], **described, "enum": [*values, None]}
    bounds = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    return {
        "type": [own["type"], "null"],
        **described,
        **{bound: own[bound] for bound in bounds if bound in own},
    }


def refused_arguments() -> str:
    """Return the pattern of words that ``extraArgs`` refuses: secrets are never arguments."""
    secrets = [option.name for option in options(ServiceSettings) if option.secret]
    flags = "|".join(name.replace("_", "-") for name in (*_OWNED, *secrets))
    return f"^--({flags})(=|$)"


def secrets_by_reference() -> list[str]:
    """Return the variables that ``extraEnv`` accepts only from a Secret (``valueFrom``)."""
    secrets = (option for option in options(ServiceSettings) if option.secret)
    return [option.variable for option in secrets if option.name not in _BY_VALUE]


def values_block() -> str:
    """Return the block ``engine`` of values.yaml."""
    lines = ["engine:"]
    for option in engine_settings():
        lines += [f"  # {line}" for line in textwrap.wrap(meaning(option), 94)]
        lines.append(f"  {key(option)}: {DEFAULTS.get(option.name, 'null')}")
    return "\n".join(lines) + "\n"


def flags_block() -> str:
    """Return the lists of flags with a word, and of switches, in the server's template."""
    flags, switches = [], []
    for option in engine_settings():
        value = f"$engine.{key(option)}"
        if isinstance(option.kind, inspect.BoolType):
            switches.append(f'  (list "{option.flag[2:]}" {value})')
        else:
            flags.append(f'  (list "{option.flag}" {value})')
    return "\n".join(
        ["{{- $flags := list", *flags, "-}}", "{{- $switches := list", *switches, "-}}", ""]
    )


def other_value(option: Option) -> Any:
    """Return a valid value of the setting other than its default in the chart."""
    default = DEFAULTS.get(option.name, option.default)
    match option.kind:
        case inspect.BoolType():
            return not default
        case inspect.LiteralType(values):
            return next(value for value in reversed(values) if value != default)
        case inspect.IntType(ge=least, le=most):
            return least * 3 + 1 if most else least * 32768 + 1  # large, where no bound forbids it
        case inspect.FloatType(gt=least, le=most):
            return least + (most - least) / 4
    raise TypeError(f"no value is known for {option.flag}")


def case() -> str:
    """Return a values file that sets every engine setting."""
    lines = ["# Every setting of the engine. Written by python -m helm.generate.", "engine:"]
    for option in engine_settings():
        value = msgspec.json.encode(other_value(option)).decode()
        lines += [f"  {key(option)}: {value}"]
    return "\n".join(lines) + "\n"
