from __future__ import annotations

import logging

from observability.repeats import OncePerMinute


class Heard(logging.Handler):
    """What passes the filter, and the time by which it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lines: list[str] = []
        self.addFilter(OncePerMinute("noisy", clock=lambda: self.now))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def hear(self, name: str, message: str, *args: object) -> None:
        self.handle(logging.LogRecord(name, logging.WARNING, __file__, 1, message, args, None))


def test_one_line_a_minute_passes_with_the_count_of_the_others() -> None:
    heard = Heard()
    for second in range(0, 130, 10):
        heard.now = second
        heard.hear("noisy.part", "failed at %d %%", second)
    assert heard.lines == [
        "failed at 0 %",
        "failed at 60 % (5 more since the last such line)",
        "failed at 120 % (5 more since the last such line)",
    ]


def test_all_loggers_of_the_library_share_the_minute() -> None:
    heard = Heard()
    for name in ("noisy", "noisy.a", "noisy.b.c"):
        heard.hear(name, name)
    assert heard.lines == ["noisy"]


def test_other_loggers_pass() -> None:
    heard = Heard()
    for name in ("noisy", "noisyish", "quire", "root"):
        heard.hear(name, name)
        heard.hear(name, name)
    assert heard.lines == ["noisy", "noisyish", "noisyish", "quire", "quire", "root", "root"]
