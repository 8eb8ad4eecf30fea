"""The head to head measures what it says: its load, and its figures from a run made by hand."""

import struct
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cluster.generations import generation, group_of


@pytest.fixture
def module(import_bench: Any) -> Any:
    """Return the module under test."""
    return import_bench("benchmarks.autoscaling.autoscale_figures")


def test_the_load_is_the_same_for_everybody(module: ModuleType) -> None:
    """A seed makes one load; no partition outgrows a consumer, and the least count follows it."""
    del module
    made = import_module("benchmarks.autoscaling.autoscale_load")
    load = made.generate_write_rates(200.0, 32, 1000.0, 7)
    assert np.array_equal(load, made.generate_write_rates(200.0, 32, 1000.0, 7))
    assert not np.array_equal(load, made.generate_write_rates(200.0, 32, 1000.0, 8))
    assert load.max() <= 850.0
    least = made.count_needed_consumers(load, 1000.0)
    assert len(least) == len(load) == 100
    assert all(count >= total / 1000.0 for count, total in zip(least, load.sum(axis=1), strict=True))
    assert least[0] == least[-1] == 2
    assert max(least) in (6, 7)


def test_the_figures_are_those_of_the_run(module: ModuleType) -> None:
    """Late, doubled and missing records, lifetimes, scalings and generations, each as it was."""
    rig = import_module("benchmarks.autoscaling.autoscale_rig")
    samples = [rig.Sample(100.0 + i, 2 if i < 5 else 3, 2 if i < 7 else 3) for i in range(11)]
    seen = module.RunLog(
        begin=100.0,
        end=110.0,
        written=np.array([90.0, 100.0, 101.0, 102.0, 103.0]),
        records=np.array(
            [
                [0, 0, 90.0, 50.0],  # while it settled: does not count
                [0, 1, 100.0, 0.5],
                [0, 1, 100.0, 3.0],  # again: its first handling counts
                [1, 0, 101.0, 6.0],
                [1, 1, 102.0, 1.0],
            ]
        ),
        samples=samples,
        deleted=[rig.Deleted(105.0, "a", 3), rig.Deleted(106.0, "b", 0), rig.Deleted(99.0, "c", 1)],
        generations=[(95.0, 4), (104.0, 5), (108.0, 6), (111.0, 7)],
        needed=[1, 1, 5, 5, 5],
        planned=[1.0, 2.0, 1.0, 1.0, 1.0],
    )
    found = module.summarize_run("x", seen, 4.0)
    assert sorted(found.latency) == [0.5, 1.0, 6.0, 7.0]  # the last is not handled: 110 - 103
    assert found.late_traffic == 0.5
    assert (found.unhandled, found.records, found.reread) == (1, 4, 1)
    assert found.consumer_hours == pytest.approx((7 * 2 + 3 * 3) / 3600)
    assert (found.scalings, found.rebalances, found.most) == (1, 2, 3)
    assert (found.pods_deleted, found.pods_deleted_while_owning) == (2, 1)
    assert found.within_one == pytest.approx(4 / 11)  # five are needed from the fifth second on
    assert found.rounded["rebalances_per_change"] == 2
    assert found.burst == 2  # two records in the first two seconds instead of one


def test_a_generation_is_read_from_the_groups_own_record() -> None:
    """Keys of version 2 are a group's; the number stands behind the protocol's type."""
    key = struct.pack(">hh", 2, 4) + b"lake"
    assert group_of(key) == (2, "lake")
    value = struct.pack(">hh", 3, 8) + b"consumer" + struct.pack(">i", 17) + b"rest"
    assert generation(value) == 17


def test_the_hardest_of_several_is_held_against_us(module: ModuleType) -> None:
    """A threshold that is cheap but late counts by what it is good at."""

    class Ran:
        def __init__(self, hours: float, late: float) -> None:
            self.consumer_hours, self.late_traffic = hours, late

    ours, cheap, prompt = Ran(1.0, 0.01), Ran(1.1, 0.5), Ran(2.0, 0.2)
    assert module.find_hardest_run(ours, [prompt, cheap]) is cheap


def test_without_programs_it_says_how_to_get_them(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is built and nothing is measured; missing programs are named."""
    del module
    bench = import_module("benchmarks.autoscaling.bench_autoscale")
    monkeypatch.setattr(bench, "there", lambda _: None)
    monkeypatch.setattr(bench, "keda_source", lambda: None)
    monkeypatch.setattr(sys, "argv", ["autoscaling/bench_autoscale.py"])
    bench.main()
    captured = capsys.readouterr()
    assert "make kubernetes" in captured.err
    assert "KUBEBUILDER_ASSETS" in captured.err
    assert "kube-apiserver" in captured.out
