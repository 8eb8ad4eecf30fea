"""Faults of a process and of its connection to the brokers; the seed chooses kind, time and target."""

import random
from typing import Protocol

from trimtab.testing.simulation import green
from trimtab.testing.simulation.network import Network


class FaultTarget(Protocol):
    """Process of a group that faults hit; it does not poll for `stall` seconds, once."""

    name: str
    process: green.Process
    stop: green.Event
    stall: float


class FaultScene(Protocol):
    """Parts of a history that faults need; times in seconds."""

    rng: random.Random
    network: Network
    deaths_left: int

    @property
    def session_timeout(self) -> float:
        """Session timeout of the group."""
        ...

    @property
    def poll_interval(self) -> float:
        """Longest time between two polls."""
        ...

    def any_worker(self) -> FaultTarget | None:
        """Return a random live process."""
        ...


def kill(at: FaultScene) -> str | None:
    """Kill a worker at once."""
    worker = at.any_worker()
    if worker is None or at.deaths_left <= 0:
        return None
    at.deaths_left -= 1
    worker.process.end()
    return f"{worker.name} is killed"


def freeze(at: FaultScene) -> str | None:
    """Freeze a worker, often for longer than the session timeout, then continue it."""
    worker = at.any_worker()
    if worker is None:
        return None
    seconds = at.rng.uniform(0.3, 3.0) * at.session_timeout
    worker.process.freeze(seconds)
    return f"{worker.name} is frozen for {seconds:.1f} s"


def cut(at: FaultScene) -> str | None:
    """Cut a worker off from the brokers, from nothing else."""
    worker = at.any_worker()
    if worker is None:
        return None
    seconds = at.rng.uniform(0.2, 2.5) * at.session_timeout
    at.network.cut(worker.name, seconds)
    return f"{worker.name} is cut off for {seconds:.1f} s"


def stall(at: FaultScene) -> str | None:
    """Keep a worker's application from polling for a while; its threads continue."""
    worker = at.any_worker()
    if worker is None:
        return None
    worker.stall = at.rng.uniform(0.3, 1.5) * at.poll_interval
    return f"{worker.name} will not poll for {worker.stall:.1f} s"


def brokers(at: FaultScene) -> str | None:
    """Make the brokers unreachable."""
    seconds = at.rng.uniform(0.2, 1.5) * at.session_timeout
    at.network.down(seconds)
    return f"the brokers are away for {seconds:.1f} s"


def messages(at: FaultScene) -> str | None:
    """Lose, duplicate and delay messages, or stop doing so."""
    network, rng = at.network, at.rng
    network.lost, network.doubled, network.slow = (
        rng.choice((0.0, 0.02, 0.1)),
        rng.choice((0.0, 0.1, 0.3)),
        rng.choice((0.0, 0.05, 0.3)),
    )
    return f"messages: lost {network.lost}, doubled {network.doubled}, slow {network.slow}"


def leave(at: FaultScene) -> str | None:
    """Ask a worker to end, as an operator may."""
    worker = at.any_worker()
    if worker is None or at.deaths_left <= 0:
        return None
    at.deaths_left -= 1
    worker.stop.set()
    return f"{worker.name} is asked to end"
