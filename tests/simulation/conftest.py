"""The simulation's seams apply to these tests only."""

import logging
from collections.abc import Generator

import pytest

from simulation.seams import simulated


@pytest.fixture(autouse=True)
def seams() -> Generator[None]:
    """Replace threads and clients; suppress the product's log lines, of which there are thousands."""
    logging.disable(logging.CRITICAL)
    try:
        with simulated():
            yield
    finally:
        logging.disable(logging.NOTSET)
