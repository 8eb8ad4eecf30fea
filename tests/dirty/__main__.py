"""Runs the cases, prints `RESULT {...}` and exits with 1 if a figure is beyond its limit.

A further case is a function of `DirtyRun` that returns figures, in `CASES`; its limits stand in `LIMITS`.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dirty.run import DirtyRun, Figures
from dirty.sizes import measure_sizes
from dirty.transactions import measure_transactions
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

CASES: Final[Mapping[str, Callable[[DirtyRun], Figures]]] = {
    "sizes": measure_sizes,
    "transactions": measure_transactions,
}
# Lowest and highest acceptable figure.
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "rate_error_p95": (0.0, 0.15),
    "false_oversized": (0, 0),
    "scalings_at_steady_load": (0, 0),
    "transactional_ratio": (0.85, 1.15),
    "silent": (0, 0),
}


def main() -> None:
    """Run the chosen cases on an embedded broker."""
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=CASES, action="append")
    arguments.add_argument("--seconds", type=float, default=150.0, help="of a steady load in each case")
    options = arguments.parse_args()
    figures: dict[str, float] = {"conditions": 0, "silent": 0}
    with EmbeddedBroker() as broker, TemporaryDirectory() as folder:
        for name in options.only or CASES:
            found = CASES[name](DirtyRun(broker.bootstrap, Path(folder), options.seconds))
            print(f"{name}: {json.dumps(found)}", flush=True)  # noqa: T201 - its output
            summed = {key: figures[key] + found.pop(key, 0) for key in ("conditions", "silent")}
            figures |= found | summed
    wrong = [k for k, (least, most) in LIMITS.items() if k in figures and not least <= figures[k] <= most]
    print(f"RESULT {json.dumps(figures)}", flush=True)  # noqa: T201 - its output
    if wrong:
        sys.exit(f"beyond the limits: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
