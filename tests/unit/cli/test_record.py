"""Gaps in a recording: unknown write rates, deleted partitions, lost ticks."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from trimtab.assignor import SettingError, TopicPartition, WriteRateStream
from trimtab.assignor.analysis.simulation import SimulationSetup, parse_contender, run_simulation
from trimtab.assignor.analysis.streams.stream import parse_stream
from trimtab.cli.record.run import RecordedTick, record_ticks
from trimtab.cli.record.stream_file import StreamFile, WriteRates
from trimtab.common.errors import PeerError

WINDOW = 30.0


def rates(*values: float | None, first: int = 0) -> dict[TopicPartition, float | None]:
    return {TopicPartition("t", first + n): value for n, value in enumerate(values)}


def saved(path: Path, ticks: Sequence[tuple[float, WriteRates]]) -> tuple[StreamFile, list[int]]:
    """Record ticks; return the file and the number of lost ticks before each."""
    file = StreamFile(path, WINDOW)
    lost = [file.append_tick(at, tick) for at, tick in ticks]
    file.close()
    return file, lost


def rows(path: Path) -> list[dict[str, float]]:
    return [tick.get("t", {}) for tick in json.loads(path.read_text())]


def read(path: Path) -> WriteRateStream:
    return parse_stream(path.read_bytes())


def test_an_unknown_write_rate_is_the_last_known_one(tmp_path: Path) -> None:
    """A partition keeps its last known rate, and is absent before the first one."""
    out = tmp_path / "stream.json"
    ticks = [rates(5, None), rates(None, 7), rates(6, None), rates(None, None)]
    file, _ = saved(out, [(30.0 * n, tick) for n, tick in enumerate(ticks)])
    assert rows(out) == [{"0": 5}, {"0": 5, "1": 7}, {"0": 6, "1": 7}, {"0": 6, "1": 7}]
    assert file.filled_count == 4


def test_a_deleted_partition_is_absent(tmp_path: Path) -> None:
    """A partition that is no longer reported has no rate in the tick."""
    out = tmp_path / "stream.json"
    saved(out, [(0, rates(5, 7)), (30, rates(5))])
    assert rows(out) == [{"0": 5, "1": 7}, {"0": 5}]


def test_the_recording_begins_with_the_first_known_write_rate(tmp_path: Path) -> None:
    """A first tick without rates would make every partition new in the next one."""
    out = tmp_path / "stream.json"
    file, _ = saved(out, [(0, rates(None, None)), (30, rates(1, 2))])
    assert (file.tick_count, rows(out)) == (1, [{"0": 1, "1": 2}])


@pytest.mark.parametrize(("gap", "lost"), [(27, 0), (42, 0), (60, 1), (121, 3)])
def test_lost_ticks_are_filled_in(tmp_path: Path, gap: float, lost: int) -> None:
    """Between two ticks that are far apart the first is repeated."""
    out = tmp_path / "stream.json"
    _, filled = saved(out, [(100, rates(5)), (100 + gap, rates(9))])
    assert filled == [0, lost]
    assert rows(out) == [*([{"0": 5}] * (1 + lost)), {"0": 9}]


def test_gaps_make_nothing_late(tmp_path: Path) -> None:
    """A steady load with single unknown write rates has no late bytes."""
    out = tmp_path / "stream.json"
    ticks = [rates(*(None if t == 9 * (n + 1) else 20.0 for n in range(12))) for t in range(60)]
    saved(out, [(30.0 * n, tick) for n, tick in enumerate(ticks)])
    run = run_simulation(parse_contender("mbf"), read(out), SimulationSetup())
    assert (run.late.sum(), run.moved.sum()) == (0, 0)


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    """A recording overwrites no file."""
    out = tmp_path / "stream.json"
    out.write_text("mine")
    with pytest.raises(SettingError, match="is there already"):
        StreamFile(out, WINDOW)
    assert out.read_text() == "mine"


class Clock:
    """A clock that sleeping advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    wall = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, seconds: float) -> bool:
        self.sleep(seconds)
        return False


class Outage:
    """A tick source whose brokers are unreachable for a while."""

    window = WINDOW
    label = "given"

    def __init__(self, clock: Clock, away: tuple[float, float]) -> None:
        self._clock, self._away = clock, away
        self._next = WINDOW

    def poll_tick(self) -> RecordedTick | None:
        now = self._clock.now
        if self._away[0] <= now <= self._away[1]:
            raise PeerError("no answer")
        if now < self._next - 1e-6:
            return None
        self._next = now + WINDOW
        return RecordedTick(now, rates(now))


def test_an_outage_is_reported_and_filled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An outage does not end the recording; lost ticks are reported and filled."""
    clock, out = Clock(), tmp_path / "stream.json"
    file = StreamFile(out, WINDOW)
    record_ticks(Outage(clock, (85, 130)), file, 200, clock, clock.wait)
    file.close()
    assert [round(row["0"]) for row in rows(out)] == [30, 60, 60, 132, 162, 192]
    errors = capsys.readouterr().err
    assert "no answer; recording on" in errors
    assert "1 tick was lost and is recorded as before" in errors
