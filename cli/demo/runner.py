"""Runs the demo in five phases. Any failure, Ctrl-C or SIGTERM skips to the cleanup.

prepare    broker, topics, class archive, sidecar; until the first consumer owns everything
produce    producers follow the scenario; one consumer is killed, later all are restarted
catch up   producers stop; until the restart is over and the lag is 0
stop       the sidecar stops its workers: they flush and leave the group
prove      compare Spark's row counts, the broker's end offsets and the producers' tally
"""

import secrets
import shutil
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from trimtab.cli.demo import jvm_class_archive, picture, processes, proof
from trimtab.cli.demo.broker_setup import connect_broker, create_topics
from trimtab.cli.demo.group_watcher import DemoSnapshot, GroupWatcher
from trimtab.cli.demo.options import DemoOptions
from trimtab.cli.demo.producers import DemoProducers
from trimtab.cli.demo.scenario import KILL_AT, PARTITIONS_PER_TOPIC, RESTART_AT, DemoScenario
from trimtab.cli.demo.screen import DemoScreen
from trimtab.cli.demo.view import DemoHistory
from trimtab.cli.errors import DemoFailedError
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.units import format_count
from trimtab.consumer_sdk.java.java_runtime import require_java
from trimtab.consumer_sdk.lake.formats.table_format import resolve_requirements
from trimtab.consumer_sdk.lake.options.settings import SessionConfig

SNAPSHOT_INTERVAL_S: Final = 0.5
FIRST_CONSUMER_TIMEOUT_S: Final = 120.0  # until the first consumer owns all partitions
CATCH_UP_TIMEOUT_S: Final = 600.0  # from the last record; on a busy machine each restart takes a minute
RESTART_MAX_CONSUMERS: Final = 3  # a rolling restart of three takes half a minute
LATEST_RESTART: Final = 0.95  # share of the duration: the restart then begins with any number
DEMO_MARKER_FILE: Final = ".trimtab-demo"  # marks a folder that the next demo may empty
DEMO_FILES: Final = ("lake", "state", "tmp", "sidecar.yaml", "ingest.yaml", "demo.png", "sidecar.log")


def run_demo(options: DemoOptions, client: Mapping[str, Any]) -> bool:
    """Run the demo; return whether every record arrived exactly once.

    `client` holds connection settings with secret references; if empty, a broker is started.
    Raises DemoFailedError, SaslAuthenticationError, TlsHandshakeError and the errors of the
    embedded broker and the jar cache.
    """
    prefix = f"demo-{secrets.token_hex(3)}-" if client else ""  # a shared broker may run two demos
    scenario = DemoScenario(options.seconds, prefix=prefix, seed=options.seed, format=options.form)
    with _interrupt_once(), ExitStack() as stack:
        runner = DemoRunner(scenario, options.out.absolute(), stack)
        result = runner.run(client)
    runner.print_report(result)
    return result.is_exactly_once


class DemoRunner:
    """One run of the demo; `stack` ends every started process, also on errors."""

    def __init__(self, scenario: DemoScenario, out: Path, stack: ExitStack) -> None:
        self._scenario = scenario
        self._out = out
        self._stack = stack
        self._history, self._clock = DemoHistory(), SystemClock()
        self._screen = stack.enter_context(DemoScreen(scenario, self._history))
        self._processes = processes.DemoProcesses(out, self._clock)
        self._killed = self._restarted = False

    def run(self, broker_settings: Mapping[str, Any]) -> proof.DeliveryProof:
        """Run all phases."""
        scenario = self._scenario
        stack = self._stack
        clear_output_folder(self._out, self._clock)
        require_java()
        java = self._prepare_java()
        written, client = connect_broker(broker_settings, stack)
        admin = create_topics(client, scenario.topics, PARTITIONS_PER_TOPIC)
        if broker_settings:  # a broker of the user's: leave nothing behind
            stack.callback(_delete_topics, admin, scenario.topics)
        group = f"{scenario.prefix}demo"
        self._processes.write_configs(
            processes.ingest_settings(scenario, written, group, self._out, java),
            processes.sidecar_settings(scenario, written, group, self._out),
        )
        watcher = GroupWatcher(client, group, lambda: self._processes.web_address, self._clock)
        stack.callback(watcher.close)
        stack.callback(self._processes.kill_all)
        producers = DemoProducers({**client, "log_level": "2"}, scenario, self._clock)
        stack.callback(producers.stop)
        self._processes.start()
        watcher.start()
        self._observe(watcher, "the first consumer starts", FIRST_CONSUMER_TIMEOUT_S, self._owns_all)
        self._screen.print_line(f"the group in a browser: {self._processes.web_address}/")
        watcher.reset_time()  # the scenario's time starts with the load, not with the JVM
        self._history.snapshots.clear()
        producers.start()
        timeout = 2 * scenario.duration_s + 60
        self._observe(watcher, "the load follows the scenario", timeout, self._apply_scenario)
        producers.stop()
        caught_up = partial(self._is_caught_up, watcher)
        self._observe(watcher, "consumers read the backlog and are restarted", CATCH_UP_TIMEOUT_S, caught_up)
        return self._prove(watcher, producers, java)

    def print_report(self, result: proof.DeliveryProof) -> None:
        """Print the proof and save the plot."""
        echo = self._screen.print_line
        history = self._history
        last = history.snapshots[-1]
        most = max(s.reader_count for s in history.snapshots)
        r_score = sum(s.r_score for s in history.snapshots)
        mean = last.handover_seconds / max(1, last.handovers)
        handovers = f"{format_count(last.handovers, 'handover')} of {mean:.2f} s on average"
        echo(f"up to {format_count(most, 'consumer')}; {handovers}; R-score {r_score:.1f} in total")
        for fault in result.faults[:10]:
            echo(f"fault: {fault}")
        file = self._out / "demo.png"
        try:
            picture.save_picture(history, result.summary_line(), file)
            echo(f"picture: {file}")
        except ModuleNotFoundError:
            echo("no picture: matplotlib is not installed (pip install 'trimtab[plot]')")
        echo(f"tables: trimtab tables --warehouse {self._out / 'lake'}")
        echo(result.summary_line())

    def _prepare_java(self) -> str:
        """Fetch jars and create the class archive if missing; return the workers' JVM options."""
        form = self._scenario.format
        self._screen.stop()  # the download prints its own progress
        resolve_requirements(SessionConfig(warehouse=str(self._out / "lake"), format=form)).fetch_jars()
        archive = jvm_class_archive.find_archive()
        if archive is None:
            self._screen.print_line("creating a class archive, once: consumers then start in half the time")
            archive = jvm_class_archive.create_archive()
        self._screen.__enter__()
        return jvm_class_archive.jvm_options(archive)

    def _observe(
        self, watcher: GroupWatcher, phase: str, timeout: float, is_over: Callable[[DemoSnapshot], bool]
    ) -> None:
        """Observe and display until `is_over`. Raises DemoFailedError: timeout, end of the sidecar."""
        self._history.phase = phase
        deadline = self._clock.monotonic() + timeout
        while True:
            snapshot = watcher.take_snapshot()
            self._history.snapshots.append(snapshot)
            for decision in snapshot.new_decisions:
                self._history.add_event(decision.at, decision.action, decision.reason)
            done = is_over(snapshot)  # may add an event, which this refresh displays
            self._screen.refresh()
            if done:
                return
            self._raise_failure(self._processes.failure)
            if self._clock.monotonic() > deadline:
                logs = self._out / "state" / "logs"
                raise DemoFailedError(f"not over within {timeout:.0f} s: {phase}; logs in {logs}")
            self._clock.sleep(SNAPSHOT_INTERVAL_S)

    def _raise_failure(self, failure: str | None) -> None:
        if failure is not None:
            raise DemoFailedError(f"{failure} (logs in {self._out})")

    def _owns_all(self, snapshot: DemoSnapshot) -> bool:
        return {p for owned in snapshot.owned.values() for p in owned} == set(self._scenario.partitions)

    def _apply_scenario(self, snapshot: DemoSnapshot) -> bool:
        """Trigger due scenario events; return whether all are over."""
        ended = snapshot.at >= self._scenario.duration_s
        # killing the only consumer would show no takeover: it waits for a second one or the end
        kill_due = snapshot.at >= KILL_AT * self._scenario.duration_s and snapshot.reader_count > 1
        if not self._killed and (ended or kill_due):
            self._kill_busiest(snapshot)
        elif self._killed and not self._restarted and (ended or self._is_restart_due(snapshot)):
            names = self._processes.restart_workers()
            self._restarted = True
            self._history.add_event(snapshot.at, "restart", f"{', '.join(names)} are replaced one by one")
        return ended and self._restarted

    def _is_restart_due(self, snapshot: DemoSnapshot) -> bool:
        share = snapshot.at / self._scenario.duration_s
        is_small = (snapshot.numbers.running_replicas or 0) <= RESTART_MAX_CONSUMERS
        return share >= LATEST_RESTART or (share >= RESTART_AT and is_small and self._owns_all(snapshot))

    def _kill_busiest(self, snapshot: DemoSnapshot) -> None:
        candidates = [name for name in snapshot.owned if name not in snapshot.draining]
        rates = {n: sum(snapshot.write_rates.get(p, 0.0) for p in snapshot.owned[n]) for n in candidates}
        victim = max(candidates, key=lambda n: (rates[n], n), default=None)
        if victim is not None and self._processes.kill_worker(victim):
            self._killed = True
            count = format_count(len(snapshot.owned[victim]), "partition")
            self._history.add_event(snapshot.at, "killed", f"{victim} with {count} (SIGKILL)")

    def _is_caught_up(self, watcher: GroupWatcher, _: DemoSnapshot) -> bool:
        if self._processes.is_restarting:
            return False
        ends = watcher.brokers.fetch_end_offsets(self._scenario.partitions)
        commits = watcher.brokers.fetch_group_commits().offsets
        return not ends.errors and all(commits.get(p, 0) >= end for p, end in ends.values.items())

    def _prove(self, watcher: GroupWatcher, producers: DemoProducers, java: str) -> proof.DeliveryProof:
        self._history.phase = "consumers flush and leave"
        self._screen.refresh()
        self._raise_failure(self._processes.stop_gracefully())
        self._history.phase = "Spark checks every record"
        self._screen.refresh()
        ends = watcher.brokers.fetch_end_offsets(self._scenario.partitions)
        if ends.errors:
            raise DemoFailedError(f"the broker returned no end offsets: {ends.errors[0]}")
        tables = [processes.table_name(self._scenario, topic) for topic in self._scenario.topics]
        task = {"warehouse": str(self._out / "lake"), "format": self._scenario.format, "java": java}
        stored = proof.query_tables(task | {"tables": tables}, self._out / "proof.log")
        return proof.prove_delivery(stored, ends.values, producers.tally, producers.faults)


@contextmanager
def _interrupt_once() -> Generator[None, None, None]:
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in signals:  # a second Ctrl-C must not cut the cleanup short
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
            raise SettingError(f"--out: {out} has files that are not of a demo; choose an empty folder")
        (out / DEMO_MARKER_FILE).touch()
        if (out / "state").is_dir():
            processes.kill_workers(out / "state", clock)  # their files are the only way to find them
        for name in DEMO_FILES:
            path = out / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise SettingError(f"--out: {out} cannot be used: {error}") from error


def _delete_topics(admin: AdminClient, topics: Sequence[str]) -> None:
    for deleted in admin.delete_topics(list(topics), operation_timeout=30).values():
        deleted.result(40)
