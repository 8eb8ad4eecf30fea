"""The embedded broker: starts, names its failures, and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.errors import BrokerDataInUseError, EmbeddedBrokerError, PortInUseError
from trimtab.common.errors import SettingError

PARENT = """
import sys
from trimtab.common.errors import SettingError
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
with EmbeddedBroker() as broker:
    print(broker.pid, broker.port, broker.folder, flush=True)
    sys.stdin.read()
"""


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def taken() -> Iterator[int]:
    """A port in use."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def write(broker: EmbeddedBroker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(10) == 0


def read(broker: EmbeddedBroker, topic: str) -> bytes | None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def make_topic(broker: EmbeddedBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)


def test_is_a_kafka_and_leaves_nothing() -> None:
    """Records written are read by a group; at the end JVM and folder are gone.

    It is in our session, or the kernel may keep it from the cores for many seconds, and not in our
    process group, which Ctrl-C ends.
    """
    with EmbeddedBroker() as broker:
        assert os.getsid(broker.pid) == os.getsid(0)
        assert os.getpgid(broker.pid) != os.getpgid(0)
        make_topic(broker, "t")
        write(broker, "t", b"hello")
        assert read(broker, "t") == b"hello"
        assert broker.folder.exists()
    assert not alive(broker.pid)
    assert not broker.folder.exists()


def test_data_folder_is_used_again(tmp_path: Path) -> None:
    """With a data folder the records are there after a restart on another port."""
    with EmbeddedBroker(data=tmp_path) as broker:
        make_topic(broker, "t")
        write(broker, "t", b"kept")
    with EmbeddedBroker(data=tmp_path) as broker:
        assert read(broker, "t") == b"kept"
    assert (tmp_path / "data").exists()


def test_a_topic_is_never_made_by_a_slip(bootstrap: str) -> None:
    """A misspelt topic is an error of its reader, not a new topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics("no-such-topic", timeout=10)
    assert "no-such-topic" not in admin.list_topics(timeout=10).topics


def test_port_in_use_is_named(taken: int) -> None:
    """A taken port is named in the error, and nothing is started."""
    broker = EmbeddedBroker(taken)
    with pytest.raises(PortInUseError, match=f"port {taken} of 127.0.0.1 is in use"):
        broker.start()
    assert broker.pid == 0


def test_port_taken_at_the_last_moment(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the broker itself finds the port taken, the error is the same."""
    module = sys.modules[EmbeddedBroker.__module__]
    free = iter([[taken, 1 + taken], [taken, 1 + taken], [taken, 1 + taken]])
    monkeypatch.setattr(module, "_free_ports", lambda *_: next(free))
    monkeypatch.setattr(EmbeddedBroker, "_is_listening", lambda _: False)
    with pytest.raises(PortInUseError):
        EmbeddedBroker().start()
    assert next(free, None) is None  # it tried other ports first


def test_data_in_use_is_named(tmp_path: Path) -> None:
    """Two brokers never share a data folder; the second says so."""
    with EmbeddedBroker(data=tmp_path), pytest.raises(BrokerDataInUseError, match=str(tmp_path)):
        EmbeddedBroker(data=tmp_path).start()


def test_data_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A data folder that cannot be made is named."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match=r"data folder .*file/data cannot be used"):
        EmbeddedBroker(data=tmp_path / "file" / "data").start()


def test_bad_property_shows_the_broker_s_reason() -> None:
    """A property that Kafka refuses ends in Kafka's own reason, not in a timeout."""
    with pytest.raises(EmbeddedBrokerError, match=r"num\.io\.threads") as caught:
        EmbeddedBroker(properties={"num.io.threads": "many"}).start()
    assert "\tat " not in str(caught.value)


def test_more_listeners() -> None:
    """An additional listener gets its own port and serves clients."""
    with EmbeddedBroker(listeners={"SECOND": "PLAINTEXT"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.listener_address("SECOND")})
        (found,) = admin.list_topics(timeout=10).brokers.values()
        assert f"{found.host}:{found.port}" == broker.listener_address("SECOND") != broker.bootstrap


def test_gone_when_the_parent_is_killed(eventually: Callable[..., None]) -> None:
    """SIGKILL of the parent ends the JVM and removes the temporary folder."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=-1, stdin=-1, text=True) as parent:
        assert parent.stdout
        pid, _, folder = parent.stdout.readline().split()
        assert alive(int(pid))
        parent.kill()
        eventually(lambda: not alive(int(pid)) and not Path(folder).exists(), timeout=10)


def test_gone_when_the_supervisor_is_killed(eventually: Callable[..., None]) -> None:
    """SIGKILL of the supervisor kills the JVM, and wait() raises."""
    broker = EmbeddedBroker()
    broker.start()
    supervisor = int(Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    with pytest.raises(EmbeddedBrokerError, match="supervisor was killed"):
        broker.wait()
    eventually(lambda: not alive(broker.pid), timeout=10)
    broker.stop()
    assert not broker.folder.exists()


def test_a_broker_that_dies_is_noticed() -> None:
    """When the JVM ends by itself, wait() raises with its exit code."""
    with EmbeddedBroker() as broker:
        os.kill(broker.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedBrokerError, match="ended with code -9"):
            broker.wait()
