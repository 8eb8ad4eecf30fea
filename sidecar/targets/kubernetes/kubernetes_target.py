"""Target `kubernetes`: the pods of a Deployment or StatefulSet, through the scale subresource.

- `add_replicas` sets the replica count to the last listed pods plus `count`; it never creates pods.
- `stop_replica` follows the rules of `workload`: it marks the pod as the cheapest to delete, lowers
  the count by one, and waits for the pod to go.
- Every write names the resource version that was read; a conflict (409) restarts from a new read.
- Replica names are pod names and must equal the members' client ids (downward API).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from trimtab.common.clock import Clock
from trimtab.common.type_vars import ResultT
from trimtab.sidecar.errors import KubernetesUnavailableError, ScalingPostponedError
from trimtab.sidecar.leadership.leader_election import Leadership, SoleLeader, require_leadership
from trimtab.sidecar.model.observation import ReplicaInstance, RequestedReplicas, TargetStatus
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

MAX_CONFLICT_RETRIES: Final = 5  # attempts of a read-modify-write, until the next iteration
DELETION_COST_DELAY_S: Final = 1.0  # from setting the deletion cost to lowering the count
API_TIMESTAMP_RESOLUTION_S: Final = 1.0  # API timestamps are truncated to whole seconds
WORKLOAD_POLL_INTERVAL_S: Final = 0.2


class KubernetesTarget:
    """The pods of one workload."""

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
        self._target_status = TargetStatus()
        self._requested: RequestedReplicas | None = None
        self._outage = ApiOutage(clock.monotonic())

    def read_target_status(self) -> TargetStatus:
        """Return the replica count and pause set by others, and errors, as of the last `list_replicas`."""
        return self._target_status

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return the pods."""
        snapshot = self._fetch_snapshot()
        staying = {p.name for p in snapshot.staying_pods}
        self._listed_pods = frozenset(staying)
        w = snapshot.workload
        self._requested = self._date_requested_replicas(w.requested)
        # pods of the node's network share its address, which then tells none of them
        count = Counter(p.address for p in snapshot.alive_pods)
        addresses = {p.address: p.name for p in snapshot.alive_pods if p.address and count[p.address] == 1}
        self._target_status = TargetStatus(
            self._requested, w.paused_direction, snapshot.errors, replicas_by_address=addresses
        )
        ordered = w.kind is WorkloadKind.STATEFULSET
        return tuple(
            ReplicaInstance(p.name, p.name in staying, p.started_at, p.ordinal if ordered else 0)
            for p in snapshot.pods
        )

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Request `count` pods more than last listed and return the names of the new pods.

        Raises NotLeaderError, ScalingPostponedError, and the errors of the API client.
        """
        # Kubernetes replaces dead pods itself: counting from the last list does not add them twice
        desired = len(self._listed_pods) + count
        self._retry_on_conflict(lambda: self._scale_up_to(desired))
        snapshot = self._wait_until(lambda s: len(_list_new_pods(s, self._listed_pods)) >= count)
        if any(pod.is_marked for pod in snapshot.staying_pods):  # the higher count keeps this pod
            self._retry_on_conflict(lambda: self._restore_deletion_costs(self._fetch_snapshot()))
        return _list_new_pods(snapshot, self._listed_pods)

    def stop_replica(self, name: str) -> None:
        """Scale down by exactly this pod.

        Raises NotLeaderError, the errors of the API client, and ScalingPostponedError if the
        controller might delete another pod.
        """
        self._retry_on_conflict(lambda: self._remove_pod(name))
        self._wait_until(lambda s: all(p.name != name for p in s.alive_pods))

    def _fetch_snapshot(self) -> WorkloadSnapshot:
        return self._call(self._api.fetch_snapshot)

    def _call(self, request: Callable[[], ResultT]) -> ResultT:
        """Return the result of an API call and record an outage of the server."""
        try:
            result = request()
        except KubernetesUnavailableError:
            self._outage.note_failure()
            raise
        self._outage.note_answer(self._clock.monotonic())
        return result

    def _date_requested_replicas(self, requested: RequestedReplicas) -> RequestedReplicas:
        before = self._requested
        now = self._clock.wall()
        count, by = requested.count, requested.requested_by
        if before is not None and (before.count, before.requested_by) == (count, by):
            return before
        at = requested.requested_at + API_TIMESTAMP_RESOLUTION_S
        # Without a timestamp (infinite, see `workload`) a request counts as made when first seen.
        return replace(requested, requested_at=at if before is None and at < now else now)

    def _scale_up_to(self, desired: int) -> None:
        snapshot = self._fetch_snapshot()
        self._restore_deletion_costs(snapshot)
        if snapshot.workload.replicas < desired:
            self._set_replicas(snapshot, desired)

    def _remove_pod(self, name: str) -> None:
        snapshot = self._fetch_snapshot()
        count = compute_count_without(snapshot, name)
        if count is None:
            return
        self._restore_deletion_costs(snapshot, except_pod=name)
        is_deployment = snapshot.workload.kind is WorkloadKind.DEPLOYMENT
        if is_deployment and self._mark_for_deletion(snapshot, name):
            # the controller watches pods and counts by two streams: the mark must arrive first,
            # and no API tells when it has
            self._clock.sleep(DELETION_COST_DELAY_S)
            snapshot = self._fetch_snapshot()
            count = compute_count_without(snapshot, name)
            if count is None:
                return
        if snapshot.workload.replicas > count:
            if is_deployment:
                self._require_synced_controllers()
            self._set_replicas(snapshot, count)

    def _require_synced_controllers(self) -> None:
        left = self._outage.compute_resync_left(self._clock.monotonic())
        if left > 0:  # the count may reach the controller before the mark
            raise ScalingPostponedError(
                "the Kubernetes API server was unavailable, and its controllers may not know yet "
                f"which pod to delete; scale-down continues in {left:.0f} s"
            )

    def _set_replicas(self, snapshot: WorkloadSnapshot, count: int) -> None:
        require_leadership(self._leadership)  # the last moment: reads and waits may outlast a lease
        self._call(lambda: self._api.set_replicas(count, snapshot.workload.resource_version))

    def _mark_for_deletion(self, snapshot: WorkloadSnapshot, name: str) -> bool:
        """Make a pod the cheapest to delete; return False if it already was."""
        pod = next(p for p in snapshot.staying_pods if p.name == name)
        if pod.is_marked:
            return False
        cost = str(LOWEST_DELETION_COST)
        previous = pod.deletion_cost or ""
        self._annotate_pod(name, {DELETION_COST_ANNOTATION: cost, PREVIOUS_COST_ANNOTATION: previous})
        return True

    def _restore_deletion_costs(self, snapshot: WorkloadSnapshot, except_pod: str = "") -> None:
        """Remove our mark from staying pods and restore their previous deletion cost."""
        for pod in snapshot.staying_pods:
            if pod.is_marked and pod.name != except_pod:
                costs = {DELETION_COST_ANNOTATION: pod.previous_cost or None, PREVIOUS_COST_ANNOTATION: None}
                self._annotate_pod(pod.name, costs)

    def _annotate_pod(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        self._call(lambda: self._api.annotate_pod(pod, annotations))

    def _retry_on_conflict(self, attempt: Callable[[], None]) -> None:
        for _ in range(MAX_CONFLICT_RETRIES):
            try:
                attempt()
            except ResourceConflictError:
                self._clock.sleep(WORKLOAD_POLL_INTERVAL_S)
            else:
                return
        raise ScalingPostponedError(
            f"{self._api.scale_target} was changed concurrently {MAX_CONFLICT_RETRIES} times "
            "during the scaling; the next iteration retries"
        )

    def _wait_until(self, condition: Callable[[WorkloadSnapshot], bool]) -> WorkloadSnapshot:
        deadline = self._clock.monotonic() + self._controller_timeout
        snapshot = self._fetch_snapshot()
        while not condition(snapshot) and self._clock.monotonic() < deadline:
            self._clock.sleep(WORKLOAD_POLL_INTERVAL_S)
            snapshot = self._fetch_snapshot()
        return snapshot


def _list_new_pods(snapshot: WorkloadSnapshot, listed_pods: frozenset[str]) -> tuple[str, ...]:
    return tuple(p.name for p in snapshot.alive_pods if p.name not in listed_pods)
