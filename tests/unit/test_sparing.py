"""librdkafka's lines: each kind once in a while, however often it says it."""

import logging

from ticking import Ticking

from trimtab.consumer_sdk.log_rate_limit import (
    LOG_REPEAT_INTERVAL_S,
    MAX_REMEMBERED_LINES,
    RateLimitFilter,
)


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "", 0, text, None, None)


def test_what_differs_in_numbers_alone_is_one_line() -> None:
    """Forty lines a second of a broker that is away are one; another kind comes through."""
    clock = Ticking()
    sparing = RateLimitFilter(clock)
    lines = [f"FAIL: Connect to 127.0.0.1:9092 failed (after {n} ms)" for n in range(40)]
    assert [sparing.filter(line(text)) for text in lines].count(True) == 1
    assert sparing.filter(line("SSL handshake failed"))
    clock.now += LOG_REPEAT_INTERVAL_S
    assert sparing.filter(line(lines[0]))


def test_it_remembers_a_bounded_number_of_lines() -> None:
    """Whoever says something new each time costs no memory."""
    sparing = RateLimitFilter(Ticking())
    for n in range(10 * MAX_REMEMBERED_LINES):
        sparing.filter(line(f"{'x' * n}"))
    assert len(sparing._last_logged_at) <= MAX_REMEMBERED_LINES
