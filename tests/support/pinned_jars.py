"""Writes `consumer_sdk/java/jars.sha256`: the hashes of all JARs that Trimtab downloads (`make jars`).

The JARs are downloaded anew, without a check: read the difference before you commit it.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from trimtab.broker_plugin.plugin_jar import API_COORDINATES
from trimtab.cli.broker.broker_config import EXCLUDED_COORDINATES, KAFKA_COORDINATES
from trimtab.consumer_sdk.java.jars import fetch_jars
from trimtab.consumer_sdk.lake.formats.jar_downloads import list_requirements
from trimtab.consumer_sdk.lake.options.storage_config import STORAGES

PINS: Final = Path(__file__).parents[2] / "consumer_sdk" / "java" / "jars.sha256"


def download_all() -> Iterator[Path]:
    """Yield every JAR, dependencies included."""
    yield from fetch_jars("kafka", KAFKA_COORDINATES, excludes=EXCLUDED_COORDINATES, is_pinned=False)
    yield from fetch_jars("kafka-api", API_COORDINATES, is_pinned=False)
    for requirements in list_requirements(STORAGES):
        yield from requirements.fetch_jars(is_pinned=False)


def main() -> None:
    """Write the file."""
    with TemporaryDirectory() as cache:
        os.environ["TRIMTAB_CACHE"] = cache
        digests = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in download_all()}
    PINS.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())))


if __name__ == "__main__":
    main()
