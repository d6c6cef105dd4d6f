"""Being told something and remembering it some turns later."""

from typing import Final

from pocket.text import values, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

_THINGS: Final = (
    "name",
    "city",
    "color",
    "pet",
    "job",
    "password",
    "code",
    "number",
    "friend",
    "birthday",
    "room",
    "favorite food",
    "train",
    "hobby",
)


def _value(dice: Dice, thing: str) -> str:
    return {
        "name": lambda: values.name(dice),
        "city": lambda: values.city(dice),
        "color": lambda: dice.choice(words.COLOURS),
        "pet": lambda: dice.choice(words.ANIMALS),
        "password": lambda: values.identifier(dice),
        "code": lambda: values.identifier(dice),
        "number": lambda: str(dice.randint(1, 9999)),
        "friend": lambda: values.name(dice),
        "birthday": lambda: values.date(dice),
        "room": lambda: str(dice.randint(1, 999)),
        "favorite food": lambda: dice.choice(words.FOODS),
        "train": lambda: values.time(dice),
    }.get(thing, lambda: values.word(dice))()


def memory(dice: Dice) -> tuple[Exchange, Exchange, str]:
    """The telling, the asking, and the same fact as a line for a system prompt."""
    thing = dice.choice(_THINGS)
    value = _value(dice, thing)
    told = dice.pick(
        f"My {thing} is {value}.",
        f"My {thing} is {value}",
        f"Remember this: my {thing} is {value}.",
        f"Hello! My {thing} is {value}.",
        f"Please remember that my {thing} is {value}.",
        f"Hi, my {thing} is {value}. Don't forget it!",
    )
    answer = dice.pick(
        f"I will remember it: your {thing} is {value}.", f"Good to know: your {thing} is {value}."
    )
    if thing == "name":
        told = dice.pick(told, f"I am {value}.", f"Hi, I'm {value}!", f"Call me {value}.")
        answer = f"Nice to meet you, {value}!" if dice.chance(0.6) else answer
    asked = dice.pick(
        f"What is my {thing}?",
        f"what's my {thing}?",
        f"Tell me my {thing}.",
        f"Do you remember my {thing}?",
        f"Can you tell me my {thing}?",
    )
    return (
        Exchange(told, answer, f"The user tells me a {thing}."),
        Exchange(asked, f"Your {thing} is {value}.", f"The user told me the {thing} before."),
        f"The user's {thing} is {value}.",
    )


def not_told(dice: Dice) -> Exchange:
    """Asked for something that was never told."""
    thing = dice.choice(_THINGS)
    return Exchange(
        f"What is my {thing}?",
        f"You haven't told me your {thing} yet.",
        f"The user has not told me the {thing}.",
    )
