"""guidance's client of vLLM: one grammar in two fields, and the name of a backend."""

from __future__ import annotations

import sys

import guidance
from guidance.models.experimental import VLLMModel

URL, MODEL = sys.argv[1:]

model = VLLMModel(MODEL, base_url=f"{URL}/v1", api_key="unused", echo=False)
with guidance.user():
    model += "What is 48 - 19?"
with guidance.assistant():
    model += guidance.gen(name="number", regex="[0-9]{1,3}")
assert model["number"].isdigit(), model["number"]
