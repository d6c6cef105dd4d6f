"""A grammar without recursion allows the same texts as the regex made of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.constraint.flat import CannotFlattenError, flat_regex
from tests.examples import examples
from tests.service.constraint.grammars import accepts, grammar

# The kind of grammar that coding agents bring for patches.
PATCH = """\
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk
    | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF [move] change?
move: "*** Move to: " filename LF

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change: (context | line)+ eof_line?
context: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""

PATCHES = [
    "*** Begin Patch\n*** Add File: a b.py\n+x = 1\n+\n*** End Patch\n",
    "*** Begin Patch\n*** Delete File: c\n*** End Patch",
    "*** Begin Patch\n*** Update File: d\n*** Move to: e\n@@ def f\n-a\n+b\n c\n*** End Patch",
]


@pytest.mark.parametrize("patch", PATCHES)
def test_a_patch_grammar_becomes_a_regex(patch: str) -> None:
    regex = re.compile(flat_regex(PATCH))
    assert regex.fullmatch(patch)
    assert not regex.fullmatch(patch.replace("*** End Patch", ""))
    assert not regex.fullmatch(patch.replace("***", "**", 1))


GRAMMARS = [
    'start: (a | B)+\na: B{1,3} "x"? # /more/\nB: /[a-c]+/ // "no"\n',
    'start: ("a".."c")~2..3 [x]\n?x: "x" | "y"i\n!y: "z"\n',
    'start: a b\na: "x"\n?b: "y"? z?\nz : "z"\n',
    'start: A{2} | A{,1} "z"\nA: /[ab]/i\n',
    'start: _w (","  _w)*\n_w: /[ax]b?/\n',
    'start: "a" | \n',
]


@pytest.mark.parametrize("source", GRAMMARS)
@given(text=st.text(st.sampled_from("abcxyzAY,"), max_size=5))
@settings(max_examples=examples(80), deadline=None)
def test_the_regex_allows_what_the_grammar_allows(source: str, text: str) -> None:
    lark = grammar("%llguidance {}\n" + re.sub(r"^[?!]", "", source, flags=re.MULTILINE))
    assert bool(re.fullmatch(flat_regex(source), text)) == accepts(lark, text)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('start: "(" start ")" | "x"', "'start' refers to itself"),
        ('start: a\na: "x" b\nb: a?', "'a' refers to itself"),
        ("start: missing", "'missing'"),
        ('x: "y"', "'start'"),
        ('start: ("a"', "is missing"),
        ('start: "a")', "is unexpected"),
        ('start: %json {"type": "object"}', "cannot be used"),
        ("start: <tool_call>", "cannot be used"),
        ("start: @other", "cannot be used"),
        ('start: "a"\n%ignore " "', "cannot be used"),
        ("start: /a/ & ~/b/", "cannot be used"),
        ("start: A\n%import common.FLOAT", "FLOAT"),
        ('"a"', "outside a rule"),
        ('?\n"a"', "outside a rule"),
        ('start: "a"\n"b": "c"', "does not start a rule"),
        (
            "start: "
            + "a0 " * 9
            + "".join(f"\na{i}: " + f"a{i + 1} " * 9 for i in range(9))
            + '\na9: "x"',
            "too large",
        ),
    ],
)
def test_an_invalid_regex_is_refused(source: str, said: str) -> None:
    with pytest.raises(CannotFlattenError, match=re.escape(said)):
        flat_regex(source)
