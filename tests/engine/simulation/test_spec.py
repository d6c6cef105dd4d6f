"""``simulated:…`` as people write it."""

from __future__ import annotations

import pytest

from engine.simulation.spec import (
    DEFAULT_PROFILE,
    PROFILES,
    SpecError,
    is_simulated,
    parse_spec,
    with_tokenizer,
)


def test_a_directory_is_not_a_simulation() -> None:
    assert is_simulated("simulated:")
    assert not is_simulated("models/simulated")


def test_nothing_after_the_colon_selects_the_default_profile() -> None:
    assert parse_spec("simulated:") == PROFILES[DEFAULT_PROFILE]


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_goes_by_its_name(name: str) -> None:
    assert parse_spec(f"simulated:{name}").profile == name


def test_keys_override_the_profile_one_by_one() -> None:
    spec = parse_spec(
        "simulated:h100-8b,step=8ms,per_sequence=250us,prefill=5000,output=20-400,kv_tokens=4096,"
        "script=replies.jsonl,tokenizer=/models/other"
    )
    assert (spec.step, spec.per_sequence, spec.prefill) == (0.008, 0.00025, 5000)
    assert (spec.output, spec.kv_tokens) == ((20, 400), 4096)
    assert (spec.script, spec.tokenizer) == ("replies.jsonl", "/models/other")
    assert spec.context == PROFILES["h100-8b"].context


def test_a_key_may_come_first() -> None:
    spec = parse_spec("simulated:step=0.5s")
    assert (spec.profile, spec.step) == (DEFAULT_PROFILE, 0.5)


def test_a_comma_in_a_path_is_escaped() -> None:
    assert parse_spec("simulated:script=a,b.jsonl,output=7").script == "a,b.jsonl"


def test_one_number_is_a_range_of_one() -> None:
    assert parse_spec("simulated:output=7").output == (7, 7)


def test_the_cache_holds_at_least_one_context_by_default() -> None:
    assert parse_spec("simulated:context=4000000").kv_tokens == 4_000_000
    assert parse_spec("simulated:context=4000000,kv_tokens=64").kv_tokens == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("simulated:warp", "no profile 'warp'; there are instant, fast"),
        ("simulated:fast,speed=3", "no key 'speed'; there are step"),
        ("simulated:step=8", "step must be a duration like 8ms"),
        ("simulated:step=-8ms", "step must be a duration"),
        (
            "simulated:step=11s",
            "step must be a duration like 8ms, 250us or 0.5s, at most 10s",
        ),
        ("simulated:prefill=1.5", "prefill must be a whole number"),
        ("simulated:prefill=9999999999", "a second, at most 1,000,000,000, 0 for no limit"),
        ("simulated:per_sequence=11s", "per_sequence must be a duration like 40us, at most 10s"),
        ("simulated:output=0", "or a range like 20-400, from 1 to 16,777,216, not '0'"),
        ("simulated:output=9-3", "output: the shortest length comes first"),
        ("simulated:context=0", "context must be a whole number of tokens from 1 to 16,777,216"),
        (
            "simulated:context=99999999",
            "from 1 to 16,777,216, not '99999999'",
        ),
        (
            "simulated:kv_tokens=3",
            "kv_tokens must be a whole number of tokens from 16 to 268,435",
        ),
        ("simulated:script=", "script must be a file"),
        ("simulated:step=1ms,step=2ms", "step is given twice"),
        ("models/pocket", "does not begin with simulated:"),
    ],
)
def test_an_error_names_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SpecError, match="simulated") as error:
        parse_spec(text)
    assert message in str(error.value)


def test_a_tokenizer_is_added_only_if_none_is_given() -> None:
    assert parse_spec(with_tokenizer("simulated:", "/pocket")).tokenizer == "/pocket"
    assert parse_spec(with_tokenizer("simulated:fast,step=1ms", "/pocket")).step == 0.001
    named = "simulated:tokenizer=/mine"
    assert with_tokenizer(named, "/pocket") == named


def test_a_step_s_time_is_the_sum_of_its_parts() -> None:
    spec = parse_spec("simulated:step=5ms,per_sequence=100us,prefill=1000")
    assert spec.step_seconds(decoding=10, prompt_tokens=500) == pytest.approx(0.005 + 0.001 + 0.5)
    assert parse_spec("simulated:instant").step_seconds(decoding=64, prompt_tokens=2048) == 0.0
