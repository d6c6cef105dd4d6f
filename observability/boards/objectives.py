"""SLO and budget: how much is attained, and how fast the error budget is spent."""

from __future__ import annotations

from observability import catalogue
from observability.boards.model import (
    BOARD_QUERIES,
    MODEL_CHOICES,
    SLO_ITL,
    SLO_TTFT,
    Board,
    Panel,
    PanelKind,
    PanelQuery,
    PanelRow,
    PanelUnit,
    Picker,
)
from observability.objectives import COUNTED_OUTCOMES, GOOD_OUTCOMES
from observability.promql import ratio

_BUDGETS = ("0.0005", "0.001", "0.005", "0.01", "0.05")
_BUDGET = Picker("budget", "Error budget: first token, gaps", _BUDGETS, "0.01")
_AVAILABILITY_BUDGET = Picker("budget_up", "Error budget: availability", _BUDGETS, "0.001")


def _attained(window: str) -> tuple[tuple[str, str, str], ...]:
    """Return name, budget and share within the objective of each indicator over a window."""
    q = BOARD_QUERIES.over(window)
    return (
        ("first token", "$budget", q.attained(catalogue.TIME_TO_FIRST_TOKEN, "$slo_ttft")),
        ("between tokens", "$budget", q.attained(catalogue.INTER_TOKEN_LATENCY, "$slo_itl")),
        (
            "availability",
            "$budget_up",
            ratio(
                q.rate(catalogue.REQUESTS, outcome=GOOD_OUTCOMES),
                q.rate(catalogue.REQUESTS, outcome=COUNTED_OUTCOMES),
            ),
        ),
    )


_BURN_STEPS = ((1, "yellow"), (3, "orange"), (14.4, "red"))

SLO_BOARD = Board(
    "slo",
    "Quire: SLO and budget",
    "What share of requests meets the objectives, and how fast the error budget is spent: at a "
    "burn rate of 1 it lasts exactly for its whole period.",
    (
        PanelRow(
            "Within the objective",
            (
                *(
                    Panel(
                        f"{name}, time range",
                        "Share within the objective over the board's time range.",
                        (PanelQuery(share),),
                        PanelUnit.SHARE,
                        PanelKind.STAT,
                        maximum=1,
                        steps=((0, "red"), (0.95, "orange"), (0.99, "green")),
                    )
                    for name, _, share in _attained("$__range")
                ),
                Panel(
                    "Share within the objective",
                    "Over the last 5 minutes.",
                    tuple(PanelQuery(share, name) for name, _, share in _attained("5m")),
                    PanelUnit.SHARE,
                    width=12,
                    maximum=1,
                ),
                Panel(
                    "Requests that count",
                    "The denominator of the shares. Alerts need 20 in their short window.",
                    (
                        PanelQuery(
                            BOARD_QUERIES.rate(catalogue.TIME_TO_FIRST_TOKEN, "_count"),
                            "first tokens",
                        ),
                        PanelQuery(
                            BOARD_QUERIES.rate(catalogue.REQUESTS, outcome=COUNTED_OUTCOMES),
                            "answered, failed or refused by the server",
                        ),
                    ),
                    PanelUnit.REQUESTS,
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "Burn rate: misses as multiples of the budget",
            tuple(
                Panel(
                    f"Burn rate over {window}",
                    help_text,
                    tuple(
                        PanelQuery(f"(1 - {share}) / {budget}", name)
                        for name, budget, share in _attained(window)
                    ),
                    PanelUnit.PLAIN,
                    steps=_BURN_STEPS,
                )
                for window, help_text in (
                    ("1h", "Above 14.4 with the last 5 minutes: page."),
                    ("6h", "Above 6 with the last 30 minutes: page."),
                    ("1d", "Above 3 with the last 2 hours: ticket."),
                )
            ),
        ),
        PanelRow(
            "Budget left",
            tuple(
                Panel(
                    f"{name}, budget left",
                    "1: nothing spent. 0: all of it, if the period were the board's time range.",
                    (PanelQuery(f"clamp_min(1 - (1 - {share}) / {budget}, 0)"),),
                    PanelUnit.SHARE,
                    PanelKind.STAT,
                    maximum=1,
                    steps=((0, "red"), (0.25, "orange"), (0.5, "green")),
                )
                for name, budget, share in _attained("$__range")
            ),
        ),
    ),
    MODEL_CHOICES,
    (SLO_TTFT, SLO_ITL, _BUDGET, _AVAILABILITY_BUDGET),
)
