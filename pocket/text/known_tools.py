"""A small catalogue of well-known functions."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocket.text import tool_requests
from pocket.text.dice import Dice
from pocket.text.document import Json


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A function everybody has: its schema, how it is asked for, and what it answers.

    `ask` gives (request, short noun phrase for joining several requests, arguments).
    `tell` gives (raw result, sentence that says it) for such arguments.
    """

    name: str
    description: str
    properties: Json
    required: tuple[str, ...]
    ask: Callable[[Dice], tuple[str, str, Json]]
    tell: Callable[[Dice, Json], tuple[Json, str]]


_S: Final[Json] = {"type": "string"}
_I: Final[Json] = {"type": "integer"}
_N: Final[Json] = {"type": "number"}


def _s(description: str) -> Json:
    return {"type": "string", "description": description}


KNOWN: Final[tuple[KnownTool, ...]] = (
    KnownTool(
        "get_weather",
        "Get the current weather in a city.",
        {"city": _s("The city"), "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        ("city",),
        tool_requests.weather,
        tool_requests.weather_told,
    ),
    KnownTool(
        "get_time",
        "Get the current time in a city.",
        {"city": _s("The city")},
        ("city",),
        tool_requests.time_in,
        tool_requests.time_in_told,
    ),
    KnownTool(
        "send_email",
        "Send an email.",
        {"to": _s("Address"), "subject": _S, "body": _s("The text")},
        ("to", "subject", "body"),
        tool_requests.mail,
        tool_requests.done("I sent the email to {to}."),
    ),
    KnownTool(
        "set_timer",
        "Set a timer.",
        {"minutes": _I},
        ("minutes",),
        tool_requests.timer,
        tool_requests.done("The timer is set for {minutes} minutes."),
    ),
    KnownTool(
        "web_search",
        "Search the web.",
        {"query": _s("What to search for"), "limit": _I},
        ("query",),
        tool_requests.search,
        tool_requests.search_told,
    ),
    KnownTool(
        "convert_currency",
        "Convert money from one currency to another.",
        {"amount": _N, "from": _S, "to": _S},
        ("amount", "from", "to"),
        tool_requests.convert_units,
        tool_requests.convert_units_told,
    ),
    KnownTool(
        "get_stock_price",
        "Get the price of a stock.",
        {"symbol": _s("Ticker symbol")},
        ("symbol",),
        tool_requests.stock,
        tool_requests.stock_told,
    ),
    KnownTool(
        "create_event",
        "Create a calendar event.",
        {"title": _S, "date": _s("YYYY-MM-DD"), "time": _s("HH:MM")},
        ("title", "date"),
        tool_requests.event,
        tool_requests.done("The event {title} is in the calendar on {date}."),
    ),
    KnownTool(
        "translate",
        "Translate text.",
        {"text": _S, "language": _S},
        ("text", "language"),
        tool_requests.translate,
        tool_requests.translate_told,
    ),
    KnownTool(
        "set_light",
        "Turn a light on or off.",
        {"room": _S, "on": {"type": "boolean"}},
        ("room", "on"),
        tool_requests.light,
        tool_requests.done("Done, I switched the light in the {room}."),
    ),
    KnownTool(
        "play_music",
        "Play a song.",
        {"song": _S, "artist": _S},
        ("song",),
        tool_requests.play,
        tool_requests.done("Now playing {song}. 🎵"),
    ),
    KnownTool(
        "set_reminder",
        "Set a reminder.",
        {"text": _S, "time": _s("HH:MM")},
        ("text", "time"),
        tool_requests.remind,
        tool_requests.done("I will remind you at {time} to {text}."),
    ),
    KnownTool(
        "calculator",
        "Evaluate an expression.",
        {"expression": _S},
        ("expression",),
        tool_requests.compute,
        tool_requests.compute_told,
    ),
    KnownTool(
        "write_file",
        "Write text to a file.",
        {"path": _S, "content": _S},
        ("path", "content"),
        tool_requests.file,
        tool_requests.done("I wrote the file {path}."),
    ),
    KnownTool(
        "read_file",
        "Read a file.",
        {"path": _S},
        ("path",),
        tool_requests.read_file,
        tool_requests.read_file_told,
    ),
    KnownTool(
        "run_command",
        "Run a shell command.",
        {"command": _S},
        ("command",),
        tool_requests.shell,
        tool_requests.shell_told,
    ),
    KnownTool(
        "get_order_status",
        "Get the status of an order.",
        {"order_id": _S},
        ("order_id",),
        tool_requests.order,
        tool_requests.order_told,
    ),
    KnownTool(
        "book_hotel",
        "Book a hotel room.",
        {"city": _S, "date": _S, "guests": _I},
        ("city", "date", "guests"),
        tool_requests.book,
        tool_requests.done("I booked a hotel in {city} on {date} for {guests} guests."),
    ),
    KnownTool(
        "get_user",
        "Get a user by id.",
        {"user_id": _I},
        ("user_id",),
        tool_requests.user,
        tool_requests.user_told,
    ),
)


def raw(result: Json) -> str:
    """A result as tools send it: a JSON object."""
    return json.dumps(result, ensure_ascii=False)
