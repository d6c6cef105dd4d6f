"""ChatQwen of langchain-qwq: it sends ``enable_thinking`` at the top level with every call."""

from __future__ import annotations

import sys

from langchain_qwq import ChatQwen

URL, MODEL = sys.argv[1:]

for thinks in (False, True):
    model = ChatQwen(
        model=MODEL, base_url=f"{URL}/v1", api_key="unused", enable_thinking=thinks, temperature=0
    )
    reply = model.invoke("What is 48 - 19?")
    assert "29" in reply.content, reply
    thought = bool(reply.additional_kwargs.get("reasoning_content"))
    assert thought is thinks, reply
