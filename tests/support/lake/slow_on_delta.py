"""Tests of both table formats of which CI runs that on Iceberg; `make test-slow` runs both.

A test on Delta takes the CPU of five on Iceberg. Those with this mark differ in the format only.
"""

from typing import Final

import pytest


def slow_on_delta(iceberg: str, delta: str, fixture: str = "lake") -> pytest.MarkDecorator:
    """Return the mark of a test whose `fixture` is each of these lakes in turn."""
    formats = [iceberg, pytest.param(delta, marks=pytest.mark.slow)]
    return pytest.mark.parametrize(fixture, formats, indirect=True)


# Lakes whose files Spark writes, and Arrow.
JSON_LAKES: Final = pytest.mark.parametrize(
    "lake", ["iceberg", "iceberg_arrow", pytest.param("delta_arrow", marks=pytest.mark.slow)], indirect=True
)
