"""Memory of an hour of a group's history in the sidecar.

Made-up iterations of --partitions partitions and --consumers consumers, 10 s apart, with moves every 200 s,
are recorded for --minutes. `history_mb` is what Python frees when the history is dropped (tracemalloc);
`restored_mb` that of a history restored from what was recorded in the decision topic meanwhile, and
`topic_mb` the size of that.

    python -m benchmarks.sidecar.bench_history [--partitions 10000] [--consumers 500] [--minutes 60]
"""

import argparse
import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

from benchmarks.harness import result
from support.page.page_reports import CAPACITY, HEADROOM, ReportSource
from trimtab.sidecar.records.decision_record import DecisionRecord, build_decision_record
from trimtab.sidecar.records.sample_record import SampleRecord
from trimtab.sidecar.reporting.decision_log import build_record_terms
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.page_tools import build_group_history

ITERATIONS_PER_MINUTE: Final = 6
MB: Final = 1e6


def main() -> None:
    """Measure, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--partitions", type=int, default=10_000)
    arguments.add_argument("--consumers", type=int, default=500)
    arguments.add_argument("--minutes", type=int, default=60)
    given = arguments.parse_args()
    settings = load_settings(
        None, {"bootstrap": "none:1", "group": "lake", "capacity": CAPACITY, "headroom": HEADROOM, "max": 600}
    )
    source = ReportSource(given.partitions, given.consumers)
    recorded = RecordedTopic(settings)

    def record_all() -> GroupHistory:
        history = build_group_history(settings)
        for _ in range(given.minutes * ITERATIONS_PER_MINUTE):
            report = source.next_report()
            history(report)
            recorded.add(build_decision_record(report, build_record_terms(settings)), history)
        return history

    def restore() -> GroupHistory:
        history = build_group_history(settings)
        history.restore(recorded.decisions, list(recorded.samples.values()))
        return history

    figures = {"partitions": given.partitions, "consumers": given.consumers, "minutes": given.minutes}
    tracemalloc.start()
    history_mb = measure_memory(record_all)
    restored_mb = measure_memory(restore)
    result(
        {
            **figures,
            "history_mb": history_mb,
            "restored_mb": restored_mb,
            "topic_mb": round(recorded.bytes / MB, 1),
        }
    )


class RecordedTopic:
    """What the decision topic has of a group: its decisions, and a sample a minute."""

    def __init__(self, settings: SidecarSettings) -> None:
        self.settings = settings
        self.decisions: list[DecisionRecord] = []
        self.samples: dict[str, SampleRecord] = {}

    def add(self, record: DecisionRecord, history: GroupHistory) -> None:
        """Record an iteration."""
        if not self.decisions or self.decisions[-1].action != record.action:
            self.decisions.append(record)
        sample = history.take_sample_record()
        if sample is not None:
            self.samples[sample.key] = sample

    @property
    def bytes(self) -> int:
        """Bytes of the samples, before the topic's compression."""
        return sum(len(sample.encode()) for sample in self.samples.values())


def measure_memory(build: Callable[[], GroupHistory]) -> float:
    """Return the megabytes that are freed with a history."""
    history: GroupHistory | None = build()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    history = None
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    del history
    return round((before - after) / MB, 1)


if __name__ == "__main__":
    main()
