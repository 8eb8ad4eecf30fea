"""What the sidecar needs of the place where replicas run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.sidecar.leadership.leader_election import Alone, Leadership
from trimtab.sidecar.measurement.observation import Instance, Outside
from trimtab.sidecar.reporting.iteration_report import Reporter


class ReplicaTarget(Protocol):
    """Starts and stops replicas; every answer is about now, nothing is remembered by the caller.

    The contract, held by tests/contract/test_replica_target.py:
    - a name is given once: no later replica gets the name of an earlier one, unless replicas have
      places that they come back to (`ordinal`);
    - `add` counts from what `replicas` showed last, so that deaths which the target mends itself
      are not mended twice; it returns when the replicas are on their way, and `replicas` shows them
      from then on;
    - `stop` asks a replica to end and may be repeated; one that is not there is no error; where
      another one might go instead it raises, and does it when asked again later;
    - `advisory` targets do neither, and show no replicas.
    """

    @property
    def advisory(self) -> bool:
        """Whether this target only gives advice: nothing can be started or stopped."""
        ...

    def replicas(self) -> tuple[Instance, ...]:
        """Return the replicas there are, sorted by name. Raises PeerError where it is not known."""
        ...

    def add(self, count: int) -> tuple[str, ...]:
        """Start so many replicas and return their names. Raises CannotStart, PeerError."""
        ...

    def stop(self, name: str) -> None:
        """Ask a replica to finish what it holds, and to end. Raises PeerError."""
        ...


@dataclass(frozen=True, slots=True)
class Steering:
    """A target and what comes with it.

    `outside` tells what others had asked of it when it was looked at last, `leadership` whether
    this sidecar is the one that acts on it; `lease` names what that is by, empty where nothing is.
    """

    target: ReplicaTarget
    outside: Callable[[], Outside] = Outside
    leadership: Leadership = field(default_factory=Alone)
    reporters: tuple[Reporter, ...] = ()
    lease: str = ""
