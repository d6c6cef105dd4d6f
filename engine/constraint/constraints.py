"""All constrained sequences of an engine, and the threads that work for them.

No grammar work is done on the engine's thread, so none can delay a step:

- a grammar is compiled once on a low-priority thread, and cached; its sequence is scheduled when
  that is done;
- what may follow a sampled token is computed while the model runs the next step. The step waits
  briefly for it at its end; a sequence whose mask comes later is left out of steps until it is
  ready, and its slow masks are computed on a low-priority thread;
- after an engine's death the outputs so far are replayed, on other low-priority threads because
  that takes much longer than a mask.

Work for a sequence that has ended is skipped, so that no other sequence waits for it.

Other work is delayed only by what a grammar does while holding the interpreter's lock, which its
limits bound (see ``engine.constraint.grammar``).
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.constraint.grammar import (
    Tokens,
    allowed_tokens,
    compile_grammar,
    explain,
)
from engine.constraint.workers import Workers
from engine.messages import Constraint, EngineCounters, SamplingParams
from engine.step.grammar_state import GrammarError, GrammarState
from engine.step.mask import Allowed, without

if TYPE_CHECKING:
    from llguidance import LLMatcher

_CACHED_GRAMMARS = 128
_CACHED_CHARS = 8 * 1024 * 1024
_MAX_QUICK_THREADS = 8
_LOW_PRIORITY = 10
# Tokens passed to a matcher at a time: each call holds the interpreter's lock.
_REPLAY_TOKENS = 16


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A grammar at its start. ``matcher`` is only ever copied."""

    matcher: LLMatcher
    first: Allowed


@dataclass(slots=True)
class _Compiling:
    """A grammar being compiled or queued for it, and the sequences that wait for it with their
    outputs."""

    waiting: list[tuple[GrammarState, list[int]]] = field(default_factory=list)
    begun: bool = False


class Advance(NamedTuple):
    """A constrained sequence got this token."""

    grammar_state: GrammarState
    constraint: Constraint
    token_id: int


class Constraints:
    """Call its methods on the engine's thread. ``wake`` is called on another thread when a sequence
    that the engine waits for can continue."""

    def __init__(self, tokens: Tokens, *, wake: Callable[[], None]) -> None:
        self.counters = EngineCounters()
        self._tokens = tokens
        self._wake = wake
        self._lock = threading.Lock()  # for the cache, grammars being compiled, and counters
        # Consuming a token holds the interpreter's lock: only one thread at a time does it, so that
        # the engine's thread never waits for several.
        self._consuming = threading.Lock()
        self._cache: OrderedDict[Constraint, _Compiled] = OrderedDict()
        self._cached_chars = 0
        self._compiling: dict[Constraint, _Compiling] = {}
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
        self._compilers = Workers("grammar-compiler", 2, nice=_LOW_PRIORITY)
        self._quick_threads = max(1, min(_MAX_QUICK_THREADS, cores // 2))
        self._quick = Workers("grammar-masks", self._quick_threads)
        self._slow = Workers("grammar-slow-masks", 2, nice=_LOW_PRIORITY)
        self._replays = Workers("grammar-replays", 2, nice=_LOW_PRIORITY)

    def close(self) -> None:
        for workers in (self._compilers, self._quick, self._slow, self._replays):
            workers.close()

    def begin(self, params: SamplingParams, output: list[int]) -> GrammarState:
        """Return the state of a new sequence that already has ``output``; it may still be
        working."""
        constraint = params.constraint
        assert constraint is not None
        grammar_state = GrammarState(
            constraint.grammar,
            frozenset() if params.ignore_eos else self._tokens.stop_token_ids,
        )
        with self._lock:
            compiled = self._cache.get(constraint)
            if compiled is not None:
                self._cache.move_to_end(constraint)
                self.counters.grammars_cached += 1
            else:
                compiling = self._compiling.get(constraint)
                if compiling is None:
                    compiling = self._compiling[constraint] = _Compiling()
                    self._compilers.submit(functools.partial(self._compile, constraint))
                grammar_state.begin_work(queued=not compiling.begun)
                compiling.waiting.append((grammar_state, output))
                return grammar_state
        grammar_state.begin_work()
        self._start(grammar_state, compiled, output)
        return grammar_state

    def advance(self, steps: list[Advance]) -> None:
        """Start computing what may follow each sequence's new token."""
        quick = []
        for step in steps:
            if step.grammar_state.is_slow:
                step.grammar_state.begin_work(queued=True)
                self._submit(self._slow, step.grammar_state, step.constraint, [step.token_id])
            else:
                step.grammar_state.begin_work()
                quick.append(step)
        # One task per thread, not per sequence: submitting a task costs as much as a mask.
        for first in range(min(self._quick_threads, len(quick))):
            share = quick[first :: self._quick_threads]
            self._quick.submit(functools.partial(self._follow_all, share))

    # --- other threads ----------------------------------------------------------------------------

    def _compile(self, constraint: Constraint) -> None:
        begin = time.monotonic()
        with self._lock:
            compiling = self._compiling[constraint]
            if all(grammar_state.is_abandoned for grammar_state, _ in compiling.waiting):
                del self._compiling[constraint]
                return
            compiling.begun = True
            for grammar_state, _ in compiling.waiting:
                grammar_state.leave_queue()
        compiled: _Compiled | None = None
        error = ""
        try:
            matcher = compile_grammar(constraint, self._tokens)
            compiled = _Compiled(matcher, allowed_tokens(matcher, self._tokens))
        except GrammarError as refused:
            error = str(refused)
        except Exception as failure:
            error = f"the grammar failed: {failure}"
        with self._lock:
            waiting = self._compiling.pop(constraint).waiting
            self.counters.grammars_compiled += 1
            self.counters.grammar_compile_seconds += time.monotonic() - begin
            if compiled is not None:
                self._keep(constraint, compiled)
        for grammar_state, output in waiting:
            if compiled is None:
                self._fail(grammar_state, constraint, error)
            else:
                self._start(grammar_state, compiled, output)
            self._tell(grammar_state)

    def _keep(self, constraint: Constraint, compiled: _Compiled) -> None:
        self._cache[constraint] = compiled
        self._cached_chars += len(constraint.grammar)
        while len(self._cache) > _CACHED_GRAMMARS or self._cached_chars > _CACHED_CHARS:
            dropped, _ = self._cache.popitem(last=False)
            self._cached_chars -= len(dropped.grammar)

    def _start(self, grammar_state: GrammarState, compiled: _Compiled, output: list[int]) -> None:
        """Begin at the grammar's start, or after ``output``."""
        grammar_state.matcher = compiled.matcher.deep_copy()
        if output:
            grammar_state.join_queue()
            self._submit(self._replays, grammar_state, None, output)
        else:
            self._allow(grammar_state, compiled.first)

    def _submit(
        self,
        workers: Workers,
        grammar_state: GrammarState,
        constraint: Constraint | None,
        token_ids: list[int],
    ) -> None:
        """The time in this queue does not count: after an engine's death it may be long."""

        def follow() -> None:
            grammar_state.leave_queue()
            self._follow(grammar_state, constraint, token_ids)

        workers.submit(follow)

    def _follow_all(self, steps: list[Advance]) -> None:
        for step in steps:
            self._follow(step.grammar_state, step.constraint, [step.token_id])

    def _follow(
        self, grammar_state: GrammarState, constraint: Constraint | None, token_ids: list[int]
    ) -> None:
        begin = time.monotonic()
        try:
            allowed = self._consume(grammar_state, token_ids)
        except Exception as error:
            self._fail(grammar_state, constraint, f"{error}")
        else:
            if allowed is None:
                grammar_state.complete()
            else:
                self._allow(grammar_state, allowed)
        with self._lock:
            self.counters.grammar_mask_seconds += time.monotonic() - begin
        self._tell(grammar_state)

    def _consume(self, grammar_state: GrammarState, token_ids: list[int]) -> Allowed | None:
        """Return what may follow these tokens; None when the text can only end, or its sequence
        has ended."""
        matcher = grammar_state.matcher
        assert matcher is not None
        for first in range(0, len(token_ids), _REPLAY_TOKENS):
            if grammar_state.is_abandoned:
                return None
            with self._consuming:
                consumed = matcher.consume_tokens(token_ids[first : first + _REPLAY_TOKENS])
            if not consumed:
                raise GrammarError(explain(matcher))
        if matcher.is_stopped():
            return None
        return allowed_tokens(matcher, self._tokens)

    def _allow(self, grammar_state: GrammarState, allowed: Allowed) -> None:
        idle = self._tokens.eos_token_ids - grammar_state.stops
        ends = self._tokens.eos_token_ids
        if allowed.ends and not without(allowed.mask, ends).any():
            grammar_state.complete()
        else:
            grammar_state.allow(allowed, without(allowed.mask, idle) if idle else allowed.mask)

    def _fail(self, grammar_state: GrammarState, constraint: Constraint | None, error: str) -> None:
        with self._lock:
            self.counters.grammars_failed += 1
            # Copies share the lexer's states, so one that overflowed them must not be kept.
            dropped = self._cache.pop(constraint, None) if constraint is not None else None
            if dropped is not None and constraint is not None:
                self._cached_chars -= len(constraint.grammar)
        grammar_state.fail(error)

    def _tell(self, grammar_state: GrammarState) -> None:
        if grammar_state.awaited:
            grammar_state.awaited = False
            self._wake()
