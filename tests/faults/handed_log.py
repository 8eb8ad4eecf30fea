"""Log of what a consumer was handed, one line per event; a process writes it, the checker reads it.

"start TOPIC PARTITION TENURE TIME COMMITTED OFFSET" (- for none) and "poll TOPIC PARTITION TENURE TIME
OFFSET:NUMBER…"; times are seconds of the machine's monotonic clock.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from history.events import Poll, Start


def format_start(topic: str, start: Start) -> str:
    """Return a start's line."""
    known = ("-" if offset is None else str(offset) for offset in (start.committed, start.offset))
    return f"start {topic} {start.partition} {start.epoch} {start.time:.6f} {' '.join(known)}\n"


def format_poll(topic: str, poll: Poll) -> str:
    """Return a poll's line."""
    records = " ".join(f"{offset}:{number}" for offset, number in poll.records)
    return f"poll {topic} {poll.partition} {poll.epoch} {poll.time:.6f} {records}\n"


def read_logs(folder: Path, topic: str) -> tuple[list[Start], list[Poll]]:
    """Return the starts and polls of a topic in all processes' logs."""
    events = [e for file in sorted(folder.iterdir()) for e in _read(file.name, file.read_text(), topic)]
    starts = [event for event in events if isinstance(event, Start)]
    return starts, [event for event in events if isinstance(event, Poll)]


def _read(process: str, text: str, topic: str) -> Iterator[Start | Poll]:
    for line in text.split("\n")[:-1]:  # a killed process may leave half a line
        kind, name, partition, tenure, time, *rest = line.split()
        if name != topic:
            continue
        if kind == "start":
            committed, offset = (None if known == "-" else int(known) for known in rest)
            yield Start(process, int(tenure), partition, float(time), committed, offset)
        else:
            yield Poll(process, int(tenure), partition, float(time), tuple(_records(rest)))


def _records(words: Iterable[str]) -> Iterator[tuple[int, int]]:
    for word in words:
        offset, _, number = word.partition(":")
        yield int(offset), int(number)
