"""The plugin's JAR: from its sources alone, the same bytes at each build."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from trimtab.broker_plugin import plugin_jar
from trimtab.cli.broker import broker_config
from trimtab.consumer_sdk.errors import JavaNotFoundError
from trimtab.consumer_sdk.java.jars import fetch_jars
from trimtab.consumer_sdk.java.java_runtime import require_java

FOLDER = Path(plugin_jar.__file__).parent


def test_the_plugin_stays_small_enough_to_be_reviewed() -> None:
    """At most 250 lines of Java, and no import but Java's and the broker's interface."""
    lines = [line for file in FOLDER.glob("*.java") for line in file.read_text().splitlines()]
    assert len(lines) <= 250
    imports = {line.split()[-1] for line in lines if line.startswith("import ")}
    api = ("java.", "org.apache.kafka.common.Uuid;", "org.apache.kafka.coordinator.group.api.assignor.")
    assert [name for name in imports if not name.startswith(api)] == []


def test_the_jar_has_the_hash_of_its_sources(tmp_path: Path) -> None:
    """`make plugin` and the image compare it; after a change run `make plugin` and put the hash there."""
    version = subprocess.run([require_java(), "-version"], check=True, capture_output=True, text=True).stderr
    if 'version "17.' not in version:
        pytest.skip("plugin.sha256 has the hash of the JAR that JDK 17 builds")
    jar = tmp_path / plugin_jar.JAR_NAME
    jars = fetch_jars("kafka", broker_config.KAFKA_COORDINATES, excludes=broker_config.EXCLUDED_COORDINATES)
    plugin_jar.build_plugin_jar(jar, jars)
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    assert (FOLDER / "plugin.sha256").read_text() == f"{digest}  {plugin_jar.JAR_NAME}\n"
    assert [file.name for file in tmp_path.iterdir()] == [jar.name]


def test_a_java_without_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which Java it is and what to install."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho Module jdk.compiler not found >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setattr(plugin_jar, "require_java", lambda: java)
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(JavaNotFoundError, match=rf"{java}.*JDK.*openjdk-17-jdk.*jdk.compiler not found"):
        plugin_jar.cache_plugin_jar(())
