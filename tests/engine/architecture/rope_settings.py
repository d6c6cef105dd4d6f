"""Rotary settings of each kind."""

from __future__ import annotations

from typing import Any

POSITIONS = 4096
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "large base": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    # As in Llama 4 Scout: a step instead of a ramp.
    "llama3 without a ramp": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 1.0,
        "original_max_position_embeddings": 512,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1_000_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    "yarn without a factor": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": None,
        "original_max_position_embeddings": 1024,
    },
    "yarn with attention factor": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 512,
        "attention_factor": 0.7,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
    },
}
