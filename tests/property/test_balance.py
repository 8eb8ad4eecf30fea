"""The rules of `balance.pyx` in plain Python, which looks at every member: both give the same placement."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.assignor.heuristics.steady.bin_names import canonical_order
from trimtab.assignor.heuristics.steady.fair_shares import compute_fair_shares
from trimtab.assignor.heuristics.steady.pack import FILL_NOISE, balance_load
from trimtab.assignor.model import UNASSIGNED, PackingProblem
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE

BAND = 0.05
ROUNDS = 8
WEIGHTS = st.floats(0, 60) | st.sampled_from([0.0, 5.0, 10.0]) | st.floats(60, 230)


@st.composite
def closed_problems(draw: st.DrawFn) -> PackingProblem:
    """Up to 40 partitions of 2 topics and 6 members; many partitions are on one member."""
    items, members = draw(st.integers(1, 40)), draw(st.integers(1, 6))
    crowded = st.integers(-1, members - 1) | st.just(0)
    subscribed = np.ones((2, members), dtype=np.bool_)
    if draw(st.booleans()):
        subscribed[0] = draw(st.lists(st.booleans(), min_size=members, max_size=members))
        subscribed[0, 0] = True
    topic = np.array(draw(st.lists(st.integers(0, 1), min_size=items, max_size=items)), np.int32)
    owner = np.array(draw(st.lists(crowded, min_size=items, max_size=items)), np.int32)
    owner[~subscribed[topic, np.maximum(owner, 0)]] = UNASSIGNED
    return PackingProblem(
        weight=np.array(draw(st.lists(WEIGHTS, min_size=items, max_size=items))),
        owner=owner,
        topic=topic,
        lag=np.zeros(items),
        capacity=np.array(draw(st.lists(st.sampled_from([60.0, 100.0]), min_size=members, max_size=members))),
        subscribed=subscribed,
    )


@dataclass
class Group:
    """Members and what they hold, the partition that came last first."""

    problem: PackingProblem
    room: list[float]  # a fill of 1
    load: list[float] = field(init=False)
    held: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.load, self.held = [0.0] * len(self.room), [[] for _ in self.room]
        for item, member in enumerate(self.problem.owner.tolist()):
            if member != UNASSIGNED:
                self.place(item, member)

    def place(self, item: int, member: int) -> None:
        self.load[member] = (self.load[member] if self.held[member] else 0.0) + self.weight(item)
        self.held[member].insert(0, item)

    def remove(self, item: int) -> None:
        member = next(m for m, held in enumerate(self.held) if item in held)
        self.held[member].remove(item)
        self.load[member] -= self.weight(item)

    def weight(self, item: int) -> float:
        return float(self.problem.weight[item])

    def fill(self, member: int) -> float:
        return self.load[member] / self.room[member] if self.held[member] else 0.0

    def fill_with(self, item: int, member: int) -> float:
        return self.fill(member) + self.weight(item) / self.room[member]

    def reads(self, item: int, member: int) -> bool:
        return bool(self.problem.subscribed[self.problem.topic[item], member])

    def readers(self, item: int) -> list[int]:
        return [m for m in range(len(self.room)) if self.reads(item, m)]


def trim(group: Group) -> None:
    """Rule 1."""
    for member, held in enumerate(group.held):
        if len(held) < 2 or group.fill(member) <= 1 + BAND:
            continue
        left = sorted(held, key=lambda item: (-group.weight(item), item))
        for item in tuple(left):
            over = group.load[member] - (1 + BAND) * group.room[member]
            if over > 0 and len(held) > 1 and group.weight(item) <= over:
                group.remove(item)
                left.remove(item)
        over = group.load[member] - (1 + BAND) * group.room[member]
        enough = [item for item in left if group.weight(item) >= over]
        if over > 0 and len(held) > 1 and enough:
            group.remove(enough[-1])


def place_loose(group: Group) -> None:
    """Rule 2."""
    placed = {item for held in group.held for item in held}
    loose = [item for item in range(len(group.problem.weight)) if item not in placed]
    for item in sorted(loose, key=lambda item: (-group.weight(item), item)):
        readers = group.readers(item)
        # who reads everything is compared without the partition, as adding it may round to the same
        same = bool(group.problem.subscribed.all())
        best = min(readers, key=group.fill if same else lambda m: group.fill_with(item, m))  # noqa: B023
        home = int(group.problem.owner[item])
        if home != UNASSIGNED and group.fill_with(item, home) <= group.fill_with(item, best) + BAND:
            best = home
        group.place(item, best)


def fill_underfull(group: Group) -> None:
    """Rule 3."""
    without_donor = set[int]()
    while poor := [m for m in range(len(group.room)) if m not in without_donor]:
        recipient = min(poor, key=group.fill)
        if group.fill(recipient) >= 1 - BAND:
            return
        gift = find_gift(group, recipient, inside=True)
        gift = find_gift(group, recipient, inside=False) if gift is None else gift
        if gift is None:
            without_donor.add(recipient)
        else:
            group.remove(gift)
            group.place(gift, recipient)


def find_gift(group: Group, recipient: int, *, inside: bool) -> int | None:
    donors = [m for m, held in enumerate(group.held) if len(held) > 1 and m != recipient]
    for donor in sorted(donors, key=lambda m: -group.fill(m)):
        best, least = None, group.fill(donor) - (0.0 if inside else BAND)
        for item in group.held[donor]:
            rest = group.fill(donor) - group.weight(item) / group.room[donor]
            after = group.fill_with(item, recipient)
            worst = max(rest, after)
            if inside:
                worst = rest if rest >= 1 - BAND and after <= 1 + BAND else float("inf")
            if worst < least and group.reads(item, recipient):
                best, least = item, worst
        if best is not None:
            return best
    return None


def is_evener(group: Group, present: Group) -> bool:
    """Whether partitions move: only if the fullest member then has less, or the emptiest more."""
    (least, most), (least_now, most_now) = (
        (min(fills), max(fills))
        for fills in ([g.fill(m) for m in range(len(g.room))] for g in (group, present))
    )
    return most < most_now - FILL_NOISE or least > least_now + FILL_NOISE


@given(closed_problems())
@example(
    PackingProblem(
        weight=np.array(
            [0.0, 1.0]
        ),  # the one that fills a member alone stays, so the other's move evens nothing
        owner=np.zeros(2, np.int32),
        topic=np.zeros(2, np.int32),
        lag=np.zeros(2),
        capacity=np.array([60.0, 60.0]),
        subscribed=np.ones((2, 2), dtype=np.bool_),
    )
)
def test_the_rankings_find_what_a_look_at_every_member_finds(problem: PackingProblem) -> None:
    """The emptiest and the fullest that can give, of ties the lowest number, and the partitions to give."""
    order = canonical_order(problem)
    renumbered = order.renumber_problem(problem)
    share = compute_fair_shares(renumbered)
    full = renumbered.capacity * np.where(share > 0, share, 1.0) * (1 + CAPACITY_TOLERANCE)
    group = Group(renumbered, full.tolist())
    before = None
    for _ in range(ROUNDS):
        trim(group)
        place_loose(group)
        fill_underfull(group)
        after = [sorted(held) for held in group.held]
        if after == before:
            break
        before = after
    bins = order.restore_bins(
        np.array(
            [
                next(m for m, held in enumerate(group.held) if item in held)
                for item in range(len(problem.weight))
            ],
            np.int32,
        )
    )
    owned = all(m != UNASSIGNED and group.reads(i, m) for i, m in enumerate(renumbered.owner.tolist()))
    if owned and not is_evener(group, Group(renumbered, full.tolist())):
        bins = problem.owner
    assert (balance_load(problem) == bins).all()
