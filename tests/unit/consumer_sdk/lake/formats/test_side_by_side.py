"""Calls side by side."""

import threading

import pytest

from trimtab.consumer_sdk.lake.formats.side_by_side import map_side_by_side


def test_no_more_calls_at_a_time_than_allowed_and_no_fewer() -> None:
    """Each of three waits for two others."""
    barrier = threading.Barrier(3)
    running: list[int] = []
    most: list[int] = []

    def call(item: int) -> int:
        running.append(item)
        barrier.wait(20)
        most.append(len(running))
        barrier.wait(20)
        running.remove(item)
        barrier.wait(20)
        return item * 2

    assert map_side_by_side(call, range(9), 3) == [item * 2 for item in range(9)]
    assert set(most) == {3}


def test_the_first_error_ends_the_rest() -> None:
    """What has not begun is not called."""
    called: list[int] = []

    def call(item: int) -> None:
        called.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"0|1"):
        map_side_by_side(call, range(50), 2)
    assert len(called) < 50


def test_one_call_needs_no_thread() -> None:
    """Each thread would connect to the JVM."""
    here = threading.get_ident()
    assert map_side_by_side(lambda _: threading.get_ident(), [1], 8) == [here]
    assert map_side_by_side(lambda _: threading.get_ident(), [1, 2], 1) == [here, here]
    assert map_side_by_side(str, [], 8) == []
