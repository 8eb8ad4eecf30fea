"""The target that only gives advice: the group's members are somebody else's to start and stop."""

from trimtab.sidecar.measurement.observation import ReplicaInstance


class AdvisoryTarget:
    """Shows nothing, starts nothing, stops nothing; the loop counts the group's members instead."""

    advisory = True

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return nothing: there are no replicas that we know of."""
        return ()

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Start nothing, whatever the count."""
        del count
        return ()

    def stop_replica(self, name: str) -> None:
        """Stop nothing."""
