"""Sentence frames, one a line, with named parts that several of them share."""

import re


def frames(text: str, /, **parts: str) -> tuple[str, ...]:
    """The patterns of a text, one a line; `@part` stands for one of the named parts."""
    filled = re.sub(r"@(\w+)", lambda found: f"[{parts[found[1]]}]", text)
    return tuple(" ".join(line.split()) for line in filled.splitlines() if line.strip())
