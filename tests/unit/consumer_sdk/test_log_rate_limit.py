"""Rate limit of librdkafka's log: a line of each kind per interval."""

import logging

from ticking import Ticking

from trimtab.consumer_sdk.log_rate_limit import LOG_REPEAT_INTERVAL_S, MAX_REMEMBERED_LINES, RateLimitFilter


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "", 0, text, None, None)


def test_lines_that_differ_in_numbers_only_are_one() -> None:
    """Forty lines about an unreachable broker are one; a line of another kind passes."""
    clock = Ticking()
    sparing = RateLimitFilter(clock)
    lines = [f"FAIL: Connect to 127.0.0.1:9092 failed (after {n} ms)" for n in range(40)]
    assert [sparing.filter(line(text)) for text in lines].count(True) == 1
    assert sparing.filter(line("SSL handshake failed"))
    clock.now += LOG_REPEAT_INTERVAL_S
    assert sparing.filter(line(lines[0]))


def test_it_remembers_a_bounded_number_of_lines() -> None:
    """Ever new lines do not use ever more memory."""
    sparing = RateLimitFilter(Ticking())
    for n in range(10 * MAX_REMEMBERED_LINES):
        sparing.filter(line(f"{'x' * n}"))
    assert len(sparing._last_logged_at) <= MAX_REMEMBERED_LINES
