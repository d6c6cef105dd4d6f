"""Which reply a script gives to which prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.simulation.script import (
    MAX_RULES,
    MAX_SCRIPT_BYTES,
    Script,
    ScriptError,
    parse_script,
    read_script,
)


def script(*rules: dict[str, Any]) -> Script:
    return parse_script("\n".join(json.dumps(rule) for rule in rules).encode(), "test.jsonl")


def said(script: Script, prompt: str) -> tuple[str | int, ...] | None:
    reply = script.answer(prompt)
    return None if reply is None else reply.pieces


def test_the_first_rule_that_holds_wins() -> None:
    rules = script(
        {"when": "apple", "reply": "red"},
        {"when": "apple|lemon", "reply": "yellow"},
        {"reply": "grey"},
    )
    assert said(rules, "an apple and a lemon") == ("red",)
    assert said(rules, "a lemon") == ("yellow",)
    assert said(rules, "a stone") == ("grey",)


def test_without_a_matching_rule_there_is_no_reply() -> None:
    assert script({"when": "apple", "reply": "red"}).answer("a stone") is None


def test_unless_keeps_a_rule_from_holding() -> None:
    rules = script({"when": "apple", "unless": "rotten", "reply": "red"}, {"reply": "brown"})
    assert said(rules, "a rotten apple") == ("brown",)


def test_count_walks_through_the_replies_of_a_conversation() -> None:
    rules = script(
        {"when": "TASK", "count": "<result>", "replies": ["first", "second"]},
        {"reply": "else"},
    )
    assert said(rules, "TASK") == ("first",)
    assert said(rules, "TASK <result>") == ("second",)
    assert said(rules, "TASK <result> <result>") == ("else",)
    assert said(rules, "a title, please <result>") == ("else",)


def test_named_groups_fill_the_text_and_other_braces_stay() -> None:
    rules = script(
        {"when": r"id=(?P<id>\w+)(?: by (?P<who>\w+))?", "reply": '{"id": "{{id}}"} {{who}}{id}'}
    )
    assert said(rules, "id=a7 by Eve") == ('{"id": "a7"} Eve{id}',)
    assert said(rules, "id=a7") == ('{"id": "a7"} {id}',)


def test_without_groups_double_braces_are_text() -> None:
    assert said(script({"when": "x", "reply": "{{y}}"}), "x") == ("{{y}}",)


def test_exact_pieces_are_kept_apart() -> None:
    reply = script({"reply": ["<tool", "_call>", 7, "é"], "end": False}).answer("")
    assert reply is not None
    assert (reply.pieces, reply.ends, reply.line) == (("<tool", "_call>", 7, "é"), False, 1)


def test_anchors_match_at_line_ends_and_at_the_prompt_s_end() -> None:
    rules = script({"when": r"^go$", "reply": "line"}, {"when": r"stop\Z", "reply": "end"})
    assert said(rules, "well\ngo\nnow") == ("line",)
    assert said(rules, "stop it, then stop") == ("end",)
    assert said(rules, "stop it") is None


def test_blank_lines_and_comments_count_as_lines() -> None:
    rules = parse_script(b'# what it says\n\n  {"reply": "a"}\n', "test.jsonl")
    reply = rules.answer("")
    assert reply is not None
    assert reply.line == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"reply": "a"', "truncated"),
        ('{"reply": "a", "wenn": "b"}', "unknown field `wenn`"),
        ('{"reply": 7}', "$.reply"),
        ('{"reply": ["a", null]}', "$.reply"),
        ('["a"]', "Expected `object`"),
        ('{"when": "a"}', "give either `reply` or `replies`"),
        ('{"reply": "a", "replies": ["b"], "count": "c"}', "give either"),
        ('{"replies": ["a"]}', "`count` and `replies` go together"),
        ('{"reply": "a", "count": "b"}', "`count` and `replies` go together"),
        ('{"replies": [], "count": "b"}', "`replies` is empty"),
        ('{"reply": "a", "when": "("}', "`when` is not a regex"),
        ('{"reply": "{{ib}}", "when": "(?P<id>x)"}', "no group 'ib' for {{ib}}"),
    ],
)
def test_errors_name_the_line(line: str, message: str) -> None:
    with pytest.raises(ScriptError, match=r"test.jsonl, line 2: ") as error:
        parse_script(f'{{"reply": "fine"}}\n{line}'.encode(), "test.jsonl")
    assert message in str(error.value)


def test_a_script_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="has no rules"):
        parse_script(b"# nothing\n", "test.jsonl")
    with pytest.raises(ScriptError, match=f"more than {MAX_RULES} rules"):
        parse_script(b'{"reply": "a"}\n' * (MAX_RULES + 1), "test.jsonl")
    large = tmp_path / "large.jsonl"
    large.write_bytes(b"#" * (MAX_SCRIPT_BYTES + 1))
    with pytest.raises(ScriptError, match="is larger than"):
        read_script(large)
    with pytest.raises(ScriptError, match="cannot be read: No such file"):
        read_script(tmp_path / "missing.jsonl")
