"""Freshness by topic, which is that of the table it is written to: estimated as the group's is."""

from collections import deque
from collections.abc import Iterable, Mapping

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.freshness import AgeSample, estimate_freshness, sample_ages

KEPT_QUANTILE_STEP = 5  # every fifth quantile, with the highest: a group may have many topics


class TopicFreshness:
    """Ages of the listed topics' waiting records, for `window` seconds."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._samples: dict[str, deque[AgeSample]] = {}

    def estimate(
        self, time: float, topics: Iterable[str], loads: Mapping[TopicPartition, PartitionLoad]
    ) -> dict[str, float]:
        """Add an iteration; return the p99 of produced to committed in seconds, where it is known."""
        by_topic: dict[str, dict[TopicPartition, PartitionLoad]] = {topic: {} for topic in topics}
        for partition, load in loads.items():
            if partition.topic in by_topic:
                by_topic[partition.topic][partition] = load
        self._samples = {t: self._samples.get(t, deque[AgeSample]()) for t in by_topic}
        found = {topic: self._add(time, topic, known) for topic, known in by_topic.items()}
        return {topic: p99 for topic, p99 in found.items() if p99 is not None}

    def _add(self, time: float, topic: str, loads: Mapping[TopicPartition, PartitionLoad]) -> float | None:
        samples = self._samples[topic]
        sample = sample_ages(time, loads)
        if sample is not None:
            samples.append(AgeSample(time, sample.ages[KEPT_QUANTILE_STEP - 1 :: KEPT_QUANTILE_STEP]))
        while samples and samples[0].time <= time - self._window:
            samples.popleft()
        freshness = estimate_freshness(tuple(samples))
        return None if freshness is None else freshness.p99
