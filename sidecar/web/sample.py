"""One iteration as the page shows it: a decision, and a byte of load and an owner for each partition.

1. A load is a byte, of load ÷ capacity on a logarithmic scale: `STEPS_PER_DOUBLING` steps double it.
2. An owner is an index into the consumers' names, in two bytes.
3. Both are in the order of the partitions' names, which only grows (`NameTable`).
"""

import json
from array import array
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, log2
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.model.observation import ObservedMember
from trimtab.sidecar.records.decision_record import DecisionRecord
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.web.catch_up import estimate_catch_up
from trimtab.sidecar.web.topic_freshness import TopicFreshness

STEPS_PER_DOUBLING: Final = 16
FULL_STEP: Final = 200  # load = capacity
UNKNOWN_LOAD: Final = 255
NO_OWNER: Final = 0xFFFF
MAX_LISTED_PARTITIONS: Final = 20  # those that need longest to catch up
MAX_LISTED_TOPICS: Final = 50  # the latest ones


@dataclass(slots=True)
class NameTable:
    """Names of partitions and consumers, and their indices; names are only added."""

    partitions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    consumers: dict[str, int] = field(default_factory=dict[str, int])

    def add_names(self, partitions: Iterable[TopicPartition], consumers: Iterable[str]) -> None:
        """Add the new ones of these names, in order."""
        for partition in sorted(set(partitions).difference(self.partitions)):
            self.partitions[partition] = len(self.partitions)
        for name in sorted(set(consumers).difference(self.consumers)):
            self.consumers[name] = len(self.consumers)


@dataclass(frozen=True, slots=True)
class HistorySample:
    """An iteration, or a recorded decision, which has no loads and owners."""

    number: int
    time: float  # seconds since the epoch
    text: str  # JSON object
    loads: bytes = b""
    owners: bytes = b""
    rates: bytes = b""  # write rates for what-if, see `recorded_stream`; not sent

    def encode(self, previous: "HistorySample | None") -> str:
        """Return the sample as JSON; owners that equal the previous sample's are left out."""
        arrays: dict[str, Any] = {"n": self.number}
        if self.loads:
            arrays["loads"] = b64encode(self.loads).decode()
        if self.owners and (previous is None or previous.owners != self.owners):
            arrays["owners"] = b64encode(self.owners).decode()
        return f"{self.text[:-1]},{dump_json(arrays)[1:]}"


def dump_json(body: Any) -> str:
    """Return compact JSON."""
    return json.dumps(body, separators=(",", ":"))


def is_known(figure: Any) -> bool:
    """Return whether a figure has a value that JSON can hold."""
    return figure is not None and not (isinstance(figure, float) and not isfinite(figure))


def quantize_load(load: float | None, capacity: float) -> int:
    """Return the byte of a load (rule 1); 0 for none."""
    if load is None:
        return UNKNOWN_LOAD
    if load <= 0:
        return 0
    return min(UNKNOWN_LOAD - 1, max(1, round(FULL_STEP + STEPS_PER_DOUBLING * log2(load / capacity))))


def quantize_loads(
    table: Mapping[TopicPartition, int], loads: Mapping[TopicPartition, PartitionLoad], capacity: float
) -> bytes:
    """Return a byte for each partition of the table, unknown for those without a load."""
    known = (loads.get(partition) for partition in table)
    return bytes(UNKNOWN_LOAD if load is None else quantize_load(load.weight, capacity) for load in known)


def list_owners(table: NameTable, members: Iterable[ObservedMember]) -> bytes:
    """Return the owner's index for each partition of the table, in two bytes, little-endian."""
    owners = array("H", [NO_OWNER]) * len(table.partitions)
    for member in members:
        index = table.consumers[member.instance]
        for partition in member.owned_partitions:
            owners[table.partitions[partition]] = index
    return owners.tobytes()


def build_decision_fields(record: DecisionRecord) -> dict[str, Any]:
    """Return what the page shows of a decision; unknown figures are left out."""
    outcome = None if record.outcome is None else record.outcome.format_line()
    return {
        "t": record.time,
        "until": record.until,
        "action": record.action.value,
        "reasons": record.reasons,
        "failure": record.failure,
        "epoch": record.epoch,
        "replicas": record.replicas,
        "capacity": record.capacity,
        "headroom": record.headroom,
        "metrics": {name: value for name, value in asdict(record.metrics).items() if is_known(value)},
        "start": record.replicas_to_start,
        "stop": record.replicas_to_stop,
        "moves": [asdict(move) for move in record.expected_moves],
        "moved": record.observed_move_count,
        "moved_rate": record.observed_move_bytes_per_s,
        "conditions": [asdict(one) for one in record.conditions],
        "author": None if record.author is None else str(record.author),
        "advice": record.is_advice,
        "outcome": outcome,
        "carrier": None if record.carrier is None else record.carrier.format_line(),
    }


def build_iteration_fields(report: IterationReport, capacity: float, grace: float) -> dict[str, Any]:
    """Return what the page shows of an iteration besides its decision; `grace` is the backlog's, in s."""
    given = (report.members, report.write_rates, capacity, report.consumption_rates)
    times, late = estimate_catch_up(*given), estimate_catch_up(*given, grace)
    slowest = sorted(times.items(), key=lambda one: (one[1] is not None, -(one[1] or 0.0), one[0]))
    owned = {p for member in report.members for p in member.owned_partitions}
    return {
        "leader": report.is_leader,
        "leader_name": report.leader,
        "state": report.group_state.value,
        "handovers": [[*partition, seconds] for partition, seconds in report.handovers.items()],
        "unowned": sum(partition not in owned for partition in report.write_rates),
        "topics": build_topic_rows(report, times),
        "behind": len(times),
        "late": len(late),
        "late_until": None if None in late.values() else max((s or 0.0 for s in late.values()), default=0.0),
        "catch_up": [
            [*partition, seconds, report.write_rates[partition].backlog_bytes, partition in late]
            for partition, seconds in slowest[:MAX_LISTED_PARTITIONS]
        ],
    }


def build_topic_rows(
    report: IterationReport, times: Mapping[TopicPartition, float | None]
) -> list[list[Any]]:
    """Return topic, partitions, write rate, backlog, age and seconds until read, the latest topic first.

    The age in seconds is that of the oldest record that is not committed, as long as the partition's
    write rate is steady.
    """
    topics: dict[str, list[TopicPartition]] = {}
    for partition in report.write_rates:
        topics.setdefault(partition.topic, []).append(partition)
    rows: list[list[Any]] = []
    for topic, partitions in topics.items():
        loads = [report.write_rates[p] for p in partitions]
        ages = [
            load.backlog_records / load.records_per_s
            for load in loads
            if load.records_per_s and load.backlog_records is not None
        ]
        ends = [times[p] for p in partitions if p in times]
        rate = sum(load.bytes_per_s or 0.0 for load in loads)
        backlog = sum(load.backlog_bytes or 0.0 for load in loads)
        until = None if None in ends else max((end for end in ends if end is not None), default=0.0)
        rows.append([topic, len(partitions), rate, backlog, max(ages, default=None), until])
    rows.sort(key=lambda row: (-(row[4] or 0.0), row[0]))
    return rows[:MAX_LISTED_TOPICS]


def add_freshness(rows: Iterable[list[Any]], freshness: TopicFreshness, report: IterationReport) -> None:
    """Add to each topic's row its p99 from produced to committed, null where it is unknown."""
    listed = list(rows)
    known = freshness.estimate(report.time, [row[0] for row in listed], report.write_rates)
    for row in listed:
        row.append(known.get(row[0]))


def build_new_names(table: NameTable, partitions: int, consumers: int) -> dict[str, Sequence[Any]]:
    """Return the names from these indices on; names of JSON, as the page has them."""
    return {"partitions": list(table.partitions)[partitions:], "consumers": list(table.consumers)[consumers:]}
