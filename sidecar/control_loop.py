"""The loop: observe, decide, check again, act, report. Everything it knows can be rebuilt.

Before it acts it looks at group and replicas once more and decides again; where the answer
differs, the premise has changed and nothing is done until the next turn. A plan is published
before replicas are started or stopped for it: whatever a crash leaves undone, the next sidecar
finds in the plan.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from trimtab.common.clock import Clock
from trimtab.common.control_topics.values import GroupPlan, PartitionSpeed, WriteSpeeds
from trimtab.common.errors import PeerError, TrimtabError
from trimtab.sidecar.decision.decide import decide, done
from trimtab.sidecar.decision.decision import Action, Numbers, Verdict
from trimtab.sidecar.decision.scaling_policy import Memory
from trimtab.sidecar.errors import NotLeading
from trimtab.sidecar.kafka.control_topic_store import Board
from trimtab.sidecar.leadership.leader_election import Alone, Leadership, insist
from trimtab.sidecar.measurement.group_monitor import Measurement, Watch
from trimtab.sidecar.measurement.handover_time import Ledger
from trimtab.sidecar.measurement.observation import (
    GroupState,
    GroupView,
    Instance,
    Observation,
    Outside,
)
from trimtab.sidecar.reporting.iteration_report import NOT_DONE, Report, Reporter
from trimtab.sidecar.settings.settings import Settings
from trimtab.sidecar.targets.process.rolling_restart import pending
from trimtab.sidecar.targets.replica_target import ReplicaTarget

if TYPE_CHECKING:  # it needs an extra
    from trimtab.sidecar.reporting.certifier import Certified, Certifier

log = logging.getLogger("trimtab.sidecar")

ADVICE: Final = frozenset(
    {Action.START, Action.REPLACE, Action.SURGE, Action.DRAIN, Action.UNDRAIN, Action.STOP}
)
"""What is only said where replicas are not ours to change."""

STANDBY: Final = 2.0
"""Seconds between two turns of a sidecar that stands by, at most: it is to take over quickly."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Whom the loop works with.

    `outside` tells what others had asked of the target when it was looked at last.
    """

    watch: Watch
    board: Board
    target: ReplicaTarget
    reporters: Sequence[Reporter] = ()
    certifier: "Certifier | None" = None
    outside: Callable[[], Outside] = Outside
    leadership: Leadership = field(default_factory=Alone)


class Loop:
    """One sidecar at work on one group."""

    def __init__(self, settings: Settings, parts: Parts, clock: Clock) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._parts = parts
        self._clock = clock
        self._memory = Memory()
        self._plan: GroupPlan | None = None
        self._plan_known = False
        self._led = False
        self._ledger = Ledger(clock.wall())

    def run(self, wait: Callable[[float], bool]) -> None:
        """Turn until `wait(seconds)` says to stop; it waits so long, or until it is to end."""
        seconds = 0.0
        while not wait(seconds):
            begun = self._clock.monotonic()
            self.turn()
            pause = self._settings.interval
            if not self._led:
                pause = min(pause, STANDBY)
            seconds = max(0.0, pause - (self._clock.monotonic() - begun))

    def turn(self) -> Verdict:
        """Observe, decide, check again, act and report, once."""
        begun = self._clock.monotonic()
        measured = self._parts.watch.measure()
        self._led = self._parts.leadership.leads()
        if not self._led:
            return self._stand_by(measured, begun)
        trouble = [*measured.trouble, *self._learn_plan(), *self._publish_speeds(measured)]
        seen = self._observe(measured, measured.group, trouble)
        now, before = self._clock.wall(), self._memory
        started = self._clock.monotonic()
        verdict, self._memory = decide(seen, self._policy, before, now, self._settings.group)
        decided_in = self._clock.monotonic() - started
        verdict = self._checked(verdict, seen, before, now)
        verdict = self._act(verdict, seen, now)
        report = Report(
            time=now,
            verdict=verdict,
            speeds=measured.speeds,
            epoch=0 if self._plan is None else self._plan.epoch,
            reachable=measured.group.state is not GroupState.UNKNOWN and self._plan_known,
            decided_in=decided_in,
            turned_in=self._clock.monotonic() - begun,
            trouble=seen.trouble,
            learned=self._memory.learned,
            growing_stopped=self._memory.stall is not None,
            certificate=self._certified(seen),
        )
        self._tell(report, measured)
        return verdict

    def stop_workers(self, wait: Callable[[float], bool]) -> bool:
        """Ask every replica to end and wait for it; tells whether all have."""
        deadline = self._clock.monotonic() + 2 * self._settings.stop_patience
        while self._clock.monotonic() < deadline:
            alive = [i.name for i in self._parts.target.replicas() if i.alive]
            if not alive:
                return True
            for name in alive:
                self._parts.target.stop(name)
            wait(0.2)
        return False

    def _stand_by(self, measured: Measurement, begun: float) -> Verdict:
        """Only measure, so that windows are full when we lead; the plan is then read anew."""
        self._plan_known = False
        leader = self._parts.leadership.leader()
        reason = f"standing by: {leader or 'nobody yet'} leads"
        verdict = Verdict(Action.HOLD, (reason,), Numbers(partitions=len(measured.speeds)))
        report = Report(
            time=self._clock.wall(),
            verdict=verdict,
            speeds=measured.speeds,
            epoch=0,
            reachable=measured.group.state is not GroupState.UNKNOWN,
            decided_in=0.0,
            turned_in=self._clock.monotonic() - begun,
            trouble=measured.trouble,
            leading=False,
        )
        self._tell(report, measured)
        return verdict

    def _learn_plan(self) -> tuple[str, ...]:
        """Read the plan in force, once; while it leads the sidecar is its only writer."""
        if self._plan_known:
            return ()
        try:
            self._plan = self._parts.board.plan()
        except PeerError as error:
            return (str(error),)
        self._plan_known = True
        if self._plan is not None:
            self._memory = replace(self._memory, changed=self._plan.time)
            log.info("plan %d is in force: %s", self._plan.epoch, "; ".join(self._plan.reasons))
        return ()

    def _publish_speeds(self, measured: Measurement) -> tuple[str, ...]:
        if self._settings.dry_run or measured.group.state is GroupState.UNKNOWN:
            return ()
        by_topic: dict[str, dict[int, PartitionSpeed]] = {}
        for (topic, number), speed in measured.speeds.items():
            by_topic.setdefault(topic, {})[number] = speed
        s, now = self._settings, self._clock.wall()
        values = [
            WriteSpeeds(s.group, topic, now, s.window, s.source, speeds)
            for topic, speeds in sorted(by_topic.items())
        ]
        try:
            self._parts.board.publish(values)
        except PeerError as error:
            return (str(error),)
        return ()

    def _observe(
        self, measured: Measurement | Observation, group: GroupView, trouble: list[str]
    ) -> Observation:
        replicas = self._replicas(group, trouble)
        ours = () if self._policy.advisory else replicas or ()
        alive = [i.name for i in ours if i.alive]
        outside = self._parts.outside()
        return Observation(
            speeds=measured.speeds,
            consumed=measured.consumed,
            stuck=measured.stuck,
            racks=measured.racks,
            queue=measured.queue,
            group=distinct(group) if self._policy.advisory else group,
            replicas=replicas,
            plan=self._plan,
            plan_known=self._plan_known,
            restart=self._restart(alive, trouble),
            outside=outside,
            trouble=(*trouble, *outside.trouble),
        )

    def _replicas(self, group: GroupView, trouble: list[str]) -> tuple[Instance, ...] | None:
        if self._policy.advisory:
            names = sorted(r.instance for r in distinct(group).readers)
            return tuple(Instance(name, alive=True, started=0.0) for name in names)
        try:
            return self._parts.target.replicas()
        except PeerError as error:
            trouble.append(str(error))
            return None

    def _restart(self, alive: Sequence[str], trouble: list[str]) -> tuple[str, ...]:
        try:
            return pending(self._settings.state, alive) if alive else ()
        except PeerError as error:
            trouble.append(str(error))
            return ()

    def _checked(self, verdict: Verdict, seen: Observation, before: Memory, now: float) -> Verdict:
        """Look at group and replicas again; hold where the verdict would not be the same."""
        if verdict.action is Action.HOLD or self._policy.advisory:
            return verdict
        fresh = self._observe(seen, self._parts.watch.group(), [])
        again, _ = decide(fresh, self._policy, before, now, self._settings.group)
        if again.agrees(verdict):
            return verdict
        reason = f"{verdict.action} is put off: the group changed while it was decided"
        return Verdict(Action.HOLD, (reason, *again.reasons), verdict.numbers)

    def _act(self, verdict: Verdict, seen: Observation, now: float) -> Verdict:
        if verdict.action is Action.HOLD or self._only_said(verdict):
            return verdict
        try:
            insist(self._parts.leadership)
            started = self._carry_out(verdict, seen)
        except TrimtabError as error:
            log.error("%s failed: %s", verdict.action, error)  # noqa: TRY400 - it says all itself
            if isinstance(error, NotLeading):
                self._plan_known = False  # whoever leads may have published another
            elif verdict.action in (Action.REPLACE, Action.SURGE):
                self._memory = done(verdict, seen, self._memory, now)  # counts: no hot loop
            return replace(verdict, reasons=(*verdict.reasons, f"{NOT_DONE}{error}"))
        self._memory = done(verdict, seen, self._memory, now)
        if started:
            return replace(verdict, reasons=(*verdict.reasons, f"started {' and '.join(started)}"))
        return verdict

    def _carry_out(self, verdict: Verdict, seen: Observation) -> tuple[str, ...]:
        """Publish, stop and start; return who was started. Raises TrimtabError.

        The plan comes first, but of none: `decide` says why (rule 10).
        """
        from_none = seen.plan is not None and not seen.plan.replicas and not seen.outside.contest
        started = self._add(verdict.add) if from_none else ()
        self._publish_plan(verdict.plan)
        for name in verdict.stop:
            self._parts.target.stop(name)
        return started if from_none else self._add(verdict.add)

    def _add(self, count: int) -> tuple[str, ...]:
        return self._parts.target.add(count) if count else ()

    def _only_said(self, verdict: Verdict) -> bool:
        return self._policy.advisory and verdict.action in ADVICE

    def _publish_plan(self, plan: GroupPlan | None) -> None:
        """Publish and take for granted; after a failure the plan is read back before all else."""
        if plan is None:
            return
        if not self._settings.dry_run:
            self._plan_known = False
            self._parts.board.publish([plan])
        self._plan_known = True
        self._plan = plan

    def _certified(self, seen: Observation) -> "Certified | None":
        """Have this turn certified in the background; return the newest certificate there is."""
        certifier = self._parts.certifier
        if certifier is None:
            return None
        certifier.offer(seen)
        return certifier.last

    def _tell(self, report: Report, measured: Measurement) -> None:
        handovers, self._ledger = self._ledger.handovers(measured.notes)
        readers = measured.group.readers
        changed, self._ledger = self._ledger.moves(readers)
        report = replace(report, handovers=handovers, readers=readers, changed=changed)
        for reporter in self._parts.reporters:
            reporter(report)


def distinct(group: GroupView) -> GroupView:
    """Return the group with members that share a client id going by their own ids."""
    names = [r.instance for r in group.readers]
    shared = {name for name in names if names.count(name) > 1 or not name}
    readers = tuple(replace(r, instance=r.id) if r.instance in shared else r for r in group.readers)
    return replace(group, readers=readers)
