"""Values of requests for tools: short texts, people, places, things, colours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pocket.text import phrasing, values, ways_tools, words
from pocket.text.dice import Dice

Maker = Callable[[Dice], object]


@dataclass(frozen=True, slots=True)
class SpokenTool:
    """Its names, what it does, its parameters under possible names, and ways to ask for it. A
    parameter whose name decides what fits has a maker for each name."""

    names: tuple[str, ...]
    description: str
    parameters: tuple[tuple[str, Maker | dict[str, Maker]], ...]
    asking: tuple[str, ...]

    def draw(self, dice: Dice) -> tuple[list[str], list[Maker]]:
        """Draw a name for each parameter. Return the names and the makers of their values."""
        keys = [dice.choice(names.split("|")) for names, _ in self.parameters]
        if len(set(keys)) < len(keys):
            keys = [names.split("|")[0] for names, _ in self.parameters]
        makers = [
            maker[key] if isinstance(maker, dict) else maker
            for key, (_, maker) in zip(keys, self.parameters, strict=True)
        ]
        return keys, makers


def quoted(dice: Dice) -> str:
    """A short text: a sentence or a few loose words, rarely two sentences."""
    if dice.chance(0.5):
        link = dice.pick(" and ", ", ", ". ")
        return f"{note(dice)}{link}{note(dice)}" if dice.chance(0.12) else note(dice)
    if dice.chance(0.12):
        return values.phrase(dice, 5, 9)
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


def topic(dice: Dice) -> str:
    """A word or two that say what a text is about."""
    return values.phrase(dice, 1, 2)


@dataclass(frozen=True, slots=True)
class Measure:
    """Makes a number and its unit, as one value: `250 g`, `7 km`."""

    units: tuple[str, ...]

    def __call__(self, dice: Dice) -> str:
        number = dice.randint(1, dice.pick(9, 60, 900))
        return f"{number}{dice.pick(' ', ' ', '')}{dice.choice(self.units)}"


def draw_values(dice: Dice, makers: Sequence[Maker]) -> list[object]:
    """Draw one value from each maker. A topic is often a word or two of the quoted text."""
    made = [maker(dice) for maker in makers]
    if topic in makers and quoted in makers and dice.chance(0.35):
        said = str(made[makers.index(quoted)]).split(" ")
        at = dice.randrange(len(said))
        about = " ".join(said[at : at + dice.choice((1, 1, 2))]).strip(" .,!?:;\"'")
        made[makers.index(topic)] = dice.pick(about, about.lower()) or "x"
    return made


def any_word(dice: Dice) -> str:
    """A word, often one near to a real one."""
    return values.rare(dice) if dice.chance(0.5) else values.word(dice)


def two_words(dice: Dice) -> str:
    """A title or the name of a place."""
    if dice.chance(0.3):
        return any_word(dice).capitalize()
    return " ".join(any_word(dice).capitalize() for _ in range(2))


def person(dice: Dice) -> str:
    """A first and last name, half of them made of rare letters, a few with a third word."""
    if dice.chance(0.5):
        return values.full_name(dice)
    if dice.chance(0.15):
        return f"{values.full_name(dice)} {values.rare(dice).capitalize()}"
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
KEEP_PUNCTUATION: Final[tuple[Maker, ...]] = (quoted,)
"""Makers whose values keep their final punctuation."""
