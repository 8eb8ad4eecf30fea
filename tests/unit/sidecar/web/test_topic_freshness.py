"""Freshness by topic."""

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.web.topic_freshness import TopicFreshness


def test_each_topic_has_its_own_freshness() -> None:
    """A slow topic's records are older; one without a known rate has none; the window forgets."""
    loads = {
        TopicPartition("fast", 0): PartitionLoad(100.0, 10.0, 200.0, 20, 100.0),
        TopicPartition("slow", 0): PartitionLoad(100.0, 10.0, 9000.0, 900, 100.0),
        TopicPartition("unknown", 0): PartitionLoad(),
    }
    freshness = TopicFreshness(100.0)
    topics = ["fast", "slow", "unknown"]
    assert freshness.estimate(10.0, topics, loads) == {}  # one sample is too few
    freshness.estimate(20.0, topics, loads)
    assert freshness.estimate(30.0, topics, loads) == {"fast": 2.0, "slow": 90.0}
    read = {**loads, TopicPartition("slow", 0): PartitionLoad(100.0, 10.0, 100.0, 10, 100.0)}
    for time in (200.0, 210.0):
        assert freshness.estimate(time, ["slow"], read) == {}
    assert freshness.estimate(220.0, ["slow"], read) == {"slow": 1.0}
