"""The stream file of a recording.

Rules for the content of a tick:

1. A partition with an unknown write rate keeps its last known one, since a simulation treats a
   partition without a rate as deleted. Before the first known rate it is absent.
2. A partition that is no longer reported is absent from then on.
3. Lost ticks (no broker answered) repeat the previous one, so that ticks stay equally spaced.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trimtab.common.errors import SettingError

if TYPE_CHECKING:
    from trimtab.assignor.model import TopicPartition

WriteRates: TypeAlias = "Mapping[TopicPartition, float | None]"  # bytes/s; None where unknown
STREAM_TRAILER: Final = b"\n]\n"


class StreamFile:
    """A new stream file, with ticks `window` seconds apart.

    Raises SettingError if the file exists or cannot be written.
    """

    def __init__(self, path: Path, window: float) -> None:
        self.path = path
        self.tick_count = 0
        self.partitions: set[TopicPartition] = set()  # ever recorded
        self.total_rate = 0.0  # bytes/s, summed over all ticks
        self.filled_count = 0  # write rates taken from an earlier tick
        self._window = window
        self._last_known_rates: dict[TopicPartition, float] = {}
        self._last_tick_rates: Mapping[TopicPartition, float] = {}
        self._last_tick_at = 0.0  # seconds, of the last tick
        self._file: Any = _create_stream_file(path)

    def append_tick(self, at: float, write_rates: WriteRates) -> int:
        """Append a tick as of `at` seconds and flush it; skip it before the first known rate.

        Returns the number of lost ticks filled in before it.
        """
        filled = {p: self._last_known_rates.get(p) if r is None else r for p, r in write_rates.items()}
        rates = {p: rate for p, rate in filled.items() if rate is not None}
        if not self.tick_count and not rates:
            return 0  # the next tick would make every partition a new one
        lost = max(0, round((at - self._last_tick_at) / self._window) - 1) if self.tick_count else 0
        for _ in range(lost):
            self._write_tick(self._last_tick_rates)
        self.filled_count += sum(write_rates[p] is None for p in rates) + lost * len(self._last_tick_rates)
        self._last_known_rates |= rates
        self._last_tick_rates, self._last_tick_at = rates, at
        self._write_tick(rates)
        return lost

    def close(self) -> None:
        """Close the file; without a tick it is removed."""
        self._file.close()
        if not self.tick_count:
            self.path.unlink()

    def _write_tick(self, rates: "Mapping[TopicPartition, float]") -> None:
        tick: dict[str, dict[str, float]] = {}
        for (topic, number), rate in sorted(rates.items()):
            tick.setdefault(topic, {})[str(number)] = round(rate, 3)
        if self.tick_count:  # the file is valid JSON after every tick: a recording may be killed
            self._file.seek(-len(STREAM_TRAILER), os.SEEK_END)
        begin = b",\n" if self.tick_count else b"[\n"
        self._file.write(begin + json.dumps(tick, separators=(",", ":")).encode() + STREAM_TRAILER)
        self._file.flush()
        self.tick_count += 1
        self.partitions |= set(rates)
        self.total_rate += sum(rates.values())


def check_is_new(path: Path) -> None:
    """Raise SettingError if the file exists: a recording is hours of work."""
    if path.exists():
        raise SettingError(f"--out: {path} is there already; remove it or choose another name")


def _create_stream_file(path: Path) -> Any:
    check_is_new(path)
    try:
        return path.open("xb")  # exclusive: another process may have created it since
    except OSError as error:
        raise SettingError(f"--out: {path} cannot be written: {error.strerror}") from error
