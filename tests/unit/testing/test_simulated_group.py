"""The simulated group finds what an application's handler does wrong, and shows it again."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from trimtab.testing import HandlerHistoryError, RecordId, simulate_group

HISTORIES = 12


class Database:
    """Store that outlives a worker; `rows` has the record of each insert."""

    def __init__(self) -> None:
        self.rows: list[RecordId] = []


def insert(database: Database) -> Callable[[Any], None]:
    """Return a handler that inserts blindly."""
    return lambda message: database.rows.append(RecordId.of_message(message))


def insert_once(database: Database) -> Callable[[Any], None]:
    """Return a handler whose insert is idempotent."""

    def handle(message: Any) -> None:
        if RecordId.of_message(message) not in database.rows:
            database.rows.append(RecordId.of_message(message))

    return handle


def insert_in_tens(database: Database) -> Callable[[Any], None]:
    """Return a handler that keeps records in memory although their offsets are committed."""
    buffer: list[RecordId] = []

    def handle(message: Any) -> None:
        buffer.append(RecordId.of_message(message))
        if len(buffer) == 10:
            database.rows += buffer
            buffer.clear()

    return handle


def list_rows(database: Database) -> list[RecordId]:
    return database.rows


def test_a_plain_handler_repeats_records_and_loses_none() -> None:
    """At-least-once: after a crash before the commit the next owner handles a batch again."""
    report = simulate_group(lambda _message: None, histories=HISTORIES)
    report.check_at_least_once()
    assert report.repeated
    assert report.records > 50 * HISTORIES
    assert report.rebalances > 2 * HISTORIES
    assert report.faults > HISTORIES
    with pytest.raises(HandlerHistoryError, match=r"seed \d+: simulated-\d offset \d+ .* handled 2 times"):
        report.check_exactly_once()


def test_a_seed_shows_the_same_again() -> None:
    """One history of a finding's seed has the same findings, and its events."""
    report = simulate_group(lambda _message: None, histories=HISTORIES)
    seed = report.repeated[0].seed
    again = simulate_group(lambda _message: None, histories=1, seed=seed)
    assert again.repeated == tuple(outcome for outcome in report.repeated if outcome.seed == seed)
    assert any("faults stop" in line for line in again.trace)
    with pytest.raises(HandlerHistoryError, match=f"pytest --simulated-seed {seed}"):
        again.check_exactly_once()


def test_an_idempotent_handler_has_its_effects_once() -> None:
    """Effects count, not calls: the store had each record once."""
    simulate_group(insert_once, store=Database, effects=list_rows, histories=HISTORIES).check_exactly_once()
    blind = simulate_group(insert, store=Database, effects=list_rows, histories=HISTORIES)
    assert blind.repeated


def test_a_buffer_that_dies_with_its_worker_loses_records() -> None:
    """Records in memory whose offsets are committed are never handled."""
    report = simulate_group(insert_in_tens, store=Database, effects=list_rows, histories=HISTORIES)
    with pytest.raises(HandlerHistoryError, match=r"was never handled"):
        report.check_at_least_once()


def test_commits_before_the_work_lose_records() -> None:
    """At most once: what is committed first is lost with a crash, and nothing is repeated."""
    report = simulate_group(lambda _message: time.sleep(0.2), commit="before", histories=HISTORIES)
    assert report.never
    with pytest.raises(HandlerHistoryError, match="never handled"):
        report.check_at_least_once()


@pytest.mark.parametrize("commit", ["record", "auto"])
def test_every_commit_policy_loses_nothing_but_before(commit: Any) -> None:
    """A commit after each record, or by `enable.auto.commit`."""
    simulate_group(lambda _message: None, commit=commit, histories=HISTORIES).check_at_least_once()


def test_a_loop_of_ones_own_runs_with_the_consumer() -> None:
    """The application's loop gets a subscribed consumer and an event to end."""

    def build_loop(database: Database) -> Callable[[Any, Any], None]:
        def run(consumer: Any, stop: Any) -> None:
            while not stop.is_set():
                for message in consumer.consume(10, timeout=0.1):
                    if message.error() is None:
                        database.rows.append(RecordId.of_message(message))
                        consumer.commit(message=message, asynchronous=False)

        return run

    report = simulate_group(worker=build_loop, store=Database, effects=list_rows, histories=HISTORIES)
    report.check_at_least_once()


def test_an_error_of_the_handler_ends_its_history() -> None:
    """The report says which, and that the group did not read on."""

    def fail(_message: Any) -> None:
        raise ValueError("no such customer")

    report = simulate_group(fail, histories=1)
    with pytest.raises(HandlerHistoryError, match=r"seed 1: worker-\d ended with ValueError"):
        report.check_at_least_once()


def test_equal_findings_are_one_line_with_their_number() -> None:
    """The first with its seed, and how many more there are: of an error in each history, and of records."""

    def fail(message: Any) -> None:
        raise ValueError(f"no customer {message.offset()}")

    broken = simulate_group(fail, histories=HISTORIES)
    with pytest.raises(HandlerHistoryError) as failed:
        broken.check_at_least_once()
    heading, first, more, again = str(failed.value).splitlines()
    assert heading == f"{HISTORIES} findings in {HISTORIES} histories:"
    assert first.startswith("  seed 1: worker-")
    assert more.strip() == f"and {HISTORIES - 1} more of this kind, all together in {HISTORIES} histories"
    assert "--simulated-seed 1," in again
    assert len(failed.value.findings) == HISTORIES
    blind = simulate_group(lambda _message: None, histories=HISTORIES)
    with pytest.raises(HandlerHistoryError) as repeated:
        blind.check_exactly_once()
    assert str(repeated.value).count("was handled") == 1


def test_records_are_the_applications_own() -> None:
    """Keys and values come from `make_record`."""
    seen = set()
    simulate_group(
        lambda message: seen.add((message.key(), message.value())),
        make_record=lambda number, _rng: (None, b"order %d" % number),
        histories=1,
    )
    assert (None, b"order 0") in seen


def test_sleep_takes_simulated_time_inside_and_real_time_outside() -> None:
    """A handler that sleeps for minutes costs no time; the module's function comes back."""
    before = time.sleep
    begun = time.monotonic()
    simulate_group(lambda _message: time.sleep(1), histories=1)
    assert time.monotonic() - begun < 60
    assert time.sleep is before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "either handler or worker"),
        ({"handler": print, "worker": print}, "either handler or worker"),
        ({"handler": print, "effects": list}, "needs store"),
        ({"worker": print, "store": list}, "needs store and effects"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], complaint: str) -> None:
    """A TypeError says which arguments belong together."""
    with pytest.raises(TypeError, match=complaint):
        simulate_group(**arguments)
