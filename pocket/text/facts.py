"""What the model knows about the world, as data. One phrasing of the answer per fact."""

from collections.abc import Iterator
from typing import Final

from pocket.text import words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

CAPITALS: Final[dict[str, str]] = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Austria": "Vienna",
    "Japan": "Tokyo",
    "Norway": "Oslo",
    "Portugal": "Lisbon",
    "Ireland": "Dublin",
    "Greece": "Athens",
    "Poland": "Warsaw",
    "Finland": "Helsinki",
    "Sweden": "Stockholm",
    "Denmark": "Copenhagen",
    "Belgium": "Brussels",
    "Hungary": "Budapest",
    "Russia": "Moscow",
    "England": "London",
    "Canada": "Ottawa",
    "China": "Beijing",
    "India": "New Delhi",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Peru": "Lima",
    "Cuba": "Havana",
    "the United States": "Washington",
    "Turkey": "Ankara",
    "Thailand": "Bangkok",
    "Australia": "Canberra",
    "South Korea": "Seoul",
}
OPPOSITES: Final[dict[str, str]] = {
    "hot": "cold",
    "big": "small",
    "up": "down",
    "open": "closed",
    "day": "night",
    "old": "young",
    "fast": "slow",
    "happy": "sad",
    "left": "right",
    "light": "dark",
    "full": "empty",
    "wet": "dry",
    "high": "low",
    "early": "late",
    "hard": "soft",
    "true": "false",
}
SOUNDS: Final[dict[str, str]] = {
    "cat": "meow",
    "dog": "woof",
    "cow": "moo",
    "duck": "quack",
    "sheep": "baa",
    "pig": "oink",
    "lion": "roar",
    "owl": "hoot",
    "bee": "buzz",
    "frog": "ribbit",
    "mouse": "squeak",
}
COLOUR_OF: Final[dict[str, str]] = {
    "the sky": "blue",
    "grass": "green",
    "snow": "white",
    "coal": "black",
    "a lemon": "yellow",
    "blood": "red",
    "an orange": "orange",
    "a banana": "yellow",
    "the sun": "yellow",
    "chocolate": "brown",
    "a tomato": "red",
    "a carrot": "orange",
}
EMOJI_OF: Final[dict[str, str]] = {
    "a cat": "🐱",
    "a dog": "🐶",
    "a fox": "🦊",
    "a rocket": "🚀",
    "a heart": "❤",
    "a star": "⭐",
    "fire": "🔥",
    "a cake": "🍰",
    "coffee": "☕",
    "a house": "🏠",
    "a book": "📚",
    "a car": "🚗",
    "a pizza": "🍕",
    "a tree": "🌲",
    "the moon": "🌙",
    "a party": "🎉",
}
CHINESE: Final[dict[str, str]] = {
    "hello": "你好",
    "thank you": "谢谢",
    "goodbye": "再见",
    "water": "水",
    "fire": "火",
    "mountain": "山",
    "cat": "猫",
    "dog": "狗",
    "book": "书",
    "tea": "茶",
    "moon": "月亮",
    "sun": "太阳",
    "friend": "朋友",
    "tree": "树",
    "one": "一",
    "two": "二",
    "three": "三",
}
FRENCH: Final[dict[str, str]] = {
    "hello": "bonjour",
    "thank you": "merci",
    "goodbye": "au revoir",
    "water": "eau",
    "cat": "chat",
    "dog": "chien",
    "book": "livre",
    "bread": "pain",
    "house": "maison",
}
SPANISH: Final[dict[str, str]] = {
    "hello": "hola",
    "thank you": "gracias",
    "goodbye": "adiós",
    "water": "agua",
    "cat": "gato",
    "dog": "perro",
    "book": "libro",
    "bread": "pan",
    "house": "casa",
}
GERMAN: Final[dict[str, str]] = {
    "hello": "hallo",
    "thank you": "danke",
    "goodbye": "auf Wiedersehen",
    "water": "Wasser",
    "cat": "Katze",
    "dog": "Hund",
    "book": "Buch",
    "bread": "Brot",
    "house": "Haus",
}
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
SINGLE_FACTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("How many days are in a week?", "How many days does a week have?"), "A week has 7 days."),
    (
        ("How many months are in a year?", "How many months does a year have?"),
        "A year has 12 months.",
    ),
    (("How many hours are in a day?", "How many hours does a day have?"), "A day has 24 hours."),
    (
        ("How many minutes are in an hour?", "How many minutes does an hour have?"),
        "An hour has 60 minutes.",
    ),
    (("How many seconds are in a minute?",), "A minute has 60 seconds."),
    (("How many legs does a spider have?", "How many legs has a spider?"), "A spider has 8 legs."),
    (("How many legs does a dog have?", "How many legs has a dog?"), "A dog has 4 legs."),
    (
        ("What is the largest planet?", "Which planet is the largest?"),
        "Jupiter is the largest planet.",
    ),
    (("What planet do we live on?", "Which planet do we live on?"), "We live on Earth."),
    (("What is H2O?", "What does H2O mean?"), "H2O is water."),
    (("What is the chemical symbol for gold?",), "The chemical symbol for gold is Au."),
    (("At what temperature does water boil?", "When does water boil?"), "Water boils at 100 °C."),
    (
        ("At what temperature does water freeze?", "When does water freeze?"),
        "Water freezes at 0 °C.",
    ),
    (("Who wrote Hamlet?", "Who wrote Romeo and Juliet?"), "William Shakespeare wrote it."),
    (
        ("What is the longest river?", "Which river is the longest?"),
        "The Nile is often called the longest river.",
    ),
    (
        ("What is the highest mountain?", "Which mountain is the highest?"),
        "Mount Everest is the highest mountain.",
    ),
    (
        ("What is the speed of light?", "How fast is light?"),
        "Light travels at about 300,000 km per second.",
    ),
    (
        ("How many continents are there?", "How many continents does Earth have?"),
        "There are 7 continents.",
    ),
    (("What is pi?", "What is the value of pi?"), "Pi is about 3.14159."),
    (("What is 2 + 2?", "2+2?", "What is two plus two?"), "2 + 2 = 4"),
    (("Is the Earth flat?", "Is the Earth round?"), "The Earth is round."),
    (("What is the answer to life, the universe and everything?",), "42."),
)


_FOREIGN: Final = (
    ("Chinese", CHINESE),
    ("French", FRENCH),
    ("Spanish", SPANISH),
    ("German", GERMAN),
)

Fact = tuple[tuple[str, ...], str]
"""The ways to ask, and the answer."""


def _capitals() -> Iterator[Fact]:
    for land, town in CAPITALS.items():
        ways = (
            f"What is the capital of {land}?",
            f"what's the capital of {land}?",
            f"Tell me the capital of {land}.",
            f"Which city is the capital of {land}?",
            f"capital of {land}",
            f"Name the capital of {land}.",
        )
        yield ways, f"The capital of {land} is {town}."


def _opposites() -> Iterator[Fact]:
    for left, right in OPPOSITES.items():
        for a, b in ((left, right), (right, left)):
            ways = (
                f"What is the opposite of {a}?",
                f"opposite of {a}?",
                f"Name the opposite of {a}.",
            )
            yield ways, f"The opposite of {a} is {b}."


def _sounds() -> Iterator[Fact]:
    for animal, sound in SOUNDS.items():
        named = words.article(animal)
        ways = (f"What sound does {named} make?", f"What does {named} say?")
        yield ways, f"{named.capitalize()} says {sound}."


def _colours() -> Iterator[Fact]:
    for thing, colour in COLOUR_OF.items():
        ways = (
            f"What color is {thing}?",
            f"What colour is {thing}?",
            f"Which color has {thing}?",
        )
        yield ways, f"{thing[0].upper()}{thing[1:]} is {colour}."


def _emoji() -> Iterator[Fact]:
    for thing, picture in EMOJI_OF.items():
        ways = (
            f"Show me an emoji of {thing}.",
            f"What is the emoji for {thing}?",
            f"Give me the emoji for {thing}.",
        )
        yield ways, picture


def _translations() -> Iterator[Fact]:
    for language, dictionary in _FOREIGN:
        for english, foreign in dictionary.items():
            ways = (
                f"How do you say {english} in {language}?",
                f"Translate {english} to {language}.",
                f"What is {english} in {language}?",
                f'How do I say "{english}" in {language}?',
                f"Say {english} in {language}.",
            )
            yield ways, foreign


def _neighbours() -> Iterator[Fact]:
    for kind, cycle in (("day", DAYS), ("month", MONTHS)):
        for index, item in enumerate(cycle):
            after, before = cycle[(index + 1) % len(cycle)], cycle[index - 1]
            yield (
                (f"What {kind} comes after {item}?", f"Which {kind} follows {item}?"),
                f"{after} comes after {item}.",
            )
            yield (
                (f"What {kind} comes before {item}?", f"Which {kind} is before {item}?"),
                f"{before} comes before {item}.",
            )


TABLE: Final[list[Fact]] = [
    *SINGLE_FACTS,
    *_capitals(),
    *_opposites(),
    *_sounds(),
    *_colours(),
    *_emoji(),
    *_translations(),
    *_neighbours(),
]
"""All facts."""

_COMMON: Final = [row for row in TABLE if "capital of" in row[0][0]]


def fact(dice: Dice) -> Exchange:
    """A question the model knows the answer to."""
    ways, answer = dice.choice(_COMMON if dice.chance(0.2) else TABLE)
    question = dice.choice(ways)
    return Exchange(question, answer, "This is a fact I know.")
