"""Runs an application's own handler through seeded histories of a consumer group, with faults.

    def test_no_payment_is_lost(simulated_group):
        report = simulated_group(handle_payment, histories=100)
        report.check_at_least_once()

The SDK's consumers run on a simulated broker, network and clock, in one thread: 100 histories take
seconds, and a seed always gives the same history. `time.sleep` in a handler takes simulated time, in
which its process may be killed or lose its partitions.
"""

import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from unittest import mock

from trimtab.common.units import format_count
from trimtab.testing.errors import HandlerHistoryError
from trimtab.testing.simulation import green
from trimtab.testing.simulation.group_history import GroupHistory, GroupResult, MakeRecord, Worker
from trimtab.testing.simulation.host import ObservedConsumer
from trimtab.testing.simulation.seams import CONSUMER_SEAMS, replace_names

Handler: TypeAlias = Callable[[Any], object]
"""Handles one record, which has the methods of confluent-kafka's Message."""

CommitPolicy: TypeAlias = Literal["batch", "record", "auto", "before"]
"""When to commit: after a batch, after a record, by `enable.auto.commit`, or before the batch is handled."""

HANDLER_SECONDS: Final = (0.0, 0.08)  # a handler's time, drawn for each record
CONSUME_COUNT: Final = 20
CONSUME_TIMEOUT_S: Final = 0.2
MAX_LISTED_KINDS: Final = 10


class RecordId(NamedTuple):
    """Coordinates of a record."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of_message(cls, message: Any) -> "RecordId":
        """Return the coordinates of a message."""
        return cls(message.topic(), message.partition(), message.offset())


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """A record that was not handled exactly once; `handled` has the worker and the time of each time."""

    seed: int
    record: RecordId
    key: bytes | None
    value: bytes
    handled: tuple[tuple[str, float], ...]

    @property
    def kind(self) -> str:
        """What equal findings have in common."""
        return "handled more than once" if self.handled else "never handled"

    def __str__(self) -> str:
        place = f"{self.record.topic}-{self.record.partition} offset {self.record.offset}"
        times = ", ".join(f"{worker} at {seconds:.2f} s" for worker, seconds in self.handled)
        count = f"handled {len(self.handled)} times: {times}" if self.handled else "never handled"
        return f"seed {self.seed}: {place} (key {self.key!r}, value {self.value!r}) was {count}"


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Result of all histories. Records are sorted by seed and place; `trace` is that of a single history."""

    histories: int
    first_seed: int
    records: int
    rebalances: int
    faults: int
    repeated: tuple[RecordOutcome, ...]
    never: tuple[RecordOutcome, ...]
    stuck: tuple[str, ...] = ()  # seeds whose group did not come to rest, and why
    trace: tuple[str, ...] = ()

    def check_exactly_once(self) -> None:
        """Raise HandlerHistoryError if a record was handled twice or never, or if a group got stuck."""
        self._check(self.repeated, self.never)

    def check_at_least_once(self) -> None:
        """Raise HandlerHistoryError if a record was never handled, or if a group got stuck."""
        self._check(self.never)

    def check_at_most_once(self) -> None:
        """Raise HandlerHistoryError if a record was handled twice, or if a group got stuck."""
        self._check(self.repeated)

    def _check(self, *wrong: tuple[RecordOutcome, ...]) -> None:
        # errors that differ in numbers only are the same one, of other workers and records
        kinds = [(re.sub(r"\d+", "", line), line) for line in self.stuck]
        kinds += [(outcome.kind, str(outcome)) for outcomes in wrong for outcome in outcomes]
        if kinds:
            raise HandlerHistoryError(_explain(kinds, self), [line for _, line in kinds])


@dataclass(slots=True)
class _Ledger:
    """What the workers of one history handled."""

    times: dict[RecordId, list[tuple[str, float]]] = field(
        default_factory=lambda: defaultdict(list[tuple[str, float]])
    )

    def add(self, message: Any) -> None:
        process = green.process()
        self.times[RecordId.of_message(message)].append((process.name, process.hub.now))

    def count(self) -> Counter[RecordId]:
        """Return how often each record was handled."""
        return Counter({record: len(times) for record, times in self.times.items()})


def make_numbered_record(number: int, rng: random.Random) -> tuple[bytes | None, bytes]:
    """Return key and value of the records that a group reads by default: ten keys, numbers as values."""
    return b"key-%d" % rng.randrange(10), b"%d" % number


def simulate_group(  # noqa: PLR0913 - one call with keywords is the interface
    handler: Callable[..., Any] | None = None,
    *,
    histories: int = 100,
    seed: int = 1,
    store: Callable[[], Any] | None = None,
    effects: Callable[[Any], Iterable[RecordId]] | None = None,
    worker: Callable[..., Any] | None = None,
    commit: CommitPolicy = "batch",
    make_record: MakeRecord = make_numbered_record,
    config: dict[str, Any] | None = None,
) -> GroupReport:
    """Run a handler through histories of the seeds from `seed` on; return what was handled twice or never.

    Give `handler(message)`, or `worker(consumer, stop)` for a loop of your own. With `store`, which is
    called once for each history and makes what outlives a worker (a database), both are called once for
    each worker with the store, and return handler or loop. A record is handled when the handler
    returns; with `effects(store)` instead as often as its RecordId is among the effects, which a loop
    needs. `make_record(number, rng)` returns key and value; `config` has further consumer settings.

    Raises TypeError for arguments that do not fit together.
    """
    _check_arguments(handler, worker, store, effects)
    results: list[tuple[GroupResult, list[RecordOutcome]]] = []
    with _simulated():
        for one in range(seed, seed + histories):
            ledger, kept = _Ledger(), store() if store else None
            run = _build_worker(handler, worker, commit, ledger, kept, has_store=bool(store))
            own = {**(config or {}), **({"enable.auto.commit": True} if commit == "auto" else {})}
            result = GroupHistory(one, run, make_record, own, tracing=histories == 1).run()
            counts = Counter(effects(kept)) if effects else ledger.count()
            results.append((result, list(_list_outcomes(result, ledger, counts))))
    return _summarize(results, seed)


def _check_arguments(handler: object, worker: object, store: object, effects: object) -> None:
    if (handler is None) == (worker is None):
        raise TypeError("give either handler or worker")
    if effects is not None and store is None:
        raise TypeError("effects(store) needs store, which makes what outlives a worker")
    if worker is not None and effects is None:
        raise TypeError("a worker needs store and effects: only your store knows what it handled")


def _build_worker(
    handler: Callable[..., Any] | None,
    worker: Callable[..., Any] | None,
    commit: CommitPolicy,
    ledger: _Ledger,
    store: object,
    *,
    has_store: bool,
) -> Worker:
    """Return the loop of one process."""

    def run(consumer: ObservedConsumer, stop: green.Event) -> None:
        if worker is not None:
            worker(store)(consumer, stop)
            return
        assert handler is not None
        handle: Handler = handler(store) if has_store else handler
        _read_until(consumer, stop, handle, commit, ledger)

    return run


def _read_until(
    consumer: ObservedConsumer, stop: green.Event, handle: Handler, commit: CommitPolicy, ledger: _Ledger
) -> None:
    process = green.process()
    while not stop.is_set():
        messages = [m for m in consumer.consume(CONSUME_COUNT, CONSUME_TIMEOUT_S) if m.error() is None]
        if messages and commit == "before":
            consumer.commit(asynchronous=False)
        for message in messages:
            process.hub.sleep(process.hub.rng.uniform(*HANDLER_SECONDS))
            handle(message)
            ledger.add(message)
            if commit == "record":
                consumer.commit(message=message, asynchronous=False)
        if messages and commit == "batch":
            consumer.commit(asynchronous=False)


def _list_outcomes(
    result: GroupResult, ledger: _Ledger, counts: Counter[RecordId]
) -> Generator[RecordOutcome]:
    ended_early = result.unread or result.failure  # which is told, and why records were not handled
    for partition, records in sorted(result.log.records.items()):
        for offset, value in records.items():
            record = RecordId(*partition, offset)
            if counts[record] != 1 and (counts[record] or not ended_early):
                key = result.log.keys.get(partition, {}).get(offset)
                times = tuple(ledger.times.get(record, ()))
                if len(times) != counts[record]:  # a loop of the application's own: no time is known
                    times = (("a worker", result.seconds),) * counts[record]
                yield RecordOutcome(result.seed, record, key, value, times)


def _summarize(results: list[tuple[GroupResult, list[RecordOutcome]]], seed: int) -> GroupReport:
    outcomes = [outcome for _, found in results for outcome in found]
    stuck = [
        f"seed {r.seed}: {r.failure or 'the group does not read on: ' + '; '.join(r.unread)}"
        for r, _ in results
        if r.failure or r.unread
    ]
    return GroupReport(
        histories=len(results),
        first_seed=seed,
        records=sum(r.log.count for r, _ in results),
        rebalances=sum(r.rebalances for r, _ in results),
        faults=sum(r.faults for r, _ in results),
        repeated=tuple(outcome for outcome in outcomes if outcome.handled),
        never=tuple(outcome for outcome in outcomes if not outcome.handled),
        stuck=tuple(stuck),
        trace=results[0][0].trace if len(results) == 1 else (),
    )


def _explain(findings: list[tuple[str, str]], report: GroupReport) -> str:
    """Return the first finding of each kind, and the number of the others."""
    kinds: dict[str, list[str]] = {}
    for kind, line in findings:
        kinds.setdefault(kind, []).append(line)
    listed = [line for of_kind in list(kinds.values())[:MAX_LISTED_KINDS] for line in _describe_kind(of_kind)]
    if len(kinds) > MAX_LISTED_KINDS:
        listed.append(f"  and {format_count(len(kinds) - MAX_LISTED_KINDS, 'more kind')}")
    seed = _get_seed(findings[0][1])
    again = (
        f"python -m pytest --simulated-seed {seed}, or simulate_group(..., histories=1, seed={seed}).trace"
    )
    histories = format_count(report.histories, "history", "histories")
    return "\n".join(
        [
            f"{format_count(len(findings), 'finding')} in {histories}:",
            *listed,
            f"  again, with its events: {again}",
            *(f"  | {line}" for line in report.trace),
        ]
    )


def _describe_kind(lines: list[str]) -> Generator[str]:
    first, *others = lines
    yield f"  {first}"
    if others:
        histories = format_count(len({_get_seed(line) for line in lines}), "history", "histories")
        yield f"    and {len(others)} more of this kind, all together in {histories}"


def _get_seed(line: str) -> str:
    return line.removeprefix("seed ").partition(":")[0]


@contextmanager
def _simulated() -> Generator[None]:
    real_sleep = time.sleep  # noqa: TID251 - an application's handler may call it

    def sleep(seconds: float) -> None:
        """Wait in simulated time inside a simulated process, else really."""
        if green.is_simulated():
            green.process().hub.sleep(seconds)
        else:
            real_sleep(seconds)

    with replace_names(CONSUMER_SEAMS), mock.patch.object(time, "sleep", sleep):
        yield
