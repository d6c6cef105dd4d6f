"""The drawings' own code, run by Node: numbers as the rest of the dashboard writes them."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess

import pytest

from dashboard import components
from dashboard.words import count, duration, number

NODE = shutil.which("node")

_RUN = """
const values = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify(values.map((v) => [number(v), count(v), duration(v)])));
"""


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_numbers_are_written_as_in_words() -> None:
    chance = random.Random(7)
    values = [
        0.0,
        1.0,
        999.4,
        999.5,
        0.9994,
        0.9995,
        0.9996,
        9.995,
        1234.5,
        0.0012345,
        102.5,
        1005.0,
    ]
    values += [math.exp(chance.uniform(-7, 14)) for _ in range(500)]
    values += [round(value, 1) for value in values]
    script = components._text("common.js") + _RUN
    assert NODE is not None
    reply = subprocess.run(
        [NODE, "-e", script], input=json.dumps(values), capture_output=True, text=True, check=True
    )
    for value, written in zip(values, json.loads(reply.stdout), strict=True):
        assert written == [number(value), count(value), duration(value)], value
