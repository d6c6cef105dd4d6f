"""Recognises the texts of the generator's patterns, to keep the hand-written gates out of them."""

from __future__ import annotations

import re

from pocket.text.phrasing import AFTER, BEFORE, SLOT


def plain(text: str) -> str:
    """Lower-case words and digits only: what two typings of one phrasing have in common."""
    return " ".join(re.sub(r"[^\w ]", "", text.lower().replace("-", " ")).split())


ANYTHING = r"\S+(?: \S+){0,4}"


def accepting(pattern: str, slots: dict[str, str]) -> re.Pattern[str]:
    """What recognises every text of the pattern after `plain`; `slots` are expressions for values.

    A slot that is not among them may hold one to five words.
    """
    source = re.sub(r"[^\w\s\[\]|{}]", "", pattern.lower().replace("-", " "))
    source = re.sub(r"\s+", " *", source).replace("[", "(?:").replace("]", ")")
    source = SLOT.sub(lambda found: f"(?:{slots.get(found[1], ANYTHING)})", source)
    before, after = (
        "|".join(re.escape(plain(text)).replace("\\ ", " ") for text in texts)
        for texts in (BEFORE, AFTER)
    )
    return re.compile(rf"(?:(?:{before}) )? *(?:{source}) *(?: (?:{after}))?")
