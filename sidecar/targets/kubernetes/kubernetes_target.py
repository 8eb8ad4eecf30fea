"""Replicas as the pods of a Deployment or StatefulSet, through its scale subresource.

Kubernetes mends deaths by itself, so a count is asked for, never a pod: `add_replicas` asks for as
many as `list_replicas` showed last and so many more, and nothing if that many are asked for
already. A count is asked for only of the version of the workload that was looked at; where somebody
else was quicker (409) everything is looked at again. Names are those of the pods, and must be the
client ids of the members: tell them by the downward API.

`stop_replica` follows the rules of `kube_values`: the pod is marked as the cheapest to delete, the
count is lowered by one, and then it is waited for. Between the two the controller needs a moment to
see the mark: it reads pods and counts by two streams, and nothing tells when both have arrived.
After an outage of the API server that may take a minute (`outage`), and for as long no pod is
taken.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import KubernetesUnavailableError, ScalingPostponedError
from trimtab.sidecar.leadership.leader_election import Leadership, SoleLeader, require_leadership
from trimtab.sidecar.measurement.observation import (
    ExternalScaling,
    ReplicaInstance,
    RequestedReplicas,
)
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ResourceConflictError
from trimtab.sidecar.targets.kubernetes.api_outage import ApiOutage
from trimtab.sidecar.targets.kubernetes.workload import (
    DELETION_COST_ANNOTATION,
    LOWEST_DELETION_COST,
    PREVIOUS_COST_ANNOTATION,
    WorkloadKind,
    WorkloadSnapshot,
    compute_count_without,
)

T = TypeVar("T")

MAX_CONFLICT_RETRIES: Final = 5
"""How often something is done anew where somebody else was quicker."""

DELETION_COST_DELAY_S: Final = 1.0
"""From a mark to the lower count."""

API_TIMESTAMP_RESOLUTION_S: Final = 1.0
"""Seconds by which the server's times may be too early: they are whole, and its clock is another.
"""

WORKLOAD_POLL_INTERVAL_S: Final = 0.2
"""Between two looks at what becomes of a request."""


class KubernetesTarget:
    """The pods of one workload.

    `controller_timeout` is for how many seconds the controller's work is waited for; what takes
    longer is seen by a later turn. `leadership` is asked right before a count is asked for.
    """

    advisory = False

    def __init__(
        self,
        api: KubernetesApi,
        clock: Clock,
        *,
        controller_timeout: float = 5.0,
        leadership: Leadership | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._leadership = leadership or SoleLeader()
        self._controller_timeout = controller_timeout
        self._listed_pods: frozenset[str] = frozenset()
        self._external_scaling = ExternalScaling()
        self._requested: RequestedReplicas | None = None
        self._outage = ApiOutage(clock.monotonic())

    def read_external_scaling(self) -> ExternalScaling:
        """Return what others asked of the workload when `list_replicas` looked last."""
        return self._external_scaling

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return the pods. Raises KubernetesUnavailableError, KubernetesRejectedError."""
        found = self._fetch_snapshot()
        staying = {p.name for p in found.staying_pods}
        self._listed_pods = frozenset(staying)
        w = found.workload
        self._requested = self._date_requested_replicas(w.requested)
        self._external_scaling = ExternalScaling(self._requested, w.paused_direction, found.trouble)
        ordered = w.kind is WorkloadKind.STATEFULSET
        return tuple(
            ReplicaInstance(p.name, p.name in staying, p.started_at, p.ordinal if ordered else 0)
            for p in found.pods
        )

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Ask for so many more than were shown, and return the names of those that came.

        Raises KubernetesUnavailableError, KubernetesRejectedError, NotLeaderError,
        ScalingPostponedError.
        """
        wanted = len(self._listed_pods) + count
        self._retry_on_conflict(lambda: self._scale_up_to(wanted))
        found = self._wait_until(lambda f: len(_list_new_pods(f, self._listed_pods)) >= count)
        if any(pod.is_marked for pod in found.staying_pods):  # it was about to go, and stays now
            self._retry_on_conflict(lambda: self._restore_deletion_costs(self._fetch_snapshot()))
        return _list_new_pods(found, self._listed_pods)

    def stop_replica(self, name: str) -> None:
        """Have this pod taken away, and no other.

        Raises KubernetesUnavailableError, KubernetesRejectedError, NotLeaderError, and
        ScalingPostponedError where another one might go.
        """
        self._retry_on_conflict(lambda: self._remove_pod(name))
        self._wait_until(lambda f: all(p.name != name for p in f.alive_pods))

    def _fetch_snapshot(self) -> WorkloadSnapshot:
        """Return the workload and its pods.

        Raises KubernetesUnavailableError, KubernetesRejectedError.
        """
        return self._call_noting_outage(self._api.fetch_snapshot)

    def _call_noting_outage(self, call: Callable[[], T]) -> T:
        """Return what the API server answers, and note whether it does."""
        try:
            answer = call()
        except KubernetesUnavailableError:
            self._outage.note_failure()
            raise
        self._outage.note_answer(self._clock.monotonic())
        return answer

    def _date_requested_replicas(self, requested: RequestedReplicas) -> RequestedReplicas:
        """Return the count with when it was set; of some the server does not tell (`kube_values`).

        Such a one that was there at the first look counts as set now.
        """
        before = self._requested
        if before is not None and (before.count, before.requested_by) == (
            requested.count,
            requested.requested_by,
        ):
            return before
        now = self._clock.wall()
        told = before is None and requested.requested_at + API_TIMESTAMP_RESOLUTION_S < now
        return replace(
            requested,
            requested_at=requested.requested_at + API_TIMESTAMP_RESOLUTION_S if told else now,
        )

    def _scale_up_to(self, desired: int) -> None:
        found = self._fetch_snapshot()
        self._restore_deletion_costs(found)
        if found.workload.replicas < desired:
            self._set_replicas(found, desired)

    def _remove_pod(self, name: str) -> None:
        found = self._fetch_snapshot()
        count = compute_count_without(found, name)
        if count is None:
            return
        self._restore_deletion_costs(found, except_pod=name)
        if found.workload.kind is WorkloadKind.DEPLOYMENT and self._mark_for_deletion(found, name):
            self._clock.sleep(DELETION_COST_DELAY_S)
            found = self._fetch_snapshot()
            count = compute_count_without(found, name)
            if count is None:
                return
        if found.workload.replicas > count:
            if found.workload.kind is WorkloadKind.DEPLOYMENT:
                self._require_synced_controllers()
            self._set_replicas(found, count)

    def _require_synced_controllers(self) -> None:
        """Raise ScalingPostponedError while the controller may not see which pod is marked."""
        left = self._outage.compute_resync_left(self._clock.monotonic())
        if left > 0:
            raise ScalingPostponedError(
                "the Kubernetes API server was away, and its controllers may not see yet which pod "
                f"is to go: in {left:.0f} s they do"
            )

    def _set_replicas(self, snapshot: WorkloadSnapshot, count: int) -> None:
        require_leadership(self._leadership)
        self._call_noting_outage(
            lambda: self._api.set_replicas(count, snapshot.workload.resource_version)
        )

    def _mark_for_deletion(self, snapshot: WorkloadSnapshot, name: str) -> bool:
        """Make a pod the cheapest to delete; say whether it was not yet."""
        pod = next(p for p in snapshot.staying_pods if p.name == name)
        if pod.is_marked:
            return False
        self._annotate_pod(
            name,
            {
                DELETION_COST_ANNOTATION: str(LOWEST_DELETION_COST),
                PREVIOUS_COST_ANNOTATION: pod.deletion_cost or "",
            },
        )
        return True

    def _restore_deletion_costs(self, snapshot: WorkloadSnapshot, except_pod: str = "") -> None:
        """Take our mark from pods that stay."""
        for pod in snapshot.staying_pods:
            if pod.is_marked and pod.name != except_pod:
                self._annotate_pod(
                    pod.name,
                    {
                        DELETION_COST_ANNOTATION: pod.previous_cost or None,
                        PREVIOUS_COST_ANNOTATION: None,
                    },
                )

    def _annotate_pod(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        self._call_noting_outage(lambda: self._api.annotate_pod(pod, annotations))

    def _retry_on_conflict(self, attempt: Callable[[], None]) -> None:
        for _ in range(MAX_CONFLICT_RETRIES):
            try:
                attempt()
            except ResourceConflictError:
                self._clock.sleep(WORKLOAD_POLL_INTERVAL_S)
            else:
                return
        raise ScalingPostponedError(
            f"{self._api.scale_target} was changed by others {MAX_CONFLICT_RETRIES} times "
            "while it was to be scaled"
        )

    def _wait_until(self, condition: Callable[[WorkloadSnapshot], bool]) -> WorkloadSnapshot:
        deadline = self._clock.monotonic() + self._controller_timeout
        found = self._fetch_snapshot()
        while not condition(found) and self._clock.monotonic() < deadline:
            self._clock.sleep(WORKLOAD_POLL_INTERVAL_S)
            found = self._fetch_snapshot()
        return found


def _list_new_pods(snapshot: WorkloadSnapshot, listed_pods: frozenset[str]) -> tuple[str, ...]:
    return tuple(p.name for p in snapshot.alive_pods if p.name not in listed_pods)
