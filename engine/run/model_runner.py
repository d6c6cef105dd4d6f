"""Runs a model on a device, step by step.

Code that runs only at startup (loading, sizing the cache, warming up) is in
``engine.run.assembly``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.device.sending import sent_one
from engine.run.batch import BatchBuilder
from engine.run.caches import AnyKVCache
from engine.run.launched import LaunchedStep, NewestTokens, StepParts, on_device
from engine.step.step import ModelInfo, ScheduledSequence, StepPlan, StepResult, StepUnderWay

if TYPE_CHECKING:
    from engine.run.mixed import MixedSteps
    from engine.run.steady import SteadyDecode, SteadyStep


class ModelRunner:
    """A loaded model with its KV cache and sampler. Not thread-safe.

    With several ranks, each has such a runner with its part of the model and receives the same
    plans; rank 0's results are those of the model.
    """

    def __init__(
        self,
        info: ModelInfo,
        parts: StepParts,
        batches: BatchBuilder,
        cache: AnyKVCache,
        *,
        steady: SteadyDecode | None = None,
        mixed: MixedSteps | None = None,
        runs_ahead: bool = False,
    ) -> None:
        """``batches`` lays rows out for the decoder in ``parts``; ``steady`` and ``mixed``: decode
        steps and steps with prompts, of fixed shapes, over the same ``cache``. ``runs_ahead``: a
        step may be launched before the previous one's result is read."""
        self.info = info
        self.launch = self._launch if runs_ahead else None
        self._parts = parts
        self._device = parts.device
        self._decoder = parts.decoder
        self._batches = batches
        self._cache = cache
        self._steady = steady
        self._mixed = mixed
        self._last_launched: LaunchedStep | SteadyStep | None = None
        self._has_bad_blocks = False

    @property
    def clears_blocks(self) -> bool:
        """True if blocks are zeroed before reuse, because some may hold NaN or infinity."""
        return self._has_bad_blocks

    def clear_blocks(self) -> None:
        """Zero blocks before reuse from now on, because another rank saw NaN or infinity."""
        self._has_bad_blocks = True

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the planned tokens and sample where the plan says so. Running a plan again is
        harmless. Raises DeviceLostError when the accelerator is lost."""
        with on_device(self._device):
            return self._execute(plan)

    def forget(self, uid: int) -> None:
        """Drop the state of a finished sequence."""
        self._parts.sampler.forget(uid)
        if self._parts.kernel_sampler is not None:
            self._parts.kernel_sampler.forget(uid)
        self._parts.pooler.forget(uid)
        if self._parts.states is not None:
            self._parts.states.forget(uid)

    def _execute(self, plan: StepPlan) -> StepResult:
        step = self._start(plan, None)
        step.sample(frozenset())
        return step.result()

    def _launch(self, plan: StepPlan) -> StepUnderWay:
        with on_device(self._device):
            self._last_launched = self._start(plan, self._last_launched)
        return self._last_launched

    def _start(
        self, plan: StepPlan, before: LaunchedStep | SteadyStep | None
    ) -> LaunchedStep | SteadyStep:
        """Start a step. ``before``: the step that samples the plan's pending tokens."""
        newest = None if before is None else before.newest()
        if self._steady is None:
            return self._forward(plan, newest)
        if self._steady.accepts(plan.scheduled):
            return self._steady.launch(plan.scheduled, newest)
        self._steady.forget()
        return self._forward(plan, newest)

    def _forward(self, plan: StepPlan, newest: NewestTokens | None) -> LaunchedStep:
        places = None if newest is None else newest.places
        batch = self._batches.build(plan, places, self._needs_every_row)
        if self._has_bad_blocks:
            self._cache.clear(sent_one(batch.fresh_blocks, self._device))
        if newest is not None:
            newest.fill(batch)
        if self._mixed is not None and self._mixed.fits(batch):
            hidden = self._mixed.hidden_states(batch)
        else:
            hidden = self._decoder.hidden_states(
                batch.token_ids, batch.positions, self._cache, batch.layout, batch.kept
            )
        return LaunchedStep(self._parts, batch, hidden, self._on_bad_numbers)

    def _needs_every_row(self, item: ScheduledSequence) -> bool:
        sequence = item.sequence
        return sequence.params.prompt_logprobs is not None or (
            sequence.embed is not None and self._parts.pooler.needs_every_token
        )

    def _on_bad_numbers(self) -> None:
        # NaN or infinity may have reached the cache. Zero blocks before reuse from now on, because
        # a masked slot that holds infinity still spoils a sum.
        self._has_bad_blocks = True
