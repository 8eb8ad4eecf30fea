"""JARs are downloaded once, completely or not at all, and used offline; a fake `java` plays Ivy."""

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from trimtab.cli.broker.broker_config import KAFKA_COORDINATES
from trimtab.consumer_sdk.errors import JarsUnavailableError, MissingExtraError
from trimtab.consumer_sdk.java import jars
from trimtab.consumer_sdk.lake.formats.table_format import DELTA_JAR, ICEBERG_JAR, SQLITE_JAR

COORDINATES = ("org.example:one:1.0",)
CONTENT = b"jar" * 100

IVY = """#!{python}
import os, pathlib, sys, time
if "-version" in sys.argv:
    sys.exit('openjdk version "17.0.1"')
here = pathlib.Path({here!r})
with (here / "calls").open("a") as calls:
    calls.write("call\\n")
    calls.write(pathlib.Path(sys.argv[sys.argv.index("-ivy") + 1]).read_text() + "\\n")
lib = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
lib.mkdir(parents=True, exist_ok=True)
mode = (here / "mode").read_text()
print("\\tfound org.example#one;1.0 in public", flush=True)  # then a test may change the mode
(lib / "one-1.0.jar").write_bytes(b"jar" * 100)
if mode == "fail" or (mode == "fail once" and not (here / "failed").exists()):
    (here / "failed").touch()
    print("unresolved dependency: org.example#one;1.0: not found")
    sys.exit(1)
while mode == "wait" and not (here / "go").exists():
    time.sleep(0.01)
print("\\t[SUCCESSFUL ] org.example#one;1.0!one.jar (1ms)")
"""


class Ivy:
    """Fake `java` that acts like Ivy and counts its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        java = folder / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(IVY.format(python=sys.executable, here=str(folder)))
        java.chmod(0o755)
        self.mode("good")

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    @property
    def requests(self) -> str:
        calls = self.folder / "calls"
        return calls.read_text() if calls.exists() else ""

    @property
    def calls(self) -> int:
        return self.requests.splitlines().count("call")


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ivy:
    made = Ivy(tmp_path / "ivy")
    monkeypatch.setenv("JAVA_HOME", str(made.folder))
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(jars.load_pinned_hashes(), "one-1.0.jar", sha256(CONTENT).hexdigest())
    return made


def list_folders(cache: Path) -> list[str]:
    """Return the cache's entries, without locks."""
    return sorted(p.name for p in (cache / "jars").iterdir() if p.suffix != ".lock")


def test_a_complete_cache_needs_neither_network_nor_java(ivy: Ivy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloaded JARs are returned without starting a process."""
    first = jars.fetch_jars("example", COORDINATES)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert jars.fetch_jars("example", COORDINATES) == first
    assert [jar.name for jar in first] == ["one-1.0.jar"]
    assert ivy.calls == 1


def test_other_coordinates_get_another_folder(ivy: Ivy) -> None:
    """Each set of coordinates has its own folder."""
    first = jars.fetch_jars("example", COORDINATES)
    second = jars.fetch_jars("example", ["org.example:one:1.1"])
    assert first[0].parent != second[0].parent
    assert ivy.calls == 2


def test_ivy_resolves_runtime_dependencies_without_the_excluded(ivy: Ivy) -> None:
    """Ivy resolves the runtime parts, without the excluded modules."""
    jars.fetch_jars("example", COORDINATES, excludes=["org.example:bad&ugly"])
    assert 'org="org.example" name="one" rev="1.0" conf="default->runtime,master"' in ivy.requests
    jars.fetch_jars("alone", COORDINATES, excludes=[jars.NO_DEPENDENCIES])
    assert 'rev="1.0" transitive="false" conf=' in ivy.requests
    assert '<exclude org="org.example" module="bad&amp;ugly"/>' in ivy.requests


@pytest.mark.parametrize("damage", ["short jar", "other jar", "no jar", "no marker", "torn marker", "empty"])
def test_damaged_cache_is_downloaded_again(ivy: Ivy, damage: str) -> None:
    """An incomplete folder is never used."""
    (jar,) = jars.fetch_jars("example", COORDINATES)
    marker = jar.parent / jars.COMPLETION_MARKER
    match damage:
        case "short jar":
            jar.write_bytes(b"ja")
        case "other jar":
            jar.write_bytes(b"bad" * 100)
        case "no jar":
            jar.unlink()
        case "no marker":
            marker.unlink()
        case "torn marker":
            marker.write_text('{"one-1.0.jar": 3')
        case _:
            marker.write_text(json.dumps({}))
    assert jars.fetch_jars("example", COORDINATES) == (jar,)
    assert jar.read_bytes() == CONTENT
    assert ivy.calls == 2


@pytest.mark.parametrize("pinned", ["0" * 64, None])
def test_a_jar_without_its_pinned_hash_is_refused(
    ivy: Ivy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: str | None
) -> None:
    """Another content, and a dependency that Trimtab was not released with, never reach the cache."""
    hashes = jars.load_pinned_hashes()
    monkeypatch.delitem(hashes, "one-1.0.jar")
    if pinned is not None:
        monkeypatch.setitem(hashes, "one-1.0.jar", pinned)
    with pytest.raises(JarsUnavailableError, match=r"example: one-1\.0\.jar: not the JARs that this version"):
        jars.fetch_jars("example", COORDINATES)
    assert (list_folders(tmp_path / "cache"), ivy.calls) == ([], 1)
    assert jars.fetch_jars("example", COORDINATES, is_pinned=False)


def test_every_released_jar_is_pinned() -> None:
    """The pins name the JARs of both table formats and of the embedded broker, by hash and file name."""
    hashes = jars.load_pinned_hashes()
    named = [ICEBERG_JAR, SQLITE_JAR, DELTA_JAR, *KAFKA_COORDINATES]
    assert {f"{module}-{version}.jar" for _, module, version in (n.split(":") for n in named)} <= set(hashes)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes.values())


def test_a_failed_download_leaves_no_folder(ivy: Ivy, tmp_path: Path) -> None:
    """A failed download shows Ivy's output and leaves no folder behind."""
    ivy.mode("fail")
    with pytest.raises(JarsUnavailableError, match=r"unresolved dependency: org\.example#one;1\.0"):
        jars.fetch_jars("example", COORDINATES)
    assert list_folders(tmp_path / "cache") == []


def test_a_failed_attempt_is_retried(ivy: Ivy) -> None:
    """The second attempt succeeds."""
    ivy.mode("fail once")
    assert len(jars.fetch_jars("example", COORDINATES)) == 1
    assert ivy.calls == 2


@pytest.mark.usefixtures("ivy")
def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyspark the error gives the pip command."""
    monkeypatch.setattr(jars.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pyspark is not installed.*pip install 'trimtab\[lake"):
        jars.fetch_jars("example", COORDINATES)


@pytest.mark.usefixtures("ivy")
def test_an_unwritable_cache_is_named(tmp_path: Path) -> None:
    """A cache folder that cannot be created is named, with a remedy."""
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(JarsUnavailableError, match="set TRIMTAB_CACHE to a writable folder"):
        jars.fetch_jars("example", COORDINATES)


@pytest.mark.usefixtures("ivy")
def test_progress_is_reported_per_jar() -> None:
    """A progress function gets the numbers of found and downloaded JARs."""
    lines: list[str] = []
    jars.fetch_jars("example", COORDINATES, progress=lines.append)
    assert lines == ["example: 1 found", "example: 1 of 1 fetched"]


@pytest.mark.usefixtures("ivy")
def test_without_a_terminal_one_line_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a terminal one line is printed, and none if the cache is complete."""
    jars.fetch_jars("example", COORDINATES)
    cold = capfd.readouterr()
    jars.fetch_jars("example", COORDINATES)
    warm = capfd.readouterr()
    assert (cold.out, len(cold.err.splitlines())) == ("", 1)
    assert (warm.out, warm.err) == ("", "")


CHILD = """
from trimtab.consumer_sdk.java import jars
def show(text):
    print(text, flush=True)
print(*jars.fetch_jars("example", ("org.example:one:1.0",), is_pinned=False, progress=show))
"""


def start_child() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD], env=dict(os.environ), stdout=subprocess.PIPE, text=True
    )


def test_two_processes_download_once(ivy: Ivy) -> None:
    """Of two processes that need the same JARs, one downloads and the other waits."""
    ivy.mode("wait")
    with start_child() as one:
        assert one.stdout
        assert one.stdout.readline() == "example: 1 found\n"
        with start_child() as two:
            assert two.stdout
            assert "waiting for another process" in two.stdout.readline()
            (ivy.folder / "go").touch()
            assert one.stdout.readlines()[-1] == two.stdout.readlines()[-1]
    assert ivy.calls == 1


def test_a_killed_download_leaves_no_usable_folder(ivy: Ivy, tmp_path: Path) -> None:
    """A process killed during a download leaves no usable folder; the next one starts again."""
    ivy.mode("wait")
    with start_child() as one:
        assert one.stdout
        one.stdout.readline()
        one.kill()
    ivy.mode("good")
    with start_child() as two:
        assert two.stdout
        assert "another process" in two.stdout.readline()  # the orphaned Ivy still holds the lock
        (ivy.folder / "go").touch()
        assert two.stdout.readlines()[-1].strip().endswith("one-1.0.jar")
    assert ivy.calls == 2
    assert len(list_folders(tmp_path / "cache")) == 1
