"""A plot comes at the end of a long run: a name without a colour would end it without its figures."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("bench", "plot", "names"),
    [
        ("bench_bounce", "bounce_plot", ("SIDES",)),
        ("bench_ingest", "ingest_plot", ("CASES", "ON_DEMAND")),
        ("bench_latency", "latency_plot", ("HEURISTICS",)),
        ("bench_strangers", "strangers_plot", ("SIDES",)),
    ],
)
def test_all_that_can_be_drawn_has_a_colour(
    import_bench: Callable[[str], Any], bench: str, plot: str, names: tuple[str, ...]
) -> None:
    """Whatever the command line chooses."""
    run, colours = import_bench(bench), import_bench(plot).COLOURS
    assert {one for name in names for one in getattr(run, name)} <= set(colours)
