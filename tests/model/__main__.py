"""`make model`: explores all states to a depth, replays traces with the product, breaks each rule once.

The last line is `RESULT {json}`; the exit code is 1 if an invariant was violated, the product
diverged from the model, or a broken rule was not found.
"""

import argparse
import gc
import json
import logging
import random
import sys
import time
from collections.abc import Iterable
from typing import Final

from model.broken import BROKEN_RULES
from model.explorer import Exploration, Explorer, Violation, find_violation, replay_trace
from model.replay import Product
from model.state import State, initial_states
from model.transitions import Transitions

HEURISTIC: Final = "sticky"
TRACE_RECORDS: Final = 2  # per partition in a random trace
TRACE_FAULTS: Final = 4  # in a random trace
BROKEN_FAULTS: Final = 1  # are enough to find each broken rule
BROKEN_DEPTH: Final = 12
BROKEN_MAX_STATES: Final = 1_000_000


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="model", description=__doc__)
    parser.add_argument("--depth", type=int, default=9, help="number of steps")
    parser.add_argument("--faults", type=int, default=2, help="number of faults within them")
    parser.add_argument("--traces", type=int, default=1000, help="number of random traces to replay")
    parser.add_argument("--steps", type=int, default=80, help="number of steps of each trace")
    parser.add_argument("--seed", type=int, default=1, help="of the traces")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    gc.disable()  # states form no cycles
    began = time.monotonic()
    found = [name for name in BROKEN_RULES if find_broken_rule(name) is not None]
    explorations = explore_all(arguments.depth, arguments.faults)
    replay_random_traces(range(arguments.seed, arguments.seed + arguments.traces), arguments.steps)
    for exploration in explorations:
        _print_violation(exploration.violation)
    result = {
        "states": sum(exploration.states for exploration in explorations),
        "transitions": sum(exploration.transitions for exploration in explorations),
        "depth": min(exploration.depth for exploration in explorations),
        "faults": arguments.faults,
        "traces_replayed": arguments.traces + len(found),
        "steps_replayed": arguments.traces * arguments.steps,
        "violations": sum(exploration.violation is not None for exploration in explorations),
        "broken_rules": len(BROKEN_RULES),
        "broken_rules_found": len(found),
        "seconds": round(time.monotonic() - began),
    }
    _print_line(f"RESULT {json.dumps(result)}")
    return int(bool(result["violations"]) or len(found) < len(BROKEN_RULES))


def explore_all(depth: int, faults: int) -> list[Exploration]:
    """Explore from each initial state; `state` has the numbers of members and partitions."""
    return [
        Explorer(Transitions(HEURISTIC)).explore(start, depth, sys.maxsize)
        for start in initial_states(1, faults)
    ]


def replay_random_traces(seeds: Iterable[int], steps: int) -> None:
    """Replay a random trace of each seed with the product. Raises DivergenceError, AssertionError."""
    transitions = Transitions(HEURISTIC)
    for seed in seeds:
        start = initial_states(TRACE_RECORDS, TRACE_FAULTS)[seed % 2]
        trace = Explorer(transitions).walk(start, random.Random(seed), steps)  # noqa: S311 - repeatable
        with Product(start) as product:
            for action, state in trace:
                wrong = find_violation(transitions, state)
                assert wrong is None, f"trace {seed}: {wrong}"
                product.step(action, state)


def find_broken_rule(name: str) -> Violation | None:
    """Break a rule of the product; return its violation, which the product shows as the model does.

    Raises DivergenceError, and AssertionError if the unbroken rule does not prevent the violation.
    """
    start = initial_states(1, BROKEN_FAULTS)[1]
    with BROKEN_RULES[name]():
        broken = Transitions(HEURISTIC)
        violation = Explorer(broken).explore(start, BROKEN_DEPTH, BROKEN_MAX_STATES).violation
        if violation is None:
            return None
        with Product(start) as product:
            for action, state in replay_trace(broken, violation):
                product.step(action, state)
    assert is_prevented(violation), f"{name}: {violation.invariant} without breaking the rule"
    return violation


def is_prevented(violation: Violation) -> bool:
    """Return whether the product's rules refuse a step of a trace, or keep the invariants in it."""
    transitions = Transitions(HEURISTIC)
    try:
        states: list[State] = [state for _, state in replay_trace(transitions, violation)]
    except KeyError:  # a step that the rules do not allow
        return True
    return not any(find_violation(transitions, state) for state in states)


def _print_violation(violation: Violation | None) -> None:
    if violation is not None:
        _print_line(f"{violation.invariant}: {', '.join(map(str, violation.trace))}")


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
