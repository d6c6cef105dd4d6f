"""LangChain's structured output against pocket itself, by each method that uses a JSON form, strict
or not, with questions that do not suggest one."""

from __future__ import annotations

import itertools
import sys

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

URL, MODEL = sys.argv[1:]


class Answer(BaseModel):
    """A short answer."""

    text: str = Field(max_length=40)
    sure: bool


for method, strict in itertools.product(("json_schema", "function_calling"), (True, None)):
    for seed in range(4):
        model = ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key="unused", seed=seed)
        structured = model.with_structured_output(Answer, method=method, strict=strict)
        for question in ("Hello", "What is 48 - 19?"):
            answer = structured.invoke(question)
            assert isinstance(answer, Answer), (method, strict, seed, question, answer)
