"""The table of APIs agrees with what the server accepts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dashboard.apis.ask import Ask, Message, Tool
from dashboard.apis.table import APIS, BY_NAME, Api
from service.wire.chat.request import decode_chat
from service.wire.completions.request import decode_completion
from service.wire.messages.request import decode_messages
from service.wire.responses.request import decode_responses
from service.wire.texts.embeddings import decode_embeddings
from service.wire.texts.rerank import decode_rerank, decode_score

DECODERS: dict[str, Callable[[bytes], object]] = {
    "Chat completions": lambda body: decode_chat(body, max_choices=1),
    "Responses": decode_responses,
    "Messages": decode_messages,
    "Completions": lambda body: decode_completion(body, max_choices=1),
    "Embeddings": decode_embeddings,
    "Rerank": decode_rerank,
    "Score": decode_score,
}
EVERYTHING = Ask(
    "m",
    (Message("user", "Hi"),),
    system="Be brief.",
    temperature=0.5,
    top_p=0.9,
    max_tokens=2048,
    seed=1,
    thinking=True,
    stop=("END",),
    tools=(Tool("look", "Looks.", {"type": "object"}),),
    schema={"type": "object"},
    logprobs=True,
    documents=("a", "b"),
)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@pytest.mark.parametrize("ask", [EVERYTHING, Ask("m", EVERYTHING.messages, documents=("a",))])
def test_the_server_accepts_every_body_field_by_field(api: Api, ask: Ask) -> None:
    DECODERS[api.name](msgspec.json.encode(api.body(ask)))


def test_names_and_paths_are_unique() -> None:
    assert len(BY_NAME) == len({api.path for api in APIS}) == len(APIS)
