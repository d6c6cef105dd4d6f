"""Why a model directory cannot be served.

::

    ModelError            a model that cannot be served, explained in one sentence
    ├── ConfigError       config.json is missing, malformed or describes something unsupported
    │   └── UnsupportedError  the last of these: another implementation may support it
    └── WeightsError      weights are missing, misshapen, or do not belong to the configuration
"""

from __future__ import annotations


class ModelError(ValueError):
    """A model directory that cannot be served; the message says what to change."""


class ConfigError(ModelError):
    """config.json is missing, malformed, or describes something the engine does not serve."""


class UnsupportedError(ConfigError):
    """config.json describes a model that this implementation does not serve."""


class WeightsError(ModelError):
    """Weight files are missing, unreadable, or do not fit the configuration."""
