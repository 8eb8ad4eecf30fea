"""Source distribution, wheel and `trimtab/` hold what the folders hold; the version is that of the tag."""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PARTS = ("assignor", "broker_plugin", "cli", "common", "consumer_sdk", "sidecar", "testing")
VERSION = "1.2.3"


def repository_files() -> list[Path]:
    """Files of the repository, uncommitted ones included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's files, without Git and without build output."""
    folder = tmp_path_factory.mktemp("copy")
    for file in repository_files():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, target)  # with its time: C code newer than its source is not made again
    return folder


@pytest.fixture(scope="module")
def sdist(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of version 1.2.3, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "setup.py", "-q", "sdist", "-d", str(folder)]
    environment = {**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_TRIMTAB": VERSION}
    subprocess.run(build, cwd=copy, check=True, capture_output=True, env=environment)
    with tarfile.open(folder / f"trimtab-{VERSION}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"trimtab-{VERSION}"


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the source distribution, which no Git tells its version."""
    source, folder = tmp_path_factory.mktemp("source") / "trimtab", tmp_path_factory.mktemp("wheel")
    shutil.copytree(sdist, source)
    for file in (ROOT / "build" / "cython").rglob("*.c"):  # spares Cython's time
        target = source / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    build = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    quick = {**os.environ, "CFLAGS": "-O0 -g0"}  # the names in the wheel count here, not their speed
    subprocess.run([sys.executable, *build, str(source)], check=True, capture_output=True, env=quick)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow  # `make wheels` builds and uses each wheel
def test_wheel_holds_every_module_and_nothing_else(copy: Path, wheel: Path) -> None:
    """Built from the sdist, it has each module under its installed name; Cython modules are compiled."""
    inside = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    expected = {
        str("trimtab" / file.relative_to(copy)).replace(".pyx", suffix)
        for part in PARTS
        for file in (copy / part).rglob("*")
        if file.suffix in {".java", ".json", ".py", ".pyi", ".pyx", ".sha256"}
        or file.name == "py.typed"
        or file.parent.name == "static"
    }
    assert inside == expected


def test_source_distribution_is_complete(sdist: Path) -> None:
    """It has every file of the repository but pictures, and links, which setup.py makes."""
    inside = {file.relative_to(sdist) for file in sdist.rglob("*") if file.is_file()}
    made = {Path("PKG-INFO"), Path("setup.cfg")}
    kept = {
        file
        for file in repository_files()
        if not (file.suffix == ".png" and file.parent == Path("docs")) and file.parts[0] != "trimtab"
    }
    assert {file for file in inside if file.parts[0] != "trimtab.egg-info"} == kept | made


def test_an_installation_pulls_no_spark(wheel: Path) -> None:
    """The wheel's metadata name Spark, Arrow and the clients of Kubernetes for extras only."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    always = {r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})}
    extras = {r.name for r in required} - always
    assert metadata["Version"] == VERSION
    assert {"confluent-kafka", "numpy"} <= always
    assert {"pyspark", "pyarrow", "kubernetes", "ortools", "pytest"} <= extras


@pytest.mark.parametrize(
    ("tag", "commits", "version"),
    [
        ("v1.2.3", 0, r"1\.2\.3"),
        ("v1.2.3", 2, r"1\.2\.4\.dev2\+g[0-9a-f]+"),
        (None, 2, r"0\.1\.0\.dev3\+g[0-9a-f]+"),
    ],
)
def test_version_is_of_the_tag(tmp_path: Path, tag: str | None, commits: int, version: str) -> None:
    """Commits after a tag are development versions of the next one; without tags they are of 0.1."""
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    commit = [*git, "commit", "-q", "--allow-empty", "-m", "a change"]
    steps = [["git", "init", "-q"], ["git", "add", "."], commit]
    steps += [["git", "tag", tag]] if tag else []
    for step in [*steps, *[commit] * commits]:
        subprocess.run(step, cwd=tmp_path, check=True, capture_output=True)
    assert re.fullmatch(version, read_version(tmp_path))


def test_version_without_git_is_a_development_version(tmp_path: Path) -> None:
    """An archive of the tree, or an image's build that was told none, is not taken for a release."""
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    assert Version(read_version(tmp_path)).is_devrelease


def read_version(folder: Path) -> str:
    """Return the version that a build in this folder would have."""
    command = [sys.executable, "-m", "setuptools_scm"]
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def test_source_tree_shows_the_installed_names() -> None:
    """`trimtab/` links each folder under its installed name and has no __init__: a namespace."""
    links = {path.name: path.resolve() for path in (ROOT / "trimtab").iterdir()}
    assert links == {part: ROOT / part for part in PARTS}
    assert all(path.is_symlink() for path in (ROOT / "trimtab").iterdir())
    assert not (ROOT / "__init__.py").exists()


def test_every_package_is_pinned_by_hash() -> None:
    """`make constraints` writes a version and hashes for each package, uv included, which checks them."""
    text = (ROOT / "constraints.txt").read_text()
    pinned = re.findall(
        r"^(\S+)==\S+[^\n]*\\\n((?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE
    )
    assert {"uv", "cython", "setuptools", "numpy", "confluent-kafka"} <= {name for name, _ in pinned}
    assert len(pinned) == len(re.findall(r"^[^ #\n]", text, re.MULTILINE))
