"""A simulated model's default answers: sentences about itself."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable

from engine.sampling.params import is_greedy
from engine.step.sequence import Sequence

_SENTENCES = (
    "No model computed these words.",
    "A timer stands where the forward pass would be, and everything around it is real.",
    "The scheduler chose this sequence for a step and found blocks for its tokens.",
    "The sampler looked at a row of numbers in which one was much larger than the others.",
    "The token went through the socket in a frame that it shared with its batch mates.",
    "A worker turned it into text and wrote it to your connection.",
    "Every step waits as long as the profile says a step of its size should take.",
    "Long prompts are read in chunks, so that other streams keep flowing meanwhile.",
    "When the blocks run out, the newest sequence gives its own back and comes again later.",
    "Prompts that begin alike share what has been computed already.",
    "Counters, traces and log lines say what they would say of a model.",
    "Load this server as hard as you like and watch where the time goes.",
    "Nothing here is true of any weights, and all of it is true of the machinery.",
    "The next sentence is as likely as this one.",
)
# How many of a prompt's last tokens distinguish it from another prompt.
_KEY_TOKENS = 64


class Words:
    """The sentences as tokens, starting at any of them, without end. An answer is a function of the
    prompt's end, and of the seed unless sampling is greedy."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._starts = [
            encode(" ".join(_SENTENCES[first:] + _SENTENCES[:first]) + "\n\n")
            for first in range(len(_SENTENCES))
        ]

    def token(self, key: int, place: int) -> int:
        """Return the token at ``place`` of the answer that ``key`` selects."""
        tokens = self._starts[key % len(self._starts)]
        return tokens[place % len(tokens)]


def answer_key(sequence: Sequence) -> int:
    """Return a number that selects an answer to a sequence's prompt."""
    prompt_end = sequence.num_prompt_tokens
    last = sequence.token_ids[max(0, prompt_end - _KEY_TOKENS) : prompt_end]
    seed = 0 if is_greedy(sequence.params) else sequence.params.seed
    return zlib.crc32(array("q", [seed, *last]).tobytes())
