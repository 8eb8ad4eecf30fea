"""Breadth-first search of all reachable states to a depth, and random walks.

Invariants, of every state:

1. *One reader*: at most one member would hand out records of a partition, also once it thaws.
2. *Once*: the table has each record at most once.
3. *None lost*: the table has each record below its offset.
4. *Progress*: without further faults the group comes to rest: every partition has a reader, and the
   table every record. Checked from one state in `PROGRESS_SAMPLE`, since each takes a run of its own.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from model.state import DEAD, MEMBERS, NONE, PARTITIONS, Action, State
from model.transitions import Transitions

# What a fair schedule does next; the first possible one, so that ticks come last.
FAIR_ORDER: Final = (
    *(
        "thaw",
        "reconnect",
        "answer",
        "land",
        "vanish",
        "receive",
        "begin",
        "join",
        "read",
        "heartbeat",
        "tick",
    ),
)
FAIR_STEPS: Final = 200  # a fair schedule needs fewer to come to rest
PROGRESS_SAMPLE: Final = 16
FAULT_NAMES: Final = frozenset({"crash", "freeze", "cut", "late"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant and the shortest way to it."""

    invariant: str
    start: State
    trace: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a search has seen."""

    states: int
    transitions: int
    depth: int  # to which all states were seen
    violation: Violation | None = None


def find_violation(transitions: Transitions, state: State) -> str | None:
    """Return what is wrong with a state (invariants 1 to 3)."""
    for partition in PARTITIONS:
        readers = [n for n in MEMBERS if transitions.may_read(state.members[n], partition)]
        if len(readers) > 1:
            return f"partition {partition} has the readers {readers}"
        rows, offset = state.rows[partition], state.offsets[partition]
        if max(rows) > 1:
            return f"the table has a record of partition {partition} twice: {rows}"
        if not all(rows[:offset]):
            return f"the table lacks a record of partition {partition} below its offset {offset}: {rows}"
    return None


class Explorer:
    """Explores one set of transitions; states are kept as hashes."""

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self._resting: set[int] = set()  # states from which a fair schedule comes to rest

    def explore(self, start: State, depth: int, max_states: int) -> Exploration:
        """Visit all states up to a depth, at most `max_states`; stop at the first violation."""
        origin: dict[int, tuple[int, Action] | None] = {hash(start): None}
        frontier, transitions = [start], 0
        for level in range(1, depth + 1):
            found: list[State] = []
            for state, action, after in self._expand(frontier):
                transitions += 1
                key = hash(after)
                if key not in origin:
                    origin[key] = (hash(state), action)
                    found.append(after)
                    if (wrong := self._find_wrong(after, key)) is not None:
                        violation = Violation(wrong, start, _trace_back(origin, key))
                        return Exploration(len(origin), transitions, level, violation)
            if not found or len(origin) > max_states:
                return Exploration(len(origin), transitions, level)
            frontier = found
        return Exploration(len(origin), transitions, depth)

    def _expand(self, frontier: list[State]) -> Iterator[tuple[State, Action, State]]:
        for state in frontier:
            for action, after in self._transitions.successors(state):
                yield state, action, after

    def _find_wrong(self, state: State, key: int) -> str | None:
        wrong = find_violation(self._transitions, state)
        return self.find_standstill(state) if wrong is None and key % PROGRESS_SAMPLE == 0 else wrong

    def find_standstill(self, state: State) -> str | None:
        """Return why a fair schedule never comes to rest (invariant 4)."""
        passed: list[int] = []
        for _ in range(FAIR_STEPS):
            key = hash(state)
            if key in self._resting or self.rests(state):
                self._resting.update((key, *passed))
                return None
            passed.append(key)
            state = self._take_fair_step(state)
        return f"no rest within {FAIR_STEPS} steps"

    def rests(self, state: State) -> bool:
        """Return whether every live member is stable, every partition read, every record in the table."""
        stable = all(
            member.life == DEAD or (seat.answer is None and member.behind == 0)
            for member, seat in zip(state.members, state.seats, strict=True)
        )
        read = all(
            sum(self._transitions.may_read(member, partition) for member in state.members) == 1
            for partition in PARTITIONS
        )
        return stable and state.preparing == NONE and read and all(map(all, state.rows))

    def walk(self, start: State, rng: random.Random, steps: int) -> Iterator[tuple[Action, State]]:
        """Yield random steps; ticks and faults are rarer than what the members do."""
        state = start
        for _ in range(steps):
            choices = list(self._transitions.successors(state))
            weights = [_WEIGHTS.get(action.name, 6) for action, _ in choices]
            action, state = rng.choices(choices, weights)[0]
            yield action, state

    def _take_fair_step(self, state: State) -> State:
        calm = state._replace(faults=0)
        steps = list(self._transitions.successors(calm))
        _, after = min(steps, key=lambda step: (FAIR_ORDER.index(step[0].name), step[0]))
        return after


_WEIGHTS: Final = {"tick": 3, **dict.fromkeys(FAULT_NAMES, 1)}


def replay_trace(transitions: Transitions, violation: Violation) -> Iterator[tuple[Action, State]]:
    """Yield the steps of a violation's trace. Raises KeyError for one that is not possible."""
    state = violation.start
    for action in violation.trace:
        state = dict(transitions.successors(state))[action]
        yield action, state


def _trace_back(origin: dict[int, tuple[int, Action] | None], key: int) -> tuple[Action, ...]:
    trace: list[Action] = []
    while (step := origin[key]) is not None:
        key, action = step
        trace.append(action)
    return tuple(reversed(trace))
