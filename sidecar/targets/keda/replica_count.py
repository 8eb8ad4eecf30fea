"""Replica count shared by the control loop and KEDA's gRPC calls: one value under one lock."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Condition

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import ReplicaCountUnavailableError
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.targets.keda.scaler_responses import (
    ScalerState,
    StalenessLimits,
    apply_report,
    require_replica_count,
)


class KedaReplicaCount:
    """The replica count reported to KEDA, and its availability. Thread-safe."""

    def __init__(self, limits: StalenessLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._state = ScalerState(last_iteration_at=clock.monotonic())
        self._changed = Condition()

    def get_or_adopt(self, current: int) -> int:
        """Return the last reported count; without one, adopt `current`."""
        with self._changed:
            if self._state.replicas is None:
                self._state = replace(self._state, replicas=current)  # rule 6 of `scaler_responses`
            return self._state.replicas or 0

    def set_replicas(self, replicas: int) -> None:
        """Report this count from now on."""
        with self._changed:
            self._state = replace(self._state, replicas=replicas)
            self._changed.notify_all()

    def __call__(self, report: IterationReport) -> None:
        """Update the availability from a control-loop iteration."""
        with self._changed:
            self._state = apply_report(self._state, report, self._limits, self._clock.monotonic())
            self._changed.notify_all()

    def get_replicas(self) -> int:
        """Return the desired replica count. Raises ReplicaCountUnavailableError."""
        with self._changed:
            return require_replica_count(self._state, self._limits, self._clock.monotonic())

    def wake_watchers(self) -> None:
        """Wake all watchers so that they check `keep_watching` again."""
        with self._changed:
            self._changed.notify_all()

    def watch_activity(self, keep_watching: Callable[[], bool]) -> Iterator[bool]:
        """Yield whether the count is above 0, once it is known and at each change."""
        # Nothing while it is unavailable: KEDA then keeps what it has, or applies its fallback.
        shown: bool | None = None
        while (shown := self._wait_for_change(keep_watching, shown=shown)) is not None:
            yield shown

    def _wait_for_change(self, keep_watching: Callable[[], bool], *, shown: bool | None) -> bool | None:
        with self._changed:
            while keep_watching():
                now = self._is_active()
                if now is not None and now != shown:
                    return now
                self._changed.wait()  # also for `wake_watchers`, when a stream or the service ends
        return None

    def _is_active(self) -> bool | None:
        try:
            return require_replica_count(self._state, self._limits, self._clock.monotonic()) > 0
        except ReplicaCountUnavailableError:
            return None
