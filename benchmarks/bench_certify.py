"""One decision's R beside the least possible with as many consumers, on random walks.

At sampled ticks of each stream, on the heuristic's own trajectory, the decision's R is divided by
the best packing that is known ("found") and by the bound that no packing undercuts ("bound"); the
truth lies between the two. A tick is certified when its bound is complete within the time limit.
Ticks at which nothing need move have no ratio; they count in the ratio of the sums.
"""

from argparse import ArgumentParser, Namespace
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import harness
import numpy as np
from one_topic import one_topic

from trimtab.assignor import UNASSIGNED, RandomWalk, get_heuristic, replay_stream
from trimtab.assignor.analysis.certificate import Certificate, certify_moves, start_countdown
from trimtab.common.clock import SystemClock

CAPACITY = 100.0
NOTHING = 1e-6


@dataclass(frozen=True)
class Sample:
    """One certified tick."""

    made: Certificate
    seconds: float


def main() -> None:
    given = arguments()
    figures = {}
    print(f"{given.heuristic}, {given.partitions} partitions, R at equal bins: decided / least")
    print("delta      R  found  bound  worst | sums: found  bound | certified  gap %  s  ticks")
    with ProcessPoolExecutor(given.workers) as pool:
        for delta in given.delta:
            seeds = range(given.seed, given.seed + given.streams)
            work = partial(samples, given, delta)
            found = [s for each in pool.map(work, seeds) for s in each]
            figures[f"{delta:g}"] = summary(found)
            print(line(delta, figures[f"{delta:g}"]), flush=True)
    harness.result({"certify": {"heuristic": given.heuristic, "delta": figures}})


def arguments() -> Namespace:
    made = ArgumentParser(description=__doc__)
    made.add_argument("--heuristic", default="steady:balanced")
    made.add_argument("--delta", type=float, nargs="+", default=[5, 10, 15, 20, 25])
    made.add_argument("--streams", type=int, default=10)
    made.add_argument("--seed", type=int, default=0, help="of the first stream")
    made.add_argument("--ticks", type=int, default=61, help="of a stream")
    made.add_argument("--every", type=int, default=20, help="ticks between two samples")
    made.add_argument("--partitions", type=int, default=200)
    made.add_argument("--time-limit", type=float, default=10.0, help="seconds a certificate")
    made.add_argument("--workers", type=int, default=2)
    return made.parse_args()


def samples(given: Namespace, delta: float, seed: int) -> list[Sample]:
    """Certify the sampled ticks of one stream."""
    walk = RandomWalk(delta, given.partitions, given.ticks, CAPACITY)
    stream = walk.generate_stream(np.random.default_rng(seed))
    clock = SystemClock()
    found = []
    before = np.full(given.partitions, UNASSIGNED, dtype=np.int32)
    for number, tick in enumerate(replay_stream(get_heuristic(given.heuristic), stream, CAPACITY)):
        if number and number % given.every == 0:
            begun = clock.monotonic()
            left = start_countdown(clock, given.time_limit)
            made = certify_moves(one_topic(stream.rates[number], before, CAPACITY), tick.owner, left=left)
            found.append(Sample(made, clock.monotonic() - begun))
        before = tick.owner
    return found


def summary(found: list[Sample]) -> dict[str, float]:
    made = [s.made for s in found]
    total = sum(m.value for m in made)
    known, bound = sum(m.best_known for m in made), sum(m.lower_bound for m in made)
    to_known = ratios([(m.value, m.best_known) for m in made])
    to_bound = ratios([(m.value, m.lower_bound) for m in made])
    figures = {
        "r": total / len(made),
        "ratio_found": fmean(to_known),
        "ratio_bound": fmean(to_bound),
        "ratio_worst": max(to_bound),
        "sums_found": total / known if known > NOTHING else 1.0,
        "sums_bound": total / bound if bound > NOTHING else 1.0,
        "certified": fmean(m.complete for m in made),
        "gap": known / bound - 1 if bound > NOTHING else 0.0,
        "seconds": fmean(s.seconds for s in found),
        "seconds_worst": max(s.seconds for s in found),
        "ticks": len(made),
        "ticks_without_ratio": len(made) - len(to_known),
    }
    return {name: round(value, 4) for name, value in figures.items()}


def ratios(pairs: list[tuple[float, float]]) -> list[float]:
    """Return the ratios; 1 where both are nothing, none where only the second is."""
    found = [(v / b if b > NOTHING else 1.0) for v, b in pairs if b > NOTHING or v <= NOTHING]
    return found or [1.0]


def line(delta: float, f: dict[str, float]) -> str:
    return (
        f"{delta:5g} {f['r']:6.2f} {f['ratio_found']:6.3f} {f['ratio_bound']:6.3f} "
        f"{f['ratio_worst']:6.2f} | {f['sums_found']:11.3f} {f['sums_bound']:6.3f} | "
        f"{f['certified']:9.0%} {100 * f['gap']:6.2f} {f['seconds']:.1f} {f['ticks']:g}"
    )


if __name__ == "__main__":
    main()
