"""The codec agrees with kafka-python's own, byte for byte, and refuses malformed bytes."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from trimtab.assignor.clients.leader_plugin import decode_subscriptions
from trimtab.assignor.model import UNASSIGNED
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.rebalance.consumer_protocol import decode_subscription, encode_assignments
from trimtab.common.errors import InvalidPayloadError

names = st.text("abc.-üß漢", min_size=1, max_size=8)
numbers = st.lists(st.integers(0, 2**31 - 1), max_size=6)


@st.composite
def subscriptions(draw: st.DrawFn) -> ConsumerProtocolSubscription:
    return ConsumerProtocolSubscription(
        version=draw(st.integers(0, 3)),
        topics=draw(st.lists(names, max_size=4)),
        user_data=draw(st.none() | st.binary(max_size=8)),
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=found)
            for topic, found in draw(st.dictionaries(names, numbers, max_size=3)).items()
        ],
        generation_id=draw(st.integers(-1, 2**31 - 1)),
        rack_id=draw(st.none() | names),
    )


@given(subscriptions())
def test_subscriptions_decode_as_in_kafka_python(sent: Any) -> None:
    """The fields of every version are equal."""
    data = sent.encode()
    theirs, ours = ConsumerProtocolSubscription.decode(data), decode_subscription(data)
    assert ours.topics == tuple(theirs.topics)
    assert ours.user_data == theirs.user_data
    assert (ours.generation, ours.rack) == (theirs.generation_id, theirs.rack_id)
    entries = [(e.topic, e.partitions) for e in theirs.owned_partitions or ()]
    assert ours.owned.topics == tuple(topic for topic, _ in entries)
    assert ours.owned.counts == tuple(len(found) for _, found in entries)
    assert ours.owned.number.tolist() == [n for _, found in entries for n in found]


@given(st.lists(subscriptions(), max_size=5))
def test_a_shared_decoder_equals_one_per_member(sent: list[Any]) -> None:
    """Cached names of one member are never taken for those of the next."""
    raw = {f"m{n}": subscription.encode() for n, subscription in enumerate(sent)}
    for member, ours in decode_subscriptions(raw).items():
        alone = decode_subscription(raw[member])
        assert (ours.topics, ours.owned.topics) == (alone.topics, alone.owned.topics)
        assert (ours.user_data, ours.generation) == (alone.user_data, alone.generation)


@given(subscriptions(), st.data())
def test_a_truncated_subscription_is_refused(sent: Any, data: st.DataObject) -> None:
    """It raises InvalidPayloadError and never decodes to a shorter value."""
    whole = sent.encode()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(InvalidPayloadError):
        decode_subscription(cut)


@given(st.binary(max_size=60))
def test_garbage_raises_no_other_error(garbage: bytes) -> None:
    """Any bytes give a subscription or an InvalidPayloadError."""
    with suppress(InvalidPayloadError):
        assert decode_subscription(garbage).generation >= -(2**31)


@given(st.dictionaries(names, st.integers(0, 5), max_size=4), st.integers(1, 4), st.data())
def test_assignments_encode_as_in_kafka_python(
    sizes: dict[str, int], members: int, data: st.DataObject
) -> None:
    """The bytes are equal for the same topics and numbers, also for members without any."""
    partition_index = PartitionIndex.from_numbers({t: np.arange(n, dtype=np.int32) for t, n in sizes.items()})
    owner = np.array(
        [data.draw(st.integers(UNASSIGNED, members - 1)) for _ in range(len(partition_index))], dtype=np.int32
    )
    user_data = [data.draw(st.binary(max_size=5)) for _ in range(members)]
    for version in (0, 1, 3):
        written = encode_assignments(partition_index, owner, user_data, version)
        assert written == [
            _theirs(partition_index, owner, member, user_data[member], version) for member in range(members)
        ]


def _theirs(
    partition_index: PartitionIndex, owner: np.ndarray, member: int, user_data: bytes, version: int
) -> bytes:
    held: dict[str, list[int]] = {}
    for item in np.flatnonzero(owner == member).tolist():
        name = partition_index.partition_at(item)
        held.setdefault(name.topic, []).append(name.partition)
    assignment = ConsumerProtocolAssignment(
        version=version,
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=found)
            for topic, found in held.items()
        ],
        user_data=user_data,
    )
    return bytes(assignment.encode())


def test_a_member_with_malformed_bytes_gets_no_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """It subscribes to nothing, the log names it, and the others are decoded."""
    good = ConsumerProtocolSubscription(version=0, topics=["t"], user_data=b"").encode()
    read = decode_subscriptions({"bad": b"\x00\x01\x00\x00\x00\x07", "good": good})
    assert read["bad"].topics == ()
    assert read["good"].topics == ("t",)
    assert "member bad: subscription is malformed" in caplog.text
