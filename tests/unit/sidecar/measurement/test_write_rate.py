"""From readings to write rates: known and unknown values, and the backlog."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.record_sizes import RecordSizes, SampledBatch
from trimtab.sidecar.measurement.write_rate import (
    CounterSample,
    OffsetReadings,
    SlidingWindow,
    WriteRateMeter,
    compute_backlog,
)
from trimtab.sidecar.model.catch_up_policy import CatchUpPolicy, add_required_rates
from trimtab.sidecar.model.record_weights import RecordWeights

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def window(*readings: tuple[float, int | None], length: float = 30.0, least: float = 4.0) -> SlidingWindow:
    filled = SlidingWindow(length, least)
    for time, value in readings:
        filled = filled.add_sample(CounterSample(time, {} if value is None else {A: value}))
    return filled


@pytest.mark.parametrize(
    ("readings", "rate"),
    [
        ([(0, 100), (5, 150), (10, 300)], 20.0),
        ([(0, 100), (10, 100)], 0.0),
        ([], None),
        ([(0, 100)], None),
        ([(0, 100), (3, 900)], None),  # too short
        ([(0, 100), (5, None), (10, 300)], None),  # broken just now
        ([(0, 100), (5, 200), (10, None)], None),  # no answer now
        ([(0, 0), (1, None), (2, 200), (4, 300), (6, 400)], 50.0),  # the unbroken run
        ([(0, 900), (5, 1000), (10, 50)], None),  # shrank just now
        ([(0, 900), (2, 10), (4, 20), (6, 30)], 5.0),  # shrank, and runs again
    ],
)
def test_rate(readings: list[tuple[float, int | None]], rate: float | None) -> None:
    """A rate needs an unbroken, growing and long enough run; else it is unknown, never 0."""
    assert window(*readings).compute_rates([A, B]) == {A: rate, B: None}


def test_window_slides() -> None:
    """Readings older than the window are dropped."""
    readings = [(t, 1000 if t < 40 else 1000 + 100 * (t - 40)) for t in range(0, 80, 2)]
    assert window(*readings).compute_rates([A])[A] == 100.0


def test_a_slow_iteration_keeps_rates_known() -> None:
    """With readings further apart than the window, the rate is over the time between them."""
    assert window((0, 0), (10, 900), (50, 1300)).compute_rates([A])[A] == 10.0
    assert window((10, 900), (50, 1300), (51, 1310)).compute_rates([A])[A] == 10.0
    assert window((10, 900), (50, 1300), (51, 1310), (54, 1460)).compute_rates([A])[A] == 40.0


def test_a_window_with_spacing_stays_small() -> None:
    """Of readings each second, every tenth and the newest are kept, with the same rate."""
    filled = SlidingWindow(120, 60, min_spacing_s=10)
    for second in range(300):
        filled = filled.add_sample(CounterSample(float(second), {A: 7 * second}))
        assert filled.samples[-1].time == second
    assert len(filled.samples) <= 14
    assert filled.compute_rates([A]) == {A: 7.0}


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=40), st.integers(1, 50))
def test_rate_of_a_growing_log(growth: list[int], step: int) -> None:
    """The rate of a growing log lies between its slowest and its fastest step."""
    total, filled = 0, SlidingWindow(1e9, 0.5)
    for tick, more in enumerate(growth):
        total += more
        filled = filled.add_sample(CounterSample(tick * step, {A: total}))
    rate = filled.compute_rates([A])[A]
    assert rate is not None
    assert min(growth[1:]) / step <= rate + 1e-9
    assert rate <= max(growth[1:]) / step + 1e-9


def sized(size: int) -> RecordSizes:
    return RecordSizes().add_samples({A: [SampledBatch(1, size, 1, size)]})


def readings(**given: object) -> OffsetReadings:
    values: dict[str, object] = {
        "partitions": (A,),
        "end_offsets": {A: 100},
        "beginning_offsets": {A: 40},
        "committed_offsets": {A: 70},
        "reset_to_earliest": True,
    }
    return OffsetReadings(**{**values, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "records"),
    [
        ({}, 30),
        ({"committed_offsets": {}}, 60),
        ({"committed_offsets": {}, "reset_to_earliest": False}, 0),
        ({"committed_offsets": {}, "beginning_offsets": {}}, None),
        ({"committed_offsets": None}, None),
        ({"end_offsets": {}}, None),
        ({"committed_offsets": {A: 10}}, 60),  # retention deleted what was not read
        ({"committed_offsets": {A: 120}}, 0),  # the end was read before the commit
    ],
)
def test_backlog(given: dict[str, object], records: int | None) -> None:
    """The backlog is end - committed; without a commit it follows auto.offset.reset."""
    assert compute_backlog(readings(**given), A) == records


def test_offsets_need_a_size_only_for_records() -> None:
    """0 records are 0 bytes; records of unknown size are unknown bytes."""
    meter = WriteRateMeter(SlidingWindow(30, 1))
    still = meter.add_readings(0, readings()).add_readings(2, readings())
    assert still.measure_partitions(readings(committed_offsets={A: 100}))[A] == PartitionLoad(0.0, 0.0, 0, 0)
    moving = still.add_readings(4, readings(end_offsets={A: 200}))
    measured = moving.measure_partitions(readings(end_offsets={A: 200}))[A]
    assert (measured.bytes_per_s, measured.records_per_s) == (None, 25.0)
    assert (measured.backlog_bytes, measured.backlog_records) == (None, 130)


def test_log_dirs_measure_bytes() -> None:
    """With log-dirs, bytes/s are offsets x bytes on disk of an offset."""
    meter = WriteRateMeter(SlidingWindow(30, 1), record_sizes=RecordSizes(on_disk=True))
    first, last = readings(log_sizes={A: 6000}), readings(end_offsets={A: 120}, log_sizes={A: 8000})
    measured = meter.add_readings(0, first).add_readings(10, last).measure_partitions(last)[A]
    assert (measured.bytes_per_s, measured.records_per_s) == (200.0, 2.0)
    assert measured.backlog_bytes == 50 * 100.0


def test_a_record_weighs_its_cost_beyond_its_bytes() -> None:
    """Write rate, backlog and consumption count the cost of each record; records stay records."""
    meter, last = metered(*((100 * n, 60 * n) for n in range(4)))
    costed = replace(meter, weights=RecordWeights(record=150.0))
    assert costed.measure_partitions(last)[A] == PartitionLoad(1_600.0, 10.0, 120 * 160.0, 120)
    assert costed.compute_consumption_rates(last) == {A: 6 * 160.0}
    unsampled = replace(costed, record_sizes=RecordSizes()).measure_partitions(last)[A]
    assert (unsampled.bytes_per_s, unsampled.backlog_bytes) == (None, None)


def test_log_dirs_add_the_cost_of_records() -> None:
    """The growth of the files plus the cost of each record; unknown while the records are."""
    sizes = RecordSizes(on_disk=True)
    meter = WriteRateMeter(SlidingWindow(30, 1), record_sizes=sizes, weights=RecordWeights(record=150.0))
    first, last = readings(log_sizes={A: 6000}), readings(end_offsets={A: 120}, log_sizes={A: 8000})
    measured = meter.add_readings(0, first).add_readings(10, last).measure_partitions(last)[A]
    assert (measured.bytes_per_s, measured.records_per_s) == (200.0 + 2 * 150, 2.0)
    assert measured.backlog_bytes == 50 * 250.0
    blind = meter.add_readings(0, replace(first, end_offsets={})).add_readings(10, last)
    assert blind.measure_partitions(last)[A].bytes_per_s is None


@pytest.mark.parametrize(
    ("load", "rate"),
    [
        (PartitionLoad(None, None, 1e6, 10), None),
        (PartitionLoad(100.0, 1.0, None, None), 100.0),
        (PartitionLoad(100.0, 1.0, 1_000.0, 10), 100.0),  # 10 s worth: on its way
        (PartitionLoad(100.0, 1.0, 2_000.0, 20), 110.0),
        (PartitionLoad(100.0, 1.0, 1e9, 10), 500.0),  # one consumer is all it can get
        (PartitionLoad(800.0, 1.0, 1e9, 10), 800.0),  # larger than a consumer already
    ],
)
def test_required_rate(load: PartitionLoad, rate: float | None) -> None:
    """The required rate is the write rate plus the overdue backlog / catch-up time."""
    found = add_required_rates(
        {A: load}, CatchUpPolicy(catch_up_time=100, backlog_grace=10), usable_capacity=500.0
    )[A]
    assert found.required_bytes_per_s == rate
    assert found.weight == rate


def look(end: int, committed: int | None) -> OffsetReadings:
    offsets = {} if committed is None else {A: committed}
    return OffsetReadings((A,), end_offsets={A: end}, beginning_offsets={A: 0}, committed_offsets=offsets)


def metered(*looks: tuple[int, int | None]) -> tuple[WriteRateMeter, OffsetReadings]:
    """Return a meter of 10-byte records after readings ten seconds apart: end and commit."""
    meter = WriteRateMeter(SlidingWindow(30, 10), commit_window=SlidingWindow(60, 30), record_sizes=sized(10))
    for second, seen in enumerate(looks):
        meter = meter.add_readings(10.0 * second, look(*seen))
    return meter, look(*looks[-1])


def test_expired_offsets_make_the_backlog_unknown() -> None:
    """A commit that vanished makes the backlog unknown until the next one."""
    known = [(10_000 + 10 * n, 9_990 + 10 * n) for n in range(4)]
    meter, last = metered(*known)
    assert meter.measure_partitions(last)[A].backlog_records == 10
    meter, last = metered(*known, (10_040, None))
    assert meter.measure_partitions(last)[A].backlog_records is None
    assert meter.measure_partitions(last)[A].bytes_per_s == 10.0
    meter, last = metered(*known, (10_040, None), (10_040, 10_039))
    assert meter.measure_partitions(last)[A].backlog_records == 1


def test_partitions_of_deleted_topics_are_forgotten() -> None:
    """Neither without a reading of any partition, as in an outage, nor while a commit of them is left."""
    meter, _ = metered((500, 400))
    seen = replace(look(500, 400), partitions=())
    gone = replace(look(500, None), partitions=(TopicPartition("other", 0),))
    for readings, kept in ((seen, {A}), (replace(gone, committed_offsets={A: 4}), {A}), (gone, set())):
        meter = meter.add_readings(20.0, readings)
        assert set(meter.ever_committed) == set(meter.record_sizes.samples) == kept


def test_a_new_group_has_the_whole_log_to_read() -> None:
    """Without any commit so far, "earliest" makes the whole log the backlog."""
    meter, last = metered((500, None), (500, None))
    assert meter.measure_partitions(last)[A].backlog_records == 500


def test_a_recreated_topic_has_no_backlog() -> None:
    """A commit beyond the end of the log is no backlog."""
    meter, last = metered((10_000, 9_000), (40, 9_000))
    assert meter.measure_partitions(last)[A].backlog_records == 0


def test_rewound_offsets_are_a_backlog() -> None:
    """Those records will be read again, whatever rewound the offsets."""
    meter, last = metered((10_000, 9_990), (10_000, 0))
    assert meter.measure_partitions(last)[A].backlog_records == 10_000
    assert meter.compute_consumption_rates(last) == {}


def test_consumption_is_the_growth_of_the_commits() -> None:
    """A window with several commits gives the rate."""
    meter, last = metered(*((9_000, done) for done in (0, 0, 300, 300, 600, 600)))
    assert meter.compute_consumption_rates(last) == {A: pytest.approx(120.0)}
    assert metered((9_000, 0), (9_000, 100))[0].compute_consumption_rates(last) == {}
    assert replace(meter, commit_window=None).compute_consumption_rates(last) == {}
