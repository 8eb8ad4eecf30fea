"""The wheel and `trimtab/` hold what the folders hold."""

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

ROOT = Path(__file__).parents[2]
PARTS = ("assignor", "broker_plugin", "cli", "common", "consumer_sdk", "sidecar", "testing")


def repository_files() -> list[Path]:
    """Files of the repository, uncommitted ones included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository without build output, which could get into the wheel, but Cython's C code."""
    folder = tmp_path_factory.mktemp("copy")
    generated = (file.relative_to(ROOT) for file in (ROOT / "build" / "cython").rglob("*.c"))
    for file in (*repository_files(), *generated):
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, target)  # with its time: C code newer than its source is not made again
    return folder


def test_wheel_holds_every_module_and_nothing_else(copy: Path, tmp_path: Path) -> None:
    """The wheel has each module under its installed name; Cython modules are compiled."""
    build = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    quick = {**os.environ, "CFLAGS": "-O0 -g0"}  # the names in the wheel count here, not their speed
    subprocess.run([sys.executable, *build, str(copy)], check=True, capture_output=True, env=quick)
    (wheel,) = tmp_path.glob("*.whl")
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


def test_source_distribution_holds_the_compiled_modules_sources(copy: Path, tmp_path: Path) -> None:
    """A wheel can be built from it: it has each file of Cython, not only what Cython made of it."""
    build = [sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=copy, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    sources = {str(f.relative_to(copy)) for part in PARTS for f in (copy / part).rglob("*.p[yx][xd]")}
    assert sources | {"constraints.txt", "setup.py"} <= inside
    assert {Path(name).suffix for name in sources} == {".pyx", ".pxd"}


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
