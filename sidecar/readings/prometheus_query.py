"""Asks Prometheus for the weight of each partition, by an instant query of its HTTP API.

Whatever it answers, and however slowly: the caller gets weights and errors within the timeout. A query
that failed gives no weights: load is then unknown, so that nothing is scaled down for it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from math import isfinite
from pathlib import Path
from typing import Any, Final, Self
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import OpenerDirector, Request

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.http_client import build_http_opener, read_bounded
from trimtab.common.tls import create_client_context
from trimtab.common.units import format_count
from trimtab.sidecar.settings.settings import SidecarSettings

MAX_ANSWER_BYTES: Final = 1 << 26  # a sample takes about 150 bytes: 400,000 partitions
MAX_ERROR_CHARACTERS: Final = 200
Weights = dict[TopicPartition, float]


class PrometheusAnswerError(Exception):
    """Prometheus did not answer with the weights of partitions; its text says why and what to do."""


@dataclass(frozen=True, slots=True)
class PrometheusQuery:
    """A query at one server; the token is read before each request, so it may be renewed."""

    url: str
    query: str
    token_file: Path | None
    timeout: float  # seconds
    clock: Clock

    @classmethod
    def of_settings(cls, settings: SidecarSettings, clock: Clock) -> Self | None:
        """Return the query of the settings; None if the write rates are the weights."""
        if settings.weight_source != "prometheus" or not settings.prometheus_url or not settings.weight_query:
            return None
        token_file = settings.prometheus_token_file
        return cls(settings.prometheus_url, settings.weight_query, token_file, settings.timeout, clock)

    def fetch_weights(self, partitions: Sequence[TopicPartition]) -> tuple[Weights, tuple[str, ...]]:
        """Return the weights of these partitions, and errors."""
        try:
            told = parse_weights(self._fetch_answer())
        except PrometheusAnswerError as error:
            return {}, (f"weights: {error}",)
        weights = {p: told[p] for p in partitions if p in told}
        return weights, tuple(_describe_missing(weights, partitions))

    def _fetch_answer(self) -> bytes:
        request, end = self._build_request(), self.clock.monotonic() + self.timeout
        try:
            with _get_opener().open(request, timeout=self.timeout) as response:
                body = read_bounded(response, MAX_ANSWER_BYTES, lambda: self.clock.monotonic() > end)
        except HTTPError as error:
            with error:
                raise PrometheusAnswerError(f"{self.url} {_explain_status(error)}") from None
        except Exception as error:  # noqa: BLE001 - urllib's errors have no base class
            reason = getattr(error, "reason", error)
            text = f"{self.url} does not answer: {reason}"[:MAX_ERROR_CHARACTERS]
            raise PrometheusAnswerError(f"{text}; check prometheus-url and the network") from None
        if len(body) > MAX_ANSWER_BYTES:
            raise PrometheusAnswerError(f"weight-query gives over {MAX_ANSWER_BYTES} bytes; aggregate it")
        return bytes(body)

    def _build_request(self) -> Request:
        headers = {"Accept": "application/json"}
        if self.token_file is not None:
            headers["Authorization"] = f"Bearer {_read_token(self.token_file)}"
        form = urlencode({"query": self.query, "timeout": f"{self.timeout:g}s"}).encode()
        url = f"{self.url.rstrip('/')}/api/v1/query"
        return Request(url, form, headers, method="POST")  # noqa: S310 - http(s), by the settings' check


@cache
def _get_opener() -> OpenerDirector:
    # of all groups: a TLS context has all trusted certificates, which take 20 ms and 1 MB to load
    return build_http_opener(create_client_context({}))


def _read_token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError) as error:
        text = f"prometheus-token-file {file} cannot be read: {type(error).__name__}; correct the path"
        raise PrometheusAnswerError(text) from None


def parse_weights(answer: bytes) -> Weights:
    """Return the weights of an instant query's answer; samples that are no number from 0 are left out.

    Raises PrometheusAnswerError.
    """
    try:
        data = json.loads(answer)["data"]
        kind, samples = str(data["resultType"]), list[Any](data["result"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PrometheusAnswerError("the answer is not Prometheus's; check prometheus-url") from None
    if kind != "vector":
        raise PrometheusAnswerError(
            f"weight-query gives a {kind[:20]}; it must give one sample per partition"
        )
    weights: Weights = {}
    for partition, weight in filter(None, map(_parse_sample, samples)):
        if partition in weights:
            name = f"{partition.topic}-{partition.partition}"
            raise PrometheusAnswerError(
                f"weight-query gives several samples of {name}; write sum by (topic, partition) (...)"
            )
        weights[partition] = weight
    if samples and not weights:
        raise PrometheusAnswerError(
            "weight-query gives no sample with labels topic and partition; "
            "write sum by (topic, partition) (...)"
        )
    return weights


def _parse_sample(sample: Any) -> tuple[TopicPartition, float] | None:
    with suppress(KeyError, IndexError, TypeError, ValueError):
        labels, weight = sample["metric"], float(sample["value"][1])
        if isfinite(weight) and weight >= 0:
            return TopicPartition(str(labels["topic"]), int(labels["partition"])), weight
    return None


def _explain_status(error: HTTPError) -> str:
    if error.code in (401, 403):
        return f"refuses the request (HTTP {error.code}); set prometheus-token-file"
    text = ""
    with suppress(OSError, HTTPException, ValueError, TypeError, KeyError, RecursionError):
        text = f": {json.loads(read_bounded(error, MAX_ANSWER_BYTES))['error']}"[:MAX_ERROR_CHARACTERS]
    return f"answers with HTTP {error.code}{text}; correct weight-query or prometheus-url"


def _describe_missing(
    weights: Mapping[TopicPartition, float], partitions: Iterable[TopicPartition]
) -> Iterable[str]:
    missing = [p for p in partitions if p not in weights]
    if missing:
        first = f"{missing[0].topic}-{missing[0].partition}"
        count = format_count(len(missing), "partition")
        yield f"weights: weight-query tells nothing of {count}, like {first}: unknown"
