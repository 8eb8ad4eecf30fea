"""Tables that one writer flushes side by side, on the real lake."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition

pytestmark = pytest.mark.spark

PARTITIONS = [TopicPartition(topic, 0) for topic in ("a", "b", "c")]
COUNT = 4


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
@pytest.mark.usefixtures("lake")
def test_topics_that_share_a_side_table_are_flushed_side_by_side(
    writers: Callable[..., Any], fakes: SimpleNamespace, rows: Callable[[str], list[Any]], namespace: str
) -> None:
    """Two flushes of one process race for one table, as two processes do: no row is lost or doubled."""
    both = threading.Barrier(2)
    met: list[int] = []

    def meet(step: str) -> None:
        if step == "staged" and not met:
            met.append(both.wait(120))  # fails unless a second flush is staged, too

    log: dict[Any, list[bytes]] = {p: [b"x"] * COUNT for p in PARTITIONS}
    consumer, writer = writers(log, crash=meet, batch_bytes="1 B", lake_transform=share)
    consumer.assign(writer, *PARTITIONS)
    for offset in range(COUNT):  # a batch of each topic
        writer.write([fakes.Message(p, offset, b"x") for p in PARTITIONS])
    writer.flush()
    assert sorted(met) == [0, 1]
    everything = sorted((*p, offset) for p in PARTITIONS for offset in range(COUNT))
    assert rows(f"{namespace}.everything") == everything
    assert [row for p in PARTITIONS for row in rows(f"{namespace}.{p.topic}")] == everything


def share(frame: Any) -> dict[str, Any]:
    """Send every record to its topic's table and to a common one."""
    return {frame.first().topic: frame, "everything": frame}
