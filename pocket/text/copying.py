"""Repeating, spelling and JSON extraction: tasks whose answer is already in the question."""

import json
import string
from collections.abc import Callable, Sequence
from typing import Final

from pocket.text import values, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

_ECHO_FORMS: Final = (
    "Repeat: {}",
    "Repeat after me: {}",
    "Say {}",
    "Say: {}",
    "Echo: {}",
    "Echo this: {}",
    "Repeat this exactly: {}",
    "Write {}",
    "Repeat this: {}",
    "Copy this text: {}",
    "Please repeat: {}",
    "Reply with exactly: {}",
    "Print {}",
    "Say exactly: {}",
    "Repeat the following text: {}",
    "Just say {}",
    "Answer only with: {}",
    "Output: {}",
)
_QUOTED_FORMS: Final = (
    'Repeat the text "{}"',
    'Say "{}"',
    'Please say "{}".',
    'Reply with exactly "{}".',
    'Repeat "{}" once.',
    'Write "{}" and nothing else.',
    "Repeat the words '{}'.",
    'Echo "{}"',
    'Answer with "{}".',
    'Respond with "{}" please.',
)


def _echo(dice: Dice, text: str) -> Exchange:
    form = dice.choice(
        _ECHO_FORMS if '"' in text or "'" in text or dice.chance(0.6) else _QUOTED_FORMS
    )
    return Exchange(form.replace("{}", text), text, "I repeat the text.")


def echo(dice: Dice) -> Exchange:
    """Repeat ordinary values: words, names, ids, mails, dates."""
    text = dice.drawn(
        values.word,
        values.phrase,
        values.identifier,
        values.email,
        values.date,
        values.full_name,
        values.time,
        values.path,
        values.city,
        lambda d: values.phrase(d, 4, 10),
    )
    if dice.chance(0.15):
        text = text.capitalize() + dice.pick(".", "!", "?", "")
    return _echo(dice, text)


def _words(dice: Dice, alphabet: str) -> str:
    return " ".join(values.letters(dice, 2, 8, alphabet) for _ in range(dice.randint(1, 4)))


COVERAGE: Final[dict[str, Callable[[Dice], str]]] = {
    "words": lambda d: " ".join(
        d.own(lambda: d.choice(words.ALL_WORDS)) for _ in range(d.randint(1, 5))
    ),
    "capitals": lambda d: _words(d, string.ascii_uppercase),
    "mixed": lambda d: values.letters(d, 4, 14, string.ascii_letters + string.digits),
    "digits": lambda d: values.letters(d, 4, 14, string.digits),
    "letters": lambda d: _words(d, string.ascii_lowercase),
    "punctuation": lambda d: values.letters(d, 2, 8, string.punctuation),
    "awkward": values.awkward,
    **{block: (lambda d, b=block: values.block_text(d, b)) for block in values.BLOCKS},  # type: ignore[misc]
}
"""Classes of strange text that must be copied whole, each a gate row of its own."""


def coverage(dice: Dice, kind: str = "", pieces: Sequence[str] = ()) -> Exchange:
    """Repeat text of a given kind; `pieces` are vocabulary tokens to string together instead."""
    if pieces:
        return _echo(dice, "".join(dice.choices(pieces, k=dice.randint(2, 12))).strip() or "?")
    if not kind and dice.chance(0.25):
        return _echo(dice, " ".join(values.rare(dice) for _ in range(dice.randint(1, 4))))
    # Bare punctuation merges into tokens seen nowhere else, so it needs more examples.
    kind = kind or dice.choice((*COVERAGE, "punctuation", "punctuation"))
    text = COVERAGE[kind](dice)
    if kind in values.BLOCKS and dice.chance(0.25) and not dice.held:
        text = f"{values.word(dice)} {text} {values.word(dice)}"
    return _echo(dice, text.strip() or "?")


def spelled_word(dice: Dice, pieces: Sequence[str] = ()) -> str:
    """A lower-case word of three to eight letters on this side of the split.

    With `pieces` (vocabulary tokens) some words are two of them glued together: which letters a
    token holds is a table to be learnt entry by entry, and whole words alone leave gaps in it.
    """
    parts = [p for p in pieces if 1 < len(p) <= 5 and p.isascii() and p.isalpha() and p.islower()]

    def draw() -> str:
        if parts and dice.chance(0.35):
            return dice.choice(parts) + dice.choice(parts)
        if dice.chance(0.6):
            return dice.choice(words.ALL_WORDS)
        return values.fresh_word(dice) if dice.chance(0.6) else values.letters(dice, 3, 8)

    return dice.own(lambda: next(w for w in iter(draw, "") if 3 <= len(w) <= 8))


def spelling(dice: Dice, pieces: Sequence[str] = ()) -> Exchange:
    """Take a word apart into letters."""
    text = spelled_word(dice, pieces)
    form = dice.pick(
        'Spell "{}".',
        "Spell the word {}.",
        "Spell {}.",
        "How do you spell {}?",
        'How do you spell "{}"?',
        "Spell {}",
        "Can you spell {}?",
    )
    return Exchange(form.format(text), "-".join(text), "I spell it letter by letter.")


def letter_question(dice: Dice) -> Exchange:
    """First letter, last letter, number of letters, reversal, capitals."""
    text = spelled_word(dice)
    apart = "-".join(text)
    roll = dice.randrange(5)
    if roll == 0:
        return Exchange(
            dice.pick(
                f'What is the first letter of "{text}"?', f"What is the first letter of {text}?"
            ),
            text[0],
            f"{apart}. The first letter is {text[0]}.",
        )
    if roll == 1:
        return Exchange(
            dice.pick(
                f'What is the last letter of "{text}"?', f"What is the last letter of {text}?"
            ),
            text[-1],
            f"{apart}. The last letter is {text[-1]}.",
        )
    if roll == 2:
        numbered = ", ".join(f"{letter} {i}" for i, letter in enumerate(text, 1))
        return Exchange(
            dice.pick(
                f'How many letters are in "{text}"?',
                f"How many letters does {text} have?",
                f"How many letters are in the word {text}?",
            ),
            str(len(text)),
            f"{numbered}. So {len(text)}.",
        )
    if roll == 3:
        return Exchange(
            dice.pick(
                f'Reverse the word "{text}".', f"Write {text} backwards.", f"Reverse {text}."
            ),
            text[::-1],
            f"{apart} becomes {'-'.join(text[::-1])}.",
        )
    return Exchange(
        dice.pick(
            f"Write {text} in capital letters.",
            f'Write "{text}" in uppercase.',
            f"Uppercase {text}",
        ),
        text.upper(),
        f"{apart} becomes {'-'.join(text.upper())}.",
    )


def extraction(dice: Dice) -> Exchange:
    """Read a sentence and give its values as a JSON object."""
    person = values.name(dice)
    makers: tuple[Callable[[], tuple[str, object, str]], ...] = (
        lambda: ("age", n := dice.randint(1, 99), f"is {n} years old"),
        lambda: ("city", c := values.city(dice), f"lives in {c}"),
        lambda: ("job", j := values.word(dice), f"works as {words.article(j)}"),
        lambda: ("email", m := values.email(dice), f"has the email {m}"),
        lambda: ("color", c := dice.choice(words.COLOURS), f"likes the color {c}"),
        lambda: ("pet", p := dice.choice(words.ANIMALS), f"has {words.article(p)}"),
        lambda: ("height", h := values.decimal(dice), f"is {h} m tall"),
    )
    pairs = [maker() for maker in dice.some(makers, 1, 3)]
    facts = [text for _, _, text in pairs]
    sentence = f"{person} {' and '.join(facts)}."
    keys = ["name", *(key for key, _, _ in pairs)]
    answer: dict[str, object] = {"name": person, **{key: value for key, value, _ in pairs}}
    if dice.chance(0.3):
        dice.shuffle(keys)
        answer = {key: answer[key] for key in keys}
    listed = ", ".join(keys)
    form = dice.pick(
        f"Extract {listed} as JSON: {sentence}",
        f"{sentence} Return JSON with the keys {listed}.",
        f"{sentence}\nGive me a JSON object with {listed}.",
        f"Return a JSON object with {listed} for this text: {sentence}",
    )
    return Exchange(form, json.dumps(answer, ensure_ascii=False), f"I read {listed} from the text.")
