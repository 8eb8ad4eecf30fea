"""Partitions of a writer that are not read until their next assignment, and why (rule 6 of the writer)."""

import logging
from collections.abc import Collection, Iterable, Mapping

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.lake.metrics import LakeMetrics

log = logging.getLogger("trimtab.lake")


class HaltedPartitions:
    """Halted partitions with their errors; used by the application's thread only."""

    def __init__(self, metrics: LakeMetrics) -> None:
        self._errors: Mapping[TopicPartition, TrimtabError] = {}
        self._metrics = metrics

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._errors

    def halt(self, partitions: Collection[TopicPartition], error: TrimtabError) -> None:
        """Add partitions and log their error, once for all of them."""
        if partitions:
            log.error("%s not read until assigned again: %s", format_partitions(partitions), error)
            self._replace({**self._errors, **dict.fromkeys(partitions, error)})

    def discard(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions that are assigned again or no longer owned."""
        self._replace({p: error for p, error in self._errors.items() if p not in partitions})

    def raise_first_error(self) -> None:
        """Raise the error of the first partition; return if none is halted."""
        if self._errors:
            raise self._errors[min(self._errors)].with_traceback(None)

    def _replace(self, errors: Mapping[TopicPartition, TrimtabError]) -> None:
        topics = {partition.topic for partition in (*self._errors, *errors)}
        self._errors = errors
        for topic in topics:
            self._metrics.set_halted(topic, sum(partition.topic == topic for partition in errors))


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of the partitions, sorted."""
    return ", ".join(map(str, sorted(partitions)))
