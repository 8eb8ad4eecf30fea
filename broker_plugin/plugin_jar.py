"""Builds the plugin's JAR from its Java sources.

Equal sources and an equal javac give equal bytes: `plugin.sha256` has the hash of the JAR that JDK 17 builds.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from trimtab.consumer_sdk.errors import JavaNotFoundError
from trimtab.consumer_sdk.java.jars import cache_folder, fetch_jars
from trimtab.consumer_sdk.java.java_runtime import require_java

ASSIGNOR_CLASS: Final = "io.trimtab.PlannedAssignor"
JAR_NAME: Final = "trimtab-broker-plugin.jar"
API_COORDINATES: Final = ("org.apache.kafka:kafka-group-coordinator-api:4.4.0",)
JAVA_RELEASE: Final = "17"  # the oldest Java of Kafka 4 brokers
MANIFEST: Final = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\nImplementation-Title: Trimtab\r\n\r\n"}


def cache_plugin_jar(class_path: Sequence[Path]) -> Path:
    """Return the JAR in Trimtab's cache; compile it if the sources are new. Needs a JDK then.

    `class_path` has Kafka's JARs. Raises JavaNotFoundError, UnsupportedJavaError.
    """
    sources = _read_sources()
    digest = hashlib.sha256(b"".join(sources.values())).hexdigest()[:12]
    jar = cache_folder() / "plugin" / digest / JAR_NAME
    if not jar.exists():
        build_plugin_jar(jar, class_path)
    return jar


def build_plugin_jar(jar: Path, class_path: Sequence[Path]) -> None:
    """Compile the sources and write them as `jar`. Raises JavaNotFoundError, UnsupportedJavaError."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent) as folder:
        classes = _compile(_read_sources(), Path(folder), class_path)
        draft = Path(folder, JAR_NAME)
        _write_jar(draft, MANIFEST | classes)
        draft.replace(jar)  # at once: another process may build the same


def _read_sources() -> dict[str, bytes]:
    files = resources.files("trimtab.broker_plugin").iterdir()
    return {file.name: file.read_bytes() for file in sorted(files, key=str) if file.name.endswith(".java")}


def _compile(sources: Mapping[str, bytes], folder: Path, class_path: Iterable[Path]) -> dict[str, bytes]:
    for name, source in sources.items():
        (folder / name).write_bytes(source)
    command = [
        *(str(require_java()), "-m", "jdk.compiler/com.sun.tools.javac.Main"),
        *("-Xlint:all", "-Werror", "--release", JAVA_RELEASE, "-d", str(folder / "classes")),
        *("-cp", os.pathsep.join(map(str, class_path)), *(str(folder / name) for name in sources)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode:
        raise JavaNotFoundError(
            f"the broker's plugin cannot be compiled by {command[0]}, which must belong to a JDK (Debian: "
            f"openjdk-17-jdk-headless), not to a runtime alone: {(done.stdout + done.stderr).strip()}"
        )
    classes = sorted((folder / "classes").rglob("*.class"))
    return {file.relative_to(folder / "classes").as_posix(): file.read_bytes() for file in classes}


def _write_jar(jar: Path, entries: Mapping[str, bytes]) -> None:
    # stored, not deflated, and with one date: zlib's versions and clocks differ
    with zipfile.ZipFile(jar, "w") as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content)


if __name__ == "__main__":
    build_plugin_jar(Path(sys.argv[1], JAR_NAME), fetch_jars("kafka-api", API_COORDINATES))
