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

Speeds: TypeAlias = "Mapping[TopicPartition, float | None]"
"""Bytes/s of what is there; None where unknown."""

END: Final = b"\n]\n"


class StreamFile:
    """A file that does not exist yet. Raises SettingError where it does, or cannot be written.

    `window` seconds is how far ticks are apart. `partitions` are all that were ever recorded,
    `total` is bytes/s over all ticks, `filled` counts the speeds taken from an earlier tick.
    """

    def __init__(self, path: Path, window: float) -> None:
        self.path = path
        self.ticks = 0
        self.partitions: set[TopicPartition] = set()
        self.total = 0.0
        self.filled = 0
        self._window = window
        self._known: dict[TopicPartition, float] = {}
        self._newest: Mapping[TopicPartition, float] = {}
        self._at = 0.0  # seconds, of the last tick
        self._file: Any = _begun(path)

    def add(self, at: float, speeds: Speeds) -> int:
        """Append a tick as of `at` seconds and make it safe; nothing while no speed was ever known.

        Returns how many lost ones were filled in before it.
        """
        rates = {p: self._known.get(p) if s is None else s for p, s in speeds.items()}
        found = {p: rate for p, rate in rates.items() if rate is not None}
        if not self.ticks and not found:
            return 0
        lost = max(0, round((at - self._at) / self._window) - 1) if self.ticks else 0
        for _ in range(lost):
            self._write(self._newest)
        self.filled += sum(speeds[p] is None for p in found) + lost * len(self._newest)
        self._known |= found
        self._newest, self._at = found, at
        self._write(found)
        return lost

    def close(self) -> None:
        """Close it; a file without a tick is removed."""
        self._file.close()
        if not self.ticks:
            self.path.unlink()

    def _write(self, rates: "Mapping[TopicPartition, float]") -> None:
        tick: dict[str, dict[str, float]] = {}
        for (topic, number), rate in sorted(rates.items()):
            tick.setdefault(topic, {})[str(number)] = round(rate, 3)
        if self.ticks:
            self._file.seek(-len(END), os.SEEK_END)
        begin = b",\n" if self.ticks else b"[\n"
        self._file.write(begin + json.dumps(tick, separators=(",", ":")).encode() + END)
        self._file.flush()
        self.ticks += 1
        self.partitions |= set(rates)
        self.total += sum(rates.values())


def _begun(path: Path) -> Any:
    try:
        return path.open("xb")
    except FileExistsError:
        raise SettingError(
            f"--out: {path} is there already; remove it or choose another name"
        ) from None
    except OSError as error:
        raise SettingError(f"--out: {path} cannot be written: {error.strerror}") from error
