"""R of a decision relative to the minimum with the same number of consumers, on random walks.

At sampled ticks of each stream, on the heuristic's own trajectory, the decision's R is divided by that
of the best known packing ("found") and by a lower bound ("bound"); the true ratio lies between the
two. A tick is certified if its bound is complete within the time limit. Ticks that need no move have
no ratio; they count in the ratio of the sums.
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
from trimtab.assignor.analysis.optimality import Certificate, certify_moves, start_countdown
from trimtab.common.clock import SystemClock

CAPACITY = 100.0
NOTHING = 1e-6


@dataclass(frozen=True)
class Sample:
    """One certified tick."""

    certificate: Certificate
    seconds: float


def main() -> None:
    options = parse_arguments()
    figures = {}
    print(f"{options.heuristic}, {options.partitions} partitions, R at equal bins: decided / least")
    print("delta      R  found  bound  worst | sums: found  bound | certified  gap %  s  ticks")
    with ProcessPoolExecutor(options.workers) as pool:
        for delta in options.delta:
            seeds = range(options.seed, options.seed + options.streams)
            work = partial(sample_streams, options, delta)
            sampled = [s for each in pool.map(work, seeds) for s in each]
            figures[f"{delta:g}"] = summarize_samples(sampled)
            print(format_line(delta, figures[f"{delta:g}"]), flush=True)
    harness.result({"certify": {"heuristic": options.heuristic, "delta": figures}})


def parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--heuristic", default="steady:balanced")
    parser.add_argument("--delta", type=float, nargs="+", default=[5, 10, 15, 20, 25])
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first stream")
    parser.add_argument("--ticks", type=int, default=61, help="ticks per stream")
    parser.add_argument("--every", type=int, default=20, help="ticks between two samples")
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds per certificate")
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


def sample_streams(options: Namespace, delta: float, seed: int) -> list[Sample]:
    """Certify the sampled ticks of one stream."""
    walk = RandomWalk(delta, options.partitions, options.ticks, CAPACITY)
    stream = walk.generate_stream(np.random.default_rng(seed))
    clock = SystemClock()
    sampled = []
    before = np.full(options.partitions, UNASSIGNED, dtype=np.int32)
    for number, tick in enumerate(replay_stream(get_heuristic(options.heuristic), stream, CAPACITY)):
        if number and number % options.every == 0:
            start = clock.monotonic()
            left = start_countdown(clock, options.time_limit)
            certificate = certify_moves(
                one_topic(stream.rates[number], before, CAPACITY), tick.owner, left=left
            )
            sampled.append(Sample(certificate, clock.monotonic() - start))
        before = tick.owner
    return sampled


def summarize_samples(sampled: list[Sample]) -> dict[str, float]:
    certificates = [s.certificate for s in sampled]
    total = sum(m.value for m in certificates)
    known, bound = sum(m.best_known for m in certificates), sum(m.lower_bound for m in certificates)
    to_known = summarize_ratios([(m.value, m.best_known) for m in certificates])
    to_bound = summarize_ratios([(m.value, m.lower_bound) for m in certificates])
    figures = {
        "r": total / len(certificates),
        "ratio_found": fmean(to_known),
        "ratio_bound": fmean(to_bound),
        "ratio_worst": max(to_bound),
        "sums_found": total / known if known > NOTHING else 1.0,
        "sums_bound": total / bound if bound > NOTHING else 1.0,
        "certified": fmean(m.complete for m in certificates),
        "gap": known / bound - 1 if bound > NOTHING else 0.0,
        "seconds": fmean(s.seconds for s in sampled),
        "seconds_worst": max(s.seconds for s in sampled),
        "ticks": len(certificates),
        "ticks_without_ratio": len(certificates) - len(to_known),
    }
    return {name: round(value, 4) for name, value in figures.items()}


def summarize_ratios(pairs: list[tuple[float, float]]) -> list[float]:
    """Return the ratios; 1 if both values are 0, none if only the second is."""
    quotients = [(v / b if b > NOTHING else 1.0) for v, b in pairs if b > NOTHING or v <= NOTHING]
    return quotients or [1.0]


def format_line(delta: float, f: dict[str, float]) -> str:
    return (
        f"{delta:5g} {f['r']:6.2f} {f['ratio_found']:6.3f} {f['ratio_bound']:6.3f} "
        f"{f['ratio_worst']:6.2f} | {f['sums_found']:11.3f} {f['sums_bound']:6.3f} | "
        f"{f['certified']:9.0%} {100 * f['gap']:6.2f} {f['seconds']:.1f} {f['ticks']:g}"
    )


if __name__ == "__main__":
    main()
