"""PromQL over the catalogue's metrics: a query cannot name a metric, a label or a label value that
does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from observability import catalogue
from observability.metric_kinds import Metric, MetricKind

_SUFFIXES = {MetricKind.HISTOGRAM: ("_bucket", "_count", "_sum")}
_BOUND = "le"

# What a label may be: one value, or any of several.
LabelMatch = str | tuple[str, ...]


def bound_text(bound: float) -> str:
    """Return a bucket's bound as the label ``le`` has it."""
    return repr(float(bound))


@dataclass(frozen=True, slots=True)
class Queries:
    """``filters``: matchers that every selector has. ``model_filter``: another for metrics with the
    label model. ``window``: of rates."""

    filters: tuple[str, ...] = ()
    model_filter: str | None = None
    window: str = "5m"

    def over(self, window: str) -> Queries:
        """Return the same with rates over another window."""
        return Queries(self.filters, self.model_filter, window)

    def series(self, metric: Metric, suffix: str = "", /, **labels: LabelMatch) -> str:
        """Return a selector. Raises ValueError for a suffix, label or value that the metric cannot
        have."""
        if suffix not in _SUFFIXES.get(metric.kind, ("",)):
            raise ValueError(f"{metric.name} has no samples with the suffix {suffix!r}")
        matchers = list(self.filters)
        if self.model_filter and catalogue.MODEL in metric.labels:
            matchers.append(self.model_filter)
        for name, value in labels.items():
            _check(metric, suffix, name, value)
            matchers.append(_matcher(name, value))
        return (
            f"{metric.name}{suffix}{{{','.join(matchers)}}}" if matchers else metric.name + suffix
        )

    def rate(
        self, metric: Metric, suffix: str = "", /, *, by: str = "", **labels: LabelMatch
    ) -> str:
        """Return how fast a counter grows per second, summed ``by`` these labels."""
        return f"sum{_by(by)}(rate({self.series(metric, suffix, **labels)}[{self.window}]))"

    def increase(
        self, metric: Metric, suffix: str = "", /, *, by: str = "", **labels: LabelMatch
    ) -> str:
        return f"sum{_by(by)}(increase({self.series(metric, suffix, **labels)}[{self.window}]))"

    def gauge(
        self, metric: Metric, /, *, how: str = "sum", by: str = "", **labels: LabelMatch
    ) -> str:
        return f"{how}{_by(by)}({self.series(metric, **labels)})"

    def quantile(
        self, share: float, metric: Metric, /, *, by: str = "", **labels: LabelMatch
    ) -> str:
        """Return a quantile of a histogram."""
        kept = ", ".join(filter(None, ("le", by)))
        buckets = self.rate(metric, "_bucket", by=kept, **labels)
        return f"histogram_quantile({share:g}, {buckets})"

    def mean(self, metric: Metric, /, *, by: str = "", **labels: LabelMatch) -> str:
        """Return the mean of what a histogram observed."""
        return ratio(
            self.rate(metric, "_sum", by=by, **labels), self.rate(metric, "_count", by=by, **labels)
        )

    def attained(self, metric: Metric, bound: str, /, *, by: str = "") -> str:
        """Return the share of observations within ``bound``, the text of one of the histogram's
        bounds or a variable that holds one."""
        within = self.rate(metric, "_bucket", by=by, le=bound)
        return ratio(within, self.rate(metric, "_count", by=by))


def ratio(part: str, whole: str) -> str:
    """Return a quotient that has no value, rather than NaN, where the whole is 0."""
    return f"{part} / ({whole} > 0)"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""


def _matcher(name: str, value: LabelMatch) -> str:
    if isinstance(value, str):
        return f'{name}="{value}"'
    return f'{name}=~"{"|".join(value)}"'


def _check(metric: Metric, suffix: str, name: str, value: LabelMatch) -> None:
    values = (value,) if isinstance(value, str) else value
    if name == _BOUND:
        if suffix != "_bucket":
            raise ValueError(f"only the buckets of {metric.name} have the label le")
        allowed: Iterable[str] | None = (*map(bound_text, metric.buckets), "+Inf")
    else:
        label = next((label for label in metric.labels if label.name == name), None)
        if label is None:
            raise ValueError(f"{metric.name} does not have the label {name}")
        allowed = label.values
    for each in values:
        if not each.startswith("$") and allowed is not None and each not in allowed:
            raise ValueError(f"the label {name} of {metric.name} cannot be {each!r}")
