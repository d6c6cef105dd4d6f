"""Boards about the engine: its steps, its KV cache, and the GPU under it."""

from __future__ import annotations

from observability import catalogue
from observability.boards.model import (
    BOARD_QUERIES,
    MODEL_CHOICES,
    Board,
    BoardChoice,
    Panel,
    PanelKind,
    PanelQuery,
    PanelRow,
    PanelUnit,
)
from observability.outcomes import PREFIX_MISS_REASONS
from observability.promql import ratio

_q = BOARD_QUERIES
_STEP_PHASES = ("prefill", "decode", "mixed")
_QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))

# Of all token computations: prompts, output, and what had to be computed twice.
_COMPUTED = (
    f"({_q.rate(catalogue.PROMPT_TOKENS, source='computed')}"
    f" + {_q.rate(catalogue.GENERATED_TOKENS)} + {_q.rate(catalogue.RECOMPUTED_TOKENS)})"
)

_BUSY_SHARE = f"sum(rate({_q.series(catalogue.STEP_SECONDS, '_sum')}[$__rate_interval]))"

ENGINE_BOARD = Board(
    "engine",
    "Quire: engine",
    "Steps, batches, and whether the engine idles while requests wait.",
    (
        PanelRow(
            "Steps",
            tuple(
                Panel(
                    f"Step duration: {phase}",
                    "How steps spread.",
                    (
                        PanelQuery(
                            _q.increase(catalogue.STEP_SECONDS, "_bucket", by="le", phase=phase),
                            "{{le}}",
                        ),
                    ),
                    PanelUnit.SECONDS,
                    PanelKind.HEAT_MAP,
                )
                for phase in _STEP_PHASES
            ),
        ),
        PanelRow(
            "Batch",
            (
                Panel(
                    "Sequences in a step",
                    "Percentiles.",
                    tuple(
                        PanelQuery(_q.quantile(share, catalogue.STEP_SEQUENCES), name)
                        for share, name in _QUANTILES
                    ),
                    PanelUnit.COUNT,
                ),
                Panel(
                    "Tokens in a step",
                    "Percentiles: one for each decoding sequence, and parts of prompts.",
                    tuple(
                        PanelQuery(_q.quantile(share, catalogue.STEP_TOKENS), name)
                        for share, name in _QUANTILES
                    ),
                    PanelUnit.TOKENS,
                ),
                Panel(
                    "Steps per second",
                    "By what they computed.",
                    (
                        PanelQuery(
                            _q.rate(catalogue.STEP_SECONDS, "_count", by="phase"), "{{phase}}"
                        ),
                    ),
                    PanelUnit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Time between tokens",
                    "Every gap between consecutive tokens of a sequence.",
                    tuple(
                        PanelQuery(_q.quantile(share, catalogue.INTER_TOKEN_LATENCY), name)
                        for share, name in _QUANTILES
                    ),
                    PanelUnit.SECONDS,
                ),
                Panel(
                    "Output per running sequence",
                    "Tokens per second that one stream gets.",
                    (
                        PanelQuery(
                            ratio(
                                _q.rate(catalogue.GENERATED_TOKENS),
                                "sum(avg_over_time("
                                f"{_q.series(catalogue.SEQUENCES_RUNNING)}[$__rate_interval]))",
                            )
                        ),
                    ),
                    PanelUnit.TOKENS_PER_SECOND,
                ),
                Panel(
                    "Grammars",
                    "Grammars of constrained sequences.",
                    (PanelQuery(_q.rate(catalogue.GRAMMARS, by="result"), "{{result}}"),),
                    PanelUnit.PER_SECOND,
                ),
                Panel(
                    "Grammar work",
                    "Seconds per second spent compiling grammars and computing masks.",
                    (PanelQuery(_q.rate(catalogue.GRAMMAR_SECONDS, by="work"), "{{work}}"),),
                    PanelUnit.SECONDS_PER_SECOND,
                ),
            ),
        ),
        PanelRow(
            "Life",
            (
                Panel(
                    "Silence",
                    "Time since the engine's last message. A healthy one sends one at least every "
                    "2 s.",
                    (
                        PanelQuery(
                            _q.gauge(catalogue.ENGINE_SILENCE_SECONDS, how="max", by="instance"),
                            "{{instance}}",
                        ),
                    ),
                    PanelUnit.SECONDS,
                    steps=((5, "orange"), (15, "red")),
                ),
                Panel(
                    "Idle while sequences wait",
                    "Share of the time in which no step ran, while the queue was not empty.",
                    (
                        PanelQuery(
                            f"clamp_min(1 - {_BUSY_SHARE}, 0)"
                            f" and {_q.gauge(catalogue.SEQUENCES_WAITING)} > 0",
                            silent="no sequence is waiting",
                            proof=f"{_q.gauge(catalogue.SEQUENCES_WAITING)} == 0",
                        ),
                    ),
                    PanelUnit.SHARE,
                    maximum=1,
                ),
                Panel(
                    "Imbalance",
                    "Running sequences of the busiest instance over the mean of all; 1 is even.",
                    (
                        PanelQuery(
                            ratio(
                                _q.gauge(catalogue.SEQUENCES_RUNNING, how="max"),
                                _q.gauge(catalogue.SEQUENCES_RUNNING, how="avg"),
                            )
                        ),
                    ),
                    PanelUnit.PLAIN,
                ),
                Panel(
                    "Handovers and cut requests",
                    "Sequences that continued in the next engine, and requests lost with a worker.",
                    (
                        PanelQuery(_q.increase(catalogue.HANDOVERS), "handed over"),
                        PanelQuery(
                            _q.increase(catalogue.REQUESTS, outcome="error:worker"),
                            "cut with the worker",
                        ),
                    ),
                    PanelUnit.COUNT,
                ),
                Panel(
                    "Load time",
                    "Time the engine took to load its model.",
                    (
                        PanelQuery(
                            _q.gauge(catalogue.ENGINE_LOAD_SECONDS, how="max", by="instance"),
                            "{{instance}}",
                        ),
                    ),
                    PanelUnit.SECONDS,
                ),
                Panel(
                    "Engines",
                    "Device, limits and shape of the KV cache.",
                    (PanelQuery(_q.series(catalogue.ENGINE_INFO), "engines"),),
                    PanelUnit.PLAIN,
                    PanelKind.TABLE,
                ),
            ),
        ),
    ),
    MODEL_CHOICES,
)

KV_BOARD = Board(
    "kv",
    "Quire: KV cache and prefixes",
    "How full the KV cache is, what prefix reuse saves, and why prompts missed it.",
    (
        PanelRow(
            "KV cache",
            (
                Panel(
                    "Blocks by state",
                    "active: held by sequences. cached: reusable, not in use.",
                    (PanelQuery(_q.gauge(catalogue.KV_BLOCKS, by="state"), "{{state}}"),),
                    PanelUnit.COUNT,
                    stacked=True,
                ),
                Panel(
                    "Share in use",
                    "Held by running sequences, of the fullest and the emptiest engine.",
                    (
                        PanelQuery(_q.gauge(catalogue.KV_USAGE_RATIO, how="max"), "fullest"),
                        PanelQuery(_q.gauge(catalogue.KV_USAGE_RATIO, how="min"), "emptiest"),
                    ),
                    PanelUnit.SHARE,
                    maximum=1,
                    steps=((0.85, "orange"),),
                ),
                Panel(
                    "Waiting for blocks",
                    "Sequences in the queue while its head waits for KV-cache blocks.",
                    (PanelQuery(_q.gauge(catalogue.SEQUENCES_WAITING, reason="kv_blocks")),),
                    PanelUnit.COUNT,
                ),
                Panel(
                    "Preemptions",
                    "Running sequences sent back to the queue for lack of blocks.",
                    (PanelQuery(_q.rate(catalogue.PREEMPTIONS)),),
                    PanelUnit.PER_SECOND,
                ),
                Panel(
                    "Recomputed share",
                    "Tokens computed again after a preemption, of all tokens computed.",
                    (PanelQuery(ratio(_q.rate(catalogue.RECOMPUTED_TOKENS), _COMPUTED)),),
                    PanelUnit.SHARE,
                    steps=((0.05, "red"),),
                ),
                Panel(
                    "Preemptions of a request",
                    "95th percentile and the share of requests that were never preempted.",
                    (
                        PanelQuery(_q.quantile(0.95, catalogue.REQUEST_PREEMPTIONS), "p95"),
                        PanelQuery(
                            _q.attained(catalogue.REQUEST_PREEMPTIONS, "0.0"),
                            "share never preempted",
                        ),
                    ),
                    PanelUnit.PLAIN,
                ),
            ),
        ),
        PanelRow(
            "Prefix cache",
            (
                Panel(
                    "Share of prompt tokens cached",
                    "Each prompt token counts once, when it is admitted.",
                    (
                        PanelQuery(
                            ratio(
                                _q.rate(catalogue.PROMPT_TOKENS, source="cached"),
                                _q.rate(catalogue.PROMPT_TOKENS),
                            )
                        ),
                    ),
                    PanelUnit.SHARE,
                    maximum=1,
                ),
                Panel(
                    "Prompt tokens by source",
                    "Computed by the model, or found in the cache.",
                    (PanelQuery(_q.rate(catalogue.PROMPT_TOKENS, by="source"), "{{source}}"),),
                    PanelUnit.TOKENS_PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    "Missing tokens by reason",
                    " ".join(f"{name}: {text}." for name, text in PREFIX_MISS_REASONS.items()),
                    (PanelQuery(_q.rate(catalogue.PREFIX_MISS_TOKENS, by="reason"), "{{reason}}"),),
                    PanelUnit.TOKENS_PER_SECOND,
                    stacked=True,
                ),
            ),
        ),
    ),
    MODEL_CHOICES,
)

_NO_EXPORTER = "needs NVIDIA's dcgm-exporter next to the server"
_NO_GPU = "absent(DCGM_FI_DEV_GPU_TEMP)"
_GPU = '{gpu=~"$gpu",Hostname=~"$Hostname"}'


def _gpu(
    title: str, help_text: str, expr: str, unit: PanelUnit, maximum: float | None = None
) -> Panel:
    legend = "{{Hostname}} GPU {{gpu}}"
    query = PanelQuery(expr.format(_GPU), legend, silent=_NO_EXPORTER, proof=_NO_GPU)
    return Panel(title, help_text, (query,), unit, maximum=maximum)


GPU_BOARD = Board(
    "gpu",
    "Quire: GPU (DCGM)",
    "GPUs as NVIDIA's dcgm-exporter sees them, next to the engine that runs on them.",
    (
        PanelRow(
            "Work",
            (
                _gpu(
                    "Tensor cores active",
                    "Share of cycles: high in prefill, low in decode.",
                    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{}",
                    PanelUnit.SHARE,
                    maximum=1,
                ),
                _gpu(
                    "Memory interface active",
                    "Share of cycles: what bounds decode.",
                    "DCGM_FI_PROF_DRAM_ACTIVE{}",
                    PanelUnit.SHARE,
                    maximum=1,
                ),
                _gpu(
                    "Busy",
                    "Share of time with a kernel running; not how well the GPU is used.",
                    "DCGM_FI_DEV_GPU_UTIL{} / 100",
                    PanelUnit.SHARE,
                    maximum=1,
                ),
                _gpu(
                    "Memory used",
                    "Weights and KV cache are taken at the start.",
                    "DCGM_FI_DEV_FB_USED{} * 1.048576",
                    PanelUnit.MEGABYTES,
                ),
                _gpu(
                    "Memory free",
                    "Runs low if another process uses the GPU.",
                    "DCGM_FI_DEV_FB_FREE{} * 1.048576",
                    PanelUnit.MEGABYTES,
                ),
                _gpu(
                    "NVLink",
                    "Bytes per second, of tensor parallelism.",
                    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{} * 1000000",
                    PanelUnit.BYTES_PER_SECOND,
                ),
            ),
        ),
        PanelRow(
            "Health",
            (
                _gpu("Power", "Watts drawn.", "DCGM_FI_DEV_POWER_USAGE{}", PanelUnit.WATTS),
                _gpu("Temperature", "Of the GPU.", "DCGM_FI_DEV_GPU_TEMP{}", PanelUnit.CELSIUS),
                _gpu(
                    "Clock of the SMs",
                    "Falls when the GPU throttles.",
                    "DCGM_FI_DEV_SM_CLOCK{} * 1000000",
                    PanelUnit.HERTZ,
                ),
                _gpu(
                    "Last Xid",
                    "The number of the last error; it stays until the driver restarts.",
                    "DCGM_FI_DEV_XID_ERRORS{}",
                    PanelUnit.PLAIN,
                ),
                _gpu(
                    "Rows remapped after errors",
                    "Uncorrectable ones: have the GPU looked at.",
                    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{}",
                    PanelUnit.COUNT,
                ),
            ),
        ),
    ),
    (
        BoardChoice("Hostname", "Host", "DCGM_FI_DEV_GPU_TEMP"),
        BoardChoice("gpu", "GPU", "DCGM_FI_DEV_GPU_TEMP"),
    ),
)
