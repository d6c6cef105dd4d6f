"""A prompt's end shows where the model continues, and whether its reasoning is over."""

from __future__ import annotations

import pytest

from service.formats import (
    Channels,
    Opening,
    OutputFormat,
    ReasoningTags,
    ShippedFormat,
    named_format,
    opening_of,
    reasoning_is_over,
    shipped_formats,
)

THINK = ReasoningTags("<think>", "</think>")


@pytest.mark.parametrize(
    ("prompt", "continues", "expected"),
    [
        ("<|im_start|>assistant\n<think>\n", False, Opening.REASONING),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False, Opening.TEXT),
        ("<|im_start|>assistant\n<think>\nso", True, Opening.REASONING),
        ("what is <think>? <|im_start|>assistant\n", False, Opening.TEXT),
    ],
)
def test_a_prompt_shows_where_it_leaves_the_model(
    prompt: str, continues: bool, expected: Opening
) -> None:
    assert opening_of(OutputFormat(THINK), prompt, continues=continues) is expected


@pytest.mark.parametrize("tag", ["<think>", "</think>"])
def test_a_tag_before_the_message_that_goes_on_says_nothing_of_it(tag: str) -> None:
    form = OutputFormat(THINK)
    before = f"<|user|>What does {tag} do?<|assistant|>"

    def opened(begun: str) -> Opening:
        return opening_of(form, before + begun, continues=True, begin=len(before))

    def over(begun: str) -> bool:
        return reasoning_is_over(form, before + begun, continues=True, begin=len(before))

    assert (opened("Well, "), over("Well, ")) == (Opening.TEXT, False)
    assert (opened("<think>so"), over("<think>so")) == (Opening.REASONING, False)
    assert (opened("<think>so</think>It"), over("<think>so</think>It")) == (Opening.TEXT, True)


@pytest.mark.parametrize("shipped", shipped_formats("reasoning"), ids=lambda s: s.names[0])
def test_a_prompt_that_ends_in_a_closed_block_is_behind_the_reasoning(
    shipped: ShippedFormat,
) -> None:
    tags = shipped.reasoning
    assert tags is not None

    def over(prompt: str, *, continues: bool = False) -> bool:
        return reasoning_is_over(OutputFormat(tags), prompt, continues=continues)

    begun = "<|user|>Hi<|assistant|>"
    for close in tags.closes:
        # As templates write it: an empty block, or, as DeepSeek's, only its end.
        assert over(f"{begun}{tags.open}\n\n{close}\n\n")
        assert over(f"{begun}{close}")
        assert over(f"{begun}{tags.open}so{close}\nWell,", continues=True)
        # A thought of an earlier turn closes nothing now.
        assert not over(f"<|assistant|>{tags.open}so{close}Hello{begun}")
        assert not over(f"{close}{begun}{tags.open}\n", continues=True)
    assert not over(begun)
    assert not over(f"{begun}{tags.open}\n")
    assert not over(f"{begun}Well,", continues=True)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|start|>user<|message|>Hi<|end|><|start|>assistant", False),
        ("<|start|>assistant<|channel|>analysis<|message|><|end|><|start|>assistant", True),
        ("<|start|>assistant<|channel|>analysis<|message|>so<|end|>\n<|start|>assistant", True),
        ("<|start|>assistant<|channel|>analysis<|message|>so", False),
        ("<|start|>assistant<|channel|>final<|message|>Hi<|end|><|start|>assistant", False),
        ("<|start|>assistant", False),
    ],
)
def test_a_closed_message_of_reasoning_is_behind_the_next_header(
    prompt: str, expected: bool
) -> None:
    harmony = OutputFormat(channels=named_format("tool_calls", "openai").channels)
    assert reasoning_is_over(harmony, prompt, continues=False) is expected


CHANNELS = [
    pytest.param(shipped.channels, id=shipped.names[0])
    for shipped in shipped_formats("tool_calls")
    if shipped.channels is not None and shipped.channels.reasoning_header
]


@pytest.mark.parametrize("channels", CHANNELS)
def test_the_same_in_every_family_whose_messages_have_headers(channels: Channels) -> None:
    end, begun = channels.between
    form = OutputFormat(channels=channels)

    def over(prompt: str) -> bool:
        return reasoning_is_over(form, prompt, continues=False)

    thought = f"{begun}{channels.reasoning_header}so{end}"
    user = "<|start|>user<|message|>Hi<|eot|>"
    assert over(f"{user}{thought}{begun}")
    assert over(f"{begun}{channels.reasoning_header}{end}\n{begun}")
    assert not over(f"{begun}{channels.text_headers[0]}Hi{end}{begun}")
    assert not over(f"{user}{begun}")
    assert not over(f"{thought}{user}{begun}")  # an earlier turn's
    assert not over(f"{thought}{begun}{channels.text_headers[0]}Hi{end}{user}{begun}")
    assert not over(thought)


@pytest.mark.parametrize("name", ["hunyuan_a13b", "granite33", "kimi_k3"])
def test_tags_without_meaning_may_follow_a_closed_block(name: str) -> None:
    shipped = named_format("reasoning", name)
    tags, ignored = shipped.reasoning, shipped.ignored
    assert tags is not None
    form = OutputFormat(tags, ignored=ignored)
    closed = f"<|user|>Hi<|assistant|>{tags.open}\n\n{tags.close}\n"
    assert reasoning_is_over(form, f"{closed}{ignored[0]}\n", continues=False)
    assert not reasoning_is_over(form, f"{closed}Hello{ignored[1]}<|user|>", continues=False)
    assert not reasoning_is_over(form, ignored[1] * 100_000, continues=False)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|start|>user<|message|>Hi<|end|><|start|>assistant", Opening.HEADER),
        ("<|start|>assistant<|channel|>final<|message|>Well", Opening.TEXT),
        ("<|start|>assistant<|channel|>analysis<|message|>Well", Opening.REASONING),
    ],
)
def test_a_prompt_of_messages_with_headers_ends_in_a_header_or_a_message(
    prompt: str, expected: Opening
) -> None:
    harmony = OutputFormat(channels=named_format("tool_calls", "openai").channels)
    assert opening_of(harmony, prompt, continues=True) is expected
