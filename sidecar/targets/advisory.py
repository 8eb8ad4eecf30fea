"""Target `advisory`: the sidecar recommends a replica count and something else scales the group."""

from trimtab.sidecar.measurement.observation import ReplicaInstance


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
