"""What a worker knows of one of several engines when it chooses where to send a request."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

from engine.block_names import block_names
from engine.messages import Generate
from engine.prefix_table import PrefixTableReader, prefix_table_path
from engine.queueing import EngineLoad
from observability.logging import get_logger
from service.engine.link import EngineLink
from service.engine.submission import Submission

# Blocks of a prompt to look up: at 2 to 3 us each, at most some 6 ms of the event loop.
MOST_BLOCKS = 2048
# From sending a request until it is in the engine's queue, at most; it is counted twice for longer.
_ARRIVAL_SECONDS = 0.02

_log = get_logger()


class Sibling:
    """The load and the prefix cache of the engine that ``link`` connects to."""

    def __init__(self, link: EngineLink) -> None:
        self.link = link
        self.chosen = 0  # the number of requests when it was last chosen
        self._sent: deque[tuple[float, int]] = deque()  # moments and tokens the load may lack
        self._sent_tokens = 0
        self._table: PrefixTableReader | None = None

    def ready(self) -> None:
        """Another engine is ready on this link."""
        self._forget()
        try:
            self._table = PrefixTableReader(prefix_table_path(self.link.socket_path))
        except FileNotFoundError:
            self._table = None  # it has no prefix cache
        except (OSError, ValueError) as error:
            self._table = None
            _log.error("failed to open the prefix table", engine=self.link.number, error=str(error))

    def lost(self) -> None:
        self._forget()
        self._table = None

    def _forget(self) -> None:
        self._sent.clear()
        self._sent_tokens = 0

    def sent(self, tokens: int) -> None:
        """Count what was just sent to the engine."""
        self._sent.append((time.monotonic(), tokens))
        self._sent_tokens += tokens

    def load(self) -> int:
        """Return the tokens of all its sequences: as last reported, plus what this worker has sent
        since."""
        stats = self.link.stats
        reported = None if stats is None else stats.load
        if reported is None:
            reported = EngineLoad(0, 0.0)
        sent = self._sent
        while sent and sent[0][0] + _ARRIVAL_SECONDS < reported.time:
            self._sent_tokens -= sent.popleft()[1]
        return reported.tokens + self._sent_tokens

    @property
    def table(self) -> PrefixTableReader | None:
        return self._table


def cached_tokens(siblings: Sequence[Sibling], submission: Submission) -> list[int]:
    """Return how many tokens of the prompt each engine has in its prefix cache, by looking for at
    most ``MOST_BLOCKS`` blocks. Names are computed only as far as any engine has them."""
    task = submission.task
    found = [0] * len(siblings)
    if not isinstance(task, Generate) or task.params.prompt_logprobs is not None:
        return found  # every token will be computed
    looking = [(place, table) for place, one in enumerate(siblings) if (table := one.table)]
    if not looking:
        return found
    size = looking[0][1].block_size
    salt = submission.caller.cache_salt(submission.cache_salt)
    for index, name in enumerate(_names(salt, submission.prompt_token_ids, size), 1):
        looking = [(place, table) for place, table in looking if name in table]
        for place, _ in looking:
            found[place] = index * size
        if not looking or index == MOST_BLOCKS:
            break
    return found


def _names(salt: str, prompt: list[int], block_size: int) -> Iterator[bytes]:
    """Yield the names of the blocks that may be reused: the last token is always computed."""
    return block_names(salt, prompt[: (len(prompt) - 1) // block_size * block_size], block_size)
