"""How often a predicted overload comes true, in the closed loop on random walks and on the packaged traces.

`steady` with the sidecar's default settings. At each tick every consumer of several partitions has a
predicted chance to be above its capacity at the next one, with the partitions that it has. Cases are counted
by that chance: what was predicted on average, how often it came true, and in how many cases; the first
`WARM_UP` ticks of each stream are left out. `by deviations` takes the partitions' changes for normal and
independent, as the placement does; `as forecast` is the sidecar's figure (`measurement.overload_forecast`).

`drawn capacities` has each consumer's capacity drawn anew at each tick: normal, with a standard deviation of
`--spread` about a mean of its own, which is drawn with the same. The sidecar knows the samples of the earlier
ticks (`measurement.capacity_estimate`). `drawn, by means` is the forecast that ignores their variance.

    python benchmarks/bench_calibration.py    # eight streams, a minute and a half
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from harness import result

from trimtab.assignor.analysis.simulation import SimulationSetup, parse_contender, run_simulation
from trimtab.assignor.analysis.simulation.contenders import BacklogReader, SimulatedDecision
from trimtab.assignor.analysis.streams.generators import RandomWalk
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.forecast import RateChangeStats
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray
from trimtab.assignor.packing import sum_loads
from trimtab.cli.simulate.trace_files import list_trace_names
from trimtab.cli.simulate.trace_source import load_windows
from trimtab.sidecar.measurement.capacity_estimate import CapacitySamples
from trimtab.sidecar.measurement.overload_forecast import OverloadForecaster, compute_normal_tail
from trimtab.sidecar.simulation.live_loop import LiveContender
from trimtab.sidecar.simulation.live_settings import LiveSettings

SETUP = SimulationSetup(headroom=0.9)
EDGES = (0.0, 0.005, 0.02, 0.03, 0.07, 0.15, 0.35, 1.0)  # of the predicted chance
WARM_UP = 20  # ticks
FORECASTS = ("by deviations", "as forecast", "drawn capacities", "drawn, by means")


class OwnerRecorder:
    """The sidecar's closed loop, with the owners (N, P) of its ticks."""

    def __init__(self, heuristic: str) -> None:
        self._loop = LiveContender(parse_contender(heuristic), LiveSettings())
        self.name, self.packs_by_capacity, self.eager = heuristic, True, False
        self.owners: list[IntArray] = []

    def iter_decisions(
        self, stream: WriteRateStream, setup: SimulationSetup, lags: BacklogReader
    ) -> Iterator[SimulatedDecision]:
        """Yield the decisions, and keep their owners."""
        for decision in self._loop.iter_decisions(stream, setup, lags):
            self.owners.append(decision.owner)
            yield decision


def main() -> None:
    """Simulate each stream; print and count its cases."""
    arguments = parse_arguments()
    cases: dict[str, list[FloatArray]] = {name: [] for name in FORECASTS}
    for title, stream in list_streams(arguments):
        recorder = OwnerRecorder(arguments.heuristic)
        run_simulation(recorder, stream, SETUP)
        for name, found in predict_overloads(stream.rates, recorder.owners, arguments).items():
            cases[name].append(found)
            print(f"{title:20} {name:16} {format_cases(found)}", flush=True)
    total = {name: np.concatenate(found) for name, found in cases.items()}
    for name, found in total.items():
        print(f"{'all':20} {name:16} {format_cases(found)}")
    result({name: count_cases(found) for name, found in total.items()})


def parse_arguments() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heuristic", default="steady")
    parser.add_argument("--delta", type=float, nargs="*", default=(5.0, 10.0, 15.0, 25.0))
    parser.add_argument("--trace", nargs="*", choices=list_trace_names(), default=list_trace_names())
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--ticks", type=int, default=240)
    parser.add_argument("--spread", type=float, default=0.05, help="of drawn capacities, relative")
    parser.add_argument("--seed", type=int, default=11)
    return parser.parse_args()


def list_streams(arguments: argparse.Namespace) -> Iterator[tuple[str, WriteRateStream]]:
    """Yield the streams with their titles; of a trace the second half of its time."""
    for delta in arguments.delta:
        walk = RandomWalk(delta, arguments.partitions, arguments.ticks)
        yield (
            f"walk \N{GREEK SMALL LETTER DELTA}={delta:g}",
            walk.generate_stream(np.random.default_rng(arguments.seed)),
        )
    for trace in arguments.trace:
        for number, stream in enumerate(load_windows(trace, 2, arguments.ticks, SETUP).second):
            yield f"{trace} {number + 1}", stream


def predict_overloads(
    rates: FloatArray, owners: Sequence[IntArray], arguments: argparse.Namespace
) -> Mapping[str, FloatArray]:
    """Return (chance, 1 if it came true) of each case, by forecast."""
    constant = DrawnCapacities(owners, 0.0, arguments.seed)
    drawn = DrawnCapacities(owners, arguments.spread, arguments.seed)
    deviations, forecast = predict_by(rates, owners, constant)
    _, by_samples = predict_by(rates, owners, drawn)
    _, by_means = predict_by(rates, owners, drawn, is_variance_known=False)
    return dict(zip(FORECASTS, (deviations, forecast, by_samples, by_means), strict=True))


class DrawnCapacities:
    """Capacities (N + 1, K) of K consumers in N ticks, and what their samples tell."""

    def __init__(self, owners: Sequence[IntArray], spread: float, seed: int) -> None:
        chance = np.random.default_rng(seed)
        consumers = 1 + max(int(owner.max()) for owner in owners)
        means = SETUP.capacity * (1 + spread * chance.normal(size=consumers))
        self.drawn = means * (1 + spread * chance.normal(size=(len(owners) + 1, consumers)))
        self._samples = [CapacitySamples()] * consumers

    def estimate(self, tick: int) -> FloatArray:
        """Return means and variances (2, K) by the samples up to a tick; ticks come in order."""
        shown = zip(self._samples, self.drawn[tick].tolist(), strict=True)
        self._samples = [one.add_sample(tick, rate, window=1.0) for one, rate in shown]
        return np.array([one.estimate_next() for one in self._samples]).T


def predict_by(
    rates: FloatArray,
    owners: Sequence[IntArray],
    capacities: DrawnCapacities,
    *,
    is_variance_known: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """Return (chance, 1 if it came true) of each case, by deviations and as the sidecar forecasts."""
    forecaster = OverloadForecaster(RateChangeStats.empty(rates.shape[1]))
    normal, forecast = [np.empty((0, 2))], [np.empty((0, 2))]
    for tick, (now, later) in enumerate(pairwise(rates)):
        consumers, owner = number_consumers(owners[tick])
        mean, variance = capacities.estimate(tick)[:, consumers]
        variance *= is_variance_known
        chances, forecaster = forecaster.add_measurement(now, owner, mean, variance)
        deviations = np.sqrt(sum_loads(owner, forecaster.get_own_variance(), len(mean)))
        room = mean - sum_loads(owner, np.nan_to_num(now), len(mean))
        by_deviations = compute_normal_tail(room / np.maximum(deviations, 1e-9))
        limit = capacities.drawn[tick + 1, consumers] * (1 + 1e-6)
        is_true = sum_loads(owner, np.nan_to_num(later), len(mean)) > limit
        counted = ~np.isnan(chances) & (tick >= WARM_UP)
        normal.append(np.stack([by_deviations, is_true], axis=1)[counted])
        forecast.append(np.stack([chances, is_true], axis=1)[counted])
    return np.concatenate(normal), np.concatenate(forecast)


def number_consumers(owner: IntArray) -> tuple[IntArray, IntArray]:
    """Return the consumers (M,) that own partitions, and the owners (P,) by their place among them."""
    names, number = np.unique(owner, return_inverse=True)
    without = int(names[0] == UNASSIGNED)
    return names[without:], (number - without).astype(np.int32)


def count_cases(found: FloatArray) -> dict[str, dict[str, float]]:
    """Return percentages predicted and seen, and the number of cases, by the range of the prediction."""
    counted: dict[str, dict[str, float]] = {}
    for low, high in pairwise(EDGES):
        inside = found[(found[:, 0] >= low) & (found[:, 0] < high + (high == 1.0))]
        if len(inside):
            predicted, seen = (100 * inside.mean(axis=0)).round(2).tolist()
            counted[f"{low:g}-{high:g}"] = {"predicted": predicted, "seen": seen, "cases": len(inside)}
    return counted


def format_cases(found: FloatArray) -> str:
    """Return the percentages of each range in one line."""
    cells = (f"{c['predicted']:.1f} > {c['seen']:.1f} ({c['cases']})" for c in count_cases(found).values())
    return " | ".join(cells)


if __name__ == "__main__":
    main()
