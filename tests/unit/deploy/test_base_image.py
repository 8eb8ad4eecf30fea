"""The images' base is pinned by digest, and `make base-image` writes the tag's digest of the day."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
PINNED = re.compile(r"debian:bookworm-slim@sha256:[0-9a-f]{64}")
NEW = "sha256:" + "0123456789abcdef" * 4


def read_base(dockerfile: Path) -> str:
    """Return the default of the argument BASE."""
    (base,) = re.findall(r"^ARG BASE=(.*)$", dockerfile.read_text(), re.MULTILINE)
    return str(base)


def pin(folder: Path, answer: str) -> "subprocess.CompletedProcess[str]":
    """Run `make base-image` in a folder, with a `docker` that knows the tag's digest only."""
    (folder / "deploy").mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(DOCKERFILE, folder / "deploy")
    docker = folder / "docker"
    asked = "buildx imagetools inspect debian:bookworm-slim --format {{.Manifest.Digest}}"
    docker.write_text(f'#!/bin/sh\n[ "$*" = "{asked}" ] && {answer}\n')
    docker.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    command = ["make", "-s", "base-image"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, check=False, capture_output=True, text=True
    )


def test_each_stage_is_of_the_pinned_base_or_of_another_stage() -> None:
    """No stage begins at an image whose content may be another one tomorrow."""
    assert PINNED.fullmatch(read_base(DOCKERFILE))
    stages = {"${BASE}"}
    for image, name in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE.read_text(), re.MULTILINE):
        assert image in stages
        stages.add(name)
    assert {"sidecar", "consumer", "broker-plugin"} < stages
    assert len(re.findall(r"^FROM ", DOCKERFILE.read_text(), re.MULTILINE)) == len(stages) - 1


def test_the_digest_of_the_day_is_written(tmp_path: Path) -> None:
    """Only the argument's line changes."""
    run = pin(tmp_path, f"echo {NEW}")
    assert run.returncode == 0, run.stderr
    written = tmp_path / "deploy" / "Dockerfile"
    assert read_base(written) == f"debian:bookworm-slim@{NEW}"
    assert run.stdout == f"ARG BASE=debian:bookworm-slim@{NEW}\n"
    assert written.read_text().replace(NEW, "") == DOCKERFILE.read_text().replace(
        read_base(DOCKERFILE).partition("@")[2], ""
    )


@pytest.mark.parametrize("answer", ["echo", "echo sha256:12", "exit 1", f"echo {NEW} and more"])
def test_an_unknown_digest_changes_nothing(tmp_path: Path, answer: str) -> None:
    """Without a registry, or with an answer that is no digest, the file stays as it is."""
    run = pin(tmp_path, answer)
    assert run.returncode != 0
    assert "deploy/Dockerfile is unchanged" in run.stderr
    assert (tmp_path / "deploy" / "Dockerfile").read_text() == DOCKERFILE.read_text()
