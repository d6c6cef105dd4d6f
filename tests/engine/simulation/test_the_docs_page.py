"""docs/simulated-models.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.simulation.script import parse_script
from engine.simulation.spec import PROFILES, SpecError, parse_spec

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "simulated-models.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_tables_name_every_profile_and_every_key() -> None:
    assert re.findall(r"^\| `([a-z0-9-]+)`(?: \(default\))? \| [\d.]", PAGE, re.M) == list(PROFILES)
    with pytest.raises(SpecError) as error:
        parse_spec("simulated:nothing=1")
    keys = str(error.value).split("there are ")[1].split(", ")
    for key in keys:
        assert re.search(rf"^\|[^|]*`{key}`[^|]*\|", PAGE, re.MULTILINE), key


@pytest.mark.parametrize("name", PROFILES)
def test_the_profiles_are_as_documented(name: str) -> None:
    profile = PROFILES[name]
    (row,) = re.findall(rf"^\| `{profile.profile}`.*$", PAGE, re.MULTILINE)
    _, _, step, per_sequence, prefill, output, kv_tokens, _ = (
        cell.strip() for cell in row.split("|")
    )
    assert step == (f"{profile.step * 1e3:g} ms" if profile.step else "0")
    assert per_sequence == (f"{profile.per_sequence * 1e6:g} µs" if profile.per_sequence else "0")
    assert prefill == (f"{profile.prefill:,}" if profile.prefill else "no limit")
    assert output == f"{profile.output[0]} to {profile.output[1]}"
    assert kv_tokens == f"{profile.kv_tokens:,}"


def test_the_commands_name_simulations_that_can_be() -> None:
    specs = re.findall(r"(?:serve|--model) (simulated:[^\s`…]*)", PAGE)
    assert len(specs) > 5
    for spec in specs:
        parse_spec(spec)


def test_the_scripts_can_be_read() -> None:
    scripts = [block for block in BLOCKS if '{"when"' in block]
    first, second = (parse_script(block.encode(), "page") for block in scripts)
    call = first.answer("Please look up dusk")
    assert call is not None
    assert call.pieces == (
        '<tool_call>\n{"name": "look_up", "arguments": {"word": "dusk"}}\n</tool_call>',
    )
    done = second.answer("MY-TASK <tool_response> <tool_response>")
    assert done is not None
    assert done.pieces == ("Done.",)
