"""Seams of the simulation: all names of a consumer that it replaces.

Threads and waits become those of `green`, and the two Kafka clients become stand-ins. Each is looked
up in the current process, so the replacement is made once for all histories. Tests of other parts of
the project add names of their own.
"""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final
from unittest import mock

from kafka.coordinator import heartbeat

from trimtab.consumer_sdk.consumer import consumer
from trimtab.consumer_sdk.membership import control_topic_reader
from trimtab.consumer_sdk.membership.classic import group_commits, member
from trimtab.testing.simulation import green
from trimtab.testing.simulation.fetching import Fetcher
from trimtab.testing.simulation.host import Host, SimulatedControlReader
from trimtab.testing.simulation.membership import Client


class Timer:
    """`kafka.util.Timer`, on the simulated clock."""

    def __init__(self, milliseconds: float) -> None:
        self._end = green.process().hub.now + milliseconds / 1000

    @property
    def expired(self) -> bool:
        """Whether the time is over."""
        return self.timeout_ms <= 0

    @property
    def timeout_ms(self) -> float:
        """Milliseconds that are left."""
        return max(0.0, self._end - green.process().hub.now) * 1000


def _host() -> Host:
    host: Host = green.process().host
    return host


def _create_data_plane(_config: dict[str, Any], _create: Any) -> Fetcher:
    return _host().create_fetcher()


def _connect_member(settings: Any, assignor: Any, listener: Any) -> Client:
    return _host().connect_member(settings, assignor, listener)


def _list_no_topic_names(_config: Any) -> list[str]:
    return []


Replacements = Mapping[Any, Mapping[str, Any]]
"""New values of a module's names."""

CONSUMER_SEAMS: Final[Replacements] = MappingProxyType(
    {
        control_topic_reader: {"Thread": green.Thread, "Event": green.Event},
        consumer: {"create_data_plane": _create_data_plane},
        member: {
            "ControlTopicReader": SimulatedControlReader,
            "Event": green.Event,
            "Thread": green.Thread,
            "_connect_member": _connect_member,
            "list_topic_names": _list_no_topic_names,  # for a hint in a warning; the real one asks a broker
        },
        heartbeat: {"time": SimpleNamespace(monotonic=lambda: green.process().hub.now)},
        group_commits: {"Event": green.Event, "Timer": Timer},
    }
)


@contextmanager
def replace_names(*replacements: Replacements) -> Generator[None]:
    """Replace names of modules for the length of a `with` block."""
    with ExitStack() as stack:
        for one in replacements:
            for module, names in one.items():
                stack.enter_context(mock.patch.multiple(module, **names))
        yield
