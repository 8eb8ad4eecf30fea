"""Decisions equal those recorded before the great rename: placements, counts and encoded bytes.

`recorded_decisions.json` was recorded on the code as it was before files were moved and names were
changed. It holds the start of the SHA-256 of canonical JSON (lists of plain values, floats to
twelve digits, no names of classes or fields, no reasons), and figures that say what differs.
**Never record it again to make a red test green**: a mismatch means that a member or a
replica target gets another decision than before. After an intended change of a decision, run

    PYTHONPATH=tests .venv/bin/python -m simulation.test_recorded_decisions --record

and say in the commit which decisions changed and why. Inputs come from seeds and use nothing of the
project, not even its generators; `Random.random` alone gives the same in every Python. All names of
the project that are used are in `recorded_names`, so that a rename touches that file only.
"""

import hashlib
import json
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from simulation.recorded_names import (
    RACKS,
    Case,
    Chance,
    LeaderInputs,
    Name,
    SimulatedMember,
    copies,
    encode_user_data,
    lead_round,
    placed,
    registered,
    replayed,
    written,
)
from simulation.recorded_stories import ALL, World

RECORDED: Final = Path(__file__).with_name("recorded_decisions.json")

Record: TypeAlias = list[str]
"""One line a decision: the start of its digest, and figures."""


def plain(value: Any) -> Any:
    """Return lists, texts and whole numbers only; floats as twelve digits."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return f"{value:.12g}"
    assert isinstance(value, list | tuple), type(value)
    return [plain(item) for item in value]


def line(value: Any, figures: str) -> str:
    text = json.dumps(plain(value), separators=(",", ":"))
    return f"{hashlib.sha256(text.encode()).hexdigest()[:12]} {figures}"


HEURISTICS: Final = (
    *("steady", "steady:tight", "steady:balanced", "steady:calm", "steady:lexicographic"),
    *("steady:0.2", "steady:rack_cost=0.5", "steady:calm:rack_cost=0.1"),
    *("nf", "nfd", "ff", "ffd", "wf", "wfd", "bf", "bfd", "mwf", "mbf", "mwfp", "mbfp"),
    *("lag-aware", "sticky", "rack-aware", "rack-aware:balance_subtopology", "rack-aware:none"),
    "rack-aware:min_traffic:traffic_cost=1:non_overlap_cost=10",
)


@dataclass(frozen=True)
class Shape:
    """How a case is made."""

    topics: Mapping[str, int]
    members: int
    share: float = 0.7  # of the members' capacity
    owned: float = 0.9
    unknown: float = 0.0
    choosy: float = 0.0
    leaving: float = 0.0
    mixed: float = 0.0
    racks: bool = False
    filled: float = 1.0


CASES: Final = (
    Shape({"t": 12}, 4),
    Shape({"a": 20, "b": 3, "c": 17}, 8, owned=0.7, mixed=0.5),
    Shape({"a": 8, "b": 9, "c": 5}, 6, unknown=0.3, choosy=0.5, leaving=0.25, mixed=0.3),
    Shape({"t": 9, "u": 9}, 4, share=1.6, mixed=0.4, filled=0.8),
    Shape({"t": 16, "u": 14}, 6, racks=True, unknown=0.1, filled=0.9),
    Shape({"t": 10, "x": 4}, 3, owned=0.0, unknown=1.0),
    Shape({"a": 60, "b": 40}, 14, racks=True, owned=0.95, mixed=0.2, choosy=0.1, leaving=0.1),
    Shape({"t": 6}, 2, leaving=1.0, racks=True),
    Shape({"t": 5}, 0),
)


def case(number: int) -> Case:
    """Make a case from its kind and number; speeds, racks and owners come from the seed."""
    kind, chance = CASES[number], Chance(4000 + number)
    what = tuple((topic, n) for topic, count in kind.topics.items() for n in range(count))
    members = tuple(
        SimulatedMember(
            id=f"m{n:02}",
            topics=tuple(t for t in kind.topics if not chance.hit(kind.choosy)),
            takes=chance.between(40, 250) if chance.hit(kind.mixed) else None,
            lasting=f"pod-{n}" if chance.hit(0.5) else "",
            leaves=chance.hit(kind.leaving),
            where=chance.pick([*RACKS, None]) if kind.racks else None,
        )
        for n in range(kind.members)
    )
    owners = [*(w.id for w in members), "gone"]
    mean = kind.share * 100 * max(1, kind.members) / len(what)
    return Case(
        members,
        what,
        held={p: chance.pick(owners) for p in what if chance.hit(kind.owned)},
        rates={p: None if chance.hit(kind.unknown) else chance.skewed(mean) for p in what},
        waits={p: float(chance.below(1000)) for p in what if chance.hit(0.8)},
        deviations={p: chance.between(0, mean) for p in what if chance.hit(0.5)},
        copies=copies(chance, what) if kind.racks else {},
        filled=kind.filled,
    )


def placements(heuristic: str) -> dict[str, Record]:
    """Decide every case with a heuristic in three ways."""
    modes = {"spread": (False, False), "packed": (False, True), "open": (True, True)}
    found: dict[str, Record] = {}
    for mode, (counts, packs) in modes.items():
        lines = found[f"{heuristic}, {mode}"] = []
        for number in range(len(CASES)):
            all_ = placed(case(number), heuristic, counts=counts, packs=packs)
            _, moves, r, consumers, fill, _, crossing = all_
            far = "" if crossing is None else f", {crossing:.1f} crossing"
            figures = f"{consumers} consumers, {len(moves)} moves, R {r:.3f}, fill {fill:.3f}{far}"
            lines.append(line(all_, figures))
    return found


# The group protocol, in bytes written and read here.


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def grouped(held: Iterable[Name]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(held):
        found.setdefault(topic, []).append(number)
    return found


def subscription(member: SimulatedMember, data: bytes | None, held: Iterable[Name], generation: int) -> bytes:
    """Write a ConsumerProtocolSubscription of version 3."""
    topics = b"".join(map(text, sorted(member.topics)))
    owned = [
        text(topic) + struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers)
        for topic, numbers in grouped(held).items()
    ]
    return b"".join(
        (
            struct.pack(">hi", 3, len(member.topics)),
            topics,
            struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data,
            struct.pack(">i", len(owned)),
            *owned,
            struct.pack(">i", generation),
            struct.pack(">h", -1) if member.where is None else text(member.where),
        )
    )


def assignment(data: bytes) -> tuple[list[Name], Any]:
    """Read a ConsumerProtocolAssignment: partitions, and what the leader adds."""
    at, held = 6, list[Name]()
    for _ in range(struct.unpack_from(">i", data, 2)[0]):
        (length,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + length].decode()
        (count,) = struct.unpack_from(">i", data, at + 2 + length)
        held += [(topic, n) for n in struct.unpack_from(f">{count}i", data, at + 6 + length)]
        at += 6 + length + 4 * count
    return held, json.loads(data[at + 4 :])


class SimulatedGroup:
    """Members that follow their assignments, as cooperative clients do."""

    def __init__(self) -> None:
        self.members: dict[str, SimulatedMember] = {}
        self.held: dict[str, list[Name]] = {}
        self.user_data: dict[str, Any] = {}
        self.silent: set[str] = set()
        self.generation = 0

    def join(self, name: str, *topics: str, **more: Any) -> None:
        self.members[name] = SimulatedMember(name, topics or ("a", "b"), lasting=f"pod-{name}", **more)
        self.held[name], self.user_data[name] = [], {}

    def leave(self, name: str) -> None:
        del self.members[name], self.held[name], self.user_data[name]

    def round(self, inputs: LeaderInputs) -> str:
        """Rejoin all members and apply the assignments of the leader."""
        raw: dict[str, bytes] = {}
        for name, member in self.members.items():
            before = self.user_data[name]
            data = encode_user_data(member, before.get("decision", ""), before.get("promised", {}))
            data_ = None if name in self.silent else data
            raw[name] = subscription(member, data_, self.held[name], self.generation)
        sent, rest = lead_round(raw, inputs)
        now = promised = 0
        for name, data in sent.items():
            self.held[name], self.user_data[name] = assignment(data)
            now += len(self.held[name])
            promised += sum(map(len, self.user_data[name]["promised"].values()))
        self.generation += 1
        shown = [[name, data.hex()] for name, data in sorted(sent.items())]
        subscriptions = [[name, data.hex()] for name, data in sorted(raw.items())]
        fresh, moves, r = rest[1:4]
        figures = f"{now} now, {promised} promised, {len(moves)} moves, R {r:.3f}"
        return line([subscriptions, shown, rest], figures + (", fresh" if fresh else ""))


def rounds(heuristic: str) -> Record:
    """Lead a group through joining, leaving, plans and new partitions."""
    chance, group = Chance(77), SimulatedGroup()
    what = [(topic, n) for topic, count in (("a", 14), ("b", 9)) for n in range(count)]
    rates: dict[Name, float | None] = {p: chance.skewed(14) for p in what}
    rates[("a", 3)] = None
    inputs = LeaderInputs(heuristic, {"a": 14, "b": 7}, rates, copies(chance, what))
    group.join("m1", where="east")
    group.join("m2", where="north", takes=150.0)
    lines = [group.round(inputs), group.round(inputs)]
    group.join("m3", where="west")
    lines += [group.round(inputs), group.round(inputs), group.round(inputs)]
    group.join("m4", "a")
    group.silent.add("m4")
    lines += [group.round(inputs), group.round(inputs)]
    inputs = replace(inputs, plan=(5, ("pod-m2",), {}))
    lines += [group.round(inputs), group.round(inputs)]
    group.leave("m2")
    inputs = replace(inputs, rates={p: chance.skewed(14) for p in what}, topics={"a": 14, "b": 9})
    lines += [group.round(inputs), group.round(inputs)]
    inputs = replace(inputs, plan=(6, (), {"pod-m1": 60.0, "pod-m3": 300.0}))
    lines += [group.round(inputs), group.round(inputs)]
    group.leave("m1")
    group.join("m5", "b", leaves=True)
    inputs = replace(inputs, plan=None, rates={})
    lines += [group.round(inputs), group.round(inputs)]
    return lines


LED: Final = (
    *("steady", "steady:calm", "steady:rack_cost=0.5", "mbf", "wfd", "lag-aware", "sticky"),
    *("rack-aware", "rack-aware:balance_subtopology"),
)
STREAMED: Final = (
    *("steady", "steady:tight", "steady:calm", "nf", "bfd", "mwf", "mbf", "mbfp"),
    *("lag-aware", "sticky", "rack-aware"),
)


def ticks(heuristic: str) -> Record:
    """Replay a stream in which speeds wander and partitions come and go; five ticks a line."""
    chance = Chance(99)
    what = (*(("a", n) for n in range(14)), *(("b", n) for n in range(10)))
    speed, rates = [chance.skewed(25) for _ in what], list[list[float]]()
    for _ in range(20):
        speed = [round(max(0.0, s * chance.between(0.75, 1.33)), 3) for s in speed]
        rates.append([float("nan") if chance.hit(0.03) else s for s in speed])
    found = replayed(heuristic, what, rates)
    lines: list[str] = []
    for first in range(0, len(found), 5):
        stretch = found[first : first + 5]
        figures = [f"{consumers} R {r:.3f} moves {moves}" for consumers, r, moves, _ in stretch]
        lines.append(line(stretch, ", ".join(figures)))
    return lines


def replay_story(name: str) -> Record:
    """Replay a story: a line for every ten turns, with action and count."""
    world = World(ALL[name])
    turns = [world.turn(n) for n in range(world.story.turns)]
    lines: list[str] = []
    for first in range(0, len(turns), 10):
        stretch = turns[first : first + 10]
        counts = [f"{turn.action} {turn.count}" for turn in stretch]
        runs = [(what, len(list(run))) for what, run in groupby(counts)]
        figures = ", ".join(what if times == 1 else f"{what} x{times}" for what, times in runs)
        lines.append(line([turn.all for turn in stretch], figures))
    return lines


MADE: Final[Mapping[str, Callable[[], Mapping[str, Record]]]] = {
    **{f"placements {name}": lambda name=name: placements(name) for name in HEURISTICS},
    **{f"rounds {name}": lambda name=name: {f"rounds, {name}": rounds(name)} for name in LED},
    **{f"replay {name}": lambda name=name: {f"replay, {name}": ticks(name)} for name in STREAMED},
    **{f"story {name}": lambda name=name: {f"story, {name}": replay_story(name)} for name in ALL},
    "written": lambda: {f"written, {name}": [value] for name, value in written().items()},
}


@cache
def recorded() -> Mapping[str, Record]:
    found: dict[str, Record] = json.loads(RECORDED.read_text())
    return found


def differences(found: Mapping[str, Record]) -> list[str]:
    """Describe the differences from the records."""
    wrong: list[str] = []
    for name, lines in found.items():
        before = recorded().get(name, [])
        if len(before) != len(lines):
            wrong.append(f"{name}: {len(before)} were recorded, there are {len(lines)}")
        pairs = enumerate(zip(before, lines, strict=False))
        wrong += [f"{name} [{n}]: was {a!r}, is {b!r}" for n, (a, b) in pairs if a != b]
    return wrong


@pytest.mark.parametrize("what", MADE)
def test_decisions_are_as_recorded(what: str) -> None:
    """Renamed files and identifiers change no decision."""
    assert differences(MADE[what]()) == []


def test_every_heuristic_is_recorded() -> None:
    """No heuristic is without recorded decisions, and every record is compared."""
    assert {name.split(":")[0] for name in HEURISTICS} >= set(registered())
    modes = {f"{name}, {mode}" for name in HEURISTICS for mode in ("spread", "packed", "open")}
    others = {what.replace(" ", ", ", 1) for what in MADE if not what.startswith("placements")}
    assert {n for n in recorded() if not n.startswith("written, ")} == modes | others - {"written"}


if __name__ == "__main__":
    if sys.argv[1:] != ["--record"]:
        sys.exit("usage: python -m simulation.test_recorded_decisions --record")
    everything = {name: lines for make in MADE.values() for name, lines in make().items()}
    RECORDED.write_text(json.dumps(everything, indent=0) + "\n")
