"""Each way in which Java can be missing or unsupported has an error and a remedy."""

from pathlib import Path

import pytest

from trimtab.consumer_sdk.errors import JavaNotFoundError, UnsupportedJavaError
from trimtab.consumer_sdk.java.java_runtime import require_java


def fake_java(folder: Path, output: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Unset JAVA_HOME and reduce PATH to the shell's tools and tmp_path/bin."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("/bin/sh", "/bin/cat"):
        (tools / Path(tool).name).symlink_to(tool)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tools}")
    return monkeypatch


@pytest.mark.usefixtures("isolated")
def test_no_java_is_named() -> None:
    """Without Java the error names the searched places and the supported versions."""
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME is not set.*Java 17 to 24"):
        require_java()


def test_java_home_without_java_is_an_error(isolated: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A JAVA_HOME without java is an error even if PATH has one."""
    fake_java(tmp_path, 'openjdk version "17.0.1"')
    isolated.setenv("JAVA_HOME", "/nowhere/jdk")
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is /nowhere/jdk"):
        require_java()


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('java version "1.8.0_402"', 8),
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
    ],
)
def test_an_unsupported_version_is_an_error(tmp_path: Path, output: str, version: int) -> None:
    """A Java version that Spark or Kafka does not support is an error with path and version."""
    java = fake_java(tmp_path, output)
    with pytest.raises(UnsupportedJavaError, match=f"is Java {version}; Trimtab needs") as caught:
        require_java()
    assert (caught.value.path, caught.value.version) == (java, version)


@pytest.mark.parametrize("version", ["17.0.15", "21", "24.0.1"])
def test_a_supported_version_is_accepted(isolated: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    """Java 17 to 24 is accepted, also if it prints its options first."""
    output = f'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "{version}"'
    assert require_java_in(isolated, tmp_path, output) == tmp_path / "bin" / "java"


def require_java_in(patch: pytest.MonkeyPatch, home: Path, output: str) -> Path:
    fake_java(home, output)
    patch.setenv("JAVA_HOME", str(home))
    return require_java()


@pytest.mark.usefixtures("isolated")
def test_a_stub_is_not_java(tmp_path: Path) -> None:
    """A java that only prints where to download one counts as missing."""
    fake_java(tmp_path, "Unable to locate a Java Runtime.")
    with pytest.raises(JavaNotFoundError, match="Unable to locate a Java Runtime"):
        require_java()
