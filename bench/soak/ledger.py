"""What the clients got, to be compared with what the server counted."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bench.soak.answers import Said
from bench.soak.questions import SOAKED
from observability.outcomes import OUTCOMES, OutcomeGroup

_LABEL = re.compile(r'(\w+)="([^"]*)"')
_ANSWERED = {one.name for one in OUTCOMES if one.group is OutcomeGroup.ANSWERED}
_REFUSED = {one.name for one in OUTCOMES if one.group is OutcomeGroup.REFUSED}
_SHOWN = 10  # examples


@dataclass
class Ledger:
    """Of the requests that were sent under the name ``soaked``."""

    answered: Counter[tuple[str, str]] = field(default_factory=Counter)  # by route and outcome
    failed: Counter[str] = field(default_factory=Counter)  # by route
    failures: list[str] = field(default_factory=list)
    cut: Counter[str] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)  # by status
    left: int = 0
    aimed: Counter[str] = field(default_factory=Counter)
    output_tokens: int = 0
    longest: int = 0  # output tokens of an answer
    different: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def answer(self, route: str, name: str, said: Said, expected: Said | None) -> None:
        self.answered[route, said.outcome] += 1
        self.output_tokens += said.output_tokens
        self.longest = max(self.longest, said.output_tokens)
        if expected is not None and said != expected:
            self.different.append(f"{name}: {said} instead of {expected}")

    @property
    def num_answered(self) -> int:
        return self.answered.total()


def labels_of(series: str) -> dict[str, str]:
    return dict(_LABEL.findall(series))


def counted(metrics: Mapping[str, float], name: str) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the labels and the value of each series of a metric."""
    for series, value in metrics.items():
        if series.partition("{")[0] == name:
            yield labels_of(series), value


def requests_of(metrics: Mapping[str, float], model: str) -> dict[tuple[str, str], int]:
    """Return the server's count of requests by route and outcome, without zeros."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for labels, value in counted(metrics, "quire_requests_total"):
        if labels["model"] == model and value:
            found[labels["route"], labels["outcome"]] += int(value)
    return found


def compared(
    ledger: Ledger, metrics: Mapping[str, float], injected: Mapping[str, int]
) -> list[str]:
    """Return where the server's counts differ from the clients'. ``injected``: how often each fault
    happened. Without faults the counts must be equal. With them they may differ by this:

    - An answer that was delivered but could not be stored is counted as ``error:store``.
    - A worker may be killed after it delivered an answer, or a refusal, and before it counted it,
      which is then ``error:worker`` and has no tokens; and it has not seen each request on its way
      to it.
    - Or after it counted an answer, and before the kernel had its last bytes: the client is cut.
    """
    server = requests_of(metrics, SOAKED)
    answered = Counter({key: count for key, count in server.items() if key[1] in _ANSWERED})
    errors = Counter({key: count for key, count in server.items() if key[1].startswith("error:")})
    unstored = sum(count for (_, end), count in errors.items() if end == "error:store")
    killed = sum(count for (_, end), count in errors.items() if end == "error:worker")
    wrong = []
    if unstored and not (injected.get("store_down") or injected.get("store_full")):
        wrong.append(f"{unstored} answers were not stored")
    if killed and not injected.get("worker_kill"):
        wrong.append(f"{killed} requests were lost with a worker")
    undelivered = (answered - ledger.answered).total()
    allowed = min(ledger.cut.total(), injected.get("worker_kill", 0))
    wrong += [
        f"{key}: {answered[key]} counted, {ledger.answered[key]} answered"
        for key in sorted(answered.keys() | ledger.answered.keys())
        if (answered[key] > ledger.answered[key] and undelivered > allowed)
        or (answered[key] < ledger.answered[key] and not (unstored or killed))
    ]
    missing = (ledger.answered - answered).total()
    if missing > unstored + killed:
        wrong.append(f"{missing} answers were not counted as such: {dict(errors)}")
    lost = ledger.failed.total() + ledger.cut.total()
    failures = errors.total() - unstored
    refused = sum(count for (_, end), count in server.items() if end in _REFUSED)
    # Refusals that clients got: all but these were counted, as such or because of the store.
    uncounted = ledger.refused.total() - refused - unstored
    if failures > lost + missing + uncounted or (
        failures < lost and not injected.get("worker_kill")
    ):
        wrong.append(
            f"{failures} failures counted, {lost} clients lost their answer: {dict(errors)}, "
            f"{refused} refused"
        )
    tokens = sum(
        value
        for labels, value in counted(metrics, "quire_key_tokens_total")
        if (labels["key"], labels["kind"]) == (SOAKED, "output")
    )
    # The tokens of an answer that was lost are counted, and no client knows how many.
    least = ledger.output_tokens - min(missing, killed) * ledger.longest
    if tokens < least or (not errors and tokens != ledger.output_tokens):
        wrong.append(f"{tokens:.0f} output tokens counted, {ledger.output_tokens} received")
    return wrong


def problems(ledger: Ledger, injected: Mapping[str, int]) -> list[str]:
    """Return what clients should not have seen. ``injected``: how often each fault happened."""
    wrong = [f"another answer: {one}" for one in ledger.different[:_SHOWN]]
    wrong += [f"unexpected: {one}" for one in ledger.unexpected[:_SHOWN]]
    failed, cut = ledger.failed.total(), ledger.cut.total()
    if failed > injected.get("parser_error", 0):
        told = "; ".join(ledger.failures[:_SHOWN])
        made = injected.get("parser_error", 0)
        wrong.append(f"{failed} requests failed, {made} of them by injected faults: {told}")
    if cut and not injected.get("worker_kill", 0):
        wrong.append(f"{cut} connections were cut, and no worker was killed")
    if not ledger.num_answered:
        wrong.append("nothing was answered")
    return wrong
