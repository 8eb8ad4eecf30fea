"""Stories of a sidecar for `test_recorded_decisions`: a small world that does what it asks for.

The world is made of seeds and of nothing of the project; the decisions come from
`recorded_names.Steered`. Neither this file nor a seed in it is to change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from simulation.recorded_names import RACKS, Chance, Name, Seen, Settings, Steered, Turned, copies

START: Final = 1.8e9  # 08:00 UTC
STEP: Final = 10.0


@dataclass(frozen=True)
class Story:
    """Load of the group (bytes/s) by turn, settings, and what happens: (from, to, what, which)."""

    load: tuple[tuple[int, float], ...]
    settings: Settings = Settings()  # noqa: RUF009 - frozen
    happens: tuple[tuple[int, int, str, Any], ...] = ()
    turns: int = 60
    partitions: int = 12
    pods: int = 2
    seed: int = 1
    sink: float = 120.0  # what one consumer sustains
    whole: float = 1e9  # what all of them together sustain
    slow: int = 0  # turns that a rebalance takes
    noise: float = 0.05
    ordered: bool = False
    racks: bool = False
    shared: bool = False


class World:
    """Pods, owners and backlogs of a story."""

    def __init__(self, story: Story) -> None:
        self.story, self.chance, self.sidecar = story, Chance(story.seed), Steered()
        self.what = [("t", n) for n in range(story.partitions)]
        weights = [self.chance.skewed(1) for _ in self.what]
        self.shares = {p: w / sum(weights) for p, w in zip(self.what, weights, strict=True)}
        self.copies = copies(self.chance, self.what) if story.racks else {}
        self.backlog = dict.fromkeys(self.what, 0.0)
        self.pods: dict[str, tuple[bool, float]] = {}
        self.owner: dict[Name, str] = {}
        self.cause: tuple[Any, ...] = ()
        self.busy = self.count = 0
        self.requested: tuple[int, float, bool, bool] | None = None
        self.start(story.pods, START - 600)
        self.last: Turned | None = None

    def start(self, count: int, now: float) -> None:
        for _ in range(count):
            self.pods[f"w{self.count:02}"] = (True, now)
            self.count += 1

    def alive(self) -> list[str]:
        return sorted(name for name, (alive, _) in self.pods.items() if alive)

    def turn(self, number: int) -> Turned:
        """Let ten seconds pass, then let the sidecar decide."""
        now, story = START + STEP * number, self.story
        events = [(w, a) for first, last, w, a in story.happens if first <= number <= last]
        settings = replace(story.settings, **dict(a for w, a in events if w == "settings"))
        self._befall(events, now)
        rates = {p: round(self._load(number) * s * self._wobble(), 3) for p, s in self.shares.items()}
        readers = [n for n in self.alive() if self.pods[n][1] <= now - 2 * STEP]
        self._rebalance(readers)
        consumed = self._consume(rates, readers)
        seen = self._seen(rates, readers, consumed)
        self._disturb(seen, events)
        decided = self.last = self.sidecar.turn(seen, settings, now)
        if "no starts" not in dict(events):
            self.start(decided.add, now)
        for name in decided.stop:
            self.pods.pop(name, None)
        return decided

    def _load(self, number: int) -> float:
        """Return the load of a turn, on straight lines between the story's points."""
        turns, loads = [t for t, _ in self.story.load], [load for _, load in self.story.load]
        return float(np.interp(number, turns, loads))

    def _wobble(self) -> float:
        return self.chance.between(1 - self.story.noise, 1 + self.story.noise)

    def _befall(self, events: list[tuple[str, Any]], now: float) -> None:
        for what, which in events:
            there = self.alive()
            if what == "die" and there:
                self.pods[there[which % len(there)]] = (False, now)
            elif what == "come":
                self.start(which, now)
            elif what == "ask":
                count, ours, traced = which
                self.requested = (count, now, ours, traced)
                for name in there[count:]:
                    del self.pods[name]
                self.start(count - len(there), now)

    def _rebalance(self, readers: list[str]) -> None:
        """Hand partitions out when members or the plan changed, as far as the world pleases."""
        decided = self.last
        leaving = () if decided is None else decided.leaving
        cause = (readers, leaving, 0 if decided is None else decided.epoch)
        if cause != self.cause:
            self.cause, self.busy = cause, self.story.slow
        elif self.busy:
            self.busy -= 1
        staying = [n for n in readers if n not in leaving] or readers
        if self.busy or self.story.shared or not staying:
            self.owner = {p: n for p, n in self.owner.items() if n in readers}
            return
        for topic, number, _, target, _ in () if decided is None else decided.moves:
            if target in staying:
                self.owner[(topic, number)] = target
        self.owner = self._dealt(staying)

    def _dealt(self, staying: list[str]) -> dict[Name, str]:
        """Return owners: kept partitions stay, the rest goes to the readers with the fewest; each has one."""
        held = {n: [p for p in self.what if self.owner.get(p) == n] for n in staying}
        for p in self.what:
            if self.owner.get(p) not in held:
                held[min(staying, key=lambda n: (len(held[n]), n))].append(p)
        while True:
            least = min(staying, key=lambda n: (len(held[n]), n))
            most = max(staying, key=lambda n: (len(held[n]), n))
            if held[least] or len(held[most]) < 2:
                return {p: name for name, found in held.items() for p in found}
            held[least].append(held[most].pop())

    def _consume(self, rates: dict[Name, float], readers: list[str]) -> dict[Name, float]:
        """Work off what waits and what is written, as fast as readers and sink allow."""
        consumed = dict.fromkeys(self.what, 0.0)
        each = min(self.story.sink, self.story.whole / max(1, len(readers)))
        for name in readers:
            held = [p for p in self.what if self.story.shared or self.owner.get(p) == name]
            due = {p: rates[p] + self.backlog[p] / STEP - consumed[p] for p in held}
            part = min(1.0, each / max(1e-9, sum(due.values())))
            for p in held:
                consumed[p] += due[p] * part
        for p in self.what:
            self.backlog[p] = max(0.0, round(self.backlog[p] + STEP * (rates[p] - consumed[p]), 3))
        return {p: round(rate, 3) for p, rate in consumed.items()}

    def _seen(self, rates: dict[Name, float], readers: list[str], consumed: dict[Name, float]) -> Seen:
        state = "rebalancing" if self.busy else "stable"
        where = {n: RACKS[int(n[1:]) % 3] if self.story.racks else None for n in readers}
        held = {n: tuple(p for p in self.what if self.owner.get(p) == n) for n in readers}
        total = int(sum(self.backlog.values()))
        return Seen(
            {p: (rates[p], self.backlog[p]) for p in self.what},
            state if readers else "empty",
            [(n, held[n], where[n]) for n in readers],
            [
                (name, alive, at, int(name[1:]) if self.story.ordered else 0)
                for name, (alive, at) in sorted(self.pods.items())
            ],
            consumed,
            copies=self.copies,
            requested=self.requested,
            shared=self.story.shared,
            queue=("share", total, 0, 0) if self.story.shared else None,
        )

    def _disturb(self, seen: Seen, events: list[tuple[str, Any]]) -> None:
        """Change what is seen, not what is."""
        for what, which in events:
            if what == "dark":
                seen.rates |= dict.fromkeys(self.what[:which], (None, None))
            elif what == "no backlog":
                seen.rates |= {p: (seen.rates[p][0], None) for p in self.what[:which]}
            elif what == "see":
                setattr(seen, *which)
            elif what == "stranger":
                seen.readers.append(("stranger", tuple(self.what[:1]), None))


def flat(load: float) -> tuple[tuple[int, float], ...]:
    return ((0, load),)


def night(low: int | None, high: int | None, *still: str) -> tuple[Any, ...]:
    """From three to seven minutes past the hour; turns 18 to 42."""
    return (("3 8 * * *", "7 8 * * *", "UTC", low, high, still),)


UP: Final = ((0, 120.0), (10, 120.0), (35, 520.0))
DOWN: Final = ((0, 420.0), (15, 420.0), (35, 60.0))
HILL: Final = ((0, 100.0), (20, 480.0), (30, 480.0), (45, 90.0))
SAW: Final = tuple((10 * n, 320.0 if n % 2 else 180.0) for n in range(8))
CAREFUL: Final = Settings(
    out=((2, 60.0, False), (50, 120.0, True)), out_rest=("min", 30.0, 0.1), back_rest=("max", 90, 0.2)
)
SLOW_SINK: Final = Story(flat(300.0), whole=150.0, turns=110)

STORIES: Final[Mapping[str, Story]] = {
    "up": Story(UP),
    "up, steady": Story(UP, Settings("steady"), seed=2),
    "up, careful": Story(UP, CAREFUL, seed=3),
    "up, out is disabled": Story(UP, Settings(out_rest=("disabled", 0, 0.1))),
    "up, headroom": Story(UP, Settings("bfd", filled=0.8, high=9), slow=2),
    "down": Story(DOWN, pods=5),
    "down, tight": Story(DOWN, Settings("steady:tight"), pods=5, seed=4, turns=50),
    "down, sticky": Story(DOWN, Settings("sticky"), pods=6, slow=1),
    "down, ordinals": Story(DOWN, pods=5, ordered=True, seed=5),
    "down, by halves": Story(DOWN, Settings(back=((50, 60.0, True),)), pods=6),
    "down, slow": Story(DOWN, pods=5, slow=8, seed=6),
    "hill, careful": Story(HILL, CAREFUL, seed=7, turns=90),
    "hill, lag-aware": Story(HILL, Settings("lag-aware"), seed=8),
    "hill, racks": Story(HILL, Settings("rack-aware"), racks=True, seed=9, turns=50),
    "hill, rack cost": Story(HILL, Settings("steady:rack_cost=0.5"), racks=True, seed=10, turns=50),
    "saw": Story(SAW, seed=11, turns=80),
    "saw, wide bands": Story(SAW, Settings(out_rest=("max", 0, 0.5), back_rest=("max", 30, 0.5)), pods=3),
    "many": Story(
        ((0, 900.0), (30, 1900.0), (50, 700.0)),
        Settings("steady", high=30, out=((100, 15.0, True), (4, 15.0, False))),
        partitions=60,
        pods=12,
        turns=60,
        seed=12,
    ),
    "pauses": Story(HILL, happens=((5, 24, "see", ("pause", "out")), (40, 55, "see", ("pause", "all")))),
    "paused by settings": Story(HILL, Settings(still=("in",))),
    "schedule, more": Story(flat(60.0), Settings(periods=night(4, None)), turns=80),
    "schedule, fewer": Story(flat(420.0), Settings(periods=night(None, 2)), pods=5, turns=80),
    "schedule, pause": Story(HILL, Settings(periods=night(None, None, "in", "out")), turns=80),
    "partly dark": Story(HILL, happens=((10, 20, "dark", 3), (40, 60, "dark", 1))),
    "dark, current": Story(UP, happens=((12, 40, "dark", 12),)),
    "dark, static": Story(UP, Settings(dark=("static", 4, 3)), ((12, 40, "dark", 12),)),
    "dark, if higher": Story(DOWN, Settings(dark=("if higher", 3, 5)), ((12, 40, "dark", 12),), pods=4),
    "expired": Story(flat(150.0), happens=((10, 30, "no backlog", 5),)),
    "blind": Story(
        HILL,
        happens=(
            (0, 2, "see", ("known", False)),
            (10, 14, "see", ("pods", None)),
            (22, 25, "see", ("state", "unknown")),
            (40, 47, "see", ("state", "rebalancing")),
        ),
    ),
    "deaths": Story(flat(250.0), happens=tuple((n, n, "die", n) for n in (8, 12, 13, 14, 22, 40)), pods=3),
    "deaths while draining": Story(DOWN, happens=((30, 30, "die", 0), (33, 33, "die", 1)), pods=5, slow=5),
    "no starts": Story(UP, Settings(grace=60.0), ((20, 40, "no starts", None),)),
    "others come": Story(flat(150.0), happens=((10, 10, "come", 2), (30, 30, "come", 6)), turns=80),
    "followed": Story(
        flat(150.0),
        happens=(
            (10, 10, "ask", (4, False, True)),
            (30, 30, "ask", (0, False, True)),
            (40, 40, "ask", (2, False, False)),
            (55, 55, "ask", (1, True, True)),
        ),
        turns=75,
    ),
    "restart": Story(flat(250.0), happens=((8, 45, "see", ("restart", ("w00", "w01", "w02"))),), pods=3),
    "restart, deaths": Story(
        flat(250.0),
        happens=((8, 50, "see", ("restart", ("w00", "w01"))), (9, 9, "die", 3), (12, 12, "die", 3)),
        pods=3,
        slow=1,
    ),
    "stranger": Story(DOWN, happens=((20, 40, "stranger", None),), pods=4),
    "stuck": Story(flat(200.0), happens=((15, 45, "see", ("stuck", (("t", 0), ("t", 5)))),), sink=60.0),
    "advice": Story(HILL, Settings(advice=True), ((15, 15, "come", 2), (30, 30, "die", 0))),
    "to zero and back": Story(
        ((0, 80.0), (5, 80.0), (6, 0.0), (45, 0.0), (46, 40.0)), Settings(low=0), turns=80
    ),
    "from zero, dark": Story(
        ((0, 0.0), (30, 0.0), (31, 150.0)), Settings(low=0), ((5, 25, "dark", 2),), pods=0
    ),
    "slow sink": replace(SLOW_SINK, settings=Settings(high=12, out=((1, 0.0, False),))),
    "slow sink, not looked at": replace(SLOW_SINK, settings=Settings(high=12, effect=(0.0, 600.0))),
    "slow sink, no rates": replace(
        SLOW_SINK, settings=Settings(high=8), happens=((20, 60, "see", ("consumed", {})),)
    ),
    "learning": Story(flat(260.0), Settings(learns=(0.5, 2.0)), sink=70.0, turns=80, seed=13),
    "freshness": Story(flat(180.0), Settings(goal=30.0, high=2), sink=60.0, turns=80, seed=14),
    "one too large": Story(flat(260.0), Settings("steady"), partitions=4, seed=15, noise=0.2),
    "settings change": Story(
        HILL,
        happens=(
            (15, 60, "settings", ("heuristic", "steady:calm")),
            (25, 60, "settings", ("filled", 0.85)),
            (35, 60, "settings", ("takes", 130.0)),
            (45, 60, "settings", ("high", 2)),
        ),
    ),
    "shared": Story(HILL, shared=True, partitions=2, turns=80),
    "shared, to zero": Story(
        ((0, 80.0), (5, 0.0), (40, 0.0), (41, 300.0)), Settings(low=0), shared=True, partitions=3
    ),
}


def rough(seed: int) -> Story:
    """Make a story in which much goes wrong at once."""
    chance = Chance(seed)
    settings = Settings(
        chance.pick(["mbf", "steady", "wfd", "sticky", "mwfp"]),
        filled=chance.pick([1.0, 0.8]),
        low=chance.below(2),
        high=4 + chance.below(6),
        out_rest=("max", chance.pick([0.0, 30.0]), 0.1),
        cool=chance.pick([0.0, 30.0]),
        goal=chance.pick([None, 40.0]),
        learns=chance.pick([None, (0.5, 2.0)]),
    )
    kinds: list[tuple[str, Any]] = [
        *(("die", n) for n in range(4)),
        *(("dark", n) for n in (2, 20)),
        *(("ask", (n, False, n % 2 == 0)) for n in range(4)),
        *(("see", ("state", state)) for state in ("rebalancing", "unknown")),
        *(("come", 1), ("no starts", None), ("see", ("pause", "in")), ("nothing", None)),
        *(("see", ("restart", ("w00", "w03"))), ("no backlog", 4), ("see", ("pods", None))),
    ]
    happens: list[tuple[int, int, str, Any]] = []
    for _ in range(14):
        first, (what, which) = chance.below(60), chance.pick(kinds)
        once = what in {"die", "ask", "come"}
        happens.append((first, first + (0 if once else chance.below(8)), what, which))
    load = tuple((10 * n, chance.between(0, 600)) for n in range(8))
    return Story(
        load,
        settings,
        tuple(happens),
        turns=70,
        pods=1 + chance.below(5),
        seed=seed,
        sink=chance.between(60, 150),
        slow=chance.below(4),
        noise=0.15,
        ordered=chance.hit(0.4),
        racks=chance.hit(0.4),
    )


# Rough stories 3, 5 and 6 were recorded with `external-scaling: contest`, which is gone.
ALL: Final = {**STORIES, **{f"rough {n}": rough(500 + n) for n in range(12) if n not in {3, 5, 6}}}
