"""The query for weights: a server of Prometheus's API, and whatever else may answer."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from socket import create_server
from subprocess import Popen
from typing import Any, Protocol

import pytest
import yaml
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from cluster.binaries import find_prometheus
from support.prometheus_server import PrometheusServer, serve_prometheus
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.tls import create_client_context
from trimtab.sidecar.diagnostics.doctor.all_checks import check_weight_query
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.readings import prometheus_query
from trimtab.sidecar.readings.prometheus_query import PrometheusQuery
from trimtab.sidecar.settings.settings import load_settings

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


QUERY = "sum by (topic, partition) (rate(handler_seconds_total[1m]))"


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with serve_prometheus() as server:
        yield server


@pytest.fixture
def query(server: PrometheusServer) -> PrometheusQuery:
    return PrometheusQuery(server.url, QUERY, None, 5.0, SystemClock())


def sample(partition: int, value: str, topic: str = "orders") -> tuple[dict[str, str], str]:
    return {"topic": topic, "partition": str(partition), "pod": "a"}, value


def test_weights_of_the_partitions(server: PrometheusServer, query: PrometheusQuery) -> None:
    """Samples of the asked partitions, by one query, without a token."""
    server.tell(sample(0, "1.5"), sample(1, "2e3"), sample(0, "9", topic="clicks"))
    assert query.fetch_weights((A, B)) == ({A: 1.5, B: 2000.0}, ())
    assert server.queries == [QUERY]
    assert server.tokens == [None]


def test_a_token_is_read_before_each_request(
    server: PrometheusServer, query: PrometheusQuery, tmp_path: Path
) -> None:
    """A renewed token is used without a restart."""
    server.tell()
    file = tmp_path / "token"
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        replace(query, token_file=file).fetch_weights(())
    assert server.tokens == ["Bearer first", "Bearer second"]


def test_trusted_certificates_are_loaded_once(
    server: PrometheusServer, query: PrometheusQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of all groups share one TLS context."""
    loaded: list[ssl.SSLContext] = []

    def load(config: Mapping[str, Any]) -> ssl.SSLContext:
        loaded.append(create_client_context(config))
        return loaded[-1]

    monkeypatch.setattr(prometheus_query, "create_client_context", load)
    prometheus_query._get_opener.cache_clear()
    server.tell(sample(0, "1"))
    for group in (query, replace(query, timeout=4.0)):
        assert group.fetch_weights((A,)) == ({A: 1.0}, ())
    assert len(loaded) == 1


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "heavy"])
def test_a_partition_without_a_usable_sample_is_named(
    server: PrometheusServer, query: PrometheusQuery, value: str
) -> None:
    """It has no weight, and the error names it; the others have theirs."""
    server.tell(sample(0, "1"), sample(1, value))
    weights, errors = query.fetch_weights((A, B))
    assert weights == {A: 1.0}
    assert errors == ("weights: weight-query tells nothing of 1 partition, like orders-1: unknown",)


def test_several_samples_of_a_partition_are_refused(server: PrometheusServer, query: PrometheusQuery) -> None:
    """None of them is taken for its weight."""
    server.tell(sample(0, "1"), sample(0, "2"))
    weights, (error,) = query.fetch_weights((A,))
    assert weights == {}
    assert "several samples of orders-0; write sum by (topic, partition)" in error


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, b'{"data": {"resultType": "matrix", "result": []}}', "gives a matrix"),
        (
            200,
            b'{"data": {"resultType": "vector", "result": [{"metric": {}}]}}',
            "no sample with labels topic",
        ),
        (200, b"<html>", "not Prometheus's; check prometheus-url"),
        (200, b"[" * 100_000, "not Prometheus's; check prometheus-url"),
        (400, b'{"status": "error", "error": "parse error: unexpected end"}', "HTTP 400: parse error"),
        (401, b"", "HTTP 401); set prometheus-token-file"),
        (302, b"", "HTTP 302; correct weight-query or prometheus-url"),
        (503, b"\xff", "HTTP 503; correct"),
    ],
)
def test_every_other_answer_is_an_error_that_says_what_to_do(
    server: PrometheusServer, query: PrometheusQuery, status: int, body: bytes, error: str
) -> None:
    """Nothing raises, and no partition gets a weight."""
    server.status, server.body = status, body
    weights, errors = query.fetch_weights((A,))
    assert weights == {}
    assert [error in text for text in errors] == [True]


def test_a_server_that_does_not_answer(query: PrometheusQuery, tmp_path: Path) -> None:
    """Nothing listens, nothing answers, or the token's file is gone."""
    with create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hanging = replace(query, url=f"http://127.0.0.1:{port}", timeout=0.05)
        assert "does not answer: timed out; check prometheus-url" in hanging.fetch_weights((A,))[1][0]
    assert "Connection refused" in replace(hanging, timeout=5.0).fetch_weights((A,))[1][0]
    without = replace(query, token_file=tmp_path / "none")
    assert "none cannot be read: FileNotFoundError" in without.fetch_weights((A,))[1][0]


def test_the_doctor_tells_whether_the_query_is_answered(server: PrometheusServer) -> None:
    """A refused query fails the check with its reason and remedy."""
    settings = load_settings(
        None,
        {
            "bootstrap": "localhost:1",
            "group": "g",
            "capacity": 1.0,
            "weight-source": "prometheus",
            "weight-query": QUERY,
            "prometheus-url": server.url,
        },
    )
    server.tell(sample(0, "1"))
    (answered,) = check_weight_query(settings, SystemClock())
    server.status, server.body = 400, b'{"error": "parse error"}'
    (refused,) = check_weight_query(settings, SystemClock())
    assert (answered.level, refused.level) == (FindingLevel.OK, FindingLevel.FAILED)
    assert refused.message == f"{server.url} answers with HTTP 400: parse error"
    assert refused.remedy == "correct weight-query or prometheus-url"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"weight-query": "q"}, "write weight-source=prometheus"),
        ({"weight-source": "prometheus", "record-cost": "150 B"}, "record-cost adds to write rates"),
        ({"weight-source": "prometheus", "prometheus-url": "http://p:9090"}, "needs weight-query"),
        ({"weight-source": "prometheus", "weight-query": "q"}, "needs prometheus-url"),
        ({"prometheus-url": "http://user:hunter2@p:9090"}, "prometheus-url is no URL like"),
        ({"prometheus-url": "file:///etc/passwd"}, "prometheus-url is no URL like"),
        ({"prometheus-url": "http://p:port"}, "prometheus-url is no URL like"),
        ({"prometheus-token-file": "/none"}, "prometheus-token-file /none is no file"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, str], error: str) -> None:
    """By an error that names them, without a password."""
    common = {"bootstrap": "localhost:1", "group": "g", "capacity": 1.0}
    with pytest.raises(SettingError, match=error) as caught:
        load_settings(None, {**common, **given})
    assert "hunter2" not in str(caught.value)


@pytest.mark.slow
def test_a_real_prometheus_answers_like_the_one_above(tmp_path: Path, eventually: Eventually) -> None:
    """Weights of an exporter's gauge, a wrong query, and several samples of a partition."""
    registry = CollectorRegistry()
    costs = Gauge("costs", "weight of a partition", ["topic", "partition", "handler"], registry=registry)
    for partition, handler, value in (("0", "a", 1.0), ("0", "b", 0.5), ("1", "a", 2_000.0)):
        costs.labels("orders", partition, handler).set(value)
    exporter, thread = start_http_server(0, "127.0.0.1", registry)
    with closing(create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    targets = [{"targets": [f"127.0.0.1:{exporter.server_port}"]}]
    scrape = {"job_name": "handlers", "scrape_interval": "200ms", "static_configs": targets}
    config = tmp_path / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    flags = [f"--web.listen-address={address}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    process = Popen([str(find_prometheus()), f"--config.file={config}", *flags])
    try:
        query = PrometheusQuery(
            f"http://{address}", "sum by (topic, partition) (costs)", None, 5.0, SystemClock()
        )
        eventually(lambda: query.fetch_weights((A, B)) == ({A: 1.5, B: 2_000.0}, ()))
        assert "HTTP 400: " in replace(query, query="sum by (").fetch_weights((A,))[1][0]
        assert "several samples of orders-0" in replace(query, query="costs").fetch_weights((A,))[1][0]
        assert "gives a scalar" in replace(query, query="1").fetch_weights((A,))[1][0]
    finally:
        process.terminate()
        process.wait(30)
        exporter.shutdown()
        thread.join()
