"""A stuck partition on a real broker: every surface tells it, and that it has ended."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.advised_group import AdvisedGroup, advise_group
from support.sidecar_bench import SidecarBench

pytestmark = pytest.mark.broker

STUCK = "PartitionsStuck"


@pytest.fixture
def advised(bootstrap: str, topic: Callable[..., str], tmp_path: Path) -> Iterator[AdvisedGroup]:
    with advise_group(bootstrap, topic(partitions=8), tmp_path) as group:
        yield group


def test_a_stuck_partition_is_told_everywhere_until_it_is_read(
    advised: AdvisedGroup, eventually: Callable[..., None]
) -> None:
    """Before, `doctor` said that all checks passed over it."""
    surfaces = advised.surfaces

    def count(text: str) -> int:
        return sum(text in line for line in surfaces.lines)

    eventually(lambda: count("hold:") >= 10, 120)
    assert "Stuck" not in surfaces.run("doctor")[1]
    advised.reader.left = frozenset({0})
    eventually(lambda: count(f"condition {STUCK}: "), 120)
    assert surfaces.find_silent([STUCK]) == {STUCK: []}
    code, text = surfaces.run("doctor")
    assert code == 1
    assert "FAILED PartitionsStuck: " in text
    assert "-0 seems stuck: reader has committed nothing of it" in text
    advised.reader.left = frozenset()
    eventually(lambda: count(f"condition {STUCK} has ended"), 120)
    assert "Stuck" not in surfaces.run("doctor")[1]
    assert count(f"condition {STUCK}: ") == 1  # not in each iteration


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_sidecar_knows_since_when(
    bootstrap: str,
    topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    eventually: Callable[..., None],
    number: signal.Signals,
) -> None:
    """Its conditions began when the sidecar before it had found them."""
    bench = SidecarBench(bootstrap, group, topic(partitions=8), tmp_path, pause="all")

    def list_begins() -> set[tuple[int, float]]:
        """Return the authors of records with their last begin of the pause."""
        pauses = [
            (record.author.pid, one.since)
            for record in bench.store.read_decisions()
            for one in record.conditions
            if one.type == "ScalingPaused" and record.author is not None
        ]
        return set(dict(pauses).items())

    try:
        bench.start()
        eventually(lambda: len(list_begins()) == 1, 60)
        ((first, since),) = list_begins()
        bench.stop(number)
        bench.start()
        eventually(lambda: {begin for pid, begin in list_begins() if pid != first} == {since}, 60)
    finally:
        bench.close()
