"""Counting, lists and stories: answers long enough to be watched while they stream."""

from typing import Final

from pocket.text import facts, values, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

_LIST_TOPICS: Final[dict[str, tuple[str, ...]]] = {
    "colors": words.COLOURS,
    "animals": words.ANIMALS,
    "fruits": words.FRUITS,
    "foods": words.FOODS,
    "things": words.THINGS,
    "places": words.PLACES,
    "names": words.FIRST_NAMES,
    "cities": words.CITIES[:40],
    "countries": words.COUNTRIES,
}
_NUMBER_WORDS: Final = (
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)


def counting(dice: Dice) -> Exchange:
    """Count up or down."""
    if dice.chance(0.25):
        top = dice.randint(2, 30)
        way = dice.pick(
            "Count to {}",
            "Count to {}.",
            "count to {}",
            "Can you count to {}?",
            "Please count to {}.",
            "Count up to {}.",
        )
        if top < 11 and dice.chance(0.3):
            way, shown = "Count to {}.", _NUMBER_WORDS[top - 1]
        else:
            shown = str(top)
        return Exchange(
            way.format(shown), ", ".join(map(str, range(1, top + 1))), f"I count from 1 to {top}."
        )
    start = dice.randint(0, 80)
    end = start + dice.randint(2, 18)
    if dice.chance(0.4):
        numbers = range(end, start - 1, -1)
        way = dice.pick(
            "Count down from {} to {}.",
            "Count backwards from {} to {}.",
            "count down from {} to {}",
        )
        first, last = end, start
    else:
        numbers = range(start, end + 1)
        way = dice.pick(
            "Count from {} to {}.",
            "Count from {} to {}",
            "count from {} to {}",
            "Please count from {} to {}.",
        )
        first, last = start, end
    return Exchange(
        way.format(first, last), ", ".join(map(str, numbers)), f"I count from {first} to {last}."
    )


def listing(dice: Dice) -> Exchange:
    """Some items of a kind, as bullets, numbers or one line."""
    topic = dice.choice(tuple(_LIST_TOPICS))
    number = dice.randint(2, 7)
    items = _LIST_TOPICS[topic][:number]
    shown = dice.pick(str(number), _NUMBER_WORDS[number - 1])
    way = dice.pick(
        "List {} {}.",
        "Name {} {}.",
        "Give me {} {}.",
        "Tell me {} {}",
        "list {} {}",
        "Can you name {} {}?",
        "Write a list of {} {}.",
        "Show me {} {}.",
    )
    question = way.format(shown, topic)
    roll = dice.random()
    if roll < 0.15:
        return Exchange(
            f"{question[:-1].rstrip('.?')} in a numbered list.",
            "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1)),
            f"The user wants {number} {topic}.",
        )
    if roll < 0.3:
        return Exchange(
            f"{question.rstrip('.?')}, separated by commas.",
            ", ".join(items),
            f"The user wants {number} {topic}.",
        )
    return Exchange(
        question, "\n".join(f"- {item}" for item in items), f"The user wants {number} {topic}."
    )


def story_text(dice: Dice, hero: str, animal: str, place: str, thing: str) -> str:
    """A little story of six to nine sentences about a named animal."""
    mood = dice.choice(words.ADJECTIVES)
    friend = dice.choice(words.ANIMALS)
    pal = dice.choice(words.FIRST_NAMES)
    lines = [
        dice.pick(
            f"Once upon a time there was {words.article(mood)} {animal} named {hero}.",
            f"In {words.article(mood)} {place} lived {words.article(animal)} called {hero}.",
        ),
        dice.pick(
            f"{hero} lived near {words.article(place)} and loved to look at the stars.",
            f"Every morning {hero} walked to the {place} to see the sun come up.",
        ),
        dice.pick(
            f"One day {hero} found {words.article(thing)} under a tree.",
            f"One rainy day {hero} lost {words.article(thing)} and looked for it everywhere.",
        ),
        dice.pick(
            f'"Such {words.article(dice.choice(words.ADJECTIVES))} {thing}!" said {hero}.',
            f'"Where does this {thing} come from?" asked {hero}.',
        ),
        dice.pick(
            f"Then came {pal} the {friend}, who was very {dice.choice(words.ADJECTIVES)}.",
            f"A {friend} named {pal} came along and wanted to help.",
        ),
        dice.pick(
            f'"Let us take the {thing} to the {dice.choice(words.PLACES)}," said {pal}.',
            f'"I know someone who needs {words.article(thing)}," said {pal}.',
        ),
        dice.pick(
            "They walked all day and sang a song.",
            "They laughed and ran through the wind.",
            "It was a long way, but the moon was bright.",
        ),
        dice.pick(
            f"In the end they shared some {dice.choice(words.FOODS)} and became friends.",
            f"At night they were home again, and the {thing} stood by the window.",
        ),
        dice.pick(
            f"And {hero} was never lonely again. 🌟", f"And {hero} slept well. 🌙", "The end."
        ),
    ]
    drop = set(dice.sample(range(1, len(lines) - 1), dice.randint(0, 3)))
    return " ".join(line for index, line in enumerate(lines) if index not in drop)


def story(dice: Dice) -> Exchange:
    """A story, with whatever hero, place or thing the user asked for."""
    hero, animal = values.name(dice), dice.choice(words.ANIMALS)
    place, thing = dice.choice(words.PLACES), dice.choice(words.THINGS)
    question = dice.pick(
        "Tell me a story.",
        "Tell me a story",
        "Tell me a short story.",
        "tell me a story",
        "Write a story.",
        "Can you tell me a story?",
        "Please tell me a story.",
        "Write a short story",
        "Tell me a bedtime story.",
        "Tell me a long story.",
        f"Tell me a story about {words.article(animal)}.",
        f"Write a story about {words.article(animal)}.",
        f"Tell me a story about {words.article(animal)} named {hero}.",
        f"Write a short story about {words.article(animal)} called {hero}.",
        f"Tell me a story about {words.article(animal)} and {words.article(thing)}.",
        f"Tell me a story about {words.article(thing)}.",
        f"Write a short story about {words.article(thing)}.",
    )
    return Exchange(
        question,
        story_text(dice, hero, animal, place, thing),
        dice.pick(
            "The user wants a story. I think of a hero and a little adventure.",
            "The user wants a story.",
        ),
    )


def plain_text(dice: Dice) -> str:
    """Text to continue outside any chat, for the completions endpoint."""
    return dice.drawn(
        lambda _: story_text(
            dice,
            values.name(dice),
            dice.choice(words.ANIMALS),
            dice.choice(words.PLACES),
            dice.choice(words.THINGS),
        ),
        lambda _: (lambda e: f"{e.user} {e.answer}")(facts.fact(dice)),
        lambda _: "Question: {0.user}\nAnswer: {0.answer}".format(facts.fact(dice)),
        lambda _: counting(dice).answer,
    )
