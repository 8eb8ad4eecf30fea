"""The workflows of CI and release run nothing that is not pinned, with no right that they do not need."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
PRINCIPALS = {"id-token", "attestations", "packages", "contents"}


def read_workflow(file: Path) -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load(file.read_text())
    return workflow


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_pinned_by_commit(file: Path) -> None:
    """A tag can be moved: each action is named by its commit, with the tag in the comment."""
    used = re.findall(r"^\s*(?:- )?uses: (.+)$", file.read_text(), re.MULTILINE)
    assert used
    assert [name for name in used if not name.startswith("./") and not PINNED.match(name)] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_may_only_read(file: Path) -> None:
    """Jobs that publish name what more they may; they run in the environment with reviewers."""
    workflow = read_workflow(file)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        writes = {right for right, kind in job.get("permissions", {}).items() if kind == "write"}
        assert writes <= PRINCIPALS
        assert not writes or job["environment"] == "release"


def test_make_targets_of_the_workflows_exist() -> None:
    """A renamed target would be missed at the next release only."""
    targets = set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "".join(file.read_text() for file in WORKFLOWS)
    assert set(re.findall(r"\bmake ([\w./-]+)", text)) - targets == set()


def test_a_release_builds_every_python_on_both_processors() -> None:
    """The number of wheels that the release waits for is that of the Pythons of `make wheels`, twice."""
    (pythons,) = re.findall(r"^PYTHONS \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    builds = read_workflow(ROOT / ".github/workflows/packages.yml")["jobs"]["build"]["strategy"]["matrix"]
    (expected,) = re.findall(r"wc -l\)\" = (\d+)", (ROOT / ".github/workflows/release.yml").read_text())
    assert len(pythons.split()) * len(builds["include"]) == int(expected)
