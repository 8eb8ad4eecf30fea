"""The short form of `make fuzz`: nothing but the named error comes out of any decoder."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fuzz.mutation import DEEP_JSON, mutate
from fuzz.target import MAX_INPUT_BYTES, Target, list_modules, load_all_targets

ROOT = Path(__file__).parents[2]
INPUTS = 1000  # of each target
SECONDS = 1.0  # of CPU, of each target


@pytest.fixture(autouse=True)
def _no_logs() -> Iterator[None]:
    """Skipped records are logged, a line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_the_docs_tell_the_number_of_targets() -> None:
    """A new target is part of the docs' promise."""
    text = (ROOT / "docs" / "guarantees.md").read_text()
    assert f"to {len(load_all_targets())} targets: everything that decodes" in text


@pytest.mark.parametrize("target", load_all_targets(), ids=lambda target: target.name)
def test_nothing_but_the_named_error_comes_out(target: Target) -> None:
    """Seeds, inputs that once raised, and their mutations raise nothing that the decoder does not promise."""
    rng = Random(int(os.environ.get("FUZZ_SEED", "1")))  # noqa: S311 - reproducible
    ends_at = time.process_time() + SECONDS
    for seed in target.seeds:
        target.run(seed)
    for _ in range(INPUTS):
        data = mutate(rng.choice(target.seeds), rng, MAX_INPUT_BYTES)
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"input of {target.name}: {data[:2000]!r}")
            raise
        if time.process_time() > ends_at:
            return


def test_every_module_has_targets_and_every_target_seeds() -> None:
    """A target without real encodings reaches nothing behind the first check."""
    targets = load_all_targets()
    assert [target.name for target in targets if not target.seeds] == []
    assert sorted({f"targets_{target.name.partition('.')[0]}" for target in targets}) == list_modules()


def test_mutations_reach_odd_values() -> None:
    """Deep nesting, numbers beyond a double and missing keys are among the mutations of a document."""
    rng = Random(1)  # noqa: S311 - reproducible
    seen = {mutate(b'{"a": {"b": [1, 2]}, "c": "x"}', rng, MAX_INPUT_BYTES) for _ in range(5000)}
    for expected in (DEEP_JSON, b"NaN", b"Infinity", b"0" * 400, b"null", b"\\ud800"):
        assert any(expected in data for data in seen)
    assert any(b'"c"' not in data for data in seen)


def test_the_runner_finds_an_unexpected_error(tmp_path: Path) -> None:
    """An error that a target does not promise ends with exit code 1, the count and the input."""
    folder = tmp_path / "fuzz"
    folder.mkdir()
    for source in (ROOT / "tests" / "fuzz").glob("*.py"):
        if not source.stem.startswith(("targets_", "test_")):
            (folder / source.name).write_bytes(source.read_bytes())
    (folder / "targets_bad.py").write_text(
        'SEEDS = {"decode": [b"{}"]}\n\ndef decode(data: bytes) -> None:\n    assert b"9" not in data\n'
    )
    command = [sys.executable, "-m", "fuzz", "--inputs", "3000", "--folder", str(tmp_path / "out")]
    ran = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    result = json.loads(ran.stdout.splitlines()[-1].removeprefix("RESULT "))
    assert (ran.returncode, result["unexpected"], result["targets"]) == (1, 1, 1), ran.stderr
    assert result["inputs"] >= 3000
    kept = next((tmp_path / "out" / "failures").iterdir())
    assert b"9" in kept.read_bytes()
