"""The plugin's Java in a JVM, group by group: a plan in Python's text, the assignment that it makes of it."""

import base64
import json
import random
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.broker_plugin.plugin_jar import cache_plugin_jar
from trimtab.cli.broker import broker_config
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.consumer_sdk.java.jars import fetch_jars
from trimtab.consumer_sdk.java.java_runtime import require_java
from trimtab.sidecar.pilot.plan_format import encode_plan

Assignment: TypeAlias = dict[str, dict[str, list[int]]]  # partitions by topic by member
Assign: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Assignment]

A, B = (base64.urlsafe_b64encode(bytes([n] * 16)).decode().rstrip("=") for n in (1, 2))
SHELL = Path(__file__).with_name("AssignorShell.java")


@pytest.fixture(scope="module")
def assign() -> Iterator[Assign]:
    """Return the plugin's `assign` in a JVM: members and replica racks by topic → partitions by member."""
    jars = fetch_jars("kafka", broker_config.KAFKA_COORDINATES, excludes=broker_config.EXCLUDED_COORDINATES)
    class_path = ":".join(map(str, (*jars, cache_plugin_jar(jars))))
    command = [str(require_java()), "-XX:TieredStopAtLevel=1", "-cp", class_path, str(SHELL)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as shell:  # type: ignore[call-overload]

        def ask(members: Mapping[str, Any], topics: Mapping[str, Any]) -> Assignment:
            shell.stdin.write(json.dumps({"members": members, "topics": topics}) + "\n")
            shell.stdin.flush()
            answer = json.loads(shell.stdout.readline())
            del answer[""]  # milliseconds
            return answer

        yield ask
        shell.stdin.close()


def member(
    *topics: str, rack: str | None = None, owned: Mapping[str, list[int]] | None = None
) -> dict[str, Any]:
    """Return a member that reads `topics`."""
    return {"topics": topics, "rack": rack, "owned": owned or {}}


def pilot(target: PlanTarget, epoch: int = 1, topics: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the member that carries a plan for members named by their ids."""
    (rack,) = encode_plan(epoch, target, topics or {"a": A, "b": B}, {})
    return member(rack=rack)


def topic(partitions: int, rack: str = "r1") -> list[str]:
    """Return the rack of each partition."""
    return [rack] * partitions


def test_a_plan_is_carried_out(assign: Assign) -> None:
    """Each partition is where the plan has it; the pilot has none."""
    plan = PlanTarget(1, ("x", "y"), 0, {"a": (1, 2, 2, 2), "b": (2, 1)})
    group = {"x": member(A, B), "y": member(A, B, owned={A: [0, 1, 2, 3], B: [0, 1]}), "p": pilot(plan)}
    placed = assign(group, {A: topic(4), B: topic(2)})
    assert placed == {"p": {}, "x": {A: [0], B: [1]}, "y": {A: [1, 2, 3], B: [0]}}


def test_nothing_moves_without_a_plan(assign: Assign) -> None:
    """However uneven the members are, as a plan by load leaves them."""
    group = {"x": member(A, owned={A: [0, 1, 2, 3, 4]}), "y": member(A, owned={A: [5]})}
    assert assign(group, {A: topic(6)}) == {"x": {A: [0, 1, 2, 3, 4]}, "y": {A: [5]}}


def test_joiners_level_a_group_without_a_plan(assign: Assign) -> None:
    """The first member has all; each joiner takes a fair count, and nothing moves between the others."""
    assert assign({"x": member(A)}, {A: topic(6)}) == {"x": {A: [0, 1, 2, 3, 4, 5]}}
    group = {"x": member(A, owned={A: [0, 1, 2, 3, 4, 5]}), "y": member(A), "z": member(A)}
    placed = assign(group, {A: topic(6)})
    assert sorted(len(of[A]) for of in placed.values()) == [2, 2, 2]


def test_a_leavers_partitions_go_to_the_members_with_the_fewest(assign: Assign) -> None:
    """The others keep theirs."""
    group = {"x": member(A, owned={A: [0, 1]}), "y": member(A, owned={A: [2]})}
    assert assign(group, {A: topic(5)}) == {"x": {A: [0, 1, 4]}, "y": {A: [2, 3]}}


def test_an_open_partition_goes_to_a_member_in_a_rack_of_its_replicas(assign: Assign) -> None:
    """Among members with equally many partitions."""
    group = {"x": member(A, rack="r1"), "y": member(A, rack="r2")}
    assert assign(group, {A: ["r2", "r1", "r2", "r1"]}) == {"x": {A: [1, 3]}, "y": {A: [0, 2]}}


def test_joiners_take_places_before_slots_of_members_that_are_gone(assign: Assign) -> None:
    """A joiner keeps the slot whose partitions it has when another one joins."""
    plan = PlanTarget(1, ("gone", "x"), 1, {"a": (1, 2, 3)})
    first = {"x": member(A, owned={A: [0, 1, 2]}), "n": member(A), "p": pilot(plan)}
    assert assign(first, {A: topic(3)}) == {"n": {A: [2]}, "p": {}, "x": {A: [0, 1]}}
    second = {
        "x": member(A, owned={A: [0, 1]}),
        "n": member(A, owned={A: [2]}),
        "a": member(A),
        "p": pilot(plan),
    }
    assert assign(second, {A: topic(3)}) == {"a": {A: [0]}, "n": {A: [2]}, "p": {}, "x": {A: [1]}}


def test_a_pilot_takes_no_place(assign: Assign) -> None:
    """Even if the topic that it names exists."""
    carrier = pilot(PlanTarget(1, ("x",), 1, {"a": (2, 1, 1)})) | {"topics": [B]}
    group = {"a-pilot": carrier, "n": member(A), "x": member(A, owned={A: [0, 1, 2]})}
    placed = assign(group, {A: topic(3), B: topic(1)})
    assert placed == {"a-pilot": {B: [0]}, "n": {A: [0]}, "x": {A: [1, 2]}}


def test_a_joiner_beyond_the_plan_keeps_its_share_when_another_one_joins(assign: Assign) -> None:
    """Until the next plan knows them."""
    members = {
        "x": member(A, owned={A: list(range(6))}),
        "p": pilot(PlanTarget(1, ("x",), 0, {"a": (1,) * 6})),
    }
    first = assign(members | {"n": member(A)}, {A: topic(6)})
    assert len(first["n"][A]) == 3
    members |= {name: member(A, owned=first[name]) for name in "xn"}
    second = assign(members | {"a": member(A)}, {A: topic(6)})
    assert [len(second[name][A]) for name in "anx"] == [2, 2, 2]
    assert set(second["n"][A]) < set(first["n"][A])


def test_a_drained_member_gets_nothing_back(assign: Assign) -> None:
    """Neither partitions of a leaver nor new ones; without another reader it gets all."""
    plan = PlanTarget(1, ("drained", "x"), 0, {"a": (2, 2)})
    group = {"drained": member(A, B, owned={A: [0, 1]}), "x": member(A), "p": pilot(plan)}
    placed = assign(group, {A: topic(4), B: topic(1)})
    assert placed == {"drained": {B: [0]}, "p": {}, "x": {A: [0, 1, 2, 3]}}


def test_a_member_gets_only_topics_that_it_reads(assign: Assign) -> None:
    """Whatever the plan says, and whatever it had."""
    plan = PlanTarget(1, ("x", "y"), 0, {"a": (2,), "b": (1,)})
    group = {"x": member(A, owned={B: [0]}), "y": member(B, owned={A: [0]}), "p": pilot(plan)}
    assert assign(group, {A: topic(1), B: topic(1)}) == {"p": {}, "x": {A: [0]}, "y": {B: [0]}}


def test_the_highest_plan_counts(assign: Assign) -> None:
    """By epoch, then by revision: a pilot that has not left yet does not matter."""
    plans = {
        name: pilot(PlanTarget(revision, ("x", "y"), 0, {"a": (consumer,)}), epoch)
        for name, epoch, revision, consumer in (("p", 9, 20, 1), ("q", 10, 9, 2), ("r", 10, 3, 1))
    }
    group = {"x": member(A), "y": member(A), **plans}
    assert assign(group, {A: topic(1)})["y"] == {A: [0]}


def test_a_plan_in_pieces_counts_when_all_are_there(assign: Assign) -> None:
    """Until then nothing moves."""
    names = tuple(f"m{n}" for n in range(500))
    slots = random.Random(1).choices(range(1, 501), k=40_000)  # noqa: S311 - a drawn plan
    racks = encode_plan(1, PlanTarget(1, names, 0, {"a": tuple(slots)}), {"a": A}, {})
    assert len(racks) > 1
    owned: dict[str, list[int]] = {}
    for n, slot in enumerate(slots[1:] + slots[:1]):
        owned.setdefault(f"m{slot - 1}", []).append(n)
    members = {name: member(A, owned={A: owned[name]}) for name in names}
    pilots = {f"p{n}": member(rack=rack) for n, rack in enumerate(racks)}
    partial = assign(members | {"p1": pilots["p1"]}, {A: topic(40_000)})
    assert all(partial[name] == {A: owned[name]} for name in names)
    placed = assign(members | pilots, {A: topic(40_000)})
    assert all(f"m{slots[n] - 1}" == name for name in names for n in placed[name][A])


@pytest.mark.parametrize(("partitions", "owner"), [(500_000, "y"), (600_000, "x")])
def test_a_plan_that_inflates_to_more_than_a_mebibyte_is_ignored(
    assign: Assign, partitions: int, owner: str
) -> None:
    """One rack id can inflate to 25 times as much, whoever sent it: nothing moves."""
    plan = pilot(PlanTarget(1, ("x", "y"), 0, {"a": (2,) * partitions}))
    group = {"x": member(A, owned={A: [0]}), "y": member(A, B, owned={B: [0]}), "p": plan}
    assert assign(group, {A: topic(1), B: topic(1)})[owner][A] == [0]


NAMES = ("k", "l", "m", "n", "o")


def _write_rack(epoch: int, revision: int, body: bytes) -> str:
    return f"trimtab1:{epoch:019}.{revision:019}:000:{base64.b64encode(zlib.compress(body)).decode()}"


@st.composite
def _draw_plan(draw: st.DrawFn) -> str:
    consumers = draw(st.lists(st.sampled_from([*NAMES, "gone"]), unique=True))
    places = draw(st.integers(0, 2))
    slots = st.lists(st.integers(0, len(consumers) + places), max_size=8).map(tuple)
    partitions = draw(st.dictionaries(st.sampled_from(["a", "b", "deleted"]), slots))
    target = PlanTarget(draw(st.integers(0, 3)), tuple(consumers), places, partitions)
    (rack,) = encode_plan(draw(st.integers(0, 3)), target, {"a": A, "b": B, "deleted": A[::-1]}, {})
    return rack


SMALL = st.integers(0, 3)
RACKS = st.one_of(
    st.sampled_from([None, "r1", "r2", ""]),
    _draw_plan(),
    st.builds(lambda rack, length: rack[:length], _draw_plan(), st.integers(0, 120)),
    st.builds(_write_rack, SMALL, SMALL, st.binary(max_size=60)),
    st.text(max_size=80).map("trimtab1:".__add__),
)


@st.composite
def _draw_group(draw: st.DrawFn) -> dict[str, Any]:
    partitions = [(topic, n) for topic in (A, B) for n in range(8)]
    owners = draw(st.dictionaries(st.sampled_from(partitions), st.sampled_from(NAMES)))
    group = {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1)):
        owned: dict[str, list[int]] = {}
        for topic_id, n in (partition for partition, owner in owners.items() if owner == name):
            owned.setdefault(topic_id, []).append(n)
        topics = draw(st.lists(st.sampled_from([A, B]), unique=True))
        group[name] = member(*topics, rack=draw(RACKS), owned=owned)
    return group


@given(group=_draw_group(), sizes=st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_every_partition_is_assigned_whatever_the_racks_say(
    assign: Assign, group: dict[str, Any], sizes: tuple[int, int]
) -> None:
    """Each partition that has a reader goes to one reader; a second assignment changes nothing."""
    topics = {A: topic(sizes[0]), B: topic(sizes[1], "r2")}
    placed = assign(group, topics)
    assert placed.keys() == group.keys()
    pairs = [(t, n) for of in placed.values() for t, numbers in of.items() for n in numbers]
    read = {t for one in group.values() for t in one["topics"]}
    assert sorted(pairs) == sorted((t, n) for t in read for n in range(len(topics[t])))
    assert all(set(of) <= set(group[name]["topics"]) and all(of.values()) for name, of in placed.items())
    settled = {name: {**one, "owned": placed[name]} for name, one in group.items()}
    assert assign(settled, topics) == placed
