"""Rate limit of librdkafka's log: a line of each kind per interval."""

import logging

from support.ticking import Ticking
from trimtab.consumer_sdk.log_rate_limit import LOG_REPEAT_INTERVAL_S, MAX_REMEMBERED_LINES, RateLimitFilter


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "", 0, text, None, None)


def test_lines_that_differ_in_numbers_only_are_logged_once() -> None:
    """Forty lines about an unreachable broker are logged once; a line of another kind passes."""
    clock = Ticking()
    rate_limit = RateLimitFilter(clock)
    lines = [f"FAIL: Connect to 127.0.0.1:9092 failed (after {n} ms)" for n in range(40)]
    assert [rate_limit.filter(line(text)) for text in lines].count(True) == 1
    assert rate_limit.filter(line("SSL handshake failed"))
    clock.now += LOG_REPEAT_INTERVAL_S
    assert rate_limit.filter(line(lines[0]))


def test_the_number_of_remembered_lines_is_bounded() -> None:
    """The memory for distinct lines is bounded."""
    rate_limit = RateLimitFilter(Ticking())
    for n in range(10 * MAX_REMEMBERED_LINES):
        rate_limit.filter(line(f"{'x' * n}"))
    assert len(rate_limit._last_logged_at) <= MAX_REMEMBERED_LINES
