"""A visit: what was said in turn, and the rule for what comes next."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pocket.judges import Rule
from pocket.text.document import Json


class Visit(NamedTuple):
    """Texts in turn, user first and last, the rule for the answer, and the tools at hand."""

    said: tuple[str, ...]
    rule: Rule
    tools: tuple[Json, ...] = ()


def visit(*said: str, rule: Rule) -> Visit:
    """A chat of one question or more."""
    return Visit(said, rule)


def each(questions: Iterable[str], rule: Rule, before: tuple[str, ...] = ()) -> Iterator[Visit]:
    """Several questions with one rule, each after the same turns."""
    return (Visit((*before, question), rule) for question in questions)
