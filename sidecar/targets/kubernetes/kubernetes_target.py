"""Replicas as the pods of a Deployment or StatefulSet, through its scale subresource.

Kubernetes mends deaths by itself, so a count is asked for, never a pod: `add` asks for as many as
`replicas` showed last and so many more, and nothing if that many are asked for already. A count is
asked for only of the version of the workload that was looked at; where somebody else was quicker
(409) everything is looked at again. Names are those of the pods, and must be the client ids of the
members: tell them by the downward API.

`stop` follows the rules of `kube_values`: the pod is marked as the cheapest to delete, the count is
lowered by one, and then it is waited for. Between the two the controller needs a moment to see the
mark: it reads pods and counts by two streams, and nothing tells when both have arrived. After an
outage of the API server that may take a minute (`outage`), and for as long no pod is taken.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import KubernetesAway, ScalingWaits
from trimtab.sidecar.leadership.leader_election import Alone, Leadership, insist
from trimtab.sidecar.measurement.observation import Asked, Instance, Outside
from trimtab.sidecar.targets.kubernetes.api_client import Changed, KubeApi
from trimtab.sidecar.targets.kubernetes.api_outage import Outage
from trimtab.sidecar.targets.kubernetes.workload import (
    BEFORE,
    CHEAPEST,
    COST,
    Found,
    Kind,
    count_without,
)

T = TypeVar("T")

TRIES: Final = 5
"""How often something is done anew where somebody else was quicker."""

MARK_SECONDS: Final = 1.0
"""From a mark to the lower count."""

GRAIN: Final = 1.0
"""Seconds by which the server's times may be too early: they are whole, and its clock is another.
"""

LOOK_SECONDS: Final = 0.2
"""Between two looks at what becomes of a request."""


class Kubernetes:
    """One workload's pods; with `contest`, counts that others set are to be set back.

    `patience` is for how many seconds the controller's work is waited for; what takes longer is
    seen by a later turn. `leadership` is asked right before a count is asked for.
    """

    advisory = False

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        contest: bool = False,
        patience: float = 5.0,
        leadership: Leadership | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._contest = contest
        self._leadership = leadership or Alone()
        self._patience = patience
        self._shown: frozenset[str] = frozenset()
        self._outside = Outside(contest=contest)
        self._asked: Asked | None = None
        self._outage = Outage(clock.monotonic())

    def outside(self) -> Outside:
        """Return what others asked of the workload when `replicas` looked last."""
        return self._outside

    def replicas(self) -> tuple[Instance, ...]:
        """Return the pods. Raises KubernetesAway, KubernetesRefuses."""
        found = self._look()
        staying = {p.name for p in found.staying}
        self._shown = frozenset(staying)
        w = found.workload
        self._asked = self._since(w.asked)
        self._outside = Outside(self._asked, self._contest, w.pause, found.trouble)
        ordered = w.kind is Kind.STATEFULSET
        return tuple(
            Instance(p.name, p.name in staying, p.started, p.ordinal if ordered else 0)
            for p in found.pods
        )

    def add(self, count: int) -> tuple[str, ...]:
        """Ask for so many more than were shown, and return the names of those that came.

        Raises KubernetesAway, KubernetesRefuses, NotLeading, ScalingWaits.
        """
        wanted = len(self._shown) + count
        self._retried(lambda: self._raise_to(wanted))
        found = self._waited(lambda f: len(_new(f, self._shown)) >= count)
        if any(pod.marked for pod in found.staying):  # it was about to go, and stays now
            self._retried(lambda: self._restore(self._look()))
        return _new(found, self._shown)

    def stop(self, name: str) -> None:
        """Have this pod taken away, and no other.

        Raises KubernetesAway, KubernetesRefuses, NotLeading, and ScalingWaits where another one
        might go.
        """
        self._retried(lambda: self._take(name))
        self._waited(lambda f: all(p.name != name for p in f.alive))

    def _look(self) -> Found:
        """Return the workload and its pods. Raises KubernetesAway, KubernetesRefuses."""
        return self._told(self._api.look)

    def _told(self, ask: Callable[[], T]) -> T:
        """Return what the API server answers, and note whether it does."""
        try:
            answer = ask()
        except KubernetesAway:
            self._outage.fail()
            raise
        self._outage.answer(self._clock.monotonic())
        return answer

    def _since(self, asked: Asked) -> Asked:
        """Return the count with when it was set; of some the server does not tell (`kube_values`).

        Such a one that was there at the first look counts as set now.
        """
        before = self._asked
        if before is not None and (before.count, before.by) == (asked.count, asked.by):
            return before
        now = self._clock.wall()
        told = before is None and asked.at + GRAIN < now
        return replace(asked, at=asked.at + GRAIN if told else now)

    def _raise_to(self, wanted: int) -> None:
        found = self._look()
        self._restore(found)
        if found.workload.replicas < wanted:
            self._scale(found, wanted)

    def _take(self, name: str) -> None:
        found = self._look()
        count = count_without(found, name)
        if count is None:
            return
        self._restore(found, but=name)
        if found.workload.kind is Kind.DEPLOYMENT and self._mark(found, name):
            self._clock.sleep(MARK_SECONDS)
            found = self._look()
            count = count_without(found, name)
            if count is None:
                return
        if found.workload.replicas > count:
            if found.workload.kind is Kind.DEPLOYMENT:
                self._insist_on_sight()
            self._scale(found, count)

    def _insist_on_sight(self) -> None:
        """Raise ScalingWaits while the controller may not see which pod is marked."""
        left = self._outage.left(self._clock.monotonic())
        if left > 0:
            raise ScalingWaits(
                "the Kubernetes API server was away, and its controllers may not see yet which pod "
                f"is to go: in {left:.0f} s they do"
            )

    def _scale(self, found: Found, count: int) -> None:
        insist(self._leadership)
        self._told(lambda: self._api.scale(count, found.workload.version))

    def _mark(self, found: Found, name: str) -> bool:
        """Make a pod the cheapest to delete; say whether it was not yet."""
        pod = next(p for p in found.staying if p.name == name)
        if pod.marked:
            return False
        self._annotate(name, {COST: str(CHEAPEST), BEFORE: pod.cost or ""})
        return True

    def _restore(self, found: Found, but: str = "") -> None:
        """Take our mark from pods that stay."""
        for pod in found.staying:
            if pod.marked and pod.name != but:
                self._annotate(pod.name, {COST: pod.before or None, BEFORE: None})

    def _annotate(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        self._told(lambda: self._api.annotate(pod, annotations))

    def _retried(self, work: Callable[[], None]) -> None:
        for _ in range(TRIES):
            try:
                work()
            except Changed:
                self._clock.sleep(LOOK_SECONDS)
            else:
                return
        raise ScalingWaits(
            f"{self._api.place} was changed by others {TRIES} times while it was to be scaled"
        )

    def _waited(self, holds: Callable[[Found], bool]) -> Found:
        deadline = self._clock.monotonic() + self._patience
        found = self._look()
        while not holds(found) and self._clock.monotonic() < deadline:
            self._clock.sleep(LOOK_SECONDS)
            found = self._look()
        return found


def _new(found: Found, shown: frozenset[str]) -> tuple[str, ...]:
    return tuple(p.name for p in found.alive if p.name not in shown)
