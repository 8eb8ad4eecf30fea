"""Answers the page's what-if: simulates the recorded hour in a process of its own.

1. One simulation at a time; another question ends the one in progress. The same question, asked again,
   returns its progress, and then its answer.
2. The process has the lowest priority, and ends after `MAX_SIMULATION_S`, also without its parent.
3. Both the present and the changed settings are simulated: only their difference is an effect of the
   change. What was recorded is beside them.
"""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from threading import Lock
from typing import Any, Final

from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.common.clock import Clock
from trimtab.common.errors import SettingError, TrimtabError
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.simulation.live_settings import LiveSettings
from trimtab.sidecar.simulation.policy_comparison import ComparisonInput, PolicyCost, compare_policies
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.recorded_stream import RecordedStream
from trimtab.sidecar.web.what_if_settings import change_settings, describe_settings

MAX_SIMULATION_S: Final = 120
PROGRESS_STEP: Final = 0.02  # between two messages, so that they fit into the pipe unread
LOWEST_PRIORITY: Final = 19


@dataclass(slots=True)
class _Simulation:
    """A simulation in progress, or its answer."""

    question: Mapping[str, str]
    process: SpawnProcess
    connection: Connection
    started_at: float
    facts: dict[str, Any]
    progress: float = 0.0
    answer: dict[str, Any] = field(default_factory=dict[str, Any])


class WhatIfRunner:
    """Simulates changed settings of a group on its recorded write rates."""

    def __init__(self, settings: SidecarSettings, clock: Clock, history: GroupHistory) -> None:
        self._settings = settings
        self._clock = clock
        self._history = history
        self._lock = Lock()
        self._simulation: _Simulation | None = None

    def ask(self, question: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer, or how far it is; without a question the present settings."""
        if not question:
            return {"state": "idle", "present": describe_settings(self._settings)}
        with self._lock:
            if self._simulation is None or self._simulation.question != question:
                self._end()
                try:
                    self._simulation = self._start(question)
                except TrimtabError as error:
                    return {"state": "failed", "error": str(error)}
            return self._read(self._simulation)

    def close(self) -> None:
        """End the simulation in progress."""
        with self._lock:
            self._end()

    def _start(self, question: Mapping[str, str]) -> _Simulation:
        changed, lines = change_settings(self._settings, question)
        recorded = self._history.build_recorded_stream()
        if recorded is None:
            raise SettingError("nothing is recorded yet; ask again after a few iterations")
        given = self._build_input(recorded, changed, question)
        ours, theirs = get_context("spawn").Pipe(duplex=False)
        process = get_context("spawn").Process(
            target=run_simulation_process, args=(theirs, given), name="trimtab-what-if", daemon=True
        )
        try:
            process.start()
        except OSError as error:  # no memory or no process left, or it ended at once
            raise SettingError(f"the simulation's process does not start: {error}") from error
        theirs.close()
        facts = {"settings": lines, "recorded": describe_recorded(recorded), "tick": recorded.tick}
        facts |= {"assumed": {"pause": given.pause, "late": given.late, "startup": given.startup}}
        return _Simulation(question, process, ours, self._clock.monotonic(), facts)

    def _build_input(
        self, recorded: RecordedStream, changed: SidecarSettings, question: Mapping[str, str]
    ) -> ComparisonInput:
        present = self._settings
        return ComparisonInput(
            stream=recorded.stream,
            begin=recorded.begin,
            tick=recorded.tick,
            policies=(present.autoscaling_policy, changed.autoscaling_policy),
            pause=SimulationSetup().pause if recorded.pause is None else recorded.pause,
            late=present.freshness_slo or present.backlog_grace or SimulationSetup().late,
            startup=parse_startup(question.get("startup")),
        )

    def _read(self, simulation: _Simulation) -> dict[str, Any]:
        is_over = not simulation.process.is_alive()  # before the pipe is read to its end
        with suppress(EOFError, OSError):
            while simulation.connection.poll():
                message = simulation.connection.recv()
                if isinstance(message, float):
                    simulation.progress = message
                else:
                    simulation.answer = message
        if simulation.answer:
            return {**simulation.facts, **simulation.answer}
        if self._clock.monotonic() - simulation.started_at > MAX_SIMULATION_S:
            error = f"not done within {MAX_SIMULATION_S} s; `trimtab simulate --live` has no limit"
            simulation.answer = {"state": "failed", "error": error}
            simulation.process.kill()
        elif is_over:
            simulation.answer = {
                "state": "failed",
                "error": "the simulation's process ended; is there memory?",
            }
        return simulation.answer or {"state": "running", "progress": simulation.progress}

    def _end(self) -> None:
        if self._simulation is not None:
            self._simulation.process.kill()
            self._simulation.process.join()
            self._simulation.connection.close()
            self._simulation = None


def run_simulation_process(connection: Connection, given: ComparisonInput) -> None:
    """Simulate in this process; send the progress as floats, then the answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this
    signal.alarm(MAX_SIMULATION_S)
    os.nice(LOWEST_PRIORITY)
    sent = 0.0

    def report(progress: float) -> None:
        nonlocal sent
        if progress >= sent + PROGRESS_STEP:
            sent = progress
            connection.send(progress)

    try:
        costs = compare_policies(given, report)
    except TrimtabError as error:
        connection.send({"state": "failed", "error": str(error)})
        return
    present, changed = map(describe_cost, costs)
    connection.send({"state": "done", "present": present, "changed": changed})


def describe_cost(cost: PolicyCost) -> dict[str, Any]:
    """Return a cost as JSON."""
    return asdict(cost)


def describe_recorded(recorded: RecordedStream) -> dict[str, Any]:
    """Return what was recorded, as JSON, with the names of a `PolicyCost`."""
    counts = [n or 0 for n in recorded.consumers]
    return {
        "begin": recorded.begin,
        "seconds": recorded.seconds,
        "partitions": len(recorded.stream.partitions),
        "consumer_hours": recorded.consumer_hours,
        "moves": recorded.moves,
        "moved_consumers": recorded.moved_consumers,
        "rebalances": recorded.rebalances,
        "late_time_percent": 100 * recorded.late_ticks / len(counts),
        "changes": [(n, count) for n, count in enumerate(counts) if not n or counts[n - 1] != count],
    }


def parse_startup(text: str | None) -> float:
    """Return the seconds from a consumer's start to its join. Raises SettingError."""
    if not text:
        return LiveSettings().startup
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:  # noqa: PLR2004 - an hour is all that is recorded
        raise SettingError(f"startup={text!r}: write seconds from 0 to 3600")
    return seconds
