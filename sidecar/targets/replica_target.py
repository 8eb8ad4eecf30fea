"""Interface between the control loop and the platform that runs the replicas."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.sidecar.leadership.leader_election import Leadership, SoleLeader
from trimtab.sidecar.model.observation import ReplicaInstance, TargetStatus
from trimtab.sidecar.records.iteration_report import Reporter


class ReplicaTarget(Protocol):
    """Starts and stops replicas; each call reports the current state and callers cache nothing.

    Contract, verified by tests/contract/test_replica_target.py:
    - A replica name is never reused, except where replicas keep their place (`ordinal`).
    - `add_replicas` counts from the last `list_replicas` result, so a target that replaces dead
      replicas itself does not replace them twice. It returns once the replicas are starting;
      `list_replicas` includes them from then on.
    - `stop_replica` is idempotent and ignores unknown names. It raises if the platform might stop
      another replica instead, and succeeds on a later call.
    - `advisory` targets do neither and list no replicas.
    """

    @property
    def advisory(self) -> bool:
        """Whether this target cannot start or stop replicas."""
        ...

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return all replicas, sorted by name. Raises PeerError if they are unknown."""
        ...

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Start `count` replicas and return their names. Raises StartupError, PeerError."""
        ...

    def stop_replica(self, name: str) -> None:
        """Ask a replica to finish its work and exit. Raises PeerError."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectedTarget:
    """A target with its status, leadership and reporters."""

    target: ReplicaTarget
    read_target_status: Callable[[], TargetStatus] = TargetStatus  # as of the last `list_replicas`
    leadership: Leadership = field(default_factory=SoleLeader)
    reporters: tuple[Reporter, ...] = ()
    lease_id: str = ""  # of the lease behind the leadership; empty without leader election


class AdvisoryTarget:
    """Lists, starts and stops no replicas; the loop counts the group's members instead."""

    advisory = True

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return no replicas."""
        return ()

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Start nothing."""
        del count  # part of the interface
        return ()

    def stop_replica(self, name: str) -> None:
        """Stop nothing."""
