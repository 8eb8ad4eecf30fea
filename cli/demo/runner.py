"""Runs the demo: prepare, play, settle, clear, prove.

Phases, in this order; any failure, Ctrl-C or SIGTERM skips to the cleanup:

    prepare    broker, topics, class archive, sidecar; until the first consumer owns everything
    play       producers follow the scenario; one consumer is killed, later all are restarted
    settle     producers stop; until the restart is over and the lag is 0
    clear      the sidecar stops its workers: they flush and leave the group
    prove      compare Spark's row counts, the broker's end offsets and the producers' tally
"""

import os
import secrets
import shutil
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.demo import class_archive, picture, proof
from trimtab.cli.demo.group_watcher import DemoSnapshot, GroupWatcher
from trimtab.cli.demo.processes import (
    DemoProcesses,
    ingest_settings,
    kill_workers,
    sidecar_settings,
    table_name,
)
from trimtab.cli.demo.producers import DemoProducers
from trimtab.cli.demo.scenario import PARTITIONS_PER_TOPIC, DemoScenario
from trimtab.cli.demo.screen import DemoScreen
from trimtab.cli.demo.view import DemoHistory
from trimtab.cli.errors import DemoFailedError
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.common.kafka_security.secrets import resolve_secrets
from trimtab.consumer_sdk.errors import BrokerUnreachableError
from trimtab.consumer_sdk.java.java_runtime import require_java

SNAPSHOT_INTERVAL_S: Final = 0.5  # seconds between two looks
FIRST_CONSUMER_TIMEOUT_S: Final = 120.0  # seconds in which the first consumer must read everything
CATCH_UP_TIMEOUT_S: Final = 180.0  # seconds in which all must be read after the last record
RESTART_MAX_CONSUMERS: Final = 3  # consumers: a restart of so many takes half a minute
LATEST_RESTART: Final = 0.95  # of the show: then the restart begins however many there are
DEMO_MARKER_FILE: Final = ".trimtab-demo"
"""Marker file of a demo folder, which may be emptied."""

DEMO_FILES: Final = ("lake", "state", "tmp", "sidecar.yaml", "ingest.yaml", "demo.png", "sidecar.log")
"""Files of a demo run that the next run removes."""


def run_demo(seconds: float, out: Path, client: Mapping[str, Any], seed: int, form: str) -> bool:
    """Run the demo; return whether every record arrived exactly once.

    `client` holds connection settings with secret references; if empty, a broker is started.
    Raises DemoFailedError, SaslAuthenticationError, TlsHandshakeError and the errors of the
    embedded broker and the jar cache.
    """
    token = "" if not client else f"demo-{secrets.token_hex(3)}-"
    script = DemoScenario(seconds, prefix=token, seed=seed, format=form)
    story = DemoHistory()
    with _interrupt_once(), ExitStack() as stack:
        screen = stack.enter_context(DemoScreen(script, story))
        show = DemoRunner(script, story, screen, out, SystemClock())
        found = show.run(client, stack)
    show.print_report(found)
    return found.is_exactly_once


class DemoRunner:
    """State of one demo run."""

    def __init__(
        self, script: DemoScenario, story: DemoHistory, screen: DemoScreen, out: Path, clock: Clock
    ) -> None:
        self._script = script
        self._story = story
        self._screen = screen
        self._out = out
        self._clock = clock
        self._processes = DemoProcesses(out, clock)
        self._killed = self._restarted = False

    def run(self, broker_settings: Mapping[str, Any], stack: ExitStack) -> proof.DeliveryProof:
        """Run all phases; `stack` ends every started process, also on errors."""
        say, script = self._screen.print_line, self._script
        clear_output_folder(self._out, self._clock)
        require_java()
        java = self._prepare_java(say)
        written = broker_settings or {"bootstrap.servers": stack.enter_context(EmbeddedBroker()).bootstrap}
        client = connection.to_librdkafka_config(resolve_secrets(written, os.environ))
        connection.check_settings(client)
        check_connection(client)
        _create_topics(client, script, stack if broker_settings else None)
        group = f"{script.prefix}demo"
        self._processes.write_configs(
            ingest_settings(script, written, group, self._out, java),
            sidecar_settings(script, written, group, self._out),
        )
        watcher = GroupWatcher(client, group, lambda: self._processes.web_address, self._clock)
        stack.callback(watcher.close)
        stack.callback(self._processes.kill_all)
        producers = DemoProducers({**client, "log_level": "2"}, script, self._clock)
        stack.callback(producers.stop)
        self._processes.start()
        watcher.start()
        self._wait_until(
            watcher, "the first consumer starts", FIRST_CONSUMER_TIMEOUT_S, self._all_partitions_owned
        )
        watcher.reset_time()
        self._story.snapshots.clear()
        producers.start()
        self._wait_until(
            watcher, "the load follows its script", 2 * script.duration_s + 60, self._apply_scenario
        )
        producers.stop()
        self._wait_until(
            watcher, "reading what is left", CATCH_UP_TIMEOUT_S, lambda _: self._is_caught_up(watcher)
        )
        return self._prove_delivery(watcher, producers, java)

    def print_report(self, delivery_proof: proof.DeliveryProof) -> None:
        """Print the proof and save the plot."""
        say, story = self._screen.print_line, self._story
        last = story.snapshots[-1]
        most = max(moment.reader_count for moment in story.snapshots)
        r_score = sum(moment.r_score for moment in story.snapshots)
        mean = last.handover_seconds / max(1, last.handovers)
        handovers = f"{last.handovers} handovers of {mean:.2f} s in the mean"
        say(f"up to {most} consumers; {handovers}; R-score {r_score:.1f} in all")
        for fault in delivery_proof.faults[:10]:
            say(f"fault: {fault}")
        file = self._out / "demo.png"
        try:
            picture.save_picture(story, delivery_proof.summary_line(), file)
            say(f"picture: {file}")
        except ModuleNotFoundError:
            say("no picture: matplotlib is not installed (pip install 'trimtab[plot]')")
        say(f"tables: trimtab tables --warehouse {self._out / 'lake'}")
        say(delivery_proof.summary_line())

    def _prepare_java(self, say: Callable[[str], None]) -> str:
        """Fetch jars and create the class archive if missing; return the workers' JVM options."""
        from trimtab.consumer_sdk.lake.formats.table_format import resolve_requirements  # noqa: PLC0415 - pyspark
        from trimtab.consumer_sdk.lake.settings import SessionConfig  # noqa: PLC0415 - pyspark

        form = self._script.format
        self._screen.stop()
        resolve_requirements(SessionConfig(warehouse=str(self._out / "lake"), format=form)).fetch_jars()
        found = class_archive.find_archive(form)
        if found is None:
            say("making a class archive, so that consumers start in half the time (once)")
            found = class_archive.create_archive(form)
        self._screen.__enter__()
        return class_archive.jvm_options(found)

    def _wait_until(
        self, watcher: GroupWatcher, phase: str, seconds: float, over: Callable[[DemoSnapshot], bool]
    ) -> None:
        """Observe and display until `over`.

        Raises DemoFailedError on timeout or if the sidecar has ended.
        """
        self._story.phase = phase
        deadline = self._clock.monotonic() + seconds
        while True:
            moment = watcher.take_snapshot()
            self._story.snapshots.append(moment)
            for decision in moment.new_decisions:
                self._story.add_event(decision.at, decision.action, "; ".join(decision.reasons))
            done = over(moment)
            self._screen.refresh()
            if done:
                return
            fault = self._processes.failure
            if fault is not None:
                raise DemoFailedError(f"{fault} (logs in {self._out})")
            if self._clock.monotonic() > deadline:
                logs = self._out / "state" / "logs"
                raise DemoFailedError(f"not over within {seconds:.0f} s: {phase}; logs in {logs}")
            self._clock.sleep(SNAPSHOT_INTERVAL_S)

    def _all_partitions_owned(self, moment: DemoSnapshot) -> bool:
        read = {p for owned in moment.owned.values() for p in owned}
        return read == set(self._script.partitions)

    def _apply_scenario(self, moment: DemoSnapshot) -> bool:
        """Trigger due scenario events; return whether all are over."""
        ended = moment.at >= self._script.duration_s
        if not self._killed and (ended or self._is_time_to_kill(moment)):
            self._kill_busiest_consumer(moment)
        elif self._killed and not self._restarted and (ended or self._is_time_to_restart(moment)):
            names = self._processes.restart_workers()
            self._restarted = True
            self._story.add_event(moment.at, "restart", f"{', '.join(names)} are replaced one by one")
        return ended and self._restarted

    def _is_time_to_kill(self, moment: DemoSnapshot) -> bool:
        return moment.at >= self._script.kill_at and moment.reader_count > 1

    def _is_time_to_restart(self, moment: DemoSnapshot) -> bool:
        running = moment.numbers.running_replicas or 0
        few = running <= RESTART_MAX_CONSUMERS and self._all_partitions_owned(moment)
        late = moment.at >= LATEST_RESTART * self._script.duration_s
        return moment.at >= self._script.restart_at and (few or late)

    def _kill_busiest_consumer(self, moment: DemoSnapshot) -> None:
        """Kill the consumer with the highest load."""
        candidates = [name for name in moment.owned if name not in moment.draining]
        rates = {n: sum(moment.write_rates.get(p, 0.0) for p in moment.owned[n]) for n in candidates}
        victim = max(candidates, key=lambda n: (rates[n], n), default=None)
        if victim is not None and self._processes.kill_worker(victim):
            self._killed = True
            count = len(moment.owned[victim])
            self._story.add_event(moment.at, "killed", f"{victim} with {count} partitions (SIGKILL)")

    def _is_caught_up(self, watcher: GroupWatcher) -> bool:
        if self._processes.is_restarting:
            return False
        ends = watcher.brokers.fetch_end_offsets(self._script.partitions)
        commits = watcher.brokers.fetch_group_commits().offsets
        return not ends.trouble and all(commits.get(p, 0) >= end for p, end in ends.values.items())

    def _prove_delivery(
        self, watcher: GroupWatcher, producers: DemoProducers, java: str
    ) -> proof.DeliveryProof:
        self._story.phase = "consumers flush and leave"
        self._screen.refresh()
        fault = self._processes.stop_gracefully()
        if fault is not None:
            raise DemoFailedError(f"{fault} (logs in {self._out})")
        self._story.phase = "Spark checks every record"
        self._screen.refresh()
        ends = watcher.brokers.fetch_end_offsets(self._script.partitions)
        if ends.trouble:
            raise DemoFailedError(f"the broker returned no end offsets: {ends.trouble[0]}")
        tables = [table_name(self._script, topic) for topic in self._script.topics]
        lake = proof.DemoLake(self._out / "lake", self._script.format, java)
        stored = proof.query_tables(lake, tables, self._out / "proof.log")
        return proof.prove_delivery(stored, ends.values, producers.tally, producers.faults)


@contextmanager
def _interrupt_once() -> Generator[None, None, None]:
    """Interrupt once on SIGINT, SIGTERM or SIGHUP; ignore them during cleanup."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def clear_output_folder(out: Path, clock: Clock) -> None:
    """Create the folder and remove leftovers of earlier runs, running workers included.

    Raises SettingError, StateDirInUseError, StateDirError.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not (out / DEMO_MARKER_FILE).exists():
            raise SettingError(
                f"--out: {out} has files that are not of a demo; choose a new or an empty folder"
            )
        (out / DEMO_MARKER_FILE).touch()
        if (out / "state").is_dir():
            kill_workers(out / "state", clock)  # their files are the only way to find them
        for name in DEMO_FILES:
            path = out / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise SettingError(f"--out: {out} cannot be used: {error}") from error


def _create_topics(client: Mapping[str, Any], script: DemoScenario, stack: ExitStack | None) -> None:
    """Create the topics; `stack` deletes them at the end.

    Raises DemoFailedError, BrokerUnreachableError.
    """
    admin = AdminClient({**client, "log_level": 2})
    try:
        replicas = min(3, len(admin.list_topics(timeout=10).brokers))
        new = [NewTopic(topic, PARTITIONS_PER_TOPIC, replicas) for topic in script.topics]
        for made in admin.create_topics(new, operation_timeout=30).values():
            made.result(40)
    except KafkaException as error:
        if error.args[0].code() in (-195, -185):
            raise BrokerUnreachableError(client["bootstrap.servers"]) from error
        raise DemoFailedError(f"the topics cannot be created: {error.args[0].str()}") from error
    if stack is not None:
        stack.callback(lambda: _delete_topics(admin, script))


def _delete_topics(admin: AdminClient, script: DemoScenario) -> None:
    for deleted in admin.delete_topics(list(script.topics), operation_timeout=30).values():
        deleted.result(40)
