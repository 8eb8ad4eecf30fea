"""Groups of consumers that nobody here wrote, none of which knows Trimtab, on each way to steer them.

`own`: they assign by themselves, which shows that the programs and the checker are right. `led`: the
sidecar leads. `kip848`: the broker's plugin carries out the sidecar's plans.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic

from strangers.checker import check_group
from strangers.figures import balance_at, list_ownerships
from strangers.group import StrangerGroup, wait_until
from strangers.programs import KINDS, OLDER_JAVA
from strangers.steering import LEAD, Sidecar, run_sidecar
from strangers.stream import ZipfStream, zipf_rates
from support.benchmarks import run_benchmark
from trimtab.broker_plugin.plugin_jar import ASSIGNOR_CLASS
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.sidecar.plan_carrier import CARRIER_CLIENT_IDS

pytestmark = [pytest.mark.broker, pytest.mark.strangers]

PARTITIONS: Final = 20
TOTAL: Final = 400.0  # records/s
RECORD_BYTES: Final = 200
PATIENCE: Final = 120.0
BALANCED: Final = 1.10
COOPERATIVE: Final = ("go", "java", "kafka_python", "librdkafka")
BOTH_PROTOCOLS: Final = ("go", "java", "librdkafka")
NEW_PROTOCOL: Final = ("go", "go", "java", "librdkafka")
RATES: Final = zipf_rates(PARTITIONS, TOTAL, exponent=0.7, seed=3)
PLUGIN: Final = {
    "group.consumer.assignors": f"{ASSIGNOR_CLASS},io.trimtab.PlannedUniformAssignor,range",
    "group.consumer.min.heartbeat.interval.ms": "500",
    # as in the classic groups here; the default is 45 s, for which a killed member keeps its partitions
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}


@dataclass
class Trial:
    """A group under a stream."""

    group: StrangerGroup
    stream: ZipfStream

    def balance(self) -> float:
        """Return the fullest member's write rate ÷ the mean."""
        now = time()
        owned = list_ownerships(self.group.events())
        return balance_at(owned, len(self.group.members), self.stream.rates_at(now), now)

    def await_owners(self) -> None:
        """Wait until every partition has an owner, and every member a partition."""
        assert wait_until(self._all_own, PATIENCE), self.group.owners()

    def await_balance(self) -> None:
        """Wait until no member carries more than a tenth above the mean."""
        steered = wait_until(lambda: self._all_own() and self.balance() <= BALANCED, PATIENCE)
        assert steered, (self.balance(), self.group.owners())

    def change_protocol(self, protocol: str) -> None:
        """Restart each member with the other protocol, one after the other."""
        for member in self.group.members:
            self.group.restart(member, protocol=protocol)
            self.await_owners()

    def is_rebalancing(self) -> bool:
        """Return whether the coordinator waits for members to join."""
        return bool(self._describe().state == ConsumerGroupState.PREPARING_REBALANCING)

    def await_pilots_end(self) -> None:
        """Wait until the pilot of a sidecar that has ended is no member any more."""

        def is_gone() -> bool:
            return not CARRIER_CLIENT_IDS & {member.client_id for member in self._describe().members}

        assert wait_until(is_gone, PATIENCE)

    def finish(self) -> None:
        """End the stream; every record has been read, and none twice by the group's fault."""
        self.stream.stop()
        assert wait_until(lambda: self.group.has_read(self.stream.written), PATIENCE)
        self.group.stop(*self.group.members)
        verdict = check_group(self.group.events(), self.stream.written)
        assert (verdict.lost, verdict.doubled) == (0, 0), verdict.faults
        assert verdict.read == sum(map(len, self.stream.written.values())) > 0

    def _describe(self) -> Any:
        admin, name = AdminClient({"bootstrap.servers": self.group.bootstrap}), self.group.group
        return admin.describe_consumer_groups([name])[name].result(30)

    def _all_own(self) -> bool:
        owners = self.group.owners()
        return len(owners) == PARTITIONS and set(owners.values()) == set(self.group.members)


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)


@contextmanager
def under_load(
    bootstrap: str, topic: str, folder: Path, kinds: tuple[str, ...], **options: str
) -> Iterator[Trial]:
    """Start a member of each kind, named by it and its number, under a stream."""
    options = {"session": "6000", "heartbeat": "500", **options}
    with (
        StrangerGroup(bootstrap, topic, topic, folder, options) as group,
        ZipfStream(bootstrap, topic, lambda _: RATES, RECORD_BYTES) as stream,
    ):
        for number, kind in enumerate(kinds):
            group.add(f"{kind}-{number}", kind)
        yield Trial(group, stream)


@contextmanager
def steered(bootstrap: str, topic: str, folder: Path, members: int, flags: str) -> Iterator[Sidecar]:
    """Run a sidecar whose headroom makes it use all members."""
    load = f"--capacity {TOTAL * RECORD_BYTES / members / 0.8:.0f} --headroom 0.85"
    scale = f"--min {members} --max {members}"
    with run_sidecar(bootstrap, topic, topic, folder / "sidecar.log", f"{load} {scale} {flags}") as sidecar:
        yield sidecar


@pytest.mark.parametrize(("assignors", "kinds"), [("range", KINDS), ("cooperative-sticky", COOPERATIVE)])
def test_own_assignors_survive_a_restart_of_each(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, assignors: str, kinds: tuple[str, ...]
) -> None:
    """A group of all clients, each restarted in order and one killed, reads each record once."""
    name = topic(partitions=PARTITIONS)
    with under_load(bootstrap, name, tmp_path, kinds, assignors=assignors) as trial:
        trial.await_owners()
        for member in [*trial.group.members]:
            trial.group.restart(member)
            trial.await_owners()
        trial.group.kill(member)
        trial.group.start(member)
        trial.await_owners()
        trial.finish()


@pytest.mark.parametrize(("assignors", "kinds"), [("range", KINDS), ("cooperative-sticky", COOPERATIVE)])
def test_a_led_group_is_balanced_across_restarts(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, assignors: str, kinds: tuple[str, ...]
) -> None:
    """All clients under one sidecar: each restarted, the sidecar killed and back; balanced, none lost."""
    name = topic(partitions=PARTITIONS)
    with steered(bootstrap, name, tmp_path, len(kinds), LEAD) as sidecar:
        sidecar.wait_ready(PATIENCE)
        with under_load(bootstrap, name, tmp_path, kinds, assignors=assignors) as trial:
            trial.await_balance()
            for member in [*trial.group.members]:
                trial.group.restart(member)
            trial.await_balance()
            sidecar.stop(signal.SIGKILL)
            sidecar.start()
            sidecar.wait_ready(PATIENCE)
            trial.group.kill(member)
            trial.group.start(member)
            trial.await_balance()
            trial.finish()


def test_members_of_two_versions_of_a_client_are_led(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Java's client 3.9 beside 4.4, during a rolling upgrade: balanced, none lost, none doubled."""
    name, kinds = topic(partitions=PARTITIONS), ("java", OLDER_JAVA, OLDER_JAVA)
    with steered(bootstrap, name, tmp_path, len(kinds), LEAD) as sidecar:
        sidecar.wait_ready(PATIENCE)
        with under_load(bootstrap, name, tmp_path, kinds, assignors="cooperative-sticky") as trial:
            trial.await_balance()
            trial.group.restart(f"{OLDER_JAVA}-1", kind="java")
            trial.await_balance()
            trial.group.restart("java-0", kind=OLDER_JAVA)
            trial.await_balance()
            trial.finish()


def test_a_led_group_survives_its_broker(tmp_path: Path) -> None:
    """The broker stops for a moment: the sidecar leads on, and no record is lost or doubled."""
    name, data = "strangers", tmp_path / "data"
    with EmbeddedBroker(data=data) as broker:
        create_topic(broker.bootstrap, name)
        with steered(broker.bootstrap, name, tmp_path, len(COOPERATIVE), LEAD) as sidecar:
            sidecar.wait_ready(PATIENCE)
            options = {"assignors": "cooperative-sticky", "session": "20000"}
            with under_load(broker.bootstrap, name, tmp_path, COOPERATIVE, **options) as trial:
                trial.await_balance()
                broker.stop()
                with EmbeddedBroker(broker.port, data=data):
                    trial.group.restart("go-0")
                    trial.await_balance()
                    trial.finish()


@pytest.mark.parametrize(("assignors", "kinds"), [("range", KINDS), ("cooperative-sticky", COOPERATIVE)])
def test_a_member_that_is_slow_to_rejoin_is_waited_for(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, assignors: str, kinds: tuple[str, ...]
) -> None:
    """A member does nothing while another one restarts: it keeps its place; none lost, none doubled."""
    name = topic(partitions=PARTITIONS)
    with steered(bootstrap, name, tmp_path, len(kinds), LEAD) as sidecar:
        sidecar.wait_ready(PATIENCE)
        options = {"assignors": assignors, "session": "30000"}
        with under_load(bootstrap, name, tmp_path, kinds, **options) as trial:
            trial.await_balance()
            slow, other = [*trial.group.members][:2]
            trial.group.suspend(slow)
            trial.group.restart(other)
            assert wait_until(trial.is_rebalancing, PATIENCE)
            assert not wait_until(lambda: not trial.is_rebalancing(), 5.0)
            trial.group.resume(slow)
            trial.await_balance()
            trial.finish()


def test_a_led_group_changes_to_the_new_protocol_and_back(tmp_path: Path) -> None:
    """One member at a time, under load; before and after each change the sidecar balances the group."""
    name = "strangers"
    with EmbeddedBroker(properties=PLUGIN) as broker, ExitStack() as stack:
        create_topic(broker.bootstrap, name)
        steer = partial(steered, broker.bootstrap, name, tmp_path, len(BOTH_PROTOCOLS))
        with steer(LEAD) as sidecar:
            sidecar.wait_ready(PATIENCE)
            load = under_load(
                broker.bootstrap, name, tmp_path, BOTH_PROTOCOLS, assignors="cooperative-sticky"
            )
            trial = stack.enter_context(load)
            trial.await_balance()
            trial.change_protocol("consumer")
        with steer("--protocol auto"):
            trial.await_balance()
        trial.await_pilots_end()  # docs/any-client.md says why
        trial.change_protocol("classic")
        with steer(f"{LEAD} --take-lead"):
            trial.await_balance()
            trial.finish()


def test_a_group_of_the_new_protocol_is_balanced_across_restarts(tmp_path: Path) -> None:
    """Unmodified clients with group.protocol=consumer follow plans through the broker's plugin."""
    name = "strangers"
    with EmbeddedBroker(properties=PLUGIN) as broker:
        create_topic(broker.bootstrap, name)
        with (
            under_load(broker.bootstrap, name, tmp_path, NEW_PROTOCOL, protocol="consumer") as trial,
            steered(broker.bootstrap, name, tmp_path, len(NEW_PROTOCOL), "--protocol auto") as sidecar,
        ):
            trial.await_balance()
            for member in [*trial.group.members]:
                trial.group.restart(member)
            trial.await_balance()
            sidecar.stop(signal.SIGKILL)
            sidecar.start()
            trial.group.kill(member)
            trial.group.start(member)
            trial.await_balance()
            trial.finish()


def test_the_benchmark_compares_all_ways(tmp_path: Path) -> None:
    """One stream through three sides; each loses nothing, and the last line has its figures."""
    plot = tmp_path / "plot.png"
    words = "--partitions 12 --seconds 9 --settle 6 --plot"
    result = run_benchmark("sidecar.bench_strangers", *words.split(), plot)
    assert {side: (of["lost"], of["doubled"]) for side, of in result.items()} == {
        "own": (0, 0),
        "led": (0, 0),
        "kip848": (0, 0),
    }
    assert all(
        of.keys() >= {"max_over_mean", "late_percent", "moves", "pause_p99_s"} for of in result.values()
    )
    assert plot.read_bytes().startswith(b"\x89PNG")
