"""A plot comes at the end of a long run: a name without a colour would end it without its figures."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("bench", "plot", "names"),
    [
        ("consumer.bench_bounce", "consumer.bounce_plot", ("SIDES",)),
        ("sinks.bench_ingest", "sinks.ingest_plot", ("CASES", "ON_DEMAND")),
        ("consumer.bench_latency", "consumer.latency_plot", ("HEURISTICS",)),
        ("sidecar.bench_strangers", "sidecar.strangers_plot", ("SIDES",)),
    ],
)
def test_all_that_can_be_drawn_has_a_colour(
    import_bench: Callable[[str], Any], bench: str, plot: str, names: tuple[str, ...]
) -> None:
    """Whatever the command line chooses."""
    run, colours = import_bench(f"benchmarks.{bench}"), import_bench(f"benchmarks.{plot}").COLOURS
    assert {one for name in names for one in getattr(run, name)} <= set(colours)
