"""How well-known functions are asked for, and how their results are put into words.

A function's request gives (request, short noun phrase for joining several requests, arguments); its
`..._told` gives (raw result, sentence that says it) for such arguments.
"""

from collections.abc import Callable
from typing import Final

from pocket.text import values, words
from pocket.text.dice import Dice
from pocket.text.document import Json


def tail(dice: Dice) -> str:
    """An adverb behind a slot, so that the model learns where the slot ends."""
    return dice.choice(
        (
            "",
            "",
            "",
            " right now",
            " now",
            " today",
            " please",
            ", please",
            " at the moment",
            " currently",
            " for me",
        )
    )


def weather(d: Dice) -> tuple[str, str, Json]:
    c = values.city(d)
    args: Json = {"city": c}
    ask = d.pick(
        f"What's the weather in {c}",
        f"What is the weather in {c}",
        f"What's the weather like in {c}",
        f"How is the weather in {c}",
        f"weather in {c}",
        f"Tell me the weather for {c}",
        f"Is it raining in {c}",
        f"Check the weather in {c}",
        f"What is the temperature in {c}",
    )
    if d.chance(0.25):
        unit = d.pick("celsius", "fahrenheit")
        args["unit"] = unit
        return f"{ask} in {unit}{d.pick('?', '', ' please')}", f"the weather in {c} in {unit}", args
    return f"{ask}{tail(d)}{d.pick('?', '?', '')}", f"the weather in {c}", args


_SKY: Final = ("sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear")


def weather_told(d: Dice, a: Json) -> tuple[Json, str]:
    degrees, sky = d.randint(-15, 39), d.choice(_SKY)
    key = d.pick("temperature", "temp", "temp_c", "temperature_c", "degrees")
    result: Json = {key: degrees, d.pick("condition", "sky", "conditions", "weather"): sky}
    if d.chance(0.3):
        result = {d.pick("city", "location"): a["city"], **result}
    return result, f"It is {degrees} degrees and {sky} in {a['city']}."


def time_in(d: Dice) -> tuple[str, str, Json]:
    c = values.city(d)
    return (
        d.pick(
            f"What time is it in {c}{tail(d)}?",
            f"Tell me the time in {c}{tail(d)}.",
            f"current time in {c}",
        ),
        f"the time in {c}",
        {"city": c},
    )


def time_in_told(d: Dice, a: Json) -> tuple[Json, str]:
    t = values.time(d)
    return {"time": t}, f"It is {t} in {a['city']}."


def mail(d: Dice) -> tuple[str, str, Json]:
    to, subject, body = values.email(d), values.phrase(d, 1, 3), values.phrase(d, 2, 6)
    if d.chance(0.15):
        body = values.awkward(d)
    if d.chance(0.5):
        ask = f'Send an email to {to} with subject "{subject}" and body "{body}".'
    else:
        ask = f"Email {to}, subject: {subject}, body: {body}"
    return (
        ask,
        f'an email to {to} with subject "{subject}" and body "{body}"',
        {"to": to, "subject": subject, "body": body},
    )


def done(sentence: str) -> Callable[[Dice, Json], tuple[Json, str]]:
    def told(d: Dice, a: Json) -> tuple[Json, str]:
        result: Json = d.pick({"status": "ok"}, {"success": True}, {"ok": True}, {"status": "done"})
        return result, sentence.format(**a)

    return told


def timer(d: Dice) -> tuple[str, str, Json]:
    n = d.randint(1, 90)
    return (
        d.pick(
            f"Set a timer for {n} minutes{tail(d)}.",
            f"Start a {n} minute timer{tail(d)}.",
            f"timer {n} minutes",
        ),
        f"a timer for {n} minutes",
        {"minutes": n},
    )


def search(d: Dice) -> tuple[str, str, Json]:
    q = values.phrase(d, 1, 4) if d.chance(0.8) else values.label(d)
    args: Json = {"query": q}
    if d.chance(0.2):
        n = d.randint(1, 20)
        args["limit"] = n
        return f'Search the web for "{q}" and show {n} results.', f'results for "{q}"', args
    return (
        d.pick(
            f"Search the web for {q}.",
            f"Search for {q}",
            f'Look up "{q}" online.',
            f"Find information about {q}.",
            f"google {q}",
        ),
        f'results for "{q}"',
        args,
    )


def search_told(d: Dice, a: Json) -> tuple[Json, str]:
    text = values.phrase(d, 3, 7)
    return {d.pick("result", "text", "answer", "snippet"): text}, f"I found this: {text}"


def convert_units(d: Dice) -> tuple[str, str, Json]:
    n: int | float = d.randint(1, 5000) if d.chance(0.7) else values.decimal(d)
    a, b = d.sample(("USD", "EUR", "GBP", "JPY", "CHF", "CNY", "SEK", "INR", "BRL", "PLN"), 2)
    return (
        d.pick(
            f"Convert {n} {a} to {b}{tail(d)}.",
            f"How much is {n} {a} in {b}?",
            f"What is {n} {a} in {b}?",
        ),
        f"{n} {a} in {b}",
        {"amount": n, "from": a, "to": b},
    )


def convert_units_told(d: Dice, a: Json) -> tuple[Json, str]:
    n = values.decimal(d)
    return {
        d.pick("result", "amount", "converted"): n
    }, f"{a['amount']} {a['from']} is {n} {a['to']}."


def stock(d: Dice) -> tuple[str, str, Json]:
    s = values.letters(d, 2, 5, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return (
        d.pick(
            f"What is the stock price of {s}{tail(d)}?",
            f"How much is a share of {s}?",
            f"stock price {s}",
        ),
        f"the stock price of {s}",
        {"symbol": s},
    )


def stock_told(d: Dice, a: Json) -> tuple[Json, str]:
    n = values.decimal(d)
    return {"price": n}, f"The price of {a['symbol']} is {n}."


def event(d: Dice) -> tuple[str, str, Json]:
    title, day = values.phrase(d, 1, 3), values.date(d)
    args: Json = {"title": title, "date": day}
    ask = d.pick(
        f'Create an event "{title}" on {day}',
        f"Add {title} to my calendar on {day}",
        f'Put "{title}" in the calendar for {day}',
    )
    if d.chance(0.5):
        t = values.time(d)
        return f"{ask} at {t}.", f'an event "{title}" on {day} at {t}', {**args, "time": t}
    return f"{ask}.", f'an event "{title}" on {day}', args


def translate(d: Dice) -> tuple[str, str, Json]:
    text = values.phrase(d, 1, 4)
    tongue = d.pick("French", "German", "Spanish", "Chinese", "Italian", "Polish", "Turkish")
    return (
        d.pick(f'Translate "{text}" to {tongue}.', f'How do you say "{text}" in {tongue}?'),
        f'a translation of "{text}" to {tongue}',
        {"text": text, "language": tongue},
    )


def translate_told(d: Dice, a: Json) -> tuple[Json, str]:
    t = values.phrase(d, 1, 3)
    return {d.pick("translation", "text"): t}, f"The translation is: {t}"


def light(d: Dice) -> tuple[str, str, Json]:
    room = d.pick("kitchen", "bedroom", "office", "bathroom", "garage", "hall", values.word(d))
    on = d.chance(0.5)
    state = "on" if on else "off"
    return (
        d.pick(
            f"Turn {state} the {room} light{tail(d)}.",
            f"Turn the {room} light {state}.",
            f"Switch {state} the light in the {room}.",
        ),
        f"the {room} light {state}",
        {"room": room, "on": on},
    )


def play(d: Dice) -> tuple[str, str, Json]:
    song = values.phrase(d, 1, 3)
    if d.chance(0.4):
        artist = values.full_name(d)
        return (
            f'Play "{song}" by {artist}.',
            f'"{song}" by {artist}',
            {"song": song, "artist": artist},
        )
    return d.pick(f'Play "{song}"{tail(d)}.', f"Play the song {song}."), f'"{song}"', {"song": song}


def remind(d: Dice) -> tuple[str, str, Json]:
    what, t = f"{d.choice(words.VERBS)} the {values.word(d)}", values.time(d)
    return (
        d.pick(
            f"Remind me to {what} at {t}.",
            f"Remind me at {t} to {what}.",
            f"Set a reminder at {t} to {what}.",
        ),
        f"a reminder to {what} at {t}",
        {"text": what, "time": t},
    )


def compute(d: Dice) -> tuple[str, str, Json]:
    e = f"{d.randint(100, 9999)} {d.choice('+-*/')} {d.randint(2, 999)}"
    return (
        d.pick(f"Calculate {e}.", f"What is {e}?", f"Use the calculator for {e}."),
        e,
        {"expression": e},
    )


def compute_told(d: Dice, a: Json) -> tuple[Json, str]:
    n = d.pick(values.integer(d), values.decimal(d))
    return {"result": n}, f"{a['expression']} = {n}"


def file(d: Dice) -> tuple[str, str, Json]:
    p, text = values.path(d), values.awkward(d) if d.chance(0.6) else values.phrase(d)
    return (
        d.pick(f"Write this to {p}:\n{text}", f"Create the file {p} with this content:\n{text}"),
        f"the file {p}",
        {"path": p, "content": text},
    )


def read_file(d: Dice) -> tuple[str, str, Json]:
    p = values.path(d)
    return (
        d.pick(f"Read {p}.", f"Show me the file {p}", f"Open {p}", f"What is in {p}?"),
        f"the file {p}",
        {"path": p},
    )


def read_file_told(d: Dice, a: Json) -> tuple[Json, str]:
    text = values.phrase(d, 2, 6)
    return {"content": text}, f"The file says: {text}"


def shell(d: Dice) -> tuple[str, str, Json]:
    c = d.pick(
        f"ls {values.path(d)}",
        f"cat {values.path(d)}",
        "git status",
        "pwd",
        "ls -la",
        f"grep {values.word(d)} {values.path(d)}",
        f'echo "{values.word(d)}"',
        f"mkdir {values.word(d)}",
        f"python {values.word(d)}.py",
        f"rm {values.path(d)}",
    )
    return (
        d.pick(f"Run `{c}`", f"Run the command `{c}`.", f"Execute `{c}` in the shell."),
        (f"the output of `{c}`"),
        {"command": c},
    )


def shell_told(d: Dice, a: Json) -> tuple[Json, str]:
    text = values.phrase(d, 1, 5)
    return {d.pick("stdout", "output"): text}, f"The output is: {text}"


def order(d: Dice) -> tuple[str, str, Json]:
    i = values.identifier(d)
    return (
        d.pick(
            f"Where is my order {i}?",
            f"What is the status of order {i}?",
            f"Check order {i}{tail(d)}.",
        ),
        f"the status of order {i}",
        {"order_id": i},
    )


def order_told(d: Dice, a: Json) -> tuple[Json, str]:
    s = d.pick("shipped", "delivered", "pending", "cancelled", "processing", values.word(d))
    return {"status": s}, f"The status of order {a['order_id']} is {s}."


def book(d: Dice) -> tuple[str, str, Json]:
    c, day, n = values.city(d), values.date(d), d.randint(1, 9)
    return (
        d.pick(
            f"Book a hotel in {c} on {day} for {n} guests.",
            f"I need a hotel in {c} for {n} guests on {day}.",
        ),
        f"a hotel in {c} on {day} for {n} guests",
        {"city": c, "date": day, "guests": n},
    )


def user(d: Dice) -> tuple[str, str, Json]:
    n: int | str = d.randint(1, 99999)
    return (
        d.pick(f"Get user {n}.", f"Who is user {n}?", f"Show me the user with id {n}."),
        f"user {n}",
        {"user_id": n},
    )


def user_told(d: Dice, a: Json) -> tuple[Json, str]:
    n, m = values.full_name(d), values.email(d)
    return {"name": n, "email": m}, f"User {a['user_id']} is {n}, email {m}."
