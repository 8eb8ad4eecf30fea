"""Groups of consumers that nobody here wrote: none of them knows Trimtab.

`own`: they assign by themselves, which shows that the programs and the checker are right.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from strangers.checker import check_group
from strangers.group import StrangerGroup, wait_until
from strangers.programs import KINDS
from strangers.stream import ZipfStream, zipf_rates

pytestmark = [pytest.mark.broker, pytest.mark.strangers]

PARTITIONS: Final = 20
TOTAL: Final = 400.0  # records/s
PATIENCE: Final = 40.0
COOPERATIVE: Final = ("go", "java", "kafka_python", "librdkafka")
RATES: Final = zipf_rates(PARTITIONS, TOTAL, exponent=0.7, seed=3)


def all_own(group: StrangerGroup) -> bool:
    """Return whether every partition has an owner, and every member a partition."""
    owners = group.owners()
    return len(owners) == PARTITIONS and set(owners.values()) == set(group.members)


def await_all_own(group: StrangerGroup) -> None:
    assert wait_until(lambda: all_own(group), PATIENCE), group.owners()


def finish(group: StrangerGroup, stream: ZipfStream) -> None:
    """End the stream; every record has been read, and none twice by the group's fault."""
    stream.stop()
    assert wait_until(lambda: group.has_read(stream.written), PATIENCE)
    group.stop(*group.members)
    verdict = check_group(group.events(), stream.written)
    assert (verdict.lost, verdict.doubled) == (0, 0), verdict.faults
    assert verdict.read == sum(map(len, stream.written.values())) > 0


@pytest.mark.parametrize(("assignors", "kinds"), [("range", KINDS), ("cooperative-sticky", COOPERATIVE)])
def test_own_assignors_survive_a_restart_of_each(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, assignors: str, kinds: tuple[str, ...]
) -> None:
    """A group of all clients, each restarted in order and one killed, reads each record once."""
    name = topic(partitions=PARTITIONS)
    options = {"assignors": assignors, "session": "6000"}
    with (
        StrangerGroup(bootstrap, name, name, tmp_path, options) as group,
        ZipfStream(bootstrap, name, lambda _: RATES) as stream,
    ):
        for kind in kinds:
            group.add(kind, kind)
        await_all_own(group)
        for kind in kinds:
            group.restart(kind)
            await_all_own(group)
        group.kill("librdkafka")
        group.start("librdkafka")
        await_all_own(group)
        finish(group, stream)
