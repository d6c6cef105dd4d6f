"""Documents about tools: known and unseen ones, several at once, none, and their results."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pocket.text import facts, showpieces, small_talk, unknown, values
from pocket.text.arithmetic import problem
from pocket.text.copying import echo
from pocket.text.dice import Dice
from pocket.text.document import Call, Document, Exchange, Json, Turn
from pocket.text.known_tools import KNOWN, KnownTool, raw
from pocket.text.schemas import function_schema, unseen

_RENAMED: Final[dict[str, tuple[str, ...]]] = {
    "city": ("location", "place", "town", "city_name"),
    "query": ("q", "text", "search"),
    "minutes": ("duration", "time", "mins"),
    "to": ("recipient", "target", "address"),
    "from": ("source", "base", "from_currency"),
    "symbol": ("ticker", "stock"),
    "title": ("name", "summary"),
    "expression": ("expr", "input", "formula"),
    "path": ("file", "filename", "file_path"),
    "content": ("text", "data"),
    "command": ("cmd",),
    "order_id": ("id", "order"),
    "user_id": ("id",),
    "room": ("location",),
    "limit": ("max_results", "count", "n"),
    "language": ("target_language", "lang"),
    "date": ("day",),
    "text": ("message", "what"),
    "unit": ("units",),
}
_CALLED: Final[dict[str, tuple[str, ...]]] = {
    "get_weather": ("get_current_weather", "weather", "lookup_weather", "getWeather"),
    "get_time": ("current_time", "get_current_time"),
    "web_search": ("search", "search_web"),
    "calculator": ("calculate", "compute"),
    "run_command": ("bash", "shell", "execute"),
    "get_user": ("find_user", "getUser"),
    "send_email": ("email", "send_mail"),
    "get_stock_price": ("stock_price",),
    "set_timer": ("start_timer", "timer"),
    "read_file": ("open_file", "cat_file"),
    "translate": ("translate_text",),
    "get_order_status": ("order_status", "check_order"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to be done: the tool, how it is asked for, the call, and how it turns out.

    `kind` is the catalogue name of a known tool, or the name itself; two tools of one kind in one
    toolbox would make a request ambiguous. `aspect` is a noun phrase for joining several requests,
    empty where there is none.
    """

    kind: str
    tool: Json
    ask: str
    aspect: str
    call: Call
    result: str
    told: str


@dataclass(frozen=True, slots=True)
class Dressed:
    """A known tool under the names one client happens to give it and its parameters."""

    tool: KnownTool
    name: str
    keys: dict[str, str]
    schema: Json

    def call(self, arguments: Json) -> Call:
        """The call with catalogue arguments, renamed and in the order of the schema."""
        given = {self.keys[key]: value for key, value in arguments.items()}
        order = self.schema["function"]["parameters"]["properties"]
        return Call(self.name, {key: given[key] for key in order if key in given})

    def request(self, dice: Dice) -> Request:
        """Something to ask of this tool."""
        ask, aspect, arguments = self.tool.ask(dice)
        result, told = self.tool.tell(dice, arguments)
        return Request(
            self.tool.name, self.schema, ask, aspect, self.call(arguments), raw(result), told
        )


def wrap(function: Json) -> Json:
    """A function as an entry of the chat API's `tools`."""
    return {"type": "function", "function": function}


def dress(dice: Dice, tool: KnownTool | None = None, rename: bool = True) -> Dressed:
    """Give a known tool (or any) its names: in a fifth of the cases similar ones, not its own."""
    if tool is None:  # everybody's first example is the weather
        tool = KNOWN[0] if dice.chance(0.08) else dice.choice(KNOWN)
    name = tool.name
    keys = {key: key for key in tool.properties}
    if rename:
        if name in _CALLED and dice.chance(0.25):
            name = dice.choice(_CALLED[name])
        for key in keys:
            if key in _RENAMED and dice.chance(0.2):
                keys[key] = dice.choice(_RENAMED[key])
        if len(set(keys.values())) < len(keys):
            keys = {key: key for key in tool.properties}
    properties = {keys[key]: dict(schema) for key, schema in tool.properties.items()}
    for schema in properties.values():
        if dice.chance(0.25):
            schema.pop("description", None)
    description = "" if dice.chance(0.15) else tool.description
    required = [keys[key] for key in tool.required]
    function = function_schema(dice, name, description, properties, required)
    return Dressed(tool, name, keys, wrap(function))


def known_request(dice: Dice) -> Request:
    """A request for a function of the catalogue."""
    return dress(dice).request(dice)


def generic_result(dice: Dice) -> tuple[str, str]:
    """What any tool may send back, and the sentence that passes it on."""
    roll = dice.random()
    if roll < 0.6:
        keys = list(dict.fromkeys(values.word(dice) for _ in range(dice.randint(1, 3))))
        result: Json = {
            key: dice.drawn(values.integer, values.word, values.label, values.decimal)
            for key in keys
        }
        if dice.chance(0.3):
            result = {dice.pick("status", "state"): dice.pick("ok", "done", "success"), **result}
        said = ", ".join(f"{key} is {value}" for key, value in result.items())
        return raw(result), f"Here is the result: {said}."
    if roll < 0.75:
        message = dice.pick(
            "not found",
            "timeout",
            "permission denied",
            "invalid input",
            f"{values.word(dice)} not found",
            values.phrase(dice),
        )
        return raw({"error": message}), f"The tool reported an error: {message}."
    text = dice.drawn(
        values.phrase,
        values.label,
        lambda d: str(values.integer(d)),
        lambda d: f"{d.randint(-5, 35)} degrees, {d.pick('sunny', 'cloudy', 'rain')}",
        lambda d: values.phrase(d, 4, 9).capitalize() + ".",
    )
    return text, f"The tool says: {text}"


def unseen_request(dice: Dice) -> Request:
    """A request for a function that was just made up."""
    tool = unseen(dice)
    result, told = generic_result(dice)
    return Request(
        tool.name,
        wrap(tool.function),
        tool.request,
        "",
        Call(tool.name, tool.arguments),
        result,
        told,
    )


def toolbox(dice: Dice, requests: Sequence[Request], extra: int) -> list[Json]:
    """The tools of the requests, each once, among `extra` others, in random order."""
    tools = {r.kind: r.tool for r in (*requests, *others(dice, extra))}
    box = list({**tools, **{r.kind: r.tool for r in requests}}.values())
    dice.shuffle(box)
    return box


def others(dice: Dice, extra: int) -> list[Request]:
    """Requests whose tools are there besides the one that is needed."""
    return [known_request(dice) if dice.chance(0.5) else unseen_request(dice) for _ in range(extra)]


_TOLD: Final = "The tool answered. I tell the user."


def plan(calls: Sequence[Call]) -> str:
    """What the model thinks before calling: which functions, with which parameters."""
    if len(calls) > 1:
        return f"I need {len(calls)} calls: {', '.join(call.name for call in calls)}."
    keys = ", ".join(calls[0].arguments)
    return f"I call {calls[0].name} with {keys}." if keys else f"I call {calls[0].name}."


def _called(ask: str, requests: Sequence[Request], preface: str = "") -> list[Turn]:
    calls = tuple(r.call for r in requests)
    return [Turn("user", ask), Turn("assistant", preface, plan(calls), calls)]


def round_of(dice: Dice, request: Request) -> list[Turn]:
    """A finished round with a tool: asked, called, answered; or stopped at the call."""
    turns = _called(request.ask, [request])
    if dice.chance(0.6):
        turns += [Turn("tool", request.result), Turn("assistant", request.told, _TOLD)]
    return turns


def single(dice: Dice, seen: bool) -> tuple[list[Turn], list[Json], Request]:
    """One call of a known (`seen`) or an unseen function, often after rounds with other tools.

    The earlier rounds make the tool list, the dear part of such a text, teach several calls.
    """
    request = known_request(dice) if seen else unseen_request(dice)
    extra = dice.choices((0, 1, 2, 3, 5), (32, 33, 20, 12, 3))[0]
    by_kind = {r.kind: r for r in others(dice, extra) if r.kind != request.kind}
    earlier: list[Turn] = []
    for other in list(by_kind.values())[:2]:
        if not dice.held and dice.chance(0.6):
            earlier += round_of(dice, other)
    box = [request.tool, *(r.tool for r in by_kind.values())]
    dice.shuffle(box)
    return earlier + _called(request.ask, [request]), box, request


def _same_tool(dice: Dice, count: int) -> tuple[str, list[Request]]:
    """Several requests to one known tool, most often the weather in several places."""
    dressed = dress(dice, dice.choice(KNOWN[:1] * 6 + KNOWN[1:2] * 3 + KNOWN))
    if dressed.tool.name not in ("get_weather", "get_time") or dice.chance(0.4):
        requests = [dressed.request(dice) for _ in range(count)]
        return _joined(dice, [r.aspect for r in requests]), requests
    towns, requests = [values.city(dice) for _ in range(count)], []
    for town in towns:
        result, told = dressed.tool.tell(dice, {"city": town})
        call = dressed.call({"city": town})
        requests.append(Request(dressed.tool.name, dressed.schema, "", "", call, raw(result), told))
    what = "weather" if dressed.tool.name == "get_weather" else "time"
    listed = f"{', '.join(towns[:-1])} and {towns[-1]}"
    ask = dice.pick(
        f"What's the {what} in {listed}?",
        f"Compare the {what} in {listed}.",
        f"What is the {what} in {' and in '.join(towns)}?",
        f"{what} in {listed}",
        f"Get the {what} for {listed}.",
        f"What is the {what} in {listed}?",
    )
    return ask, requests


def _joined(dice: Dice, aspects: Sequence[str]) -> str:
    listed = f"{', '.join(aspects[:-1])} and {aspects[-1]}"
    return dice.pick(
        f"I need {listed}.",
        f"Get me {listed}.",
        f"Please give me {listed}.",
        f"I want {listed}",
        f"Can you do this: {listed}?",
        f"Do {listed}.",
    )


def parallel(dice: Dice) -> tuple[list[Turn], list[Json], list[Request]]:
    """Two or three calls in one answer."""
    count = dice.choices((2, 3), (7, 3))[0]
    if dice.chance(0.45):
        ask, requests = _same_tool(dice, count)
    else:
        requests = []
        while len(requests) < count:
            request = known_request(dice) if dice.chance(0.5) else unseen_request(dice)
            if request.kind not in {r.kind for r in requests}:
                requests.append(request)
        aspects = [r.aspect for r in requests]
        if all(aspects) and dice.chance(0.4):
            ask = _joined(dice, aspects)
        else:
            joiner = dice.pick(" Also, ", " Then: ", "\n", " And ", " ")
            ask = joiner.join(_sentence(r.ask) for r in requests)
    return (
        _called(ask, requests),
        toolbox(dice, requests, dice.choices((0, 1, 2), (6, 3, 1))[0]),
        (list(requests)),
    )


def _sentence(text: str) -> str:
    return text if text[-1] in ".?!" else f"{text}."


def answered(dice: Dice) -> tuple[list[Turn], list[Json]]:
    """Call, result, and the answer in words; sometimes several calls or a chain of two."""
    roll = dice.random()
    if roll < 0.06:
        return chain(dice)
    # Several results are harder than one, so training has more of them than the gates.
    if roll < (0.25 if dice.held else 0.4):
        turns, tools, requests = parallel(dice)
    else:
        turns, tools, request = single(dice, dice.chance(0.6))
        requests = [request]
    told = []
    for request in requests:
        result, sentence = request.result, request.told
        if dice.chance(0.15):
            result, sentence = generic_result(dice)
        turns.append(Turn("tool", result))
        told.append(sentence)
    thought = (
        _TOLD
        if len(told) == 1
        else (f"The tools answered. I tell the user all {len(told)} results.")
    )
    turns.append(Turn("assistant", "\n".join(told), thought))
    return turns, tools


def chain(dice: Dice) -> tuple[list[Turn], list[Json]]:
    """The second call needs what the first one brought."""
    by_name = {tool.name: tool for tool in KNOWN}
    users = dice.chance(0.5)
    names = ("get_user", "send_email") if users else ("read_file", "write_file")
    source, target = (dress(dice, by_name[name], rename=False) for name in names)
    first, second = source.request(dice), target.request(dice)
    found = json.loads(first.result)
    if users:
        subject, body = values.phrase(dice, 1, 2), values.phrase(dice, 1, 4)
        ask = (
            f"Send user {first.call.arguments['user_id']} an email with subject "
            f'"{subject}" and body "{body}".'
        )
        last = target.call({"to": found["email"], "subject": subject, "body": body})
        told = f"I sent the email to {found['email']}."
    else:
        path, origin = values.path(dice), first.call.arguments["path"]
        ask = dice.pick(f"Copy {origin} to {path}.", f"Read {origin} and write it to {path}.")
        last = target.call({"path": path, "content": found["content"]})
        told = f"I wrote the file {path}."
    turns = _called(ask, [first])
    turns += [
        Turn("tool", first.result),
        Turn("assistant", "", plan([last]), (last,)),
        Turn("tool", '{"status": "ok"}'),
        Turn("assistant", told, _TOLD),
    ]
    return turns, toolbox(dice, [first, second], dice.randint(0, 1))


def not_needed(dice: Dice) -> tuple[Exchange, list[Json]]:
    """Tools are there, the question does not need them, or none of them fits."""
    roll = dice.random()
    if roll < 0.2:
        box = toolbox(dice, [unseen_request(dice)], 0)
        exchange = unknown.lookup_without_tool(dice)
        return exchange, box
    maker = dice.pick(
        small_talk.small_talk,
        small_talk.small_talk,
        facts.fact,
        problem,
        echo,
        unknown.refusal,
        showpieces.counting,
        showpieces.listing,
        showpieces.story,
    )
    exchange = maker(dice)
    if maker is problem and "calc" in json.dumps(box := toolbox(dice, [], 2)):
        exchange = small_talk.small_talk(dice)
    elif maker is not problem:
        box = toolbox(dice, [], dice.randint(1, 3))
    return Exchange(exchange.user, exchange.answer, f"No tool is needed. {exchange.thought}"), box


def document(dice: Dice, task: str, thinking: bool) -> Document:
    """A document of one of this module's tasks."""
    if task == "none_needed":
        exchange, tools = not_needed(dice)
        return Document(task, exchange.turns(), tools, thinking)
    if task == "tool_result":
        turns, tools = answered(dice)
    elif task == "parallel":
        turns, tools, _ = parallel(dice)
    else:
        turns, tools, _ = single(dice, task == "known_tool")
    return Document(task, turns, tools, thinking)
