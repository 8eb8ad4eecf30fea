"""A group's history in the decision topic: samples to write, and samples of what was written. Pure.

1. A restored decision has no loads and owners of its own: it shows those recorded last before it.
2. A restored sample shows the decision in force at its time; that decision's moves are its own.
"""

from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.decision.decision import DecisionMetrics
from trimtab.sidecar.records.decision_record import DecisionRecord, RecordTerms
from trimtab.sidecar.records.sample_record import SampleRecord, compute_slot
from trimtab.sidecar.web.sample import (
    NO_OWNER,
    UNKNOWN_LOAD,
    HistorySample,
    NameTable,
    build_decision_fields,
    dump_json,
    is_known,
)

Arrays = tuple[bytes, bytes, bytes]  # loads, owners, rates
NO_ARRAYS: Arrays = (b"", b"", b"")


def build_sample_record(
    terms: RecordTerms, table: NameTable, sample: HistorySample, metrics: DecisionMetrics, interval: float
) -> SampleRecord:
    """Return the record of a sample with loads, without names that mean nothing at its time."""
    owners = _read_owners(sample.owners)
    holders = set(owners)
    there = [
        (partition, n)
        for partition, n in table.partitions.items()
        if n < len(owners) and (sample.loads[n] != UNKNOWN_LOAD or owners[n] != NO_OWNER)
    ]
    there.sort()
    topics: dict[str, list[int]] = {}
    for partition, _ in there:
        topics.setdefault(partition.topic, []).append(partition.partition)
    places = [n for _, n in there]
    consumers = [name for name, n in table.consumers.items() if n in holders]
    index = {table.consumers[name]: number for number, name in enumerate(consumers)} | {NO_OWNER: NO_OWNER}
    return SampleRecord(
        group=terms.group,
        slot=compute_slot(sample.time, interval),
        time=sample.time,
        capacity=terms.capacity,
        metrics=metrics,
        topics={topic: tuple(numbers) for topic, numbers in topics.items()},
        consumers=tuple(consumers),
        loads=_encode(bytes(sample.loads[n] for n in places)),
        owners=_encode(array("H", (index[owners[n]] for n in places)).tobytes()),
        rates=_encode(bytes(sample.rates[n] for n in places)),
    )


def restore_samples(
    table: NameTable,
    decisions: Iterable[DecisionRecord],
    recorded: Iterable[SampleRecord],
    span: tuple[float, float],
    capacity: float,
) -> list[HistorySample]:
    """Return the samples from the first time of `span` until before the second; their names are added."""
    begin, end = span
    everything: list[DecisionRecord | SampleRecord] = [*decisions, *recorded]
    records = sorted((one for one in everything if one.time < end), key=lambda one: one.time)
    samples: list[HistorySample] = []
    decision: DecisionRecord | None = None
    arrays = NO_ARRAYS
    for number, record in enumerate(records):
        if isinstance(record, SampleRecord):
            if decision is None or record.time < begin:
                continue
            arrays = _restore_arrays(table, record)
            rates = arrays[2] if record.capacity == capacity else b""  # else they mean other bytes/s
            text = dump_json(_build_sample_fields(decision, record))
            samples.append(HistorySample(0, record.time, text, arrays[0], arrays[1], rates))
            continue
        decision = record
        if record.time >= begin:
            until = min(record.until, _find_next_time(records, number, end))
            fields = build_decision_fields(replace(record, until=until))
            samples.append(HistorySample(0, record.time, dump_json(fields), arrays[0], arrays[1]))
    return samples


def _build_sample_fields(decision: DecisionRecord, record: SampleRecord) -> dict[str, object]:
    metrics = {name: value for name, value in asdict(record.metrics).items() if is_known(value)}
    own = {"t": record.time, "until": record.time, "metrics": metrics}
    return {**build_decision_fields(decision), **own, "moves": [], "moved": 0, "moved_rate": 0.0}


def _find_next_time(records: Sequence[DecisionRecord | SampleRecord], number: int, end: float) -> float:
    return records[number + 1].time if number + 1 < len(records) else end


def _restore_arrays(table: NameTable, record: SampleRecord) -> Arrays:
    """Return the arrays in the table's order; empty ones if the record's do not fit its names."""
    partitions = [TopicPartition(topic, n) for topic, numbers in record.topics.items() for n in numbers]
    loads, raw_owners, rates = (_decode(text) for text in (record.loads, record.owners, record.rates))
    if not len(partitions) == len(loads) == len(rates) == len(raw_owners) // 2:
        return NO_ARRAYS
    if len(table.consumers.keys() | set(record.consumers)) > NO_OWNER:  # an owner has two bytes
        return NO_ARRAYS
    table.add_names(partitions, record.consumers)
    names = [table.consumers[name] for name in record.consumers]
    size = len(table.partitions)
    all_loads, all_rates = bytearray([UNKNOWN_LOAD]) * size, bytearray([UNKNOWN_LOAD - 1]) * size
    all_owners = array("H", [NO_OWNER]) * size
    for n, (partition, owner) in enumerate(zip(partitions, _read_owners(raw_owners), strict=False)):
        place = table.partitions[partition]
        all_loads[place], all_rates[place] = loads[n], rates[n]
        all_owners[place] = names[owner] if owner < len(names) else NO_OWNER
    return bytes(all_loads), all_owners.tobytes(), bytes(all_rates)


def _read_owners(owners: bytes) -> "array[int]":
    read = array("H")
    read.frombytes(owners[: len(owners) // 2 * 2])
    return read


def _encode(part: bytes) -> str:
    return b64encode(part).decode()


def _decode(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""
