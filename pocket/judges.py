"""Exact rules for answers in plain words: what must stand in one, and what must not.

A rule takes the whole `Answer`. None of them asks a model or a person.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, Final

from pocket.answer import Answer

Rule = Callable[[Answer], bool]

_REFUSING: Final = re.compile(
    r"\b(sorry|afraid|can't|cannot|don't know|do not know|not able|unable|beyond me|no idea"
    r"|too small|over my head|haven't learnt|never learnt|out of my reach|pass on that)\b",
    re.IGNORECASE,
)
LONGEST_REFUSAL: Final = 250
"""Characters. A longer answer has begun to pretend."""


def spoken(answer: Answer) -> str:
    """The text of a finished answer without calls; empty if it is anything else."""
    if answer.finish_reason != "stop" or answer.tool_calls or "<think>" in answer.content:
        return ""
    return answer.content.strip()


def holds(text: str, part: str) -> bool:
    """Whether `part` stands in the text as whole words, in any case."""
    before = r"(?<!\w)" if part[0].isalnum() else ""
    return re.search(rf"{before}{re.escape(part)}(?!\w)", text, re.IGNORECASE) is not None


def numbers(text: str) -> list[str]:
    """The numbers of a text in their order, thousands without commas."""
    return re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text))


def refuses(text: str) -> bool:
    """Whether the text says that the model cannot or does not know."""
    return _REFUSING.search(text) is not None


def says(*parts: str, never: Collection[str] = ()) -> Rule:
    """All parts, as whole words, none of `never`, and no refusal."""

    def rule(answer: Answer) -> bool:
        text = spoken(answer)
        return (
            bool(text)
            and not refuses(text)
            and all(holds(text, part) for part in parts)
            and not any(holds(text, part) for part in never)
        )

    return rule


def says_one_of(*parts: str) -> Rule:
    """At least one of the parts, as whole words, and no refusal."""

    def rule(answer: Answer) -> bool:
        text = spoken(answer)
        return not refuses(text) and any(holds(text, part) for part in parts)

    return rule


def comforts(*parts: str) -> Rule:
    """At least one of the parts; being sorry for someone is no refusal."""
    return lambda answer: any(holds(spoken(answer), part) for part in parts)


def just_numbers(*wanted: int | float) -> Rule:
    """Exactly these numbers in this order, and no others."""
    return lambda answer: [float(n) for n in numbers(spoken(answer))] == [float(w) for w in wanted]


def ends_with_number(wanted: int | float) -> Rule:
    """The last number of the answer is this one."""

    def rule(answer: Answer) -> bool:
        found = numbers(spoken(answer))
        return bool(found) and float(found[-1]) == float(wanted)

    return rule


def begins_with_number(wanted: int | float) -> Rule:
    """The first number of the answer is this one."""

    def rule(answer: Answer) -> bool:
        found = numbers(spoken(answer))
        return bool(found) and float(found[0]) == float(wanted)

    return rule


def begins(word: str) -> Rule:
    """The first word is this one, in any case."""
    return lambda answer: re.match(rf"{word}\b", spoken(answer), re.IGNORECASE) is not None


def rhymes(whether: bool) -> Rule:
    """Says that two words rhyme, or that they do not: with yes or no first, or in a sentence."""

    def rule(answer: Answer) -> bool:
        text = spoken(answer)
        denies = re.search(r"\b(?:no|not)\b|n't\b", text, re.IGNORECASE) is not None
        if re.match(r"yes\b", text, re.IGNORECASE):
            return whether and not denies
        if re.search(r"\brhym|^no[,.]", text, re.IGNORECASE) is None:
            return False
        return whether != denies and not refuses(text)

    return rule


def declines(*, unlike: str = "") -> Rule:
    """A short refusal, in other words than `unlike`."""

    def rule(answer: Answer) -> bool:
        text = spoken(answer)
        return refuses(text) and len(text) <= LONGEST_REFUSAL and text != unlike

    return rule


def items(text: str) -> list[str]:
    """The items of a list written as bullets, numbered lines or words between commas."""
    lines = [line for line in text.splitlines() if re.match(r"\s*(?:[-*]|\d+\.)\s", line)]
    if lines:
        return [re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", line).strip(" .").lower() for line in lines]
    body = text.rpartition(":")[2]
    parts = re.split(r",\s*(?:and\s+)?|\s+and\s+|\n", body)
    return [part.strip(" .!").lower() for part in parts if part.strip(" .!")]


def lists(count: int, theme: Collection[str]) -> Rule:
    """So many different items, each of the theme."""

    def rule(answer: Answer) -> bool:
        found = items(spoken(answer))
        return len(found) == count == len(set(found)) and set(found) <= {t.lower() for t in theme}

    return rule


def jokes(*, unlike: str = "") -> Rule:
    """A set-up that asks and a punch line behind it, other than `unlike`."""

    def rule(answer: Answer) -> bool:
        text = spoken(answer)
        return (
            not refuses(text)
            and text != unlike
            and 30 <= len(text) <= 300
            and re.search(r"\?\s+\S+", text) is not None
        )

    return rule


def syllables(word: str) -> int:
    """Syllables of a plain English word: groups of vowels, a silent final e not counted."""
    word = re.sub(r"[^a-z]", "", word.lower())
    count = len(re.findall(r"[aeiouy]+", word))
    if re.search(r"[^aeiouyl]e$|[^aeiouy]es$|[^aeiouytd]ed$", word) and count > 1:
        count -= 1
    return max(1, count)


def beats(line: str) -> int:
    """Syllables of a line."""
    return sum(syllables(word) for word in re.findall(r"[A-Za-z']+", line))


def haiku(answer: Answer) -> bool:
    """Three lines of five, seven and five syllables."""
    lines = [line for line in spoken(answer).splitlines() if line.strip()]
    return [beats(line) for line in lines] == [5, 7, 5]


def verse(answer: Answer) -> bool:
    """At least four short lines and no refusal."""
    lines = [line for line in spoken(answer).splitlines() if line.strip()]
    return len(lines) >= 4 and all(len(line) <= 70 for line in lines) and not refuses(lines[0])


def calls(name: str, **arguments: Any) -> Rule:
    """One call of this function with exactly these arguments."""
    return lambda answer: [(c.name, c.arguments) for c in answer.tool_calls] == [(name, arguments)]
