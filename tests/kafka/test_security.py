"""TLS and SASL on a real broker: both clients log in by each mechanism; refusals are named."""

import json
import logging
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Producer

from secured import PASSWORD, Right, Secured
from trimtab.assignor.model import TopicPartition
from trimtab.cli.demo.producers import DemoProducers
from trimtab.cli.demo.scenario import PARTITIONS_PER_TOPIC, DemoScenario
from trimtab.cli.main import main
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SaslAuthenticationError, SettingError, TlsHandshakeError
from trimtab.common.kafka_security import connection
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.lake.verify.topic_log import BrokerTopicLog
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.kafka.log_dirs import LogDirsClient
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

WAYS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "TLS")
ALL: tuple[Right, ...] = (
    ("topic", "seen", "read"), ("topic", "seen", "write"), ("group", "seen", "read"),
    ("cluster", "kafka-cluster", "describe"),
)  # fmt: skip

CONTROL: tuple[Right, ...] = tuple(
    ("topic", name, right)
    for name in ("trimtab.plans", "trimtab.write-rates", "trimtab.decisions")
    for right in ("create", "read", "write")
)


@pytest.fixture(scope="module")
def broker(guarded_broker: Secured) -> Iterator[Secured]:
    """A broker with one topic on which its user has all rights."""
    guarded_broker.make_topic("seen")
    guarded_broker.grant(ALL)
    yield guarded_broker
    for right in ALL:
        guarded_broker.take(right)


@pytest.mark.parametrize("way", WAYS)
def test_both_clients_log_in(broker: Secured, way: str, eventually: Any) -> None:
    """A consumer's two clients, the sidecar's two clients and a producer, by each mechanism."""
    client = broker.client(way)
    bootstrap = client.pop("bootstrap.servers")
    given = {"bootstrap": bootstrap, "group": "seen", "capacity": "1 MB/s", "kafka": client}
    config = load_settings(None, given).client_config
    producer = Producer({**config, "client.id": "producer"})
    producer.produce("seen", b"hello", partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer({"group.id": "seen", "auto.offset.reset": "earliest", **config})
    try:
        consumer.subscribe(["seen"])
        eventually(lambda: any(m.error() is None for m in consumer.consume(10, 0.2)), 40)
        assert consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    brokers = BrokerClient(config, "seen", 5.0)
    sizes = LogDirsClient(config, 5.0)
    try:
        leaders = brokers.fetch_cluster_metadata().leaders
        assert brokers.fetch_group_commits().offsets[TopicPartition("seen", 0)] > 0
        sizes.fetch_replica_sizes(leaders)
        assert sizes.fetch_replica_sizes(leaders).values[TopicPartition("seen", 0)] > 0
    finally:
        brokers.close()
        sizes.close()


def test_the_demo_s_producers_write(broker: Secured, eventually: Any) -> None:
    """With Write on their topics only, the broker acknowledges every record."""
    script = DemoScenario(20.0, prefix="demo-")
    rights: list[Right] = [("topic", name, "write") for name in script.topics]
    for name in script.topics:
        broker.make_topic(name, PARTITIONS_PER_TOPIC)
    broker.grant(rights)
    client = connection.to_librdkafka_config(broker.client("OAUTHBEARER"))
    producers = DemoProducers({**client, "log_level": 2}, script, SystemClock())
    producers.start()
    try:
        eventually(lambda: producers.records > 100, 60)
    finally:
        producers.stop()
        for right in rights:
            broker.take(right)
    assert producers.faults == []


def wrong(broker: Secured, what: str) -> dict[str, Any]:
    """Return settings with one thing wrong."""
    old, strange = (str(broker.folder / f"ca-{name}.crt") for name in ("old", "strange"))
    clients = {
        "password": broker.client() | {"sasl.password": PASSWORD[:-1]},
        "plain password": broker.client("PLAIN") | {"sasl.password": PASSWORD[:-1]},
        "authority": broker.client() | {"ssl.ca.location": old},
        "expired": broker.client(listener="OLD") | {"ssl.ca.location": old},
        "host": broker.client(listener="STRANGE") | {"ssl.ca.location": strange},
        "no TLS": broker.client(listener="PLAINTEXT"),
        "no certificate": {
            "bootstrap.servers": broker.broker.listener_address("TLS"),
            "security.protocol": "SSL",
            "ssl.ca.location": broker.authority,
        },
        "nobody's certificate": broker.client("TLS")
        | {
            "ssl.certificate.pem": (broker.folder / "strange.crt").read_text(),
            "ssl.key.pem": (broker.folder / "strange.key").read_text(),
        },
        "token": broker.client("OAUTHBEARER") | {"oauth_cb": lambda _: ("nonsense", 1e12)},
    }
    return clients[what]


CASES = (
    ("password", SaslAuthenticationError, "refuses to log us in as 'limited'.*invalid credentials"),
    ("plain password", SaslAuthenticationError, "Invalid username or password"),
    ("token", SaslAuthenticationError, "mend oauth_cb"),
    ("authority", TlsHandshakeError, "is not trusted: (self-signed|unable to get).*ssl.ca.location"),
    ("expired", TlsHandshakeError, "certificate has expired"),
    ("host", TlsHandshakeError, "IP address mismatch.*connect by a name that it holds"),
    ("no TLS", TlsHandshakeError, "closed the connection 3 times.*a port without TLS.*SASL_PLAINTEXT"),
    ("no certificate", TlsHandshakeError, "asks for our certificate .*ssl.certificate.location"),
    ("nobody's certificate", TlsHandshakeError, "refuses our certificate .*of one that it trusts"),
)


@pytest.mark.parametrize(("what", "kind", "said"), CASES)
def test_what_is_refused_is_named_soon(broker: Secured, what: str, kind: type[Exception], said: str) -> None:
    """Consumer and sidecar name the refusal instead of retrying for ever."""
    client, begun = wrong(broker, what), monotonic()
    with pytest.raises(kind, match=said) as caught:
        BrokerClient({**client, "client.id": "x"}, "seen", 5.0)
    consumer = Consumer({**client, "group.id": "seen"})
    with pytest.raises(kind, match=said):
        consumer.subscribe(["seen"])
    consumer.close()
    with pytest.raises(kind, match=said):
        BrokerTopicLog(client)
    assert monotonic() - begun < 15
    assert PASSWORD[:-1] not in str(caught.value)


def test_plain_text_to_tls_is_named(broker: Secured) -> None:
    """The doctor and a consumer name plain text that is sent to a TLS listener."""
    bootstrap = broker.broker.listener_address("SECURE")
    given = {"bootstrap": bootstrap, "group": "seen", "capacity": "1 MB/s", "timeout": "1 s"}
    found = run_broker_checks(load_settings(None, given), SystemClock())
    assert (found[0].level, found[0].check) == (FindingLevel.FAILED, "brokers")
    assert "speaks TLS, but security.protocol=PLAINTEXT" in found[0].message


@pytest.mark.parametrize("off", ["ssl.endpoint.identification.algorithm",
                                 "enable.ssl.certificate.verification"])  # fmt: skip
def test_a_check_that_is_off_is_off_on_both_planes(broker: Secured, off: str, eventually: Any) -> None:
    """Another host's certificate and an untrusted one are accepted if so configured."""
    client = wrong(broker, "host" if off.startswith("ssl") else "authority")
    client[off] = "none" if off.startswith("ssl") else False
    consumer = Consumer({**client, "group.id": "seen", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["seen"])
        eventually(lambda: consumer.consume(1, 0.2) or consumer.assignment(), 40)
        assert consumer.committed(consumer.assignment(), timeout=10)
    finally:
        consumer.close()


@pytest.fixture
def at_work(broker: Secured, tmp_path: Path, eventually: Any) -> Iterator[Path]:
    """The folder of a sidecar that has made some turns: sidecar.yaml, log, state."""
    broker.grant(CONTROL)
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    body = broker.client() | {"sasl.password": f"${{file:{secret}}}"}
    folder = tmp_path / "run"
    folder.mkdir()
    given = {"bootstrap": body.pop("bootstrap.servers"), "group": "seen", "topics": "seen",
             "capacity": "1 MB/s", "interval": "200 ms", "window": "1 s", "kafka": body,
             "scale-up-evaluation-window": "0 s", "state-dir": str(folder / "state")}  # fmt: skip
    (folder / "sidecar.yaml").write_text(yaml.safe_dump(given))
    line = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(folder / "sidecar.yaml")]
    with (folder / "log").open("wb") as out:
        process = subprocess.Popen(line, stdout=out, stderr=out)
    try:
        eventually((folder / "state" / "web").exists, 60)
        page = (folder / "state" / "web").read_text().strip()
        eventually(lambda: len(json.loads(_read(f"{page}/decisions"))) > 2, 60)
        yield folder
    finally:
        process.kill()
        process.wait(30)
        for right in CONTROL:
            broker.take(right)


def test_a_sidecar_at_work_shows_no_secret(
    at_work: Path, capsys: pytest.CaptureFixture[str], eventually: Any
) -> None:
    """Not in log, page and files, nor in what explain, top and doctor say of it."""
    file = at_work / "sidecar.yaml"
    page = (at_work / "state" / "web").read_text().strip()
    said = _read(f"{page}/decisions") + _read(f"{page}/metrics")
    eventually(lambda: main(["explain", "-n", "5", "--config", str(file)]) == 0)  # once one is kept
    assert main(["top", "--once", "--format", "json", "--config", str(file)]) == 0
    assert main(["doctor", "--config", str(file)]) in (0, 1)
    shown = capsys.readouterr()
    assert "group seen" in shown.out
    kept = "".join(p.read_text(errors="replace") for p in at_work.rglob("*") if p.is_file())
    assert "health, metrics and decisions" in kept
    assert PASSWORD not in said + shown.out + shown.err + kept + repr(load_settings(file, {}))


def test_debugging_shows_no_password(broker: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """kafka-python logs its requests at DEBUG; logins are left out."""
    with caplog.at_level(logging.DEBUG, "kafka"):
        with Consumer({**broker.client("PLAIN"), "group.id": "seen"}) as consumer:
            consumer.subscribe(["seen"])
        assert "MetadataRequest" in caplog.text
        assert PASSWORD not in caplog.text


def test_a_traceback_shows_no_secret(broker: Secured) -> None:
    """A full traceback of an uncaught error holds no password."""
    client = {**broker.client(), "sasl.password": "hunter3", "group.id": "seen"}
    with Consumer(client) as consumer, pytest.raises(SaslAuthenticationError) as caught:
        consumer.subscribe(["seen"])
    assert "hunter3" not in "".join(traceback.format_exception(caught.value))
    wrong = {**client, "no.such": 1}
    with pytest.raises(SettingError) as refused:
        Consumer(wrong)
    assert "hunter3" not in "".join(traceback.format_exception(refused.value))


def _read(url: str) -> str:
    with urlopen(url, timeout=10) as answer:  # noqa: S310 - our own page
        return str(answer.read().decode())


@pytest.fixture
def config(broker: Secured, tmp_path: Path) -> Path:
    """A sidecar's file with a wrong password, which is in a file of its own."""
    password = tmp_path / "password"
    password.write_text("hunter3\n")
    body = broker.client() | {"sasl.password": f"${{file:{password}}}"}
    given = {"bootstrap": body.pop("bootstrap.servers"), "group": "seen", "topics": "seen",
             "capacity": "1 MB/s", "kafka": body}  # fmt: skip
    file = tmp_path / "sidecar.yaml"
    file.write_text(yaml.safe_dump(given))
    return file


@pytest.mark.parametrize(
    "words",
    [["top", "--once"], ["explain"], ["sidecar"], ["record", "--out", "x.json"], ["plan"]],
    ids=lambda words: words[0],
)
def test_every_command_ends_and_names_a_wrong_password(
    config: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With 1, and without the password."""
    assert main([*words, "--config", str(config)]) == 1
    said = capsys.readouterr()
    assert "refuses to log us in as 'limited'" in said.err
    assert "hunter3" not in said.out + said.err


def test_a_process_says_one_line_of_a_wrong_password(config: Path) -> None:
    """No flood of a client's own, no traceback, no password."""
    line = [sys.executable, "-m", "trimtab.cli", "top", "--once", "--config", str(config)]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert "hunter3" not in ran.stdout + ran.stderr


def test_the_doctor_finds_a_wrong_password(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the failure and the remedy."""
    assert main(["doctor", "--config", str(config)]) == 1
    said = capsys.readouterr().out
    assert "FAILED   brokers: 127.0.0.1" in said
    assert "-> mend sasl.username and sasl.password" in said
    assert "hunter3" not in said
