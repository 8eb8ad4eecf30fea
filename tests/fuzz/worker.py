"""Fuzzes one target in a process of its own: `python -m fuzz.worker TARGET INPUTS SECONDS FOLDER`.

With Atheris (libFuzzer) inputs that reach new code are kept in FOLDER and mutated further; without it
the seeds are mutated. An error does not end the run. The last line is JSON: inputs, failures, CPU time.
"""

import importlib
import json
import logging
import os
import sys
import time
import traceback
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Final, NoReturn

from fuzz.mutation import mutate, mutate_json
from fuzz.target import MAX_INPUT_BYTES, Target, load_targets

HANG_S: Final = 120  # an input that takes longer is a failure; of wall time, which others share
MAX_FAILURES: Final = 20


class Fuzzer:
    """Runs a target for `inputs` inputs or `seconds` of CPU time, and prints the result."""

    def __init__(self, target: Target, inputs: int, seconds: float) -> None:
        self._target = target
        self._inputs = inputs
        self._ends_at = time.process_time() + seconds
        self._tried = 0
        self._failures: dict[str, dict[str, str]] = {}

    def try_input(self, data: bytes) -> None:
        """Run the target; end the process after the last input."""
        self._tried += 1
        try:
            self._target.run(data)
        except Exception as error:  # noqa: BLE001 - what the target does not promise
            self._note_failure(error, data)
        if self._tried >= self._inputs or time.process_time() >= self._ends_at:
            self._finish()

    def _note_failure(self, error: Exception, data: bytes) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        key = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
        if len(self._failures) < MAX_FAILURES:
            text = "".join(traceback.format_exception(error))
            self._failures.setdefault(key, {"traceback": text[-3000:], "input": data.hex()})

    def _finish(self) -> NoReturn:
        result = {"inputs": self._tried, "failures": self._failures, "cpu_seconds": time.process_time()}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
        os._exit(0)  # libFuzzer has no other way to end


def import_atheris() -> ModuleType | None:
    """Return the module, None where it is not installed."""
    try:
        return importlib.import_module("atheris")
    except ImportError:
        return None


def run_atheris(atheris: ModuleType, fuzzer: Fuzzer, folder: Path) -> NoReturn:
    """Run the fuzzer on inputs that libFuzzer makes, guided by coverage."""

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        # values of JSON by our own means: changes of bytes hardly ever leave a document
        changed = mutate_json(data, Random(seed)) if seed % 2 else None  # noqa: S311
        in_size = changed is not None and len(changed) <= max_size
        return changed if in_size else atheris.Mutate(data, max_size)

    flags = [f"-max_len={MAX_INPUT_BYTES}", f"-timeout={HANG_S}", f"-artifact_prefix={folder}-", "-seed=1"]
    atheris.Setup(["fuzz", *flags, "-verbosity=0", str(folder)], fuzzer.try_input, custom_mutator=change)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


def run_mutations(fuzzer: Fuzzer, seeds: tuple[bytes, ...]) -> NoReturn:
    """Run the fuzzer on mutated seeds."""
    rng = Random(1)  # noqa: S311 - reproducible
    for seed in seeds:
        fuzzer.try_input(seed)
    while True:
        fuzzer.try_input(mutate(rng.choice(seeds or (b"",)), rng, MAX_INPUT_BYTES))


def main(name: str, inputs: int, seconds: float, folder: Path) -> NoReturn:
    """Fuzz the target of this name."""
    logging.disable(logging.CRITICAL)
    module = f"targets_{name.partition('.')[0]}"
    atheris = import_atheris()
    if atheris is None:
        targets = load_targets(module)
    else:
        with atheris.instrument_imports(include=["trimtab", "fuzz"], enable_loader_override=False):
            targets = load_targets(module)
    target = next(target for target in targets if target.name == name)
    fuzzer = Fuzzer(target, inputs, seconds)
    if atheris is None:
        run_mutations(fuzzer, target.seeds)
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    run_atheris(atheris, fuzzer, folder)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
