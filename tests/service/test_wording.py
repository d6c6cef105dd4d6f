"""Words agree with their number."""

from __future__ import annotations

from service.wording import are, plural


def test_counts_agree_in_number() -> None:
    assert plural(1, "sequence") == "1 sequence"
    assert plural(1200, "sequence") == "1,200 sequences"


def test_verbs_agree_in_number() -> None:
    assert are(1) == "1 is"
    assert are(1200) == "1,200 are"
    assert are(0) == "0 are"
    assert are(1, "request") == "1 request is"
    assert are(1200, "request") == "1,200 requests are"
