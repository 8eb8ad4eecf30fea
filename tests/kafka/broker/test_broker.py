"""The embedded broker: life cycle, error messages and clean-up."""

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


def is_running(pid: int) -> bool:
    """Return whether a process runs; zombies do not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def used_port() -> Iterator[int]:
    """A port that another socket listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


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


def test_broker_serves_records_and_cleans_up() -> None:
    """A group reads the written records; stop() ends the JVM and removes the folder."""
    with EmbeddedBroker() as broker:
        # In a session of its own, the kernel's autogroup scheduling may starve it for many seconds.
        assert os.getsid(broker.pid) == os.getsid(0)
        assert os.getpgid(broker.pid) != os.getpgid(0)  # Ctrl-C ends the whole foreground group
        make_topic(broker, "t")
        write(broker, "t", b"hello")
        assert read(broker, "t") == b"hello"
        assert broker.folder.exists()
    assert not is_running(broker.pid)
    assert not broker.folder.exists()


def test_data_folder_keeps_records_across_restarts(tmp_path: Path) -> None:
    """With a data folder, records survive a restart on another port."""
    with EmbeddedBroker(data=tmp_path) as broker:
        make_topic(broker, "t")
        write(broker, "t", b"kept")
    with EmbeddedBroker(data=tmp_path) as broker:
        assert read(broker, "t") == b"kept"
    assert (tmp_path / "data").exists()


def test_misspelt_topics_are_not_created(bootstrap: str) -> None:
    """A metadata request for an unknown topic does not create it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics("no-such-topic", timeout=10)
    assert "no-such-topic" not in admin.list_topics(timeout=10).topics


def test_port_in_use_is_reported(used_port: int) -> None:
    """The error names the port in use, and no process is started."""
    broker = EmbeddedBroker(used_port)
    with pytest.raises(PortInUseError, match=f"port {used_port} of 127.0.0.1 is in use"):
        broker.start()
    assert broker.pid == 0


@pytest.mark.slow
def test_port_taken_during_the_start_is_reported(used_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If only the JVM finds the port in use, the error is the same."""
    module = sys.modules[EmbeddedBroker.__module__]
    free = iter([[used_port, 1 + used_port], [used_port, 1 + used_port], [used_port, 1 + used_port]])
    monkeypatch.setattr(module, "_free_ports", lambda *_: next(free))
    monkeypatch.setattr(EmbeddedBroker, "_is_listening", lambda _: False)
    with pytest.raises(PortInUseError):
        EmbeddedBroker().start()
    assert next(free, None) is None  # three attempts with other free ports


def test_data_folder_in_use_is_reported(tmp_path: Path) -> None:
    """A second broker refuses the data folder of a running one, and writes nothing into it."""
    with EmbeddedBroker(data=tmp_path) as running:
        before = running.log_file.read_bytes()
        with pytest.raises(BrokerDataInUseError, match=str(tmp_path)):
            EmbeddedBroker(data=tmp_path).start()
        assert running.log_file.read_bytes().startswith(before)


def test_unwritable_data_folder_is_reported(tmp_path: Path) -> None:
    """The error names a data folder that cannot be created."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match=r"data folder .*file/data cannot be used"):
        EmbeddedBroker(data=tmp_path / "file" / "data").start()


def test_invalid_property_raises_kafkas_error() -> None:
    """An invalid property raises Kafka's message without its stack trace, instead of a timeout."""
    with pytest.raises(EmbeddedBrokerError, match=r"num\.io\.threads") as caught:
        EmbeddedBroker(properties={"num.io.threads": "many"}).start()
    assert "\tat " not in str(caught.value)


def test_additional_listener_serves_clients() -> None:
    """An additional listener has its own port and advertises it."""
    with EmbeddedBroker(listeners={"SECOND": "PLAINTEXT"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.listener_address("SECOND")})
        (node,) = admin.list_topics(timeout=10).brokers.values()
        assert f"{node.host}:{node.port}" == broker.listener_address("SECOND") != broker.bootstrap


def test_broker_ends_when_its_parent_is_killed(eventually: Callable[..., None]) -> None:
    """SIGKILL to the parent ends the JVM and removes the temporary folder."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=-1, stdin=-1, text=True) as parent:
        assert parent.stdout
        pid, _, folder = parent.stdout.readline().split()
        assert is_running(int(pid))
        parent.kill()
        eventually(lambda: not is_running(int(pid)) and not Path(folder).exists(), timeout=10)


def test_broker_ends_when_its_supervisor_is_killed(eventually: Callable[..., None]) -> None:
    """SIGKILL to the supervisor ends the JVM, and wait() raises."""
    broker = EmbeddedBroker()
    broker.start()
    supervisor = int(Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    with pytest.raises(EmbeddedBrokerError, match="supervisor was killed"):
        broker.wait()
    eventually(lambda: not is_running(broker.pid), timeout=10)
    broker.stop()
    assert not broker.folder.exists()


def test_wait_raises_when_the_jvm_ends() -> None:
    """wait() raises with the JVM's exit code."""
    with EmbeddedBroker() as broker:
        os.kill(broker.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedBrokerError, match="ended with code -9"):
            broker.wait()
