"""All alerts."""

from __future__ import annotations

from observability import catalogue, store_metrics
from observability.alerts.burn_rate import budget_alerts
from observability.alerts.model import Alert, Severity
from observability.objectives import Objectives
from observability.promql import Queries, ratio

_Q = Queries()
_ENGINE = "job, instance, model"
_SERVER = "job, instance"
_ON_ENGINE = f"on ({_ENGINE})"

# Xid errors by what they mean: the GPU or its link is broken; or a kernel computed a wrong address,
# and the only kernels here are ours.
_XID_HARDWARE = (48, 79, 94, 95, 119, 120)
_XID_KERNEL = (13, 31)

_NOT_WELL = ("silent", "loading", "lost", "failing")
_NONE_READY = f"{_Q.gauge(catalogue.ENGINE_READY, how='max', by=_ENGINE)} == 0"
_PENDING = (
    f"({_Q.gauge(catalogue.SEQUENCES_RUNNING, by=_ENGINE)}"
    f" + {_Q.gauge(catalogue.SEQUENCES_WAITING, by=_ENGINE)}) > 0"
)


_AVAILABILITY = (
    Alert(
        "QuireDown",
        'up{job=~".*quire.*"} == 0',
        Severity.PAGE,
        "{{ $labels.instance }} has not answered scrapes for 2 minutes",
        "Prometheus cannot read /metrics: the server has exited, its event loop is blocked, or the "
        "network between them is broken.",
        ("`GET /health/live` and `GET /health` from within the cluster.", "The log's last lines."),
        (
            "The process restarts by itself; if it does not, restart it.",
            "If it responds but is not scraped: with API keys, /metrics is only served on the "
            "admin port.",
        ),
        "overview",
        "2m",
    ),
    Alert(
        "QuireAbsent",
        f"absent({catalogue.BUILD_INFO.name})",
        Severity.PAGE,
        "no Quire server has been scraped for 5 minutes",
        "No server at all is scraped: none is running, or Prometheus no longer discovers them.",
        ("Prometheus' page *Targets*.", "Are pods running? Does the ServiceMonitor select them?"),
        ("Restore the deployment, or the scrape configuration.",),
        "overview",
        "5m",
    ),
    Alert(
        "QuireNotReady",
        f"{_NONE_READY} unless {_ON_ENGINE}"
        f" {_Q.gauge(catalogue.ENGINES, by=_ENGINE, state='loading')} > 0",
        Severity.PAGE,
        "{{ $labels.instance }} has had no engine that is ready or loading for 5 minutes",
        "All engines of the server are gone, keep dying or are silent. It refuses every request. "
        "A restart takes less time than this, and the alert does not fire while an engine is "
        "loading its model.",
        (
            "`GET /health` has the state and the problem.",
            "The engine's last log lines before it died: memory, a driver, a damaged model?",
        ),
        (
            "Remove the cause: the engine is started again by itself, at least every 30 seconds.",
            "If you find no cause: restart the server, on another machine if possible.",
        ),
        "overview",
        "5m",
    ),
    Alert(
        "QuireLoadingLong",
        _NONE_READY,
        Severity.TICKET,
        "{{ $labels.instance }} has had no engine that is ready for 45 minutes",
        "The server refuses every request. Either its first load takes unusually long, download "
        "included, or its engines die while they load.",
        (
            "`GET /health` says what it is doing: downloading, with the bytes done, or loading.",
            "Does the engine's log report progress, or does it start over each time?",
        ),
        (
            "If it makes progress, wait; a faster disk or a model already in the cache saves time.",
            "If not: see QuireNotReady.",
        ),
        "overview",
        "45m",
    ),
    Alert(
        "QuireEngineSilent",
        f"{_Q.gauge(catalogue.ENGINE_SILENCE_SECONDS, how='max', by=_ENGINE)} > 15"
        f" and {_ON_ENGINE} {_PENDING}",
        Severity.PAGE,
        "no message from the engine of {{ $labels.instance }} for {{ $value | humanizeDuration }}"
        " with requests in flight",
        "A healthy engine sends a message at least every 2 seconds, also during a long step. This "
        "one hangs or was stopped. Streams get no tokens. After `--engine-hang-timeout` it is "
        "killed, and the next engine continues them.",
        (
            "Board *Engine*, *Silence*. `/health` has the status and the seconds.",
            "On the machine: is the process stopped (state T), swapping, or waiting for the GPU "
            "(`nvidia-smi`, `dmesg` for Xid)? `kill -USR1` writes its stacks to the log.",
        ),
        (
            "Wait for the restart; streams continue by themselves.",
            "If it recurs: take the machine out of service; keep the stacks for a bug report.",
        ),
        "engine",
    ),
    Alert(
        "QuireEngineStuck",
        f"{_PENDING} and {_ON_ENGINE}"
        f" {_Q.over('2m').rate(catalogue.STEP_SECONDS, '_count', by=_ENGINE)} == 0",
        Severity.PAGE,
        "{{ $labels.instance }} holds {{ $value }} sequences and has run no step for 2 minutes",
        "There is work, but the engine computes nothing. It may still be sending messages.",
        ("As for QuireEngineSilent.", "What do sequences wait for (board *Overview*)?"),
        ("Kill the engine's process: the next one continues all streams.",),
        "engine",
        "1m",
    ),
    Alert(
        "QuireEngineMissing",
        f"{_Q.gauge(catalogue.ENGINES, by=_ENGINE, state=_NOT_WELL)} > 0 and {_ON_ENGINE}"
        f" {_Q.gauge(catalogue.ENGINES, by=_ENGINE, state='ok')} > 0",
        Severity.TICKET,
        "{{ $labels.instance }} has had {{ $value }} of its engines not ready for 10 minutes",
        "The server has several engines (`--data-parallel-size`); one does not load, keeps dying "
        "or is silent, and the others do its work. Nothing fails, but there is less capacity.",
        (
            "The verdict on the Live page names the engine and says what is wrong with it.",
            "The log lines with its index (`engine`), and its last lines before it died.",
        ),
        (
            "A lost device or a full GPU: free or replace it; the engine is started again by "
            "itself.",
            "Otherwise restart the server when it can be drained.",
        ),
        "overview",
        "10m",
    ),
)


def _queue_old(objectives: Objectives) -> Alert:
    return Alert(
        "QuireQueueOld",
        f"{_Q.gauge(catalogue.OLDEST_WAITING_SECONDS, how='max', by=_ENGINE)}"
        f" > {objectives.ttft:g}",
        Severity.TICKET,
        "the oldest sequence on {{ $labels.instance }} has waited {{ $value | humanizeDuration }}",
        f"For 2 minutes some sequence has been waiting longer than {objectives.ttft:g} s, the "
        "objective for the first token. A steady overload looks like this; the queue need not "
        "grow.",
        ("Board *Overview*, *Sequences*: what do they wait for?",),
        (
            "`slots`: add replicas, or raise `--max-num-seqs` if KV cache and objectives allow it.",
            "`kv_blocks`: see QuireKvSaturated.",
            "`constraint`: grammars are being compiled. Are schemas huge, or new in each request?",
        ),
        "overview",
        "2m",
    )


_KV_WAITING = _Q.series(catalogue.SEQUENCES_WAITING, reason="kv_blocks")
_RECEIVED = _Q.rate(catalogue.REQUESTS_RECEIVED, by=_SERVER)
_OVERLOADED = _Q.rate(catalogue.REQUESTS, by=_SERVER, outcome="refused:overloaded")
_TEN_MINUTES = _Q.over("10m")
_RECOMPUTED = _TEN_MINUTES.rate(catalogue.RECOMPUTED_TOKENS, by=_ENGINE)
_COMPUTED = (
    f"({_TEN_MINUTES.rate(catalogue.PROMPT_TOKENS, by=_ENGINE, source='computed')}"
    f" + {_TEN_MINUTES.rate(catalogue.GENERATED_TOKENS, by=_ENGINE)} + {_RECOMPUTED})"
)
_PROMPTS = _Q.over("30m").rate(catalogue.PROMPT_TOKENS, by="job, model")


def _cached_share(window: str) -> str:
    queries = _Q.over(window)
    return ratio(
        queries.rate(catalogue.PROMPT_TOKENS, by="job, model", source="cached"),
        queries.rate(catalogue.PROMPT_TOKENS, by="job, model"),
    )


_LOAD = (
    Alert(
        "QuireKvSaturated",
        f"min_over_time({_Q.series(catalogue.KV_USAGE_RATIO)}[2m]) > 0.85 and {_ON_ENGINE}"
        f" (max_over_time({_KV_WAITING}[2m]) > 0"
        f" or {_ON_ENGINE} rate({_Q.series(catalogue.PREEMPTIONS)}[2m]) > 0)",
        Severity.TICKET,
        "the KV cache of {{ $labels.instance }} has been at least {{ $value | humanizePercentage }}"
        " full for 2 minutes, and sequences wait for it",
        "Running sequences hold most of the KV cache, and others wait for blocks or are preempted. "
        "A full cache alone is not a fault: unused blocks are kept for reuse.",
        (
            "Board *KV cache and prefixes*: *Waiting for blocks*, *Preemptions*.",
            "Are prompts or answers longer than usual (board *Phases*, *Sizes*)?",
        ),
        (
            "Add replicas; give the cache more memory (`--gpu-memory-utilization`, "
            "`--num-kv-blocks`), or a smaller data type.",
            "Lower `--max-num-seqs`: fewer sequences run, and none are preempted.",
        ),
        "kv",
        "1m",
    ),
    Alert(
        "QuireShedding",
        f"{_OVERLOADED} / {_RECEIVED} > 0.01 and {_RECEIVED} > 0.1",
        Severity.TICKET,
        "{{ $labels.instance }} is overloaded and refuses {{ $value | humanizePercentage }} of "
        "requests",
        "More than 1 % of requests got 429 because too many are waiting.",
        ("Board *Overview*, *Refused*; board *Keys*: does one caller send most?",),
        (
            "Add replicas. Clients that honour Retry-After retry by themselves.",
            "One caller: limit its key.",
        ),
        "overview",
        "1m",
    ),
    Alert(
        "QuirePreemptionWaste",
        f"{ratio(_RECOMPUTED, _COMPUTED)} > 0.05",
        Severity.TICKET,
        "{{ $labels.instance }} computes {{ $value | humanizePercentage }} of its tokens a second "
        "time",
        "Sequences are preempted for lack of KV-cache blocks and computed again later.",
        ("Board *KV cache and prefixes*: *Recomputed share*, *Preemptions of a request*.",),
        ("As for QuireKvSaturated. Lowering `--max-num-seqs` often raises the throughput.",),
        "kv",
        "10m",
    ),
    Alert(
        "QuireHitRateDrop",
        f"{_cached_share('30m')} < 0.5 * ({_cached_share('1d')}) and {_PROMPTS} > 10",
        Severity.INFO,
        "{{ $labels.job }}: only {{ $value | humanizePercentage }} of prompt tokens are cached, "
        "less than half of the day's mean",
        "A smaller part of each prompt is found in the prefix cache than before: first tokens take "
        "longer and cost more.",
        (
            "Board *KV cache and prefixes*, *Missing tokens by reason*.",
            "`diverged`: a timestamp or id near the beginning of prompts changes each time. "
            "`evicted`: the cache is too small for the callers. `salt`: callers do not share.",
        ),
        ("Move what changes to the end of prompts; route equal prefixes to the same server.",),
        "kv",
        "30m",
    ),
    Alert(
        "QuireStreamsStalled",
        f"{_Q.gauge(catalogue.LONGEST_GAP_SECONDS, how='max', by=_ENGINE)} > 10",
        Severity.TICKET,
        "a stream on {{ $labels.instance }} has had no token for {{ $value | humanizeDuration }}",
        "A sequence that has begun to generate gets no tokens: it was preempted and waits, or the "
        "engine is silent.",
        ("Is QuireEngineSilent firing too? If not: board *KV cache and prefixes*, *Preemptions*.",),
        ("As for QuireKvSaturated.",),
        "api",
        "1m",
    ),
)

_STORE = ("refused:store", "error:store")
_STORE_FAILS = " or ".join(
    (
        f"{_Q.gauge(store_metrics.STORE_UNAVAILABLE, how='max', by=_SERVER)} > 0",
        f"{_Q.rate(store_metrics.RESPONSES_NOT_STORED, by=_SERVER)} > 0",
        f"{_Q.rate(catalogue.REQUESTS, by=_SERVER, outcome=_STORE)} > 0",
    )
)
_SERVER_ALERTS = (
    Alert(
        "QuireLoopLag",
        f"{_Q.quantile(0.99, catalogue.EVENT_LOOP_LAG_SECONDS, by=_SERVER)} > 0.1",
        Severity.TICKET,
        "the event loop of {{ $labels.instance }} wakes up {{ $value | humanizeDuration }} late "
        "(99th percentile)",
        "The API worker is short of CPU, or something blocks its event loop. All streams stutter.",
        (
            "Board *API and streaming*: *Event loop*, *API worker's CPU*.",
            "High hold: a request is costly to process. High lag with low hold: too little CPU.",
        ),
        (
            "Raise the pod's CPU limit; keep other processes off its cores.",
            "`kill -USR1` to the worker writes its stacks to the log.",
        ),
        "api",
        "5m",
    ),
    Alert(
        "QuireTelemetryDropped",
        f"{_TEN_MINUTES.increase(catalogue.TELEMETRY_DROPPED, by='job, instance, signal')} > 0",
        Severity.INFO,
        "{{ $labels.instance }} lost {{ $value | humanize }} {{ $labels.signal }} in 10 minutes",
        "The reader of spans, log lines or records did not keep up or could not be reached. "
        "Requests are not affected.",
        ("Is the collector reachable? Is the log's pipe being read? Is the database slow?",),
        ("Fix the reader, or lower the sampling ratio.",),
        "api",
    ),
    Alert(
        "QuireWorkerRestarts",
        f"changes(process_start_time_seconds[30m]) > 2 and on ({_SERVER})"
        f" {catalogue.BUILD_INFO.name}",
        Severity.TICKET,
        "the API worker of {{ $labels.instance }} started {{ $value }} times in 30 minutes",
        "The API worker keeps dying. Its open requests end as `error:worker`; engine and counters "
        "are not affected.",
        (
            "The supervisor's log has each worker's exit. Was it killed for using too much memory "
            "(board *API and streaming*)?",
        ),
        ("Raise the memory limit, or lower `--max-body-bytes` and the waiting limit.",),
        "api",
    ),
    Alert(
        "QuireStoreUnavailable",
        _STORE_FAILS,
        Severity.TICKET,
        "{{ $labels.instance }} cannot use its store, or has failed to store responses",
        "The database cannot be used for at least one of its purposes, or was too slow. Responses "
        'are answered with `"store": false`, and requests that need stored ones are refused; '
        "changes of API keys wait; usage and ended requests wait in memory, and ended requests are "
        "dropped when that is full; each replica counts the limits of keys alone.",
        (
            "Board *API and streaming*, *Store unavailable*, shows which uses fail. If only "
            "`write` and `records` do, the disk is full or the database is read-only.",
            "The log's lines about the response store, or about requests and usage, with the "
            "database's error; the database itself.",
        ),
        (
            "Restore the database; Quire tries again every two seconds. Requests with "
            "`store: false` are not affected. Do not stop the server before then: usage and ended "
            "requests in its memory would be lost.",
        ),
        "api",
        "2m",
    ),
)


def _xid(numbers: tuple[int, ...]) -> str:
    last = "DCGM_FI_DEV_XID_ERRORS"
    any_of = " or ".join(f"{last} == {number}" for number in numbers)
    return f"({any_of}) and changes({last}[10m]) > 0"


_GPU = (
    Alert(
        "QuireGpuXid",
        _xid(_XID_HARDWARE),
        Severity.PAGE,
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports Xid {{ $value }}",
        "A hardware error: memory (48, 94, 95), the GPU fell off the bus (79), or its firmware "
        "does not answer (119, 120).",
        ("`dmesg | grep Xid`, `nvidia-smi -q`; board *GPU (DCGM)*.",),
        ("Drain the node and reset the GPU; replace it if it repeats.",),
        "gpu",
    ),
    Alert(
        "QuireGpuXidKernel",
        _xid(_XID_KERNEL),
        Severity.TICKET,
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports Xid {{ $value }}: a kernel failed",
        "A kernel used a wrong address (31) or raised an exception (13). The kernels are Quire's, "
        "so this is a defect of Quire. The engine was restarted and its streams continued.",
        ("The engine's log before the restart: model, batch, stack.",),
        ("Report it with that log. Until then, avoid the model or the setting that triggers it.",),
        "gpu",
    ),
)


def alerts(objectives: Objectives) -> tuple[Alert, ...]:
    return (
        *_AVAILABILITY,
        *budget_alerts(objectives),
        _queue_old(objectives),
        *_LOAD,
        *_SERVER_ALERTS,
        *_GPU,
    )
