"""Brokers of older versions of Kafka, and tests on one: `python -m support.older_broker VERSION TEST...`.

The tests have that broker as theirs. Its JARs are downloaded once, without a check of their hashes.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from trimtab.cli.broker import embedded_broker
from trimtab.cli.broker.broker_config import KAFKA_VERSION
from trimtab.consumer_sdk.java.jars import fetch_jars

_VERSION_NAME: Final = "TRIMTAB_TEST_KAFKA"


def read_version() -> tuple[int, ...]:
    """Return the version of the tests' broker."""
    return tuple(map(int, os.environ.get(_VERSION_NAME, KAFKA_VERSION).split(".")))


def fetch_version(version: str, name: str, coordinates: Sequence[str], **options: Any) -> tuple[Path, ...]:
    """Return the JARs of a broker, as `fetch_jars` does, but of another version."""
    older = [one.replace(f":{KAFKA_VERSION}", f":{version}") for one in coordinates]
    return fetch_jars(name, older, **options, is_pinned=False)


def main(version: str, *tests: str) -> int:
    """Run tests on a broker of this version; return pytest's code."""
    with (
        patch.object(embedded_broker, "fetch_jars", partial(fetch_version, version)),
        embedded_broker.EmbeddedBroker() as broker,
    ):
        env = {**os.environ, "TRIMTAB_TEST_BOOTSTRAP": broker.bootstrap, _VERSION_NAME: version}
        command = [sys.executable, "-m", "pytest", "-n0", *tests]
        return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
