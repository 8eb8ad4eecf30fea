"""Configuration files, settings and environment, as a person may write them."""

import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import resolve_secrets
from trimtab.common.settings.config_file import load_config_file
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.lake.ingest import parse_ingest_settings
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.sidecar.settings.settings import load_settings, read_settings_file

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "kustomize" / "base" / "config"
SIDECAR: Final = {
    "bootstrap": "b:1",
    "group": "g",
    "topics": ["t"],
    "capacity": "1 MB/s",
    "heuristic": "steady:2",
    "min": 1,
    "max": 8,
    "pause": "scale-up",
    "tolerance": {"scale-up": 0.1, "scale-down": 0.2},
    "scale-up-policies": [{"type": "pods", "value": 4, "period": "60 s"}],
    "schedule": [{"start": "0 8 * * *", "end": "0 18 * * *", "timezone": "Europe/Paris", "replicas": 3}],
    "freshness-slo": "p99-freshness 30 s",
    "kafka": {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.password": "${env:P}"},
}
CONSUMER: Final = {
    "bootstrap.servers": "b:1",
    "group.id": "g",
    "trimtab.capacity": "2 MB/s",
    "session.timeout.ms": 45000,
    "auto.offset.reset": "earliest",
    "client.rack": "a",
}
LAKE: Final = {
    "topics": ["t"],
    "lake.warehouse": "s3://bucket/x",
    "lake.schema": {"*": "id BIGINT, name STRING"},
    "lake.partition": "days(timestamp)",
    "lake.table": "shop.{topic}",
    "batch.max.age": "30 s",
    "lake.catalog.type": "rest",
    "trimtab.metrics.port": 9464,
}
QUEUE: Final = {"trimtab.queue.timeout": "30 s", "trimtab.queue.max.deliveries": 3}
_FILES: Final = [path.read_bytes() for path in sorted(DEPLOY.glob("*.yaml"))]
SEEDS: Final = {
    "read_files": [
        *_FILES,
        json.dumps(SIDECAR).encode(),
        b"a: 2026-01-01\nb: &x [1]\nc: *x\n",
        b"a: !!int 1",
    ],
    "load_sidecar_settings": [json.dumps(SIDECAR).encode()],
    "parse_consumer_config": [json.dumps(CONSUMER).encode()],
    "parse_ingest_config": [json.dumps({**CONSUMER, **LAKE}).encode()],
    "parse_queue_config": [json.dumps({**CONSUMER, **QUEUE}).encode()],
    "resolve_references": [b'{"a": "x${env:P}y", "b": ["${file:/nowhere}"]}'],
}
# Text of an environment, which holds no NUL; surrogates stand for bytes that are not UTF-8.
ENVIRONMENT: Final = {"P": "secret", "TRIMTAB_RACK": "a", "TRIMTAB_INSTANCE": "worker-\udcff"}
# Settings whose values name files or code to load: those of this machine are not the input's to read.
LOADED: Final = frozenset({"worker-config", "worker_config", "lake.transform", "kubeconfig"})


def read_files(data: bytes) -> None:
    """A file that is no mapping in YAML is refused."""
    file = _file()
    file.write_bytes(data)
    for read in (load_config_file, read_settings_file):
        try:
            read(file)
        except SettingError:
            continue


def load_sidecar_settings(data: bytes) -> None:
    """The sidecar's settings are valid, with what derives from them, or refused."""
    config = _load(data)
    try:
        settings = load_settings(None, config)
    except SettingError:
        return
    assert settings.autoscaling_policy
    assert settings.client_config


def parse_consumer_config(data: bytes) -> None:
    """A consumer's configuration is valid or refused."""
    try:
        parse_consumer_settings(_load(data), ENVIRONMENT)
    except SettingError:
        return


def parse_ingest_config(data: bytes) -> None:
    """The configuration of `trimtab ingest` is valid or refused."""
    try:
        parse_ingest_settings(_load(data))
    except SettingError:
        return


def parse_queue_config(data: bytes) -> None:
    """A queue's configuration is valid or refused."""
    try:
        parse_queue_settings("t", _load(data))
    except SettingError:
        return


def resolve_references(data: bytes) -> None:
    """A reference to a secret that does not exist is refused."""
    try:
        resolve_secrets(_load(data), ENVIRONMENT)
    except SettingError:
        return


def _load(data: bytes) -> dict[str, Any]:
    """Return the mapping that a file may hold; `read_files` covers the files."""
    try:
        config = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    given = config if isinstance(config, dict) else {}
    return {name: value for name, value in given.items() if name not in LOADED}


@cache
def _file() -> Path:
    return Path(tempfile.mkdtemp(prefix=f"fuzz-{os.getpid()}-")) / "config.yaml"
