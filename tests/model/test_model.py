"""The model's invariants hold, the product follows its traces, and each broken rule is found.

A short form; `make model` goes deeper.
"""

import logging
from collections.abc import Generator
from unittest import mock

import pytest

from model.__main__ import explore_all, find_broken_rule, replay_random_traces
from model.broken import BROKEN_RULES
from model.replay import DivergenceError
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

DEPTH = 7
FAULTS = 2


@pytest.fixture(autouse=True)
def _no_log() -> Generator[None]:
    """The writers log what the faults do to them."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_order_of_events_violates_an_invariant() -> None:
    """One reader, each record once, none lost, progress: for all orders to the depth, with two faults."""
    for exploration in explore_all(DEPTH, FAULTS):
        assert exploration.violation is None
        assert exploration.depth == DEPTH


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_the_writers_follow_the_model(first: int) -> None:
    """Tables, owned partitions and positions of real lake writers equal the model's after each step."""
    replay_random_traces(range(first, first + 20), steps=80)


@pytest.mark.parametrize("name", BROKEN_RULES)
def test_a_broken_rule_is_found_and_shown_by_the_product(name: str) -> None:
    """The search proves a rule only if it finds its violation; the unbroken rule prevents it."""
    assert find_broken_rule(name) is not None


def test_a_writer_that_differs_from_the_model_is_noticed() -> None:
    """A replay proves something only if it compares: here a writer keeps the partitions that it has lost."""
    with mock.patch.object(LakeWriter, "on_lost"), pytest.raises(DivergenceError):
        replay_random_traces(range(20), steps=80)
