"""Which partitions are sampled, where not all answer."""

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.kafka import record_sampler
from trimtab.sidecar.kafka.record_sampler import AT_ONCE, Sampler


def test_the_silent_do_not_starve_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was asked and did not answer is asked again after all others were."""
    silent = [TopicPartition("a", n) for n in range(AT_ONCE)]
    heard = TopicPartition("b", 0)
    asked: list[TopicPartition] = []
    made = Sampler({"bootstrap.servers": "localhost:1"})
    monkeypatch.setattr(made, "_read", lambda starts, _: asked.extend(starts) or [])
    monkeypatch.setattr(record_sampler, "_sizes", lambda _: {})
    ends = dict.fromkeys([*silent, heard], 100)
    begins = dict.fromkeys(ends, 0)
    made.sample(ends, begins, 0.0)
    assert heard not in asked
    made.sample(ends, begins, 1.0)
    made.close()
    assert heard in asked
