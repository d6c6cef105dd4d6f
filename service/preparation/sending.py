"""Compact messages with a step's result. The worker receives token ids as arrays, and only those
parts of the request that answers need."""

from __future__ import annotations

import asyncio
import dataclasses
from array import array
from typing import Any

import msgspec

from service.preparation.jobs import Done, Job, Prepared, PreparedGeneration, PreparedInputs
from service.preparation.steps import STEPS
from service.wire.chat.request import ChatRequest, Message
from service.wire.chat.tools import FunctionDefinition
from service.wire.completions.request import CompletionRequest
from service.wire.messages.request import InputMessage, MessagesRequest
from service.wire.responses.request import ResponsesRequest
from service.wire.texts.embeddings import EmbeddingRequest
from service.wire.texts.rerank import PAIRS, RerankRequest, ScoreRequest

# Larger fields are not sent, unless answers include them.
_SMALL_FIELD_BYTES = 16 * 1024
# Token ids to unpack before letting the event loop run.
_IDS_AT_ONCE = 256 * 1024


def packed(result: Prepared) -> Done:
    token_ids: list[bytes] = []
    changes: dict[str, Any] = {}
    if isinstance(result, PreparedGeneration):
        token_ids = [array("i", prompt).tobytes() for prompt in result.generation.prompts]
        changes["generation"] = dataclasses.replace(result.generation, prompts=[])
    elif isinstance(result, PreparedInputs):
        token_ids = [array("i", one.token_ids).tobytes() for one in result.inputs]
        changes["inputs"] = [dataclasses.replace(one, token_ids=()) for one in result.inputs]
    request = getattr(result, "request", None)
    if request is not None:
        changes["request"] = lightened(request)
    sent = msgspec.structs.replace(result, **changes)
    return Done(msgspec.Raw(msgspec.msgpack.encode(sent)), token_ids)


async def unpacked(job: Job, done: Done) -> Prepared:
    """Unpack a result, letting the event loop run in between if it is large."""
    result: Prepared = msgspec.msgpack.decode(done.result, type=STEPS[job.step].result)
    if isinstance(result, PreparedInputs):
        inputs = [
            dataclasses.replace(one, token_ids=array("i", ids))
            for one, ids in zip(result.inputs, done.token_ids, strict=True)
        ]
        return msgspec.structs.replace(result, inputs=inputs)
    if not isinstance(result, PreparedGeneration):
        return result
    prompts: list[list[int]] = []
    taken = 0
    for ids in done.token_ids:
        prompts.append(array("i", ids).tolist())
        taken += len(prompts[-1])
        if taken > _IDS_AT_ONCE:
            taken = 0
            await asyncio.sleep(0)
    generation = dataclasses.replace(result.generation, prompts=prompts)
    return msgspec.structs.replace(result, generation=generation)


# --- requests without their prompts ---------------------------------------------------------------

_NO_MESSAGE = Message(role="user", content="")
_NO_FUNCTION = FunctionDefinition(name="_")

# Placeholders for required fields that answers do not read.
_STUBS: dict[type[msgspec.Struct], dict[str, Any]] = {
    ChatRequest: {"messages": [_NO_MESSAGE]},
    CompletionRequest: {"prompt": ""},
    MessagesRequest: {"messages": [InputMessage(role="user", content="")]},
    ResponsesRequest: {"input": "", "instructions": None, "tools": None, "tool_choice": None},
    EmbeddingRequest: {"input": ""},
    RerankRequest: {"query": ""},
    ScoreRequest: dict.fromkeys(name for pair in PAIRS for name in pair),
}
# Fields that answers include regardless of size, and fields of which they only need to know whether
# they are set.
_TOLD: dict[type[msgspec.Struct], frozenset[str]] = {RerankRequest: frozenset({"documents"})}
_PRESENT: dict[type[msgspec.Struct], dict[str, Any]] = {ChatRequest: {"functions": [_NO_FUNCTION]}}


def lightened(request: msgspec.Struct) -> msgspec.Struct:
    """Return the request without what was only needed for the prompt, for the encoders of
    answers."""
    kind = type(request)
    changes = dict(_STUBS.get(kind, {}))
    told, present = _TOLD.get(kind, frozenset()), _PRESENT.get(kind, {})
    for field in msgspec.structs.fields(kind):
        name = field.name
        if name in changes or name in told or _is_small(getattr(request, name)):
            continue
        if name in present:
            changes[name] = present[name]
        elif field.default is not msgspec.NODEFAULT:
            changes[name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            changes[name] = field.default_factory()
    if isinstance(request, ChatRequest) and request.echo:
        changes["messages"] = request.messages[-1:]
    if isinstance(request, RerankRequest) and not request.return_documents:
        changes["documents"] = [""]
    return msgspec.structs.replace(request, **changes)


def _is_small(value: Any) -> bool:
    if value is None or isinstance(value, bool | int | float):
        return True
    try:
        return len(msgspec.msgpack.encode(value)) <= _SMALL_FIELD_BYTES
    except (TypeError, ValueError, OverflowError, RecursionError):  # it cannot be encoded
        return False
