"""A run on one page: the goals and whether they are met, then the steps and kernels in brief."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Row = dict[str, Any]
Rows = Mapping[str, Row]


@dataclass(frozen=True)
class Goal:
    """``value`` of the row named ``row`` is to reach ``target``. ``decimals``: of both."""

    what: str
    row: str
    value: Callable[[Row], float]
    target: float
    at_most: bool = False
    unit: str = ""
    decimals: int = 2

    def measured(self, rows: Rows) -> float | None:
        row = rows.get(self.row, {})
        try:
            return self.value(row)
        except (KeyError, TypeError):  # not measured, or only in part
            return None

    def is_met(self, value: float) -> bool:
        return value <= self.target if self.at_most else value >= self.target


def _of(name: str) -> Callable[[Row], float]:
    return lambda row: float(row[name])


_LARGE, _SMALL = "llama-8b", "qwen3-0.6b"
_MIXTURE = "qwen3-30b-a3b"
_DECODE_8K = "kernel decode batch 64 ctx 8192 32/8x128"
_OURS_8K = "kernel ragged prefill batch 1 ctx 8192 32/8x128"
_CUDNN_8K = "peer cudnn prefill batch 1 ctx 8192 32/8x128"
_UNEVEN = f"uneven {_LARGE} 64 ctx 1024 and 1 ctx 128k"
GOALS: Final = (
    Goal("0.6B alone, a token", f"steps {_SMALL} batch 1 ctx 256", _of("ms"), 0.9, True, "ms"),
    Goal("8B alone, of the floor", f"steps {_LARGE} batch 1 ctx 256", _of("of_floor"), 0.85),
    Goal("8B, 4 streams, a token", f"burst {_LARGE} c4", _of("tpot_ms"), 6.2, True, "ms"),
    Goal("8B, 256 x 1k/1k, of the floor", f"burst {_LARGE} 256 1k/1k", _of("of_floor"), 0.7),
    Goal(
        "8B, 8k prompt, of the product rate", f"prefill {_LARGE} 8192 tokens", _of("of_rate"), 0.65
    ),
    Goal("8B over HTTP, of the engine's", f"http {_LARGE} 256 1k/1k", _of("of_engine"), 0.95),
    Goal("nano-vllm's workload", f"nano-vllm {_SMALL}", _of("tokens_s"), 20e3, False, "/s", 0),
    Goal("decode attention 64 x 8k, of the bandwidth", _DECODE_8K, _of("of_floor"), 0.85),
    Goal("our prefill attention at 8k", _OURS_8K, _of("tflop_s"), 450, False, "TFLOP/s", 0),
    Goal("cuDNN's prefill attention at 8k", _CUDNN_8K, _of("tflop_s"), 450, False, "TFLOP/s", 0),
    Goal(
        "idle between steps, 0.6B alone",
        f"profile {_SMALL} batch 1",
        _of("gap_share"),
        0.02,
        True,
        "",
        3,
    ),
    Goal(
        "idle between steps, 8B x 64",
        f"profile {_LARGE} batch 64",
        _of("gap_share"),
        0.02,
        True,
        "",
        3,
    ),
    Goal("64 short streams and one of 128k, ratio", _UNEVEN, _of("ratio"), 1.3, True),
    Goal(
        "the same, over what its bytes cost",
        _UNEVEN,
        lambda row: row["ratio"] / row["ratio_of_bytes"],
        1.3,
        True,
    ),
    Goal(
        "one with logprobs among 64, ratio", f"special {_LARGE} logprobs", _of("ratio"), 1.15, True
    ),
    Goal(
        "one with a grammar among 64, ratio", f"special {_LARGE} grammar", _of("ratio"), 1.15, True
    ),
    Goal("30B-A3B alone, of the floor", f"steps {_MIXTURE} batch 1 ctx 256", _of("of_floor"), 0.5),
    Goal("30B-A3B x 64, of the floor", f"steps {_MIXTURE} batch 64 ctx 1024", _of("of_floor"), 0.7),
)
_ALONE, _SIXTEEN = f"{_LARGE} batch 1 ctx 256", f"{_LARGE} batch 16 ctx 256"
_LONG = f"{_LARGE} prefill 8192 tokens"


@dataclass(frozen=True)
class Ratio:
    """The time of the row ``of`` over that of the row ``to`` is to reach ``target``."""

    what: str
    of: str
    to: str
    target: float
    at_most: bool = False

    def measured(self, rows: Rows) -> float | None:
        of, to = (rows.get(name, {}).get("ms") for name in (self.of, self.to))
        return of / to if of and to else None


RATIOS: Final = (
    Ratio(
        "8B x 64 with --deterministic, ratio",
        f"deterministic {_LARGE} batch 64 ctx 1024",
        f"steps {_LARGE} batch 64 ctx 1024",
        1.15,
        True,
    ),
    Ratio("int4 alone, times bf16", f"steps {_ALONE}", f"int4 {_ALONE}", 2.0),
    Ratio("int4 x 16, times bf16", f"steps {_SIXTEEN}", f"int4 {_SIXTEEN}", 1.5),
    Ratio("int4, 8k prompt, times bf16", f"prefill {_LARGE} 8192 tokens", f"int4 {_LONG}", 0.8),
    Ratio("fp8 alone, times bf16", f"steps {_ALONE}", f"fp8 {_ALONE}", 1.6),
)
_PRODUCT_ROWS: Final = (1, 4, 16, 64, 256)


def page(result: Row) -> str:
    """Return the page in Markdown. ``result``: as it is written in JSON."""
    rows = {row["row"]: row for row in result["rows"]}
    lines = [f"# {result['device']}", "", _versions(result), *_ceilings(result), ""]
    lines += [
        "| goal | measured | target | |",
        "|---|---|---|---|",
        *_goals(rows, dry=result.get("dry", False)),
        "",
    ]
    lines += _steps(rows)
    lines += _kernels(rows)
    lines += _products(rows)
    lines += _searches(rows)
    lines += _checks(rows)
    return "\n".join(lines) + "\n"


def _versions(result: Row) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in result["versions"].items())
    return f"{result['date']}; {versions}"


def _ceilings(result: Row) -> list[str]:
    if "ceilings" not in result:
        return []
    found = result["ceilings"]
    text = f"copy {found['bandwidth'] / 1e9:,.0f} GB/s, bf16 {found['flops'] / 1e12:,.0f} TFLOP/s"
    clocks = result.get("clocks", {})
    told = ", ".join(f"{name} {value}" for name, value in clocks.items())
    return [f"{text}; {told}" if told else text]


def _goals(rows: Rows, *, dry: bool) -> list[str]:
    lines = [_goal_line(goal, goal.measured(rows), dry=dry) for goal in GOALS]
    for ratio in RATIOS:
        goal = Goal(ratio.what, ratio.of, _of("ms"), ratio.target, ratio.at_most)
        lines.append(_goal_line(goal, ratio.measured(rows), dry=dry))
    return lines


def _goal_line(goal: Goal, value: float | None, *, dry: bool) -> str:
    target = f"{'≤' if goal.at_most else '≥'} {goal.target:,.{goal.decimals}f} {goal.unit}".strip()
    if value is None:
        return f"| {goal.what} | not measured | {target} | |"
    shown = f"{value:,.{goal.decimals}f} {goal.unit}".strip()
    verdict = "" if dry else "met" if goal.is_met(value) else "missed"
    return f"| {goal.what} | {shown} | {target} | {verdict} |"


def _steps(rows: Rows) -> list[str]:
    kinds = (
        "steps",
        "mixed",
        "uneven",
        "special",
        "prefill",
        "cudnn",
        "determin",
        "int4",
        "int8",
        "fp8",
        "block",
        "tp",
        "no-",
        "flash",
    )
    lines = ["| step | ms | floor | of floor | without | host waits |", "|---|---|---|---|---|---|"]
    found = [
        f"| {name} | {_cell(row, 'ms')} | {_cell(row, 'floor_ms')} | {_cell(row, 'of_floor')} "
        f"| {_cell(row, 'ms_without')} | {_cell(row, 'host_waits')} |"
        for name, row in rows.items()
        if name.startswith(kinds) and "ms" in row
    ]
    return [*lines, *found, ""] if found else []


def _kernels(rows: Rows) -> list[str]:
    lines = ["| kernel | us | floor | of floor |", "|---|---|---|---|"]
    found = [
        f"| {name} | {_cell(row, 'us')} | {_cell(row, 'floor_us')} | {_cell(row, 'of_floor')} |"
        for name, row in rows.items()
        if name.startswith(("kernel", "peer")) and "us" in row
    ]
    return [*lines, *found, ""] if found else []


def _products(rows: Rows) -> list[str]:
    """Return one line for each matrix: by rows, the fastest kernel and its share of the floor."""
    lines = [
        "| product | " + " | ".join(f"{count} rows" for count in _PRODUCT_ROWS) + " |",
        "|---" * (len(_PRODUCT_ROWS) + 1) + "|",
    ]
    found = []
    for name, row in rows.items():
        if name.startswith("product") and "mb" in row:
            cells = []
            for count in _PRODUCT_ROWS:
                times = row[f"rows_{count}"]
                best = min(times, key=times.__getitem__)
                cells.append(f"{best} {times[best]:,.0f} us, {row[f'of_floor_{count}']:.2f}")
            found.append(f"| {name.removeprefix('product ')} | " + " | ".join(cells) + " |")
    return [*lines, *found, ""] if found else []


def _searches(rows: Rows) -> list[str]:
    """Return one line for each search of tiles for weights of few bits."""
    lines = ["| search | us before | us | floor | fastest |", "|---|---|---|---|---|"]
    found = [
        f"| {name.removeprefix('tune few_bits ')} | {_cell(row, 'table_us')} "
        f"| {row['best'][0][0]:.3g} | {_cell(row, 'floor_us')} | {row['best'][0][1]} |"
        for name, row in rows.items()
        if name.startswith("tune few_bits") and row.get("best")
    ]
    return [*lines, *found, ""] if found else []


def _checks(rows: Rows) -> list[str]:
    checks = [row for name, row in rows.items() if name.startswith("check")]
    passed = sum("took_s" in row and "error" not in row for row in checks)
    lines = [f"Correctness: {passed} of {len(checks)} checks passed."] if checks else []
    for title, key in (("Failed", "error"), ("Left out", "left_out")):
        found = [f"- {name}: {row[key]}" for name, row in rows.items() if key in row]
        if found:
            lines += ["", f"{title}:", "", *found]
    return lines


def _cell(row: Row, key: str) -> str:
    value = row.get(key)
    return f"{value:.3g}" if isinstance(value, int | float) else ""
