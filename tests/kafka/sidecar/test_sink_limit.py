"""A sink behind the consumers that is slower than all of them, on a real broker."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dirty.sink import take_back_useless

from support.sidecar_bench import SidecarBench

pytestmark = pytest.mark.broker


def test_consumers_that_a_sink_cannot_serve_are_taken_back(
    bench: SidecarBench, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    """One worker, then more for a load beyond the sink, then the two that it serves, with the cause."""
    take_back_useless(bench, tmp_path, eventually)
