"""TLS and SASL on a real broker: logins, errors and secrets."""

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

from support.secured import PASSWORD, Right, Secured
from trimtab.assignor.model import TopicPartition
from trimtab.cli.demo.producers import DemoProducers
from trimtab.cli.demo.scenario import PARTITIONS_PER_TOPIC, DemoScenario
from trimtab.cli.main import main
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SaslAuthenticationError, SettingError, TlsHandshakeError
from trimtab.common.kafka_security import client_config
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.lake.verify.topic_log import BrokerTopicLog
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.kafka.partition_logs import PartitionLogs
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "TLS")
USER_ACLS: tuple[Right, ...] = (
    ("topic", "seen", "read"), ("topic", "seen", "write"), ("group", "seen", "read"),
    ("cluster", "kafka-cluster", "describe"),
)  # fmt: skip

CONTROL_TOPIC_ACLS: tuple[Right, ...] = tuple(
    ("topic", name, right)
    for name in ("trimtab.plans", "trimtab.write-rates", "trimtab.decisions")
    for right in ("create", "read", "write")
)


@pytest.fixture(scope="module")
def broker(guarded_broker: Secured) -> Iterator[Secured]:
    """A broker with the topic and group `seen`, on which its user has all rights."""
    guarded_broker.make_topic("seen")
    guarded_broker.grant(USER_ACLS)
    yield guarded_broker
    for right in USER_ACLS:
        guarded_broker.revoke(right)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_all_clients_authenticate(broker: Secured, mechanism: str, eventually: Any) -> None:
    """Consumer, sidecar and producer authenticate with every mechanism."""
    client = broker.client(mechanism)
    bootstrap = client.pop("bootstrap.servers")
    values = {"bootstrap": bootstrap, "group": "seen", "capacity": "1 MB/s", "kafka": client}
    settings = load_settings(None, values)
    config = settings.client_config
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
    sizes = PartitionLogs(settings, SystemClock())
    try:
        leaders = brokers.fetch_cluster_metadata().leaders
        assert brokers.fetch_group_commits().offsets[TopicPartition("seen", 0)] > 0
        sizes.fetch_replica_sizes(leaders)
        assert sizes.fetch_replica_sizes(leaders).values[TopicPartition("seen", 0)] > 0
    finally:
        brokers.close()
        sizes.close()


def test_credentials_given_later_log_both_clients_in(broker: Secured, eventually: Any) -> None:
    """set_sasl_credentials() replaces a wrong password, and one that new connections need."""
    right = broker.client("SCRAM-SHA-512")
    consumer = Consumer(
        {**right, "group.id": "seen", "auto.offset.reset": "earliest", "sasl.password": "wrong"}
    )
    try:
        consumer.set_sasl_credentials(right["sasl.username"], right["sasl.password"])
        consumer.subscribe(["seen"])
        eventually(lambda: consumer.consume(0, 0.2) == [] and consumer.assignment(), 40)
        consumer.set_sasl_credentials(right["sasl.username"], right["sasl.password"])
        assert consumer.consumer_group_metadata()
    finally:
        consumer.close()


def test_demo_producers_need_write_only(broker: Secured, eventually: Any) -> None:
    """With Write on their topics only, the demo's producers report no error."""
    scenario = DemoScenario(20.0, prefix="demo-")
    rights: list[Right] = [("topic", name, "write") for name in scenario.topics]
    for name in scenario.topics:
        broker.make_topic(name, PARTITIONS_PER_TOPIC)
    broker.grant(rights)
    client = client_config.to_librdkafka_config(broker.client("OAUTHBEARER"))
    producers = DemoProducers({**client, "log_level": 2}, scenario, SystemClock())
    producers.start()
    try:
        eventually(lambda: producers.records > 100, 60)
    finally:
        producers.stop()
        for right in rights:
            broker.revoke(right)
    assert producers.faults == []


def broken_client(broker: Secured, fault: str) -> dict[str, Any]:
    """Return client settings with one fault."""
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
        "untrusted certificate": broker.client("TLS")
        | {
            "ssl.certificate.pem": (broker.folder / "strange.crt").read_text(),
            "ssl.key.pem": (broker.folder / "strange.key").read_text(),
        },
        "token": broker.client("OAUTHBEARER") | {"oauth_cb": lambda _: ("nonsense", 1e12)},
    }
    return clients[fault]


CASES = (
    ("password", SaslAuthenticationError, "refuses to log us in as 'limited'.*invalid credentials"),
    ("plain password", SaslAuthenticationError, "Invalid username or password"),
    ("token", SaslAuthenticationError, "correct oauth_cb"),
    ("authority", TlsHandshakeError, "is not trusted: (self-signed|unable to get).*ssl.ca.location"),
    ("expired", TlsHandshakeError, "certificate has expired"),
    ("host", TlsHandshakeError, "IP address mismatch.*connect by a name that it holds"),
    ("no TLS", TlsHandshakeError, "closed the connection 3 times.*a port without TLS.*SASL_PLAINTEXT"),
    ("no certificate", TlsHandshakeError, "asks for our certificate .*ssl.certificate.location"),
    ("untrusted certificate", TlsHandshakeError, "refuses our certificate .*of one that it trusts"),
)


@pytest.mark.parametrize(("fault", "kind", "message"), CASES)
def test_connection_faults_are_reported_at_once(
    broker: Secured, fault: str, kind: type[Exception], message: str
) -> None:
    """Consumer and sidecar raise the cause within 15 s instead of retrying forever."""
    client, start = broken_client(broker, fault), monotonic()
    with pytest.raises(kind, match=message) as caught:
        BrokerClient({**client, "client.id": "x"}, "seen", 5.0)
    consumer = Consumer({**client, "group.id": "seen"})
    with pytest.raises(kind, match=message):
        consumer.subscribe(["seen"])
    consumer.close()
    with pytest.raises(kind, match=message):
        BrokerTopicLog(client)
    assert monotonic() - start < 15
    assert PASSWORD[:-1] not in str(caught.value)


def test_plaintext_client_on_a_tls_listener_is_reported(broker: Secured) -> None:
    """The doctor reports a PLAINTEXT client that connects to a TLS listener."""
    bootstrap = broker.broker.listener_address("SECURE")
    values = {"bootstrap": bootstrap, "group": "seen", "capacity": "1 MB/s", "timeout": "1 s"}
    findings = run_broker_checks(load_settings(None, values), SystemClock())
    assert (findings[0].level, findings[0].check) == (FindingLevel.FAILED, "brokers")
    assert "speaks TLS, but security.protocol=PLAINTEXT" in findings[0].message


@pytest.mark.parametrize("disabled_check", ["ssl.endpoint.identification.algorithm",
                                 "enable.ssl.certificate.verification"])  # fmt: skip
def test_disabled_tls_checks_apply_to_both_clients(
    broker: Secured, disabled_check: str, eventually: Any
) -> None:
    """With the check disabled, a consumer accepts another host's or an untrusted certificate."""
    client = broken_client(broker, "host" if disabled_check.startswith("ssl") else "authority")
    client[disabled_check] = "none" if disabled_check.startswith("ssl") else False
    consumer = Consumer({**client, "group.id": "seen", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["seen"])
        eventually(lambda: consumer.consume(1, 0.2) or consumer.assignment(), 40)
        assert consumer.committed(consumer.assignment(), timeout=10)
    finally:
        consumer.close()


@pytest.fixture
def run_folder(broker: Secured, tmp_path: Path, eventually: Any) -> Iterator[Path]:
    """Folder of a running sidecar after some iterations: sidecar.yaml, log, state."""
    broker.grant(CONTROL_TOPIC_ACLS)
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    body = broker.client() | {"sasl.password": f"${{file:{secret}}}"}
    folder = tmp_path / "run"
    folder.mkdir()
    values = {"bootstrap": body.pop("bootstrap.servers"), "group": "seen", "topics": "seen",
             "capacity": "1 MB/s", "interval": "200 ms", "window": "1 s", "kafka": body,
             "scale-up-evaluation-window": "0 s", "state-dir": str(folder / "state")}  # fmt: skip
    (folder / "sidecar.yaml").write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(folder / "sidecar.yaml")]
    with (folder / "log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        eventually((folder / "state" / "web").exists, 60)
        page = (folder / "state" / "web").read_text().strip()
        eventually(lambda: len(json.loads(_fetch(f"{page}/decisions"))) > 2, 60)
        yield folder
    finally:
        process.kill()
        process.wait(30)
        for right in CONTROL_TOPIC_ACLS:
            broker.revoke(right)


def test_running_sidecar_exposes_no_secret(
    run_folder: Path, capsys: pytest.CaptureFixture[str], eventually: Any
) -> None:
    """No log, page, file or output of explain, top and doctor contains the password."""
    file = run_folder / "sidecar.yaml"
    page = (run_folder / "state" / "web").read_text().strip()
    pages = _fetch(f"{page}/decisions") + _fetch(f"{page}/metrics")
    eventually(
        lambda: main(["explain", "-n", "5", "--config", str(file)]) == 0
    )  # fails until a decision is published
    assert main(["top", "--once", "--format", "json", "--config", str(file)]) == 0
    assert main(["doctor", "--config", str(file)]) in (0, 1)
    output = capsys.readouterr()
    assert "group seen" in output.out
    files = "".join(p.read_text(errors="replace") for p in run_folder.rglob("*") if p.is_file())
    assert "health, metrics and decisions" in files
    assert PASSWORD not in pages + output.out + output.err + files + repr(load_settings(file, {}))


def test_debug_log_contains_no_password(broker: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """kafka-python's DEBUG log has its requests, but no SASL login."""
    with caplog.at_level(logging.DEBUG, "kafka"):
        with Consumer({**broker.client("PLAIN"), "group.id": "seen"}) as consumer:
            consumer.subscribe(["seen"])
        assert "MetadataRequest" in caplog.text
        assert PASSWORD not in caplog.text


def test_traceback_contains_no_secret(broker: Secured) -> None:
    """The full traceback of an uncaught error contains no password."""
    client = {**broker.client(), "sasl.password": "hunter3", "group.id": "seen"}
    with Consumer(client) as consumer, pytest.raises(SaslAuthenticationError) as caught:
        consumer.subscribe(["seen"])
    assert "hunter3" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(SettingError) as refused:
        Consumer({**client, "no.such": 1})
    assert "hunter3" not in "".join(traceback.format_exception(refused.value))


def _fetch(url: str) -> str:
    with urlopen(url, timeout=10) as response:  # noqa: S310 - the sidecar's own page
        return str(response.read().decode())


@pytest.fixture
def config(broker: Secured, tmp_path: Path) -> Path:
    """A sidecar's settings file that refers to a file with a wrong password."""
    password = tmp_path / "password"
    password.write_text("hunter3\n")
    body = broker.client() | {"sasl.password": f"${{file:{password}}}"}
    values = {"bootstrap": body.pop("bootstrap.servers"), "group": "seen", "topics": "seen",
             "capacity": "1 MB/s", "kafka": body}  # fmt: skip
    file = tmp_path / "sidecar.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.mark.parametrize(
    "arguments",
    [["top", "--once"], ["explain"], ["sidecar"], ["record", "--out", "x.json"], ["plan"]],
    ids=lambda arguments: arguments[0],
)
def test_every_command_reports_a_wrong_password(
    config: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command reports the failed login without the password and exits with 1."""
    assert main([*arguments, "--config", str(config)]) == 1
    output = capsys.readouterr()
    assert "refuses to log us in as 'limited'" in output.err
    assert "hunter3" not in output.out + output.err


def test_wrong_password_is_one_line_on_stderr(config: Path) -> None:
    """A process writes one line: no client logs, no traceback, no password."""
    command = [sys.executable, "-m", "trimtab.cli", "top", "--once", "--config", str(config)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 1
    assert len(completed.stderr.splitlines()) == 1
    assert "hunter3" not in completed.stdout + completed.stderr


def test_doctor_reports_a_wrong_password(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor reports the failed login with its remedy."""
    assert main(["doctor", "--config", str(config)]) == 1
    output = capsys.readouterr().out
    assert "FAILED   brokers: 127.0.0.1" in output
    assert "-> correct sasl.username and sasl.password" in output
    assert "hunter3" not in output
