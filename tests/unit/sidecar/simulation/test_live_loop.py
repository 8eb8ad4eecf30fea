"""The live simulation: the sidecar's own decisions, carried out by the leader's own functions."""

from collections.abc import Sequence

import numpy as np
import pytest

from trimtab.assignor import RandomWalk, TopicPartition, WriteRateStream
from trimtab.assignor.analysis.simulation import (
    SimulationRun,
    SimulationSetup,
    parse_contender,
    run_simulation,
)
from trimtab.common.errors import SettingError
from trimtab.sidecar.simulation.live_loop import run_live
from trimtab.sidecar.simulation.live_settings import LiveSettings

PACKERS = ("steady", "mwf", "mbf", "mbfp", "bfd")
WALK = RandomWalk(15, partitions=20, ticks=40).generate_stream(np.random.default_rng(3))
HEADROOM = SimulationSetup(headroom=0.9)


def stream(*rows: Sequence[float]) -> WriteRateStream:
    names = tuple(TopicPartition("a", p) for p in range(len(rows[0])))
    return WriteRateStream(names, np.array(rows, dtype=np.float64))


def simulate(
    rates: WriteRateStream, name: str = "steady", setup: SimulationSetup = HEADROOM, startup: float = 20.0
) -> SimulationRun:
    return run_live(parse_contender(name), rates, setup, LiveSettings(startup))


@pytest.mark.parametrize("name", PACKERS)
def test_a_constant_load_rests(name: str) -> None:
    """The group begins with the consumers that the first write rates need; nothing moves, nothing is late."""
    rows = [[50.0, 40.0, 30.0, 20.0, 20.0]] * 12
    run = simulate(stream(*rows), name)
    assert set(run.consumers.tolist()) == {2}
    assert not run.moved.any()
    assert not run.decided.any()
    assert run.fullest.max() <= 0.9 + 1e-9
    assert run.feasible.all()
    assert run.late.sum() == 0


def test_a_consumer_joins_after_its_start() -> None:
    """The placement is done when the new consumer joins: in the same tick, or one tick later."""
    rates = stream([60, 20], *[[60, 60]] * 5)
    paper = run_simulation(parse_contender("steady"), rates, HEADROOM)
    soon, later = simulate(rates, startup=20), simulate(rates, startup=45)
    assert paper.consumers.tolist() == soon.consumers.tolist() == [1, 2, 2, 2, 2, 2]
    assert later.consumers.tolist() == [1, 1, 2, 2, 2, 2]
    assert soon.moved.tolist() == [0, 1, 0, 0, 0, 0]
    assert soon.fullest.tolist() == [pytest.approx(0.8), *[pytest.approx(0.6)] * 5]
    assert later.fullest[1] == pytest.approx(1.2)
    assert (soon.decided[1], later.decided[1]) == (True, False)
    assert paper.late.sum() < soon.late.sum() < later.late.sum()


def test_a_plan_waits_a_minute_for_its_consumers() -> None:
    """As in the members' plan follower: then the others take what fits until the consumer joins."""
    rates = stream([85.0, *[5.0] * 17], *[[45.0, *[10.0] * 17]] * 8)
    run = simulate(rates, startup=150)
    assert run.consumers.tolist() == [2, 2, 2, 2, 2, 2, 3, 3, 3]
    assert run.fullest[:3].tolist() == [pytest.approx(0.9), *[pytest.approx(1.6)] * 2]
    assert run.fullest[3:6].tolist() == [pytest.approx(1.3)] * 3
    assert run.fullest[6] < run.fullest[5]


def test_scale_down_waits_for_its_window_and_drains_one_at_a_time() -> None:
    """The load falls to a fifth: after 120 s a consumer drains, stops a tick later, then the next one."""
    run = simulate(stream([80.0] * 10, *[[16.0] * 10] * 30))
    assert run.consumers[:5].tolist() == [10] * 5
    assert run.consumers[-1] == 2
    assert (np.diff(run.consumers) >= -1).all()
    drains = np.flatnonzero(run.moved)
    assert (np.diff(drains) >= 2).all()
    assert run.late.sum() == 0


def test_tolerance_holds_a_count() -> None:
    """The paper's replay adds a consumer for 5 % more load; the sidecar does not, within its tolerance."""
    rates = stream([45, 45], *[[47, 47]] * 4)
    assert run_simulation(parse_contender("mwf"), rates, HEADROOM).consumers.tolist() == [1, 2, 2, 2, 2]
    assert set(simulate(rates, "mwf").consumers.tolist()) == {1}
    exact = run_live(parse_contender("mwf"), rates, HEADROOM, LiveSettings(sidecar={"tolerance": 0}))
    assert exact.consumers.tolist() == [1, 2, 2, 2, 2]


def test_partitions_come_and_go() -> None:
    """A new partition gets an owner at once, and a deleted one has none."""
    gone = float("nan")
    run = simulate(stream([40, 40, gone], [40, 40, 30], [40, gone, 30], [40, gone, 30]))
    assert run.late[-1] == 0
    assert run.fullest[-2:].tolist() == [pytest.approx(0.4)] * 2


def test_a_larger_partition_excuses_its_own_consumer_only() -> None:
    """Alone it cannot be helped; a consumer of several partitions above the headroom could be."""
    run = simulate(stream(*[[120.0, 60.0]] * 3))
    assert run.consumers.tolist() == [2, 2, 2]
    assert run.fullest.tolist() == [pytest.approx(1.2)] * 3
    assert not run.feasible.any()
    assert not run.avoidable.any()
    crowded = simulate(stream([60, 20, 20, 60], *[[60, 20, 31, 48]] * 2), "sticky")
    assert crowded.fullest[1] == pytest.approx(0.91)
    assert (crowded.feasible[1], crowded.avoidable[1]) == (True, True)


def test_keda_starts_consumers_as_slowly() -> None:
    """The lag-threshold autoscaler's consumers join after the start-up time: more is late."""
    quick, slow = (simulate(WALK, "keda:sticky", SimulationSetup(), startup=s) for s in (0, 25))
    plain = run_simulation(parse_contender("keda:sticky"), WALK, SimulationSetup())
    assert (quick.consumers == plain.consumers).all()
    assert quick.late.sum() == plain.late.sum()
    assert slow.late.sum() > quick.late.sum()


def test_equal_streams_have_equal_runs() -> None:
    """The simulation has neither clock nor chance of its own."""
    one, two = (simulate(WALK) for _ in range(2))
    assert all(
        (getattr(one, n) == getattr(two, n)).all() for n in ("consumers", "r_score", "fullest", "late")
    )


def test_the_simulations_own_settings_are_refused() -> None:
    """Capacity, headroom and heuristic are options of the simulation; a wrong name is refused, too."""
    with pytest.raises(SettingError, match="headroom: set by the simulation's own options"):
        LiveSettings(sidecar={"headroom": 0.5})
    with pytest.raises(SettingError, match="cooldwn"):
        run_live(parse_contender("mwf"), WALK, HEADROOM, LiveSettings(sidecar={"cooldwn": 5}))


def test_no_consumer_rests_above_its_capacity() -> None:
    """A load that grows at once and then stays: within the tolerance they are full, and none is too full."""
    rng = np.random.default_rng(1)
    before = rng.uniform(0, 18, 600)
    after = before * 1.15 * rng.uniform(0.9, 1.1, 600)
    names = tuple(TopicPartition("t", number) for number in range(600))
    stream = WriteRateStream(names, np.array([before] * 3 + [after] * 25))
    run = run_live(parse_contender("steady"), stream, SimulationSetup(headroom=0.9), LiveSettings())
    assert run.fullest[-12:].max() <= 1.0
