"""Values of requests for tools: short texts, people, places, things, colours."""

from collections.abc import Callable
from typing import Final

from pocket.text import phrasing, values, ways_tools, words
from pocket.text.dice import Dice

Maker = Callable[[Dice], object]


def quoted(dice: Dice) -> str:
    """A short text, a sentence or loose words."""
    if dice.chance(0.5):
        return note(dice)
    text = values.phrase(dice, 1, 5)
    return f"{text.capitalize()}{dice.pick('', '.', '!')}" if dice.chance(0.4) else text


def note(dice: Dice) -> str:
    """A short text as people write it."""
    makers: dict[str, Maker] = {
        "n": lambda d: d.choice(words.NOUNS), "a": lambda d: d.choice(words.ADJECTIVES),
        "v": lambda d: d.choice(words.VERBS), "w": lambda d: d.choice(ways_tools.WHEN),
        "p": values.name, "t": values.time, "d": lambda d: d.randint(2, 99),
    }  # fmt: skip
    pattern = dice.choice(ways_tools.NOTES)
    return phrasing.SLOT.sub(lambda found: str(makers[found[1]](dice)), pattern)


def any_word(dice: Dice) -> str:
    """A word, often one near to a real one."""
    return values.rare(dice) if dice.chance(0.5) else values.word(dice)


def two_words(dice: Dice) -> str:
    """A title or the name of a place."""
    if dice.chance(0.3):
        return any_word(dice).capitalize()
    return " ".join(any_word(dice).capitalize() for _ in range(2))


def person(dice: Dice) -> str:
    """First and last name, half of them of rare letters."""
    if dice.chance(0.5):
        return values.full_name(dice)
    return " ".join(values.rare(dice).capitalize() for _ in range(2))


def task(dice: Dice) -> str:
    """A verb and a thing."""
    return f"{dice.choice(words.VERBS)} the {values.word(dice)}"


def colour(dice: Dice) -> str:
    """A colour, common, less common or unheard of."""
    shades = ("scarlet", "beige", "navy", "olive", "cyan", "magenta", "ivory", "amber", "lilac")
    return dice.drawn(lambda d: d.choice(words.COLOURS), lambda d: d.choice(shades), values.rare)


def count(low: int, high: int) -> Maker:
    """A maker of whole numbers."""
    return lambda dice: dice.randint(low, high)


def either(*makers: Callable[[Dice], str]) -> Maker:
    """A maker that chooses among makers."""
    return lambda dice: dice.drawn(*makers)


PLACE: Final = either(values.city, values.city, values.name, lambda d: values.rare(d).capitalize())
THING: Final = either(values.word, values.rare, lambda d: d.choice(words.THINGS))
ROOM: Final = either(
    any_word,
    lambda d: d.pick("kitchen", "bedroom", "office", "garage", "hall", "cellar", "lobby", "shed"),
)
SWITCH: Final[Maker] = lambda dice: dice.chance(0.5)  # noqa: E731
