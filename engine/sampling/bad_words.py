"""Finds the tokens that a sequence's bad words forbid next."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np
import torch

from engine.device.sending import sent_one


@dataclass(slots=True)
class _Node:
    """``following`` extends the path by the preceding token; ``banned`` ends words whose other
    tokens are the path."""

    following: dict[int, _Node] = field(default_factory=dict)
    banned: list[int] = field(default_factory=list)


class BadWords:
    """A trie of the words without their last tokens, read backwards: a step only visits as many
    tokens as the longest matching prefix has, however many words there are. ``alone``: words of one
    token, which are always forbidden, int64 [words]."""

    __slots__ = ("_root", "alone")

    def __init__(self, words: Items[Items[int]], vocab_size: int, device: torch.device) -> None:
        """Words whose last token is outside the vocabulary are dropped: they cannot occur."""
        self._root = _Node()
        for *start, last in words:
            if last >= vocab_size:
                continue
            node = self._root
            for token in reversed(start):
                node = node.following.setdefault(token, _Node())
            node.banned.append(last)
        alone = sorted(set(self._root.banned))
        self.alone = sent_one(np.array(alone, np.int64), device)

    def ending(self, token_ids: Items[int]) -> list[int]:
        """Return the last tokens of longer words whose other tokens end ``token_ids``; a token may
        come twice."""
        node, banned = self._root, []
        for place in range(len(token_ids) - 1, -1, -1):
            following = node.following.get(token_ids[place])
            if following is None:
                break
            node = following
            banned += node.banned
        return banned
