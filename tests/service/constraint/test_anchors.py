"""A rewritten regex matches exactly the texts in which the original one is found."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.constraint.anchors import full_match_regex, is_verbose
from service.constraint.schema import can_match
from tests.service.constraint.grammars import accepts, grammar

TEXTS = ["", *("".join(chars) for n in (1, 2, 3) for chars in itertools.product("ab(", repeat=n))]


def same(search: str, whole: str) -> bool:
    return all(bool(re.search(search, t)) == bool(re.fullmatch(whole, t)) for t in TEXTS)


ATOMS = st.sampled_from(["a", "b", "a*", "[^b]", "[$(|^]", r"\(", "^", "$", ""])


def larger(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds("({}){}".format, part, st.sampled_from(["", "", "?", "*", "{2}"]))
    return st.lists(st.lists(ATOMS | groups, max_size=3).map("".join), min_size=1, max_size=2).map(
        "|".join
    )


@given(st.recursive(ATOMS, larger, max_leaves=8))
def test_any_regex_is_rewritten_to_an_equivalent_one_or_refused(search: str) -> None:
    whole = full_match_regex(search)
    assert whole is None or same(search, whole)


@pytest.mark.parametrize(
    "search",
    [
        *("a", "^a", "a$", "^a$", "^a|b$", "^$", "", "|", "a|", "^^a$$"),
        *("(^a|^b)a", "(^|b)a", "b(a$|b)", "^(?:^a$)$", "((^a)|b)", "(?:(?:^a)b)", "(^a)(b$)"),
        *("(?i)^A", "(?i)^A$", "(?i)A|B", "(?i:^A)", "(?P<n>^a)b", r"\Aab"),
    ],
)
def test_anchors_may_be_at_the_ends_also_inside_groups_and_after_flags(search: str) -> None:
    whole = full_match_regex(search)
    assert whole is not None
    assert same(search, whole)


@pytest.mark.parametrize(
    "search",
    [
        *("a^b", "a$b", "x(^a)", "(a$)b", "(^a)?b", "(^a)*", "a$?", r"\(^a", "(a|^)*$"),
        *("(?m)^a", "(?x) ^ a # b", "(?x:a b)"),
    ],
)
def test_anchors_elsewhere_and_flags_that_change_them_are_refused(search: str) -> None:
    assert full_match_regex(search) is None


def test_flags_that_leave_anchors_alone_are_kept() -> None:
    assert full_match_regex("(?m)a") == "(?m)(?s:.*)a(?s:.*)"
    assert is_verbose("(?ix)a")
    assert not is_verbose(r"(?i)\(?x)")


def test_a_regex_with_unbalanced_parentheses_is_left_to_the_engine_to_refuse() -> None:
    for search in ("(a", "a)", "^(a"):
        assert full_match_regex(search) == search


def test_grammars_understand_what_is_written() -> None:
    asked = grammar(f"start: TEXT\nTEXT: /{full_match_regex('(?i)(^a|b$)')}/\n")
    for text, allowed in (("a", True), ("AX", True), ("xB", True), ("xa", False), ("bx", False)):
        assert accepts(asked, text) == allowed, text


def test_deep_nesting_takes_no_recursion_and_little_time() -> None:
    depth = 50_000
    whole = full_match_regex("(" * depth + "^a" + ")" * depth)
    assert whole == "(" * depth + "a" + ")" * depth + "(?s:.*)"


def test_classes_that_are_not_closed_take_linear_time() -> None:
    opened = "[" * 100_000
    assert full_match_regex(opened) == f"(?s:.*){opened}(?s:.*)"
    assert can_match(opened + "\\")
