"""Functions nobody has seen: names, parameters, values and requests drawn afresh each time."""

import json
from dataclasses import dataclass

from pocket.text import values, words
from pocket.text.dice import Dice
from pocket.text.document import Json


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter with a value for it: `said` is how a user writes the value."""

    name: str
    schema: Json
    value: object
    said: str


@dataclass(frozen=True, slots=True)
class UnseenTool:
    """A drawn function, a request that calls it, and the arguments that request means."""

    name: str
    function: Json
    request: str
    arguments: Json


def _identifier(dice: Dice, parts: list[str]) -> str:
    style = dice.random()
    if style < 0.75:
        return "_".join(parts)
    if style < 0.95:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return "-".join(parts)


def _part(dice: Dice, pool: tuple[str, ...]) -> str:
    roll = dice.random()
    if roll < 0.5:
        return dice.choice(pool)
    if roll < 0.92:
        return values.fresh_word(dice)
    return values.letters(dice, 2, 6)


def _parameter_name(dice: Dice) -> str:
    pool = (*words.NOUNS, *words.ADJECTIVES)
    count = dice.choices((1, 2), (7, 3))[0]
    return _identifier(
        dice,
        [dice.choice(pool) if dice.chance(0.7) else values.fresh_word(dice) for _ in range(count)],
    )


def _quoted(dice: Dice, text: str) -> str:
    plain = text.isalnum() or ("@" in text and " " not in text)
    if (plain and dice.chance(0.6)) or '"' in text:
        return text
    return f'"{text}"'


def _text_value(dice: Dice) -> str:
    text = values.awkward(dice) if dice.chance(0.04) else values.label(dice)
    return text.strip().rstrip(".,") or "x"


def _parameter(dice: Dice, name: str, deep: bool = True) -> Parameter:
    roll = dice.random()
    note: Json = {"description": values.phrase(dice, 1, 5).capitalize()} if dice.chance(0.3) else {}
    if roll < 0.5:
        text = str(dice.randint(0, 9999)) if dice.chance(0.06) else _text_value(dice)
        return Parameter(name, {"type": "string", **note}, text, _quoted(dice, text))
    if roll < 0.68:
        number = values.integer(dice)
        return Parameter(name, {"type": "integer", **note}, number, str(number))
    if roll < 0.76:
        amount = values.decimal(dice) if dice.chance(0.7) else values.integer(dice)
        return Parameter(name, {"type": "number", **note}, amount, str(amount))
    if roll < 0.84:
        flag = dice.chance(0.5)
        said = dice.pick("true", "yes", "on") if flag else dice.pick("false", "no", "off")
        return Parameter(name, {"type": "boolean", **note}, flag, said)
    if roll < 0.92 or not deep:
        options = [values.word(dice) for _ in range(dice.randint(2, 4))]
        choice = dice.choice(options)
        return Parameter(name, {"type": "string", "enum": options, **note}, choice, choice)
    if roll < 0.97:
        items: list[object] = (
            [values.word(dice) for _ in range(dice.randint(1, 4))]
            if dice.chance(0.7)
            else [dice.randint(0, 99) for _ in range(dice.randint(1, 4))]
        )
        kind = "string" if isinstance(items[0], str) else "integer"
        return Parameter(
            name,
            {"type": "array", "items": {"type": kind}, **note},
            items,
            json.dumps(items) if dice.chance(0.3) else ", ".join(map(str, items)),
        )
    inner = [
        _parameter(dice, key, deep=False)
        for key in dict.fromkeys(_parameter_name(dice) for _ in range(dice.randint(1, 2)))
    ]
    return Parameter(
        name,
        {"type": "object", "properties": {p.name: p.schema for p in inner}, **note},
        {p.name: p.value for p in inner},
        " and ".join(f"{p.name} {p.said}" for p in inner),
    )


def function_schema(
    dice: Dice, name: str, description: str, properties: Json, required: list[str]
) -> Json:
    """A function object as clients send it, with the variety clients have."""
    parameters: Json = {"type": "object", "properties": properties}
    if required or dice.chance(0.7):
        parameters["required"] = required
    if dice.chance(0.12):
        parameters["additionalProperties"] = False
    function: Json = {"name": name}
    if description:
        function["description"] = description
    function["parameters"] = parameters
    if dice.chance(0.08):
        function["strict"] = True
    if dice.chance(0.08):  # some clients and servers sort keys
        return json.loads(json.dumps(function, sort_keys=True, ensure_ascii=False))  # type: ignore[no-any-return]
    return function


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def unseen(dice: Dice) -> UnseenTool:
    """Draw a function and a request for it."""

    def draw() -> list[str]:
        parts = [_part(dice, words.VERBS), _part(dice, words.NOUNS)]
        if dice.chance(0.2):
            parts.append(_part(dice, words.NOUNS))
        return parts

    parts = dice.own(draw, "_".join)
    name = _identifier(dice, parts)
    verb, noun = parts[0], " ".join(parts[1:])
    count = dice.choices((0, 1, 2, 3, 4), (2, 6, 6, 4, 1))[0]
    names = list(dict.fromkeys(_parameter_name(dice) for _ in range(count)))
    parameters = [_parameter(dice, key) for key in names]
    used = [p for p in parameters if dice.chance(0.85)] or parameters[:1]
    required = [p.name for p in parameters if p in used and dice.chance(0.85)]
    if dice.chance(0.6):
        description = f"{verb.capitalize()} {dice.pick('the', 'a')} {noun}."
        if dice.chance(0.2):
            description += f" {values.phrase(dice, 3, 9).capitalize()}."
    else:
        description = "" if dice.chance(0.6) else values.phrase(dice, 2, 5).capitalize()
    function = function_schema(
        dice, name, description, {p.name: p.schema for p in parameters}, required
    )
    said = {p.name: p.value for p in used}
    arguments = {key: said[key] for key in function["parameters"]["properties"] if key in said}
    return UnseenTool(name, function, _request(dice, name, verb, noun, used), arguments)


def _request(dice: Dice, name: str, verb: str, noun: str, used: list[Parameter]) -> str:
    said = list(used)
    if dice.chance(0.2):
        dice.shuffle(said)
    start = dice.pick(
        f"{verb.capitalize()} the {noun}",
        f"Please {verb} the {noun}",
        f"{verb} {noun}",
        f"Can you {verb} the {noun}",
        f"Call {name}",
        f"Use {name}",
        f"I want to {verb} {words.article(noun)}",
        f"Run {name}",
    )
    if not said:
        return start + dice.pick(".", "", " please.", " now.")
    simple = said[0].schema["type"] not in ("boolean", "object", "array")
    if len(said) == 1 and simple and dice.chance(0.4):
        link, end = dice.pick("", "for ", "with ", "of "), dice.pick(".", "", " now")
        return f"{start} {link}{said[0].said}{end}"
    shown = [p.name.replace("_", " ") if dice.chance(0.5) else p.name for p in said]
    style = dice.random()
    pairs = list(zip(shown, (p.said for p in said), strict=True))
    if style < 0.55:
        return f"{start} with {_join([f'{n} {v}' for n, v in pairs])}{dice.pick('.', '', '')}"
    if style < 0.75:
        return f"{start}: {', '.join(f'{n}={v}' for n, v in pairs)}"
    if style < 0.9:
        return f"{start}, set {_join([f'{n} to {v}' for n, v in pairs])}{dice.pick('.', '')}"
    return f"{start}. {' '.join(f'The {n} is {v}.' for n, v in pairs)}"
