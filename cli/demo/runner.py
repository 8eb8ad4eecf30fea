"""The show: sets the stage, plays the script, and proves the end.

Phases, in this order; any failure, Ctrl-C or SIGTERM goes straight to the clearing away:

    prepare    broker, topics, class archive, sidecar; until the first consumer reads everything
    play       producers follow the script; one consumer is killed, later all are restarted
    settle     no more is written; until the restart is over and nothing is left to read
    clear      the sidecar stops its workers: they flush and leave
    prove      Spark counts the tables, the broker and the producers are asked too
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
from trimtab.cli.demo.group_watcher import Moment, Watcher
from trimtab.cli.demo.processes import Crew, ingest_settings, kill_workers, sidecar_settings, table
from trimtab.cli.demo.producers import Producers
from trimtab.cli.demo.scenario import PARTITIONS, Script
from trimtab.cli.demo.screen import Screen
from trimtab.cli.demo.view import Story
from trimtab.cli.errors import DemoFailed
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection
from trimtab.common.kafka_security.preflight import knock
from trimtab.common.kafka_security.secrets import resolved
from trimtab.consumer_sdk.errors import BrokerUnreachable
from trimtab.consumer_sdk.java.java_runtime import require_java

LOOK: Final = 0.5  # seconds between two looks
FIRST_READER: Final = 120.0  # seconds in which the first consumer must read everything
SETTLED: Final = 180.0  # seconds in which all must be read after the last record
FEW: Final = 3  # consumers: a restart of so many takes half a minute
LATEST: Final = 0.95  # of the show: then the restart begins however many there are
MARKER: Final = ".trimtab-demo"
"""File that says: this folder is a show's, and may be emptied."""

OURS: Final = ("lake", "state", "tmp", "sidecar.yaml", "ingest.yaml", "demo.png", "sidecar.log")
"""What a show leaves in its folder, and the next one takes away."""


def play(seconds: float, out: Path, client: Mapping[str, Any], seed: int, form: str) -> bool:
    """Play the whole show with tables of a format; tells whether every record arrived exactly once.

    `client` says how a broker is reached, secrets as references; empty: one is started. Raises
    DemoFailed, LoginRefused, TlsFailed, and what the broker and the cache of jars raise.
    """
    token = "" if not client else f"demo-{secrets.token_hex(3)}-"
    script = Script(seconds, prefix=token, seed=seed, format=form)
    story = Story()
    with _interruptible(), ExitStack() as stack:
        screen = stack.enter_context(Screen(script, story))
        show = Show(script, story, screen, out, SystemClock())
        found = show.perform(client, stack)
    show.report(found)
    return found.good


class Show:
    """One performance."""

    def __init__(
        self, script: Script, story: Story, screen: Screen, out: Path, clock: Clock
    ) -> None:
        self._script = script
        self._story = story
        self._screen = screen
        self._out = out
        self._clock = clock
        self._crew = Crew(out, clock)
        self._killed = self._restarted = False

    def perform(self, given: Mapping[str, Any], stack: ExitStack) -> proof.Proof:
        """Play all phases. What is begun is ended by `stack`, whatever happens."""
        say, script = self._screen.say, self._script
        clear(self._out, self._clock)
        require_java()
        java = self._prepare_java(say)
        written = given or {"bootstrap.servers": stack.enter_context(EmbeddedBroker()).bootstrap}
        client = connection.for_librdkafka(resolved(written, os.environ))
        connection.check(client)
        knock(client)
        _make_topics(client, script, stack if given else None)
        group = f"{script.prefix}demo"
        self._crew.write(
            ingest_settings(script, written, group, self._out, java),
            sidecar_settings(script, written, group, self._out),
        )
        watcher = Watcher(client, group, lambda: self._crew.web, self._clock)
        stack.callback(watcher.close)
        stack.callback(self._crew.abandon)
        producers = Producers({**client, "log_level": "2"}, script, self._clock)
        stack.callback(producers.stop)
        self._crew.start()
        watcher.start()
        self._until(watcher, "the first consumer starts", FIRST_READER, self._all_read)
        watcher.reset()
        self._story.moments.clear()
        producers.start()
        self._until(watcher, "the load follows its script", 2 * script.seconds + 60, self._played)
        producers.stop()
        self._until(watcher, "reading what is left", SETTLED, lambda _: self._settled(watcher))
        return self._prove(watcher, producers, java)

    def report(self, found: proof.Proof) -> None:
        """Say what was proved, and save the picture."""
        say, story = self._screen.say, self._story
        last = story.moments[-1]
        most = max(moment.readers for moment in story.moments)
        r_score = sum(moment.r_score for moment in story.moments)
        mean = last.handover_seconds / max(1, last.handovers)
        handovers = f"{last.handovers} handovers of {mean:.2f} s in the mean"
        say(f"up to {most} consumers; {handovers}; R-score {r_score:.1f} in all")
        for fault in found.faults[:10]:
            say(f"fault: {fault}")
        file = self._out / "demo.png"
        try:
            picture.save(story, found.line(), file)
            say(f"picture: {file}")
        except ModuleNotFoundError:
            say("no picture: matplotlib is not installed (pip install 'trimtab[plot]')")
        say(f"tables: trimtab tables --warehouse {self._out / 'lake'}")
        say(found.line())

    def _prepare_java(self, say: Callable[[str], None]) -> str:
        """Fetch the lake's jars and make the class archive, once; return the workers' options."""
        from trimtab.consumer_sdk.lake.formats.table_format import needs  # noqa: PLC0415 - pyspark
        from trimtab.consumer_sdk.lake.settings import SessionConfig  # noqa: PLC0415 - pyspark

        form = self._script.format
        self._screen.stop()
        needs(SessionConfig(warehouse=str(self._out / "lake"), format=form)).fetch()
        found = class_archive.find(form)
        if found is None:
            say("making a class archive, so that consumers start in half the time (once)")
            found = class_archive.make(form)
        self._screen.__enter__()
        return class_archive.options(found)

    def _until(
        self, watcher: Watcher, phase: str, seconds: float, over: Callable[[Moment], bool]
    ) -> None:
        """Look and show until `over`. Raises DemoFailed past the time, or without the sidecar."""
        self._story.phase = phase
        deadline = self._clock.monotonic() + seconds
        while True:
            moment = watcher.look()
            self._story.moments.append(moment)
            for decision in moment.news:
                self._story.note(decision.at, decision.action, "; ".join(decision.reasons))
            done = over(moment)
            self._screen.show()
            if done:
                return
            fault = self._crew.fault
            if fault is not None:
                raise DemoFailed(f"{fault} (logs in {self._out})")
            if self._clock.monotonic() > deadline:
                logs = self._out / "state" / "logs"
                raise DemoFailed(f"not over within {seconds:.0f} s: {phase}; logs in {logs}")
            self._clock.sleep(LOOK)

    def _all_read(self, moment: Moment) -> bool:
        read = {p for owned in moment.owned.values() for p in owned}
        return read == set(self._script.partitions)

    def _played(self, moment: Moment) -> bool:
        """Let happen what the script says for now; tell whether all of it is over."""
        ended = moment.at >= self._script.seconds
        if not self._killed and (ended or self._time_to_kill(moment)):
            self._kill(moment)
        elif self._killed and not self._restarted and (ended or self._time_to_restart(moment)):
            names = self._crew.restart()
            self._restarted = True
            self._story.note(moment.at, "restart", f"{', '.join(names)} are replaced one by one")
        return ended and self._restarted

    def _time_to_kill(self, moment: Moment) -> bool:
        return moment.at >= self._script.kill_at and moment.readers > 1

    def _time_to_restart(self, moment: Moment) -> bool:
        few = (moment.numbers.running or 0) <= FEW and self._all_read(moment)
        late = moment.at >= LATEST * self._script.seconds
        return moment.at >= self._script.restart_at and (few or late)

    def _kill(self, moment: Moment) -> None:
        """Kill the consumer that reads most."""
        candidates = [name for name in moment.owned if name not in moment.draining]
        rates = {n: sum(moment.speeds.get(p, 0.0) for p in moment.owned[n]) for n in candidates}
        victim = max(candidates, key=lambda n: (rates[n], n), default=None)
        if victim is not None and self._crew.kill(victim):
            self._killed = True
            count = len(moment.owned[victim])
            self._story.note(moment.at, "killed", f"{victim} with {count} partitions (SIGKILL)")

    def _settled(self, watcher: Watcher) -> bool:
        if self._crew.restarting:
            return False
        ends = watcher.brokers.ends(self._script.partitions)
        commits = watcher.brokers.commits().offsets
        return not ends.trouble and all(commits.get(p, 0) >= end for p, end in ends.values.items())

    def _prove(self, watcher: Watcher, producers: Producers, java: str) -> proof.Proof:
        self._story.phase = "consumers flush and leave"
        self._screen.show()
        fault = self._crew.finish()
        if fault is not None:
            raise DemoFailed(f"{fault} (logs in {self._out})")
        self._story.phase = "Spark checks every record"
        self._screen.show()
        ends = watcher.brokers.ends(self._script.partitions)
        if ends.trouble:
            raise DemoFailed(f"the broker does not tell its end offsets: {ends.trouble[0]}")
        tables = [table(self._script, topic) for topic in self._script.topics]
        lake = proof.Lake(self._out / "lake", self._script.format, java)
        stored = proof.ask(lake, tables, self._out / "proof.log")
        return proof.prove(stored, ends.values, producers.tally, producers.faults)


@contextmanager
def _interruptible() -> Generator[None, None, None]:
    """Let Ctrl-C, SIGTERM and a closed terminal interrupt once; the clearing away is not broken."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in wanted:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def clear(out: Path, clock: Clock) -> None:
    """Make the folder, without what an earlier show has left, running workers included.

    Raises SettingError, StateInUse, StateUnusable.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not (out / MARKER).exists():
            raise SettingError(
                f"--out: {out} has files that are not of a demo; choose a new or an empty folder"
            )
        (out / MARKER).touch()
        if (out / "state").is_dir():
            kill_workers(out / "state", clock)  # without their files nobody would find them
        for name in OURS:
            path = out / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise SettingError(f"--out: {out} cannot be used: {error}") from error


def _make_topics(client: Mapping[str, Any], script: Script, stack: ExitStack | None) -> None:
    """Make the topics; `stack` deletes them at the end. Raises DemoFailed, BrokerUnreachable."""
    admin = AdminClient({**client, "log_level": 2})
    try:
        replicas = min(3, len(admin.list_topics(timeout=10).brokers))
        new = [NewTopic(topic, PARTITIONS, replicas) for topic in script.topics]
        for made in admin.create_topics(new, operation_timeout=30).values():
            made.result(40)
    except KafkaException as error:
        if error.args[0].code() in (-195, -185):
            raise BrokerUnreachable(client["bootstrap.servers"]) from error
        raise DemoFailed(f"the topics cannot be made: {error.args[0].str()}") from error
    if stack is not None:
        stack.callback(lambda: _delete_topics(admin, script))


def _delete_topics(admin: AdminClient, script: Script) -> None:
    for deleted in admin.delete_topics(list(script.topics), operation_timeout=30).values():
        deleted.result(40)
