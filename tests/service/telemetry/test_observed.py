from __future__ import annotations

from service.telemetry.observed import Observed


def test_the_longest_hold_is_kept_until_it_is_taken() -> None:
    observed = Observed()
    for seconds in (0.1, 0.3, 0.2):
        observed.held(seconds)
    observed.first_tokens.append(1.0)
    observed.gaps.append((0.1, 2))
    assert observed.longest_hold == 0.3
    observed.clear()
    assert (observed.longest_hold, len(observed.first_tokens), len(observed.gaps)) == (0.0, 0, 0)


def test_what_nobody_takes_does_not_grow_for_ever() -> None:
    observed = Observed()
    for number in range(100_000):
        observed.gaps.append((float(number), 1))
    assert len(observed.gaps) < 100_000
    assert observed.gaps[-1] == (99_999.0, 1)
