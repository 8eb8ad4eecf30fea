"""The targets: found by module, with their seeds."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
CORPUS: Final = FOLDER / "corpus"  # of each target a folder: inputs that once raised
MAX_INPUT_BYTES: Final = 16384


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder under test: `run` raises only what the decoder does not promise."""

    name: str  # MODULE.FUNCTION, without "targets_"
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def list_modules() -> list[str]:
    """Return the names of the modules of targets, sorted."""
    return sorted(path.stem for path in FOLDER.glob("targets_*.py"))


def load_targets(module: str) -> list[Target]:
    """Return the targets of a module, sorted by name."""
    loaded = importlib.import_module(f"fuzz.{module}")
    seeds = getattr(loaded, "SEEDS", {})
    return [
        Target(f"{module.removeprefix('targets_')}.{name}", run, (*seeds.get(name, ()), *_load_corpus(name)))
        for name, run in getmembers(loaded, isfunction)
        if run.__module__ == loaded.__name__ and not name.startswith("_")
        if list(run.__annotations__.values()) in ([bytes, None], ["bytes", "None"])
    ]


def load_all_targets() -> list[Target]:
    """Return all targets."""
    return [target for module in list_modules() for target in load_targets(module)]


def _load_corpus(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
