"""Train pocket: `python -m pocket.train --out DIR --minutes 90`, from nothing or `--from` a model.

On a CPU, several single-threaded processes average their gradients (one OpenMP thread each: with
more, barrier waits under contention cost more than they bring); on CUDA one process. The run can
be stopped at any time and resumes from the last checkpoint in DIR.
"""

import argparse
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.multiprocessing.spawn import start_processes
from torch.nn import functional
from tqdm import tqdm  # type: ignore[import-untyped]

from pocket.batches import Batch, batches, fed
from pocket.model import Pocket, PocketShape
from pocket.optimizer import PocketOptimizer
from pocket.text.dice import Dice
from pocket.tokenizer import train as train_tokenizer

WARM_UP_STEPS: Final = 30
SETTLING_STEPS: Final = 4
"""Steps of a compiled run, as it starts, that do not count as time."""
FLAT_UNTIL: Final = 0.45
"""Share of a run with the full learning rate; then it falls linearly to `FLOOR`."""
FLOOR: Final = 0.01
COPY_UNTIL: Final = 0.08
"""Share of the run in which short copying tasks dominate."""
EXPECTED_TARGETS: Final = 0.33
"""Targets per token; a constant divisor weighs every target alike on all ranks."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asked for."""

    out: Path
    minutes: float
    tokens: float
    processes: int
    batch_tokens: int
    seed: int
    device: str
    save_minutes: float
    compiled: bool
    begin: Path | None = None
    rate: float = 1.0
    bfloat16: bool = False
    flat: float = FLAT_UNTIL
    feeders: int = 0
    shape: PocketShape = field(default_factory=PocketShape)


@dataclass(slots=True)
class TrainingProgress:
    """How far the run is: what a checkpoint must know besides tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def share(self, plan: Plan) -> float:
        """Done share of the run, 0 to 1, by whichever limit is nearer."""
        return min(1.0, max(self.seconds / (60 * plan.minutes), self.tokens / plan.tokens))


def rate(share: float, step: int, flat: float = FLAT_UNTIL) -> float:
    """Factor on the learning rates: short warm-up, flat until that share, linear to the floor."""
    warm = min(1.0, (step + 1) / WARM_UP_STEPS)
    if share <= flat:
        return warm
    return warm * (FLOOR + (1 - FLOOR) * (1 - share) / (1 - flat))


def gradients(model: Callable[[Tensor, Tensor], Tensor], batch: Batch, plan: Plan) -> Tensor:
    """Fill the gradients from one batch; returns the summed loss in nats."""
    device = torch.device(plan.device)
    tokens, keep, targets = (
        tensor.to(device, non_blocking=True) for tensor in (batch.tokens, batch.keep, batch.targets)
    )
    with torch.autocast(device.type, torch.bfloat16, enabled=plan.bfloat16):
        logits = model(tokens, keep)
    loss = functional.cross_entropy(logits.float(), targets, reduction="sum")
    (loss / (plan.batch_tokens * EXPECTED_TARGETS)).backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def exchange(model: Pocket, figures: list[float], world: int) -> list[float]:
    """Average the gradients over ranks and sum the figures, in one message."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    if world == 1:
        return figures
    flat = torch.cat([g.flatten() for g in grads] + [torch.tensor(figures)])
    dist.all_reduce(flat)
    sizes = [g.numel() for g in grads]
    for grad, mean in zip(grads, torch.split(flat[: sum(sizes)], sizes), strict=True):
        grad.copy_(mean.view_as(grad) / world)
    return flat[-len(figures) :].tolist()


def save(
    path: Path, model: Pocket, optimizer: PocketOptimizer, progress: TrainingProgress, plan: Plan
) -> None:
    """Write a checkpoint, complete or not at all."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": progress.step,
        "tokens": progress.tokens,
        "seconds": progress.seconds,
        "seed": plan.seed,
        "share": progress.share(plan),
        "shape": asdict(model.shape),
    }
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def load(path: Path, model: Pocket, optimizer: PocketOptimizer) -> dict[str, Any]:
    """Restore a checkpoint into the model and the optimizer."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state


def restored(path: Path) -> tuple[Pocket, dict[str, Any]]:
    """The model of a checkpoint, in the shape it was trained in, and all that was saved with it."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    model = Pocket(PocketShape(**state.get("shape", {})))
    model.load_state_dict(state["model"])
    return model, state


def worker(rank: int, plan: Plan, port: int) -> None:
    """One rank of the run, from first step to last."""
    torch.set_num_threads(1)
    # cuDNN plans attention anew for every shape, and shapes differ from batch to batch.
    torch.backends.cuda.enable_cudnn_sdp(False)
    world = plan.processes
    if world > 1:
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    tokenizer = Tokenizer.from_file(str(plan.out / "tokenizer.json"))
    model = Pocket(plan.shape)
    model.initialise(plan.seed)
    if plan.begin:
        exported = load_file(plan.begin / "model.safetensors")
        model.take_over({name: value.float() for name, value in exported.items()})
    model.to(plan.device)
    optimizer = PocketOptimizer(model, dtype=torch.bfloat16 if plan.bfloat16 else torch.float32)
    progress = TrainingProgress()
    checkpoint = plan.out / "checkpoint.pt"
    if checkpoint.exists():
        state = load(checkpoint, model, optimizer)
        progress = TrainingProgress(state["step"], state["tokens"], state["seconds"])
    # A resumed run draws new documents instead of replaying old ones.
    seed = f"train:{plan.seed}:{rank}:{progress.step}"
    source = batches(
        tokenizer,
        Dice(seed),
        plan.batch_tokens,
        lambda: plan.begin is None and progress.share(plan) < COPY_UNTIL,
    )
    if plan.feeders:
        pinned = plan.device.startswith("cuda")
        source = fed(tokenizer, seed, plan.batch_tokens, plan.feeders, pinned)
    run(rank, world, plan, model, optimizer, progress, source)
    if world > 1:
        dist.destroy_process_group()


def log(plan: Plan, progress: TrainingProgress, mean: float) -> None:
    """Add a line to the run's log."""
    line = {
        "step": progress.step,
        "loss": round(mean, 4),
        "tokens": progress.tokens,
        "seconds": round(progress.seconds),
    }
    with (plan.out / "log.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def run(
    rank: int,
    world: int,
    plan: Plan,
    model: Pocket,
    optimizer: PocketOptimizer,
    progress: TrainingProgress,
    source: Any,
) -> None:
    """The loop; every rank takes the same decisions, for all clocks are rank 0's."""
    # Shapes differ from batch to batch; without `dynamic` each would be compiled anew.
    forward = torch.compile(model, dynamic=True) if plan.compiled else model
    began, before, saved = time.monotonic(), progress.seconds, time.monotonic()
    bar = tqdm(total=100, disable=rank != 0, mininterval=10, unit="%", smoothing=0)
    mean = 0.0
    first = progress.step
    every = 1 if plan.device == "cpu" else 20
    kept = 0.97**every
    while (share := progress.share(plan)) < 1.0:
        batch = next(source)
        loss = gradients(forward, batch, plan)
        # Reading the loss waits for the device, so on a GPU it is read only every 20 steps.
        read = (progress.step + 1) % every == 0
        if plan.compiled and progress.step < first + SETTLING_STEPS:
            float(loss)
            began = time.monotonic()  # compiling is not training
        clock = time.monotonic() - began if rank == 0 else 0.0
        known = float(loss) if read else 0.0
        total, count, size, seconds = exchange(
            model, [known, float(len(batch.targets)), float(batch.size), clock], world
        )
        optimizer.step(plan.rate * rate(share, progress.step, plan.flat))
        model.zero_grad(set_to_none=True)
        progress.step += 1
        progress.tokens += int(size)
        progress.seconds = before + seconds
        if rank:
            continue
        if read:
            nats = total / max(1.0, count)
            mean = nats if not mean else kept * mean + (1 - kept) * nats
        bar.n = round(100 * progress.share(plan), 1)
        bar.set_postfix(
            step=progress.step,
            loss=f"{mean:.3f}",
            Mtok=f"{progress.tokens / 1e6:.2f}",
            tok_s=round(progress.tokens / max(1e-3, progress.seconds)),
        )
        if progress.step % 20 == 0:
            log(plan, progress, mean)
        if time.monotonic() - saved > 60 * plan.save_minutes:
            save(plan.out / "checkpoint.pt", model, optimizer, progress, plan)
            saved = time.monotonic()
    if rank == 0:
        save(plan.out / "checkpoint.pt", model, optimizer, progress, plan)
    bar.close()


def main() -> None:
    """Train the tokenizer if need be, then the model."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of the checkpoint")
    parser.add_argument("--minutes", type=float, default=90.0, help="length of the whole run")
    parser.add_argument("--tokens", type=float, default=float("inf"), help="or stop after so many")
    parser.add_argument("--processes", type=int, default=3, help="ranks on a CPU")
    parser.add_argument("--batch-tokens", type=int, default=3072, help="per rank, with padding")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--save-minutes", type=float, default=3.0)
    parser.add_argument("--compile", action="store_true", help="faster, if there is a C++ compiler")
    parser.add_argument("--from", dest="begin", type=Path, help="model directory to train on")
    parser.add_argument("--rate", type=float, default=1.0, help="factor on the learning rates")
    parser.add_argument("--feeders", type=int, default=0, help="processes that make batches")
    parser.add_argument("--flat", type=float, default=FLAT_UNTIL, help="share at the full rate")
    parser.add_argument("--bfloat16", action="store_true", help="fast with AVX-512 BF16 or a GPU")
    parser.add_argument(
        "--layers", type=int, default=PocketShape().layers, help="depth of the model"
    )
    parser.add_argument("--hidden", type=int, default=PocketShape().hidden, help="its hidden size")
    given = parser.parse_args()
    plan = Plan(
        given.out,
        given.minutes,
        given.tokens,
        1 if given.device != "cpu" else given.processes,
        given.batch_tokens,
        given.seed,
        given.device,
        given.save_minutes,
        given.compile,
        given.begin,
        given.rate,
        given.bfloat16,
        given.flat,
        given.feeders,
        PocketShape(hidden=given.hidden, layers=given.layers),
    )
    plan.out.mkdir(parents=True, exist_ok=True)
    if not (plan.out / "tokenizer.json").exists():
        own = plan.begin and (plan.begin / "tokenizer.json").read_text()
        (plan.out / "tokenizer.json").write_text(own or train_tokenizer().to_str())
    if plan.processes == 1:
        worker(0, plan, 0)
        return
    # Freed activations go back to the allocator, not to the kernel: page faults cost a third.
    os.environ.update(
        OMP_NUM_THREADS="1",
        OMP_WAIT_POLICY="PASSIVE",
        MALLOC_MMAP_THRESHOLD_="4294967296",
        MALLOC_TRIM_THRESHOLD_="4294967296",
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start_processes(  # type: ignore[no-untyped-call]
        worker, args=(plan, port), nprocs=plan.processes, start_method="spawn"
    )


if __name__ == "__main__":
    main()
