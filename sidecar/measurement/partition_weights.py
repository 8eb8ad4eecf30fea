"""Weights of partitions from outside, in the unit of the capacity, in place of measured write rates. Pure.

1. A partition weighs what was told. One that nothing was told of is unknown, as if it were not measured.
2. Backlog and consumption are measured in bytes. They count by the weight of a byte: the partition's weight
   by its write rate, or while nothing is written the mean of its topic; unknown without either.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad

Weights = Mapping[TopicPartition, float]
Loads = Mapping[TopicPartition, PartitionLoad]


def weigh_loads(measured: Loads, weights: Weights) -> dict[TopicPartition, PartitionLoad]:
    """Return the loads with rate and backlog in the unit of the weights."""
    of_byte = _compute_byte_weights(measured, weights)

    def weigh(partition: TopicPartition, load: PartitionLoad) -> PartitionLoad:
        weight, backlog = weights.get(partition), load.backlog_bytes
        if backlog:  # 0 bytes weigh nothing, whatever a byte weighs
            backlog = None if weight is None else _multiply(backlog, of_byte.get(partition))
        return replace(load, bytes_per_s=weight, backlog_bytes=backlog)

    return {p: weigh(p, load) for p, load in measured.items()}


def weigh_rates(
    rates: Mapping[TopicPartition, float], measured: Loads, weights: Weights
) -> dict[TopicPartition, float]:
    """Return consumption rates in the unit of the weights; unknown ones are absent."""
    of_byte = _compute_byte_weights(measured, weights)
    weighed = {p: _multiply(rate, of_byte.get(p)) if rate else rate for p, rate in rates.items()}
    return {p: rate for p, rate in weighed.items() if rate is not None}


def _multiply(size: float, weight_of_byte: float | None) -> float | None:
    return None if weight_of_byte is None else size * weight_of_byte


def _compute_byte_weights(measured: Loads, weights: Weights) -> dict[TopicPartition, float]:
    written: defaultdict[str, float] = defaultdict(float)
    weighed: defaultdict[str, float] = defaultdict(float)
    of_byte: dict[TopicPartition, float] = {}
    for partition, load in measured.items():
        if load.bytes_per_s and partition in weights:
            of_byte[partition] = weights[partition] / load.bytes_per_s
            written[partition.topic] += load.bytes_per_s
            weighed[partition.topic] += weights[partition]
    means = {topic: weighed[topic] / rate for topic, rate in written.items()}
    known = {p: means[p.topic] for p in measured if p.topic in means}
    return {**known, **of_byte}
