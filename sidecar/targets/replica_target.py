"""What the sidecar needs of the place where replicas run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.sidecar.leadership.leader_election import Leadership, SoleLeader
from trimtab.sidecar.measurement.observation import ExternalScaling, ReplicaInstance
from trimtab.sidecar.reporting.iteration_report import Reporter


class ReplicaTarget(Protocol):
    """Starts and stops replicas; every answer is about now, nothing is remembered by the caller.

    The contract, held by tests/contract/test_replica_target.py:
    - a name is given once: no later replica gets the name of an earlier one, unless replicas have
      places that they come back to (`ordinal`);
    - `add_replicas` counts from what `list_replicas` showed last, so that deaths which the target
      mends itself are not mended twice; it returns when the replicas are on their way, and
      `list_replicas` shows them from then on;
    - `stop_replica` asks a replica to end and may be repeated; one that is not there is no error;
      where another one might go instead it raises, and does it when asked again later;
    - `advisory` targets do neither, and show no replicas.
    """

    @property
    def advisory(self) -> bool:
        """Whether this target only gives advice: nothing can be started or stopped."""
        ...

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return the replicas there are, sorted by name. Raises PeerError where it is not known."""
        ...

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Start so many replicas and return their names. Raises StartupError, PeerError."""
        ...

    def stop_replica(self, name: str) -> None:
        """Ask a replica to finish what it holds, and to end. Raises PeerError."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectedTarget:
    """A target and what comes with it.

    `read_external_scaling` tells what others had asked of it when it was looked at last,
    `leadership` whether this sidecar is the one that acts on it; `lease_id` names what that is by,
    empty where nothing is.
    """

    target: ReplicaTarget
    read_external_scaling: Callable[[], ExternalScaling] = ExternalScaling
    leadership: Leadership = field(default_factory=SoleLeader)
    reporters: tuple[Reporter, ...] = ()
    lease_id: str = ""
