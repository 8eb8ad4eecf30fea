"""The text that carries a plan to the broker's plugin; test_broker_plugin.py has its reader in Java."""

import base64
import random
import struct
import zlib

import pytest

from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.pilot.plan_format import MAX_RACK_ID_BYTES, MAX_SLOTS, encode_plan

TOPIC_ID = base64.urlsafe_b64encode(bytes(range(16))).decode().rstrip("=")


def test_a_rack_id_holds_key_slots_and_partitions() -> None:
    """The header sorts by epoch and revision; the body has a digest per slot and a slot per partition."""
    target = PlanTarget(7, ("a", "b"), 1, {"t": (1, 0, 3), "unknown": (2,)})
    (rack,) = encode_plan(3, target, {"t": TOPIC_ID}, {"a": "foobar"})
    assert rack.startswith("trimtab1:0000000000000000003.0000000000000000007:000:")
    body = zlib.decompress(base64.b64decode(rack.rpartition(":")[2]))
    digests = (bytes.fromhex("85944171f739"), bytes.fromhex("af63df4c8601"))
    assert body == struct.pack(">H", 3) + b"".join(digests) + bytes(6) + bytes(range(16)) + struct.pack(
        ">I3H", 3, 1, 0, 3
    )


def _draw_plan(partitions: int, members: int) -> tuple[str, ...]:
    chance = random.Random(1)  # noqa: S311 - a drawn plan
    names = tuple(base64.urlsafe_b64encode(chance.randbytes(16)).decode() for _ in range(members))
    slots = tuple(chance.randint(1, members) for _ in range(partitions))
    return encode_plan(1, PlanTarget(1, names, 0, {"t": slots}), {"t": TOPIC_ID}, {})


def test_ten_thousand_partitions_on_a_thousand_members_fit_into_one_rack_id() -> None:
    """Also if the placement has no order that compression could use."""
    (rack,) = _draw_plan(10_000, 1_000)
    assert len(rack.encode()) <= MAX_RACK_ID_BYTES


def test_a_larger_plan_comes_in_pieces() -> None:
    """Each piece is within the limit and numbered; together they are the text."""
    racks = _draw_plan(100_000, 1_000)
    assert all(len(rack.encode()) <= MAX_RACK_ID_BYTES for rack in racks)
    assert [rack.split(":")[2] for rack in racks] == [f"{n:03}" for n in range(len(racks))]
    text = "".join(rack.split(":")[3] for rack in racks)
    assert len(zlib.decompress(base64.b64decode(text))) == 2 + 6_000 + 20 + 200_000


def test_more_slots_than_two_bytes_number_are_refused() -> None:
    """The error says how many there are and how many fit."""
    with pytest.raises(ValueError, match="65536 consumers and places; a rack id holds 65535"):
        encode_plan(1, PlanTarget(1, (), MAX_SLOTS + 1), {}, {})
