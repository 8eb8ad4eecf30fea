"""The stream file that a recording grows; a whole stream after every tick.

Rules of what a tick holds:

1. A partition whose speed is unknown has its last known one: it is still there, and a simulation
   takes a partition without a speed for one that is gone. Before any was known it is not there yet.
2. A partition that is not looked at any more is gone, and away from then on.
3. Ticks that were lost (nobody answered) repeat the one before them, so that ticks stay as far
   apart as they were.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trimtab.common.errors import SettingError

if TYPE_CHECKING:
    from trimtab.assignor.model import TopicPartition

WriteRates: TypeAlias = "Mapping[TopicPartition, float | None]"
"""Bytes/s of what is there; None where unknown."""

STREAM_TRAILER: Final = b"\n]\n"


class StreamFile:
    """A file that does not exist yet. Raises SettingError where it does, or cannot be written.

    `window` seconds is how far ticks are apart. `partitions` are all that were ever recorded,
    `total_rate` is bytes/s over all ticks, `filled_count` counts the speeds taken from an earlier tick.
    """

    def __init__(self, path: Path, window: float) -> None:
        self.path = path
        self.tick_count = 0
        self.partitions: set[TopicPartition] = set()
        self.total_rate = 0.0
        self.filled_count = 0
        self._window = window
        self._last_known_rates: dict[TopicPartition, float] = {}
        self._last_tick_rates: Mapping[TopicPartition, float] = {}
        self._last_tick_at = 0.0  # seconds, of the last tick
        self._file: Any = _create_stream_file(path)

    def append_tick(self, at: float, write_rates: WriteRates) -> int:
        """Append a tick as of `at` seconds and make it safe; nothing while no speed was ever known.

        Returns how many lost ones were filled in before it.
        """
        rates = {
            p: self._last_known_rates.get(p) if s is None else s for p, s in write_rates.items()
        }
        found = {p: rate for p, rate in rates.items() if rate is not None}
        if not self.tick_count and not found:
            return 0
        lost = max(0, round((at - self._last_tick_at) / self._window) - 1) if self.tick_count else 0
        for _ in range(lost):
            self._write_tick(self._last_tick_rates)
        self.filled_count += sum(write_rates[p] is None for p in found) + lost * len(
            self._last_tick_rates
        )
        self._last_known_rates |= found
        self._last_tick_rates, self._last_tick_at = found, at
        self._write_tick(found)
        return lost

    def close(self) -> None:
        """Close it; a file without a tick is removed."""
        self._file.close()
        if not self.tick_count:
            self.path.unlink()

    def _write_tick(self, rates: "Mapping[TopicPartition, float]") -> None:
        tick: dict[str, dict[str, float]] = {}
        for (topic, number), rate in sorted(rates.items()):
            tick.setdefault(topic, {})[str(number)] = round(rate, 3)
        if self.tick_count:
            self._file.seek(-len(STREAM_TRAILER), os.SEEK_END)
        begin = b",\n" if self.tick_count else b"[\n"
        self._file.write(begin + json.dumps(tick, separators=(",", ":")).encode() + STREAM_TRAILER)
        self._file.flush()
        self.tick_count += 1
        self.partitions |= set(rates)
        self.total_rate += sum(rates.values())


def _create_stream_file(path: Path) -> Any:
    try:
        return path.open("xb")
    except FileExistsError:
        raise SettingError(
            f"--out: {path} is there already; remove it or choose another name"
        ) from None
    except OSError as error:
        raise SettingError(f"--out: {path} cannot be written: {error.strerror}") from error
