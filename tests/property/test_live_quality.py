"""The closed loop keeps its promises: within the headroom where that is feasible, and few moves."""

from collections.abc import Iterator

import numpy as np
import pytest

from trimtab.assignor import RandomWalk, TopicPartition, WriteRateStream, ZipfLoad
from trimtab.assignor.analysis.simulation import (
    SimulationRun,
    SimulationSetup,
    parse_contender,
    run_simulation,
)
from trimtab.sidecar.simulation.live_loop import run_live
from trimtab.sidecar.simulation.live_settings import LiveSettings

SETUP = SimulationSetup(headroom=0.9)
PACKERS = ("steady", "mwf", "mbf", "mbfp", "bfd", "nf")
SIZES = (40, 80, 160, 300)
TICKS = 60
# steady's presets with the algorithm of the paper that needs about as many consumers
RIVALS = {"steady:calm": "mwf", "steady:balanced": "mbf", "steady:tight": "mbfp"}


def iter_streams(partitions: int) -> Iterator[WriteRateStream]:
    """Yield walks of each δ, a Zipf load and a constant one."""
    for delta in (5, 10, 15, 20, 25):
        yield RandomWalk(delta, partitions, TICKS).generate_stream(np.random.default_rng(7))
    yield ZipfLoad(partitions, TICKS).generate_stream(np.random.default_rng(7))
    rates = np.tile(np.random.default_rng(7).uniform(0, 50, partitions), (TICKS, 1))
    yield WriteRateStream(tuple(TopicPartition("constant", p) for p in range(partitions)), rates)


def simulate(name: str, stream: WriteRateStream) -> SimulationRun:
    return run_live(parse_contender(name), stream, SETUP, LiveSettings())


def check_headroom(run: SimulationRun) -> None:
    """Nothing that a decision placed is above the headroom if that was avoidable."""
    assert not (run.decided & run.avoidable).any()
    assert not (run.decided & run.feasible & (run.fullest > SETUP.headroom * (1 + 1e-6))).any()


@pytest.mark.parametrize("name", PACKERS)
def test_what_is_placed_is_within_the_headroom(name: str) -> None:
    """On a walk, for every heuristic that packs by capacity."""
    stream = RandomWalk(15, 40, TICKS).generate_stream(np.random.default_rng(7))
    run = simulate(name, stream)
    assert run.decided.any()
    check_headroom(run)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("partitions", SIZES)
def test_steady_is_within_the_headroom_wherever_that_is_feasible(partitions: int) -> None:
    """And what it places is above the capacity no more often than what mwf places."""
    over = {"steady": 0, "mwf": 0}
    for stream in iter_streams(partitions):
        for name in over:
            run = simulate(name, stream)
            check_headroom(run)
            over[name] += int((run.decided & (run.fullest > 1 + 1e-6)).sum())
    assert over["steady"] <= over["mwf"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("delta", [5, 10, 15, 20, 25])
def test_what_is_done_moves_no_more_than_what_is_sized(delta: float) -> None:
    """Each preset moves no more than its sizing; one that moves no more than that is on no more consumers.

    That is not always the preset itself: with δ 10 `steady:balanced` needs 0.02 % more than `mbf`,
    `steady:tight` 1.3 % less, and moves less than `steady:balanced` sized.
    """
    stream = RandomWalk(delta, 200, 100).generate_stream(np.random.default_rng(7))
    done = {name: simulate(name, stream) for name in (*RIVALS, *RIVALS.values())}
    consumers = {name: run.consumers.mean() for name, run in done.items()}
    for name, rival in RIVALS.items():
        sized = run_simulation(parse_contender(name), stream, SETUP).r_score.mean()
        assert done[name].r_score.mean() <= sized
        few = [preset for preset in RIVALS if consumers[preset] <= consumers[rival]]
        assert min((done[preset].r_score.mean() for preset in few), default=np.inf) <= sized
