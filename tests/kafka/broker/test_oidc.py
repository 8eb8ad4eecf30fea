"""OIDC's settings on a real broker: every client logs in with tokens of an HTTPS endpoint."""

import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Producer

from support.secured import Right, Secured, token
from support.token_endpoint import SECRET, Answer, TokenEndpoint, serve_tokens
from trimtab.assignor.model import TopicPartition
from trimtab.cli.main import main
from trimtab.common import tls
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SaslAuthenticationError, TokenEndpointError
from trimtab.consumer_sdk import Consumer
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.kafka.partition_logs import PartitionLogs
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

pytestmark = pytest.mark.broker

LIFETIME_S = 5.0
RIGHTS: tuple[Right, ...] = (
    ("topic", "oidc", "read"), ("topic", "oidc", "write"), ("group", "oidc", "read"),
    ("cluster", "kafka-cluster", "describe"),
)  # fmt: skip


def issue(_: int) -> Answer:
    """Return an answer with a token that the broker accepts for LIFETIME_S."""
    text, _expiry = token("", LIFETIME_S)
    return 200, {}, json.dumps({"access_token": text, "expires_in": LIFETIME_S}).encode()


@pytest.fixture(scope="module")
def broker(guarded_broker: Secured) -> Iterator[Secured]:
    """A broker with the topic and group `oidc`, on which its user has all rights."""
    guarded_broker.make_topic("oidc")
    guarded_broker.grant(RIGHTS)
    yield guarded_broker
    for right in RIGHTS:
        guarded_broker.revoke(right)


@pytest.fixture
def endpoint(broker: Secured) -> Iterator[TokenEndpoint]:
    """A token endpoint with the broker's certificate."""
    context = tls.create_server_context(broker.folder / "broker.crt", broker.folder / "broker.key")
    with serve_tokens(issue, context) as served:
        yield served


@pytest.fixture
def settings(
    broker: Secured, endpoint: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SidecarSettings:
    """A sidecar's settings, whose client secret is a reference."""
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    client = broker.client("OAUTHBEARER") | endpoint.settings() | {
        "security.protocol": "SASL_SSL",
        "https.ca.location": broker.authority,
        "sasl.oauthbearer.client.secret": "${env:OIDC_SECRET}",
    }  # fmt: skip
    del client["oauth_cb"]
    bootstrap = client.pop("bootstrap.servers")
    values = {"bootstrap": bootstrap, "group": "oidc", "capacity": "1 MB/s", "kafka": client}
    file = tmp_path / "sidecar.yaml"
    file.write_text(json.dumps(values))
    return load_settings(file, {})


def test_all_clients_log_in_and_renew_the_token(
    settings: SidecarSettings, endpoint: TokenEndpoint, eventually: Any
) -> None:
    """Consumer, sidecar and producer share a token; those of a second lifetime log new clients in."""
    start, kafka = monotonic(), {**settings.kafka, "bootstrap.servers": settings.bootstrap}
    producer = Producer(settings.client_config)
    consumer = Consumer({**kafka, "group.id": "oidc", "auto.offset.reset": "earliest"})
    brokers = BrokerClient(settings.client_config, "oidc", 5.0)
    try:
        producer.produce("oidc", b"hello", partition=0)
        assert producer.flush(20) == 0
        consumer.subscribe(["oidc"])
        eventually(lambda: any(m.error() is None for m in consumer.consume(10, 0.2)), 40)
        # all clients together ask once per 80 % of a lifetime
        assert len(endpoint.requests) <= 1 + (monotonic() - start) / (0.8 * LIFETIME_S)
        first = len(endpoint.requests)
        eventually(lambda: consumer.consume(1, 0.2) == [] and len(endpoint.requests) > first + 1, 30)
        producer.produce("oidc", b"again", partition=1)
        assert producer.flush(20) == 0
        eventually(lambda: any(m.error() is None for m in consumer.consume(10, 0.2)), 40)
        assert consumer.commit(asynchronous=False)
        leaders = brokers.fetch_cluster_metadata().leaders
        assert brokers.fetch_group_commits().offsets[TopicPartition("oidc", 1)] > 0
        sizes = PartitionLogs(settings, SystemClock())  # logs in with a later token
        eventually(lambda: sizes.fetch_replica_sizes(leaders).values[TopicPartition("oidc", 0)] > 0, 20)
        sizes.close()
    finally:
        consumer.close()
        brokers.close()


def test_a_refused_client_is_reported_at_once(
    settings: SidecarSettings, endpoint: TokenEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Consumer, sidecar and doctor name the endpoint and the remedy, not the secret."""
    endpoint.answer = lambda _: (401, {}, b'{"error": "invalid_client"}')
    start = monotonic()
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap, "group.id": "oidc"}
    with pytest.raises(TokenEndpointError, match="invalid_client") as caught:
        Consumer(kafka)
    finding = run_broker_checks(settings, SystemClock())[0]
    assert (finding.level, finding.check) == (FindingLevel.FAILED, "brokers")
    assert "correct sasl.oauthbearer.client.id" in finding.remedy
    assert main(["sidecar", "--config", str(tmp_path / "sidecar.yaml")]) == 1
    output = capsys.readouterr()
    assert "refuses the client (HTTP 401, invalid_client)" in output.err
    assert SECRET not in str(caught.value) + finding.message + output.out + output.err
    assert monotonic() - start < 8  # librdkafka waits 10 s for a token


def test_a_refused_token_is_reported_at_once(settings: SidecarSettings, endpoint: TokenEndpoint) -> None:
    """The error names the settings that the token came from."""
    answer = json.dumps({"access_token": "nonsense", "expires_in": 60}).encode()
    endpoint.answer = lambda _: (200, {}, answer)
    with pytest.raises(SaslAuthenticationError, match=r"correct the token endpoint, client and scope"):
        BrokerClient(settings.client_config, "oidc", 5.0)
