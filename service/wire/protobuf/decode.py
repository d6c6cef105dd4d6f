"""Decodes protobuf requests to the same structs as HTTP bodies, with the same decoders.

A message is converted to the equivalent JSON body and decoded by that API's own decoder, so there
is one set of limits, rules and error texts.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from service.errors import InvalidRequestError
from service.proto.quire.v1 import quire_pb2 as pb
from service.wire.chat.request import ChatRequest, decode_chat
from service.wire.completions.request import CompletionRequest, decode_completion
from service.wire.decode import Ignored
from service.wire.protobuf import parts
from service.wire.texts.embeddings import EmbeddingRequest, decode_embeddings

_JSON = "_json"
# For messages that contain at most a name.
MAX_SMALL_BYTES = 4096

Fields = dict[str, Any]


def read_embedding(data: bytes, ignored: Ignored | None = None) -> EmbeddingRequest:
    """Raises InvalidRequestError."""
    fields = _fields(read_message(pb.EmbedRequest, data))
    if "input" in fields:
        fields["input"] = [_input(one) for one in fields["input"]]
    return decode_embeddings(msgspec.json.encode(fields), ignored)


def _input(fields: Fields) -> str | list[int] | None:
    """Return an input; None, which is rejected, if it is neither text nor ids."""
    if "token_ids" in fields:
        ids: list[int] = fields["token_ids"].get("ids", [])
        return ids
    return fields.get("text")


def read_small(kind: Any, data: bytes) -> Any:
    """Read a message on the event loop. Like ``read_message``, but also raises for large messages
    and unknown fields."""
    if len(data) > MAX_SMALL_BYTES:
        name = kind.DESCRIPTOR.full_name
        raise InvalidRequestError(f"A {name} may have at most {MAX_SMALL_BYTES} bytes.")
    message = read_message(kind, data)
    _fields(message)
    return message


def read_message(kind: Any, data: bytes) -> Any:
    """Read a message of generated class ``kind``. Raises InvalidRequestError."""
    try:
        parts.check_fields(data, kind)
        return kind.FromString(data)
    except parts.TooManyFieldsError:
        limit = parts.MAX_FIELDS
        raise InvalidRequestError(f"The message may have at most {limit} fields.") from None
    except (ValueError, DecodeError):
        name = kind.DESCRIPTOR.full_name
        raise InvalidRequestError(f"The message is not a {name}.") from None


def read_chat(data: bytes, *, max_choices: int, ignored: Ignored | None = None) -> ChatRequest:
    """Raises InvalidRequestError."""
    fields = _streaming(_fields(read_message(pb.ChatRequest, data)))
    for tool in fields.get("tools", ()):
        tool["type"] = "function"
    if "tool_choice" in fields:
        choice = fields["tool_choice"]
        if "function" in choice:
            named = {"type": "function", "function": {"name": choice["function"]}}
            fields["tool_choice"] = named
        else:
            fields["tool_choice"] = choice.get("mode")
    return decode_chat(msgspec.json.encode(fields), max_choices=max_choices, ignored=ignored)


def read_completion(
    data: bytes, *, max_choices: int, ignored: Ignored | None = None
) -> CompletionRequest:
    """Raises InvalidRequestError."""
    fields = _streaming(_fields(read_message(pb.GenerateRequest, data)))
    if "text" in fields:
        fields["prompt"] = fields.pop("text")
    elif "token_ids" in fields:
        fields["prompt"] = fields.pop("token_ids").get("ids", [])
    body = msgspec.json.encode(fields)
    return decode_completion(body, max_choices=max_choices, ignored=ignored)


def _streaming(fields: Fields) -> Fields:
    """Move the fields of ``Sampling`` and ``StructuredOutputs`` to where HTTP has them."""
    fields |= fields.pop("sampling", {})
    form = fields.get("structured_outputs")
    if form is not None:
        if "schema" in form:
            form["json"] = form.pop("schema")
        if "choice" in form:
            form["choice"] = form["choice"].get("options", [])
    fields["stream"] = True
    return fields


def _fields(message: Any, at: str = "") -> Fields:
    """Return the fields that are set, by HTTP's names. ``at``: the path of the message itself."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        raise InvalidRequestError(
            f"Field {unknown[0].field_number} of {message.DESCRIPTOR.full_name} is unknown to "
            "this server.",
            param=at or None,
        )
    fields: Fields = {}
    for descriptor, value in message.ListFields():
        name = descriptor.name.removesuffix(_JSON)
        path = f"{at}.{name}" if at and at != "sampling" else name
        read = _raw if descriptor.name.endswith(_JSON) else _value
        kind = descriptor.message_type
        if not descriptor.is_repeated:
            fields[name] = read(value, path)
        elif kind is None and read is _value:
            fields[name] = list(value)
        elif kind is not None and kind.GetOptions().map_entry:
            fields[name] = {str(key): read(item, path) for key, item in value.items()}
        else:
            fields[name] = [read(item, f"{path}[{index}]") for index, item in enumerate(value)]
    return fields


def _value(value: Any, path: str) -> Any:
    if hasattr(value, "ListFields"):
        return _fields(value, path)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequestError(f"Invalid value for '{path}': not a finite number.", param=path)
    return value


def _raw(text: str, path: str) -> msgspec.Raw:
    data = text.encode()
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"'{path}' is not valid JSON: {error}.", param=path) from None
    return msgspec.Raw(data)
