"""Hostile input of a group's leader: user data, subscriptions and plans that a client may send."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from trimtab.assignor.clients.leader_plugin import decode_subscriptions, lead_group
from trimtab.assignor.model import UNASSIGNED, Load, PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import decode_assignment
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData, group_by_topic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget

TOPICS: Final = {"t": range(8), "u": range(3)}
LOAD: Final = Load({TopicPartition(t, n): 10.0 * (n + 1) for t, numbers in TOPICS.items() for n in numbers})
PLAN: Final = GroupPlan("g", 3, 1.0, 2, "mbf", 100.0, 0.9, ("w0",), ("why",), {"w1": 90.0})
BLIND: Final = LeaderView(Load())

# Each ended a leader, or its like.
UNREADABLE_USER_DATA: Final[Mapping[str, bytes]] = {
    "deep": b'{"v":1,"promised":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "capacity beyond floats": b'{"v":1,"capacity":1' + b"0" * 400 + b"}",
    "capacity of many digits": b'{"v":1,"capacity":' + b"9" * 10_000 + b"}",
    "capacity NaN": b'{"v":1,"capacity":NaN}',
    "capacity Infinity": b'{"v":1,"capacity":Infinity}',
    "capacity -Infinity": b'{"v":1,"capacity":-Infinity}',
    "capacity 0": b'{"v":1,"capacity":0}',
    "capacity negative": b'{"v":1,"capacity":-5.0}',
    "capacity denormal": b'{"v":1,"capacity":5e-324}',
    "capacity huge": b'{"v":1,"capacity":1e308}',
    "capacity bool": b'{"v":1,"capacity":true}',
    "capacity text": b'{"v":1,"capacity":"' + b"9" * 100_000 + b'"}',
    "capacity list": b'{"v":1,"capacity":[1]}',
    "generation Infinity": b'{"v":1,"generation":Infinity}',
    "generation NaN": b'{"v":1,"generation":NaN}',
    "generation above int32": b'{"v":1,"generation":2147483648}',
    "generation text": b'{"v":1,"generation":"1"}',
    "promised Infinity": b'{"v":1,"promised":{"t":[Infinity]}}',
    "promised number": b'{"v":1,"promised":3}',
    "promised text": b'{"v":1,"promised":{"t":"123"}}',
    "promised bool": b'{"v":1,"promised":{"t":[true]}}',
    "promised above int32": b'{"v":1,"promised":{"t":[4294967296]}}',
    "promised negative": b'{"v":1,"promised":{"t":[-1]}}',
    "promised null": b'{"v":1,"promised":{"t":null}}',
    "owned Infinity": b'{"v":1,"owned":{"t":[-Infinity]}}',
    "draining text": b'{"v":1,"draining":"no"}',
    "instance number": b'{"v":1,"instance":7}',
    "instance huge": b'{"v":1,"instance":"' + b"x" * 1_000_000 + b'"}',
    "instance surrogate": b'{"v":1,"instance":"\\ud800"}',
    "rack list": b'{"v":1,"rack":["a"]}',
    "rack surrogate": b'{"v":1,"rack":"\\udfff"}',
    "decision number": b'{"v":1,"decision":1}',
    "version bool": b'{"v":true}',
    "no version": b"{}",
    "no object": b"[]",
    "not JSON": b"\x00\x01\x02",
    "not UTF-8": b'{"v":1,"instance":"\xff\xfe"}',
    "megabytes": b'{"v":1,"promised":{"t":[' + b"1," * 4_000_000 + b"1]}}",
}

_odd_numbers = st.sampled_from(
    [0, -1, True, 2**31, 2**63, 10**400, 0.5, -0.0, 5e-324, 1e308, float("nan"), float("inf"), -float("inf")]
)
odd_values = st.recursive(
    st.none() | st.booleans() | _odd_numbers | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_USER_DATA_KEYS: Final = (
    *("v", "capacity", "instance", "draining", "rack", "decision", "promised", "owned", "generation", "more"),
    "fault",
)
_documents = st.fixed_dictionaries(
    {"v": st.just(1) | odd_values},
    optional=dict.fromkeys(_USER_DATA_KEYS[1:], odd_values | st.just({"t": [0, 1], "u": [2], "x": [5]})),
)
user_data = (
    st.none()
    | st.binary(max_size=40)
    | st.sampled_from([data for data in UNREADABLE_USER_DATA.values() if len(data) < 20_000])
    | _documents.map(lambda body: json.dumps(body).encode())
)

# "ghost" and the rest are not in the leader's metadata.
_topic_names = st.sampled_from(["t", "u", "ghost", "", ".", "a/b", "ü", "x" * 300, "\0"])
_claimed = st.lists(
    st.tuples(
        _topic_names, st.lists(st.integers(0, 9) | st.sampled_from([-1, -(2**31), 2**31 - 1]), max_size=9)
    ),
    max_size=3,
)


@st.composite
def subscriptions(draw: st.DrawFn) -> bytes:
    """Bytes of a subscription with odd topics, claims, generation, rack and user data; maybe cut."""
    sent = ConsumerProtocolSubscription(
        version=draw(st.integers(0, 3)),
        topics=draw(st.lists(_topic_names, max_size=3)),
        user_data=draw(user_data),
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in draw(_claimed)
        ],
        generation_id=draw(st.integers(-(2**31), 2**31 - 1)),
        rack_id=draw(st.none() | st.text(max_size=5, alphabet=st.characters(exclude_categories=["Cs"]))),
    ).encode()
    if draw(st.booleans()):
        sent = draw(st.integers(4, 99)).to_bytes(2, "big") + sent[2:]  # of an unknown version
    return sent[: draw(st.just(len(sent)) | st.integers(0, len(sent)))]


_odd_target_fields = {
    "revision": odd_values,
    "consumers": st.lists(st.sampled_from(["w0", "w1", "w2", "ghost"]), unique=True).map(tuple),
    "places": st.integers(0, 5),
    "partitions": st.dictionaries(_topic_names, st.lists(st.integers(-9, 9) | odd_values, max_size=9)),
}


@st.composite
def targets(draw: st.DrawFn) -> PlanTarget:
    """A target that no decoder lets through, as often as one that it does."""
    odd = draw(st.fixed_dictionaries({}, optional=_odd_target_fields))
    target = PlanTarget(1, ("w0", "w1"), 1, {"t": (1, 2, 3, 0, 1, 2, 3, 1), "u": (3, 2, 1)})
    for name, value in odd.items():
        object.__setattr__(target, name, value)
    return target


_plan_fields = {
    "epoch": odd_values | st.integers(0, 9),
    "time": odd_values,
    "replicas": odd_values,
    "heuristic": odd_values
    | st.sampled_from(["mbf", "steady", "sticky", "nope", "steady:nope", "rack-aware"]),
    "capacity": odd_values | st.floats(1, 1e6),
    "headroom": odd_values | st.floats(0.1, 1),
    "draining": odd_values | st.just(("w0",)),
    "reasons": odd_values,
    "capacities": odd_values | st.dictionaries(st.sampled_from(["w0", "w1"]), odd_values | st.floats(1, 1e6)),
    "record_weights": odd_values | st.just((0.5, 200.0)),
    "batch_max_age_s": odd_values,
    "target": odd_values | targets(),
    "co_partitioned": odd_values | st.just((("t", "u"),)),
}
# Not decoded: a check that the decoder forgets must not end a leader.
plans = st.fixed_dictionaries({}, optional=_plan_fields).map(lambda fields: replace(PLAN, **fields))


def encode_subscription(data: bytes | None, topics: tuple[str, ...] = ("t", "u")) -> bytes:
    """Bytes of an orderly subscription with this user data."""
    return bytes(
        ConsumerProtocolSubscription(
            version=1, topics=list(topics), user_data=data, owned_partitions=[]
        ).encode()
    )


class RawGroup:
    """Three orderly members beside a hostile one, which says the same in every round.

    With `silent` it follows its assignments as the others do, but sends unreadable user data.
    """

    def __init__(self, hostile: bytes, *, silent: bool = False) -> None:
        self._hostile = {} if silent else {"hostile": hostile}
        self._silent = {"silent"} if silent else set()
        self._data = {f"m{n}": MemberUserData(instance=f"w{n}") for n in range(3)}
        self._data |= dict.fromkeys(self._silent, MemberUserData())
        self._owned: dict[str, Any] = dict.fromkeys(self._data, ())
        self._generation = 0

    def round(self, view: LeaderView, policy: PlacementPolicy | None = None) -> RebalanceRound:
        """Rejoin; lead a round; check and follow the assignments."""
        raw = {name: self._encode_member(name) for name in self._data} | self._hostile
        outcome = lead_group(
            decode_subscriptions(raw), TOPICS, TOPICS, view, policy or PlacementPolicy("mbf")
        )
        check_round(outcome)
        self._generation += 1
        for name, data in outcome.encode().items():
            assigned = decode_assignment(data)
            if name in self._data:
                self._follow(name, assigned.user_data)
                self._owned[name] = group_by_topic(assigned.owned.list_partitions())
        return outcome

    def _encode_member(self, name: str) -> bytes:
        return bytes(
            ConsumerProtocolSubscription(
                version=3,
                topics=list(TOPICS),
                user_data=b"\0" if name in self._silent else self._data[name].encode(),
                owned_partitions=[
                    ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(numbers))
                    for topic, numbers in self._owned[name]
                ],
                generation_id=self._generation,
                rack_id=None,
            ).encode()
        )

    def _follow(self, name: str, user_data: bytes | None) -> None:
        sent = AssignmentUserData.decode(user_data)
        self._data[name] = replace(
            self._data[name], decision_fingerprint=sent.decision_fingerprint, promised=sent.promised
        )


def check_round(outcome: RebalanceRound) -> None:
    """Assert that each partition of a subscribed topic has one owner that reads it, now or promised."""
    index, reads = outcome.snapshot.partition_index, outcome.snapshot.index_subscriptions()
    is_read = np.asarray(reads.any(axis=1))[index.topic]
    assert ((outcome.target != UNASSIGNED) == is_read).all()
    assert reads[index.topic[is_read], outcome.target[is_read]].all()
    assert {(t, n) for t, n in index.list_partitions() if t in TOPICS} == {
        (t, n) for t, numbers in TOPICS.items() for n in numbers
    }
    withheld = is_read & ~outcome.assigned_now
    claimed = np.zeros(len(index), dtype=np.bool_)
    claimed[outcome.snapshot.claims.partition] = True
    assert claimed[withheld].all()  # a claimant has yet to revoke it
    given = [decode_assignment(data) for data in outcome.encode().values()]
    assert sum(len(one.owned.number) for one in given) == int((is_read & outcome.assigned_now).sum())
    assert sum(len(decode_assignment(d).owned.number) for d in outcome.encode(eager=True).values()) == int(
        is_read.sum()
    )
