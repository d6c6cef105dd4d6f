"""outlines' client of SGLang: a regular expression in ``regex``, a grammar in ``ebnf``."""

from __future__ import annotations

import re
import sys

import openai
import outlines
from outlines.types import Regex

URL, MODEL = sys.argv[1:]

model = outlines.from_sglang(openai.OpenAI(base_url=f"{URL}/v1", api_key="unused"), MODEL)
text = model("What is 48 - 19?", Regex("[0-9]{3}"))
assert re.fullmatch("[0-9]{3}", text), text
